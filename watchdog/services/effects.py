"""Carry out what the planner asks for; say what came of it as facts. Every effect may run twice."""

from __future__ import annotations

import hashlib
import logging
from datetime import timedelta
from typing import assert_never

from policies.model import CapacityPool, FirstLaunch, SourceLost
from watchdog.clock import Clock
from watchdog.errors import CheckpointStoreUnavailable, LaunchOutcomeUnknown, LaunchRefused, LaunchScope
from watchdog.history.observations import Observation, ObservationKind
from watchdog.ids import MigrationId
from watchdog.migration import budgets
from watchdog.migration.facts import (
    Fact,
    Launched,
    LaunchExhausted,
    LaunchIntended,
    LaunchRefusedBy,
    LaunchUnanswered,
    ReplacementGone,
    Replanned,
    SaveGivenUp,
    SourceGone,
    TakeOverGranted,
)
from watchdog.migration.model import Attempt, Job, Migration
from watchdog.migration.planner import (
    Action,
    CallLaunch,
    EndReplacement,
    EndSource,
    GiveUpLaunching,
    GiveUpSaving,
    GrantTakeOver,
    IntendLaunch,
    Replan,
    blocking_refusal,
)
from watchdog.ports import Change, Compute, HeadRegister, LaunchRequest, Store, Telemetry
from watchdog.services.decide import DecideService
from watchdog.services.user_data import AgentEnvironment

log = logging.getLogger(__name__)

UNANSWERED_SECONDS = (0.5, 1, 2, 4, 8, 15)
"""Waits before the same call is made again with the same token."""
TRANSIENT_TRIES = 5
"""After so many internal errors of EC2, and if nothing was started, the pool counts as refused."""


def client_token(migration_id: MigrationId, pool: CapacityPool, number: int) -> str:
    """Return the name of one attempt: 64 characters, EC2's limit. It has the zone in it, since EC2's tokens are zonal."""
    return hashlib.sha256(f"{migration_id}/{pool}/{number}".encode()).hexdigest()


class Effects:
    """The hands of a migration."""

    def __init__(
        self,
        *,
        store: Store,
        compute: Compute,
        heads: HeadRegister,
        decide: DecideService,
        environment: AgentEnvironment,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        """Use these ports."""
        self._store = store
        self._compute = compute
        self._heads = heads
        self._decide = decide
        self._environment = environment
        self._clock = clock
        self._telemetry = telemetry

    async def run(self, action: Action, job: Job, migration: Migration) -> tuple[Fact, ...]:
        """Carry out one action.

        Raises:
            CloudUnavailable, CheckpointStoreUnavailable, StoreUnavailable: try again soon.
        """
        now = self._clock.now()
        match action:
            case IntendLaunch():
                token = client_token(migration.migration_id, action.target.pool, action.number)
                return (LaunchIntended(at=now, number=action.number, target=action.target, client_token=token),)
            case CallLaunch():
                return (await self._launch(action.attempt, job, migration),)
            case GiveUpLaunching():
                until = None if blocking_refusal(migration) else budgets.parked_until(migration, now)
                return (LaunchExhausted(at=now, until=until, why=action.why),)
            case Replan():
                answer = await self._decide.decide(job, SourceLost() if migration.sources else FirstLaunch())
                await self._store.commit(Change(decision=answer.record))
                return (Replanned(at=now, decision_id=answer.record.decision_id, targets=answer.targets, reasons=answer.reasons),)
            case GiveUpSaving():
                return (SaveGivenUp(at=now, why=action.why),)
            case GrantTakeOver():
                return (await self._grant(job),)
            case EndReplacement():
                await self._compute.terminate(action.instance_id)
                return (ReplacementGone(at=self._clock.now(), instance_id=action.instance_id, why=action.why),)
            case EndSource():
                await self._compute.terminate(action.instance_id)
                return (SourceGone(at=self._clock.now(), instance_id=action.instance_id, why="ended: the job has left it"),)
            case _:
                assert_never(action)

    async def _grant(self, job: Job) -> Fact:
        """Read the token from the object store, the only place where it cannot go back."""
        head = await self._heads.read(job.job_id)
        if head is None:
            raise CheckpointStoreUnavailable(f"{job.job_id} has no HEAD in the checkpoint store; a missing HEAD is never a fresh start")
        return TakeOverGranted(at=self._clock.now(), take_over_from=int(head["fencing_token"]))

    async def _launch(self, attempt: Attempt, job: Job, migration: Migration) -> Fact:
        pool = attempt.target.pool
        request = LaunchRequest(
            pool=pool,
            client_token=attempt.client_token,
            launch_template=job.spec.launch_template,
            user_data=self._environment.user_data(job),
            tags=self._environment.tags(job, migration, attempt),
        )
        number = attempt.number
        try:
            instance = await self._compute.launch(request)
        except LaunchRefused as refusal:
            return await self._refused(refusal, attempt)
        except LaunchOutcomeUnknown as unknown:
            return self._again(attempt, str(unknown))
        now = self._clock.now()
        self._telemetry.count("spot_watchdog_launches_total", outcome="ok", market=pool.market)
        await self._store.commit(
            Change(observations=(Observation(at=now, kind=ObservationKind.LAUNCH_OK, pool=pool, source="run_instances"),))
        )
        return Launched(at=now, number=number, instance_id=instance.instance_id, address=instance.private_ip)

    async def _refused(self, refusal: LaunchRefused, attempt: Attempt) -> Fact:
        pool, scope = attempt.target.pool, refusal.scope
        self._telemetry.count("spot_watchdog_launches_total", outcome=refusal.code, market=pool.market)
        log.warning("launch.refused", extra={"pool": str(pool), "code": refusal.code, "scope": scope})
        if scope is LaunchScope.THROTTLED:
            return self._again(attempt, refusal.code)
        if scope is LaunchScope.TRANSIENT:
            if attempt.tries < TRANSIENT_TRIES:
                return self._again(attempt, refusal.code)
            found = await self._compute.find(attempt.client_token)
            if found is not None:
                return Launched(at=self._clock.now(), number=attempt.number, instance_id=found.instance_id, address=found.private_ip)
            scope = LaunchScope.POOL
        now = self._clock.now()
        if scope is LaunchScope.POOL:
            seen = Observation(at=now, kind=ObservationKind.LAUNCH_REFUSED, pool=pool, source="run_instances", detail=refusal.code)
            await self._store.commit(Change(observations=(seen,)))
        return LaunchRefusedBy(at=now, number=attempt.number, code=refusal.code, message=refusal.message, scope=scope)

    def _again(self, attempt: Attempt, why: str) -> Fact:
        wait = UNANSWERED_SECONDS[min(attempt.tries, len(UNANSWERED_SECONDS) - 1)]
        now = self._clock.now()
        return LaunchUnanswered(at=now, number=attempt.number, why=why, retry_at=now + timedelta(seconds=wait))
