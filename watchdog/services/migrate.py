"""Open migrations, feed them facts, and drive them: load, plan, run, apply."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from policies.model import FirstLaunch, InterruptionNoticed, Signal, SourceLost
from watchdog.clock import Clock
from watchdog.errors import CheckpointStoreUnavailable, CloudUnavailable, StoreUnavailable, VersionConflict
from watchdog.ids import Ids, JobId, MigrationId
from watchdog.migration.facts import CheckpointCommitted, Fact, JobResumed, Opened, ReplacementGone, SourceGone
from watchdog.migration.jobs import job_after
from watchdog.migration.model import Cause, Job, JobState, Migration, Source
from watchdog.migration.planner import next_actions, wake_at
from watchdog.migration.reducer import reduce
from watchdog.ports import Change, Message, Store, Telemetry
from watchdog.services.announce import messages_for
from watchdog.services.decide import DecideService
from watchdog.services.effects import Effects

log = logging.getLogger(__name__)

RETRY = timedelta(seconds=1)
"""When AWS, the object store or Redis did not answer in the middle of a migration."""
_ROUNDS = 100
"""More transitions than any migration makes in one go: a bound against a planner that never rests."""
_CONFLICTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Why and from where a job moves."""

    cause: Cause
    signal: Signal
    sources: tuple[Source, ...] = ()
    reclaim_at: datetime | None = None
    noticed_at: datetime | None = None
    source_step: int | None = None


class MigrateService:
    """The only one who changes migrations."""

    def __init__(
        self,
        *,
        store: Store,
        decide: DecideService,
        effects: Effects,
        clock: Clock,
        ids: Ids,
        telemetry: Telemetry,
        deployment: str,
        wake: Callable[[], None],
    ) -> None:
        """Use these ports; `wake` tells the worker that something is due now."""
        self._store = store
        self._decide = decide
        self._effects = effects
        self._clock = clock
        self._ids = ids
        self._telemetry = telemetry
        self._deployment = deployment
        self._wake = wake

    async def open(self, job: Job, opening: Opening) -> Migration:
        """Open a migration for `job`, which must have been loaded just now and have none.

        Raises VersionConflict if the job changed meanwhile: load it and decide again whether it still needs to move.
        """
        answer = await self._decide.decide(job, opening.signal)
        now = self._clock.now()
        blank = Migration(
            migration_id=MigrationId(self._ids.new("mig")),
            job_id=job.job_id,
            cause=opening.cause,
            opened_at=now,
            decision_id=answer.record.decision_id,
            sources=opening.sources,
            targets=answer.targets,
            reasons=answer.reasons,
            reclaim_at=opening.reclaim_at,
            noticed_at=opening.noticed_at,
            source_step=opening.source_step,
        )
        facts: list[Fact] = [Opened(at=now)]
        facts += _lost_already(opening)
        change = self._transition(job, blank, facts)
        if change is None:
            msg = "opening a migration changed nothing"
            raise AssertionError(msg)
        await self._store.commit(replace(change, decision=answer.record))
        log.info("migration.opened", extra={"migration_id": blank.migration_id, "job_id": job.job_id, "cause": opening.cause})
        self._telemetry.count("spot_watchdog_migrations_opened_total", cause=opening.cause)
        self._wake()
        return change.migration or blank

    async def apply(self, migration_id: MigrationId, *facts: Fact) -> None:
        """Feed facts to a migration, again and again until nobody else wrote in between. Facts that say nothing new write nothing."""
        for _ in range(_CONFLICTS):
            migration = await self._store.migration(migration_id)
            job = await self._store.job(migration.job_id)
            change = self._transition(job, migration, facts)
            if change is None:
                return
            try:
                await self._store.commit(change)
            except VersionConflict:
                continue
            self._report(change)
            self._wake()
            if change.migration is not None and change.migration.handed_on is not None:
                noticed = next((fact for fact in change.facts if isinstance(fact, ReplacementGone) and fact.reclaim_at), None)
                await self.follow_up(job.job_id, noticed)
            return
        raise VersionConflict(f"{migration_id} is being changed too fast")

    def _transition(self, job: Job, migration: Migration, facts: tuple[Fact, ...] | list[Fact]) -> Change | None:
        job_now, migration_now = job, migration
        applied: list[Fact] = []
        messages: list[Message] = []
        for fact in facts:
            after = reduce(migration_now, fact)
            if after == migration_now:
                continue
            job_now, migration_now = job_after(job_now, after, fact), after
            applied.append(fact)
            messages += messages_for(fact, job_now, after, deployment=self._deployment)
        if not applied:
            return None
        now = self._clock.now()
        due = now if next_actions(migration_now, now=now) else wake_at(migration_now, now=now)
        return Change(
            job=job_now if job_now != job else None, migration=migration_now, due=due, facts=tuple(applied), messages=tuple(messages)
        )

    def _report(self, change: Change) -> None:
        """Log every fact, and measure what a move is judged by."""
        migration = change.migration
        if migration is None:
            return
        began = migration.noticed_at or migration.opened_at
        for fact in change.facts:
            fields = {"migration_id": migration.migration_id, "job_id": migration.job_id, "state": migration.state}
            log.info("migration.fact", extra={"fact": type(fact).__name__, **fields})
            if migration.cause is Cause.FIRST_LAUNCH:
                continue
            if isinstance(fact, CheckpointCommitted):
                self._telemetry.observe("spot_watchdog_notice_to_saved_seconds", (fact.at - began).total_seconds())
            if isinstance(fact, JobResumed):
                self._telemetry.observe("spot_watchdog_notice_to_resumed_seconds", (fact.at - began).total_seconds(), cause=migration.cause)
        if migration.closed_at is not None:
            self._telemetry.count("spot_watchdog_migrations_closed_total", state=migration.state)

    async def follow_up(self, job_id: JobId, noticed: ReplacementGone | None = None) -> None:
        """Open the migration that a moving job lacks: its last one was closed for the next, and whoever was to open that one died first.

        A replacement that was lost to a notice lives on until its reclaim time: it is a source that may still save.
        """
        job = await self._store.job(job_id)
        if job.state is not JobState.MOVING or job.migration_id is not None:
            return
        opening = Opening(cause=Cause.FIRST_LAUNCH, signal=FirstLaunch())
        if job.member is not None and noticed is not None and noticed.reclaim_at is not None:
            source = Source(instance_id=job.member.instance_id, pool=job.member.pool)
            opening = Opening(
                cause=Cause.INTERRUPTION_NOTICE,
                signal=InterruptionNoticed(reclaim_at=noticed.reclaim_at),
                sources=(source,),
                reclaim_at=noticed.reclaim_at,
                noticed_at=noticed.at,
            )
        elif job.member is not None:
            source = Source(instance_id=job.member.instance_id, pool=job.member.pool, lost_at=self._clock.now())
            opening = Opening(cause=Cause.SOURCE_LOST, signal=SourceLost(), sources=(source,))
        try:
            await self.open(job, opening)
        except VersionConflict:
            log.info("migration.opened_elsewhere", extra={"job_id": job_id})

    async def drive(self, migration_id: MigrationId) -> None:
        """Run whatever the planner asks for until it rests."""
        for _ in range(_ROUNDS):
            migration = await self._store.migration(migration_id)
            now = self._clock.now()
            actions = next_actions(migration, now=now)
            if not actions:
                await self._rest(migration, now)
                return
            job = await self._store.job(migration.job_id)
            results = await asyncio.gather(*(self._effects.run(action, job, migration) for action in actions), return_exceptions=True)
            facts = [fact for result in results if not isinstance(result, BaseException) for fact in result]
            failures = [result for result in results if isinstance(result, BaseException)]
            if facts:
                await self.apply(migration_id, *facts)
            for failure in failures:
                if not isinstance(failure, CloudUnavailable | CheckpointStoreUnavailable | StoreUnavailable | VersionConflict):
                    raise failure
                log.warning("migration.waits", extra={"migration_id": migration_id, "why": str(failure)})
            if failures and not facts:
                await self._again_at(migration_id, now + RETRY)
                return
        raise RuntimeError(f"{migration_id} does not come to rest")

    async def _rest(self, migration: Migration, now: datetime) -> None:
        """Note when time alone will bring the next action."""
        try:
            await self._store.commit(Change(migration=migration, due=wake_at(migration, now=now)))
        except VersionConflict:
            self._wake()  # somebody changed it meanwhile and has set it due

    async def _again_at(self, migration_id: MigrationId, at: datetime) -> None:
        migration = await self._store.migration(migration_id)
        try:
            await self._store.commit(Change(migration=migration, due=at))
        except VersionConflict:
            self._wake()


def _lost_already(opening: Opening) -> list[Fact]:
    return [
        SourceGone(at=source.lost_at, instance_id=source.instance_id, why="gone without a notice", source_step=opening.source_step)
        for source in opening.sources
        if source.lost_at is not None
    ]
