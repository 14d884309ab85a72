"""Notices from every channel: known by one key, stored first, then acted on. Acting looks at what is recorded, so repeats do no harm."""

from __future__ import annotations

import logging
from dataclasses import replace
from enum import StrEnum

from policies.model import CapacityPool, InterruptionNoticed, RebalanceRecommended, SaveOnly, SourceLost
from watchdog.clock import Clock
from watchdog.errors import CloudUnavailable, VersionConflict
from watchdog.history.observations import Observation, ObservationKind
from watchdog.ids import InstanceId
from watchdog.migration.facts import NoticeReceived, ReplacementGone, SourceGone
from watchdog.migration.model import Cause, Job, JobState, Migration, Source
from watchdog.notices.model import (
    InstanceStateChange,
    Notice,
    NoticeKind,
    NoticeRecord,
    RebalanceRecommendation,
    SpotInterruptionNotice,
    Unrecognised,
    merge,
    notice_key,
)
from watchdog.ports import Change, Compute, Message, Store, Telemetry
from watchdog.services.announce import message
from watchdog.services.decide import DecideService
from watchdog.services.migrate import MigrateService, Opening

log = logging.getLogger(__name__)

ENDING = frozenset({"shutting-down", "terminated", "stopping", "stopped"})
RECLAIMED = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})
"""StateReason codes of an instance that AWS took back (EC2 User Guide, "Find interrupted Spot Instances"); others are no loss of the pool."""
_CONFLICTS = 20


class Outcome(StrEnum):
    """What became of a notice."""

    ACTED = "acted"
    KNOWN = "known"
    LATE = "late"
    FOREIGN = "foreign"
    UNRECOGNISED = "unrecognised"
    JOB_OVER = "job_over"


class IngestService:
    """Turns notices into migrations, once each."""

    def __init__(
        self,
        *,
        store: Store,
        compute: Compute,
        decide: DecideService,
        migrate: MigrateService,
        clock: Clock,
        telemetry: Telemetry,
        deployment: str,
    ) -> None:
        """Use these ports."""
        self._store = store
        self._compute = compute
        self._decide = decide
        self._migrate = migrate
        self._clock = clock
        self._telemetry = telemetry
        self._deployment = deployment

    async def handle(self, notice: Notice) -> Outcome:
        """Store and act on one notice. When this returns, its intent is durable and the message may be deleted."""
        outcome = await self._handle(notice)
        self._telemetry.count("spot_watchdog_notices_total", kind=type(notice).__name__, outcome=outcome)
        return outcome

    async def _handle(self, notice: Notice) -> Outcome:
        if isinstance(notice, Unrecognised):
            log.info("notice.unrecognised", extra={"source": notice.source, "detail_type": notice.detail_type, "why": notice.why})
            return Outcome.UNRECOGNISED
        job_id = await self._store.owner_of(InstanceId(notice.instance_id))
        if job_id is None:
            return Outcome.FOREIGN
        for _ in range(_CONFLICTS):
            job = await self._store.job(job_id)
            try:
                if isinstance(notice, InstanceStateChange):
                    return await self._state_changed(notice, job)
                if isinstance(notice, RebalanceRecommendation):
                    return await self._rebalance(notice, job)
                if (change := await self._recorded(notice, job)) is not None:
                    await self._store.commit(change)
                if job.state.terminal or job.state is JobState.BLOCKED:
                    return Outcome.JOB_OVER  # a new instance would fail as the last ones did
                return await self._interruption(notice, job)
            except VersionConflict:
                continue
        raise VersionConflict(f"{job_id} is being changed too fast")

    async def _recorded(self, notice: SpotInterruptionNotice | RebalanceRecommendation, job: Job) -> Change | None:
        """Merge this copy into the notice's record; return what is to be written, or None if it says nothing new."""
        known, version = await self._store.notice(notice_key(notice))
        copy = NoticeRecord.of(notice)
        record = copy if known is None else merge(known, copy)
        if record == known:
            return None
        change = Change(notice=record, notice_version=version)
        if known is None:
            pool = await self._pool_of(job, record.instance_id)
            change = replace(change, messages=(self._announcement(record, job, pool),))
            if pool is not None and record.kind is NoticeKind.SPOT_INTERRUPTION:
                seen = Observation(at=self._clock.now(), kind=ObservationKind.NOTICE, pool=pool, source=notice.channel)
                change = replace(change, observations=(seen,))
        log.info("notice.recorded", extra={"key": record.key, "channel": notice.channel, "job_id": job.job_id, "first": known is None})
        return change

    def _announcement(self, record: NoticeRecord, job: Job, pool: CapacityPool | None) -> Message:
        return message(
            "notice.received",
            job,
            self._clock.now(),
            message_id=f"{record.key}.received",
            deployment=self._deployment,
            notice=record.kind.value,
            instance_id=record.instance_id,
            from_pool=str(pool) if pool else None,
            reclaim_at=record.reclaim_at.isoformat() if record.reclaim_at else None,
            channels=sorted(record.seen),
        )

    async def _pool_of(self, job: Job, instance_id: InstanceId) -> CapacityPool | None:
        if job.member and job.member.instance_id == instance_id:
            return job.member.pool
        for migration in await self._store.migrations(job.job_id):
            attempt = migration.attempt_of(instance_id)
            if attempt:
                return attempt.target.pool
        return None

    async def _interruption(self, notice: SpotInterruptionNotice, job: Job) -> Outcome:
        leaving = await self._leaving(job, notice.instance_id)
        if leaving is not None:
            fact = NoticeReceived(
                at=self._clock.now(), instance_id=notice.instance_id, reclaim_at=notice.reclaim_at, channel=notice.channel
            )
            await self._migrate.apply(leaving.migration_id, fact)
            return Outcome.KNOWN
        gone = ReplacementGone(
            at=self._clock.now(),
            instance_id=notice.instance_id,
            why=f"interruption notice by {notice.channel}",
            reclaim_at=notice.reclaim_at,
        )
        if await self._replacement_gone(job, gone):
            return Outcome.ACTED
        if job.member is None or job.member.instance_id != notice.instance_id or job.migration_id is not None:
            return Outcome.LATE
        opening = Opening(
            cause=Cause.INTERRUPTION_NOTICE,
            signal=InterruptionNoticed(reclaim_at=notice.reclaim_at),
            sources=(Source(instance_id=notice.instance_id, pool=job.member.pool),),
            reclaim_at=notice.reclaim_at,
            noticed_at=notice.noticed_at,
        )
        await self._migrate.open(job, opening)
        return Outcome.ACTED

    async def _rebalance(self, notice: RebalanceRecommendation, job: Job) -> Outcome:
        """Ask the policy once; the only answer besides staying that it knows today is to save and train on.

        The record and what follows from it are one write: a recommendation that is known has been acted upon.
        """
        change = await self._recorded(notice, job)
        if change is None:
            return Outcome.KNOWN
        running_here = job.state is JobState.RUNNING and job.member is not None and job.member.instance_id == notice.instance_id
        if change.notice_version or not running_here:
            await self._store.commit(change)
            return Outcome.KNOWN if change.notice_version else Outcome.LATE
        answer = await self._decide.decide(job, RebalanceRecommended())
        saves = isinstance(answer.decision, SaveOnly)
        asked = replace(job, generation=job.generation + 1) if saves else None
        await self._store.commit(replace(change, job=asked, decision=answer.record))
        return Outcome.ACTED

    async def _state_changed(self, notice: InstanceStateChange, job: Job) -> Outcome:
        if notice.state not in ENDING:
            return Outcome.KNOWN
        instance_id = notice.instance_id
        leaving = await self._leaving(job, instance_id)
        if leaving is not None:
            step = await self._last_step(job, instance_id)
            await self._migrate.apply(
                leaving.migration_id, SourceGone(at=self._clock.now(), instance_id=instance_id, why=notice.state, source_step=step)
            )
            return Outcome.ACTED
        if job.state.terminal or job.state is JobState.BLOCKED:
            return Outcome.JOB_OVER
        gone = ReplacementGone(at=self._clock.now(), instance_id=instance_id, why=f"EC2 says {notice.state}")
        if await self._replacement_gone(job, gone):
            return Outcome.ACTED
        if job.member is None or job.member.instance_id != instance_id or job.migration_id is not None:
            return Outcome.LATE
        source = Source(instance_id=instance_id, pool=job.member.pool, lost_at=self._clock.now())
        step = await self._last_step(job, instance_id)
        opening = Opening(cause=Cause.SOURCE_LOST, signal=SourceLost(), sources=(source,), source_step=step)
        await self._migrate.open(job, opening)
        await self._remember_loss(source, notice)
        return Outcome.ACTED

    async def _remember_loss(self, source: Source, notice: InstanceStateChange) -> None:
        """Count a true reclaim against its pool; anybody's own termination is none, and what EC2 will not say is not counted."""
        try:
            described = (await self._compute.describe([source.instance_id])).get(source.instance_id)
        except CloudUnavailable:
            return
        if described is None or described.state_reason not in RECLAIMED:
            return
        lost = Observation(at=notice.at, kind=ObservationKind.LOST, pool=source.pool, source=notice.channel, detail=described.state_reason)
        await self._store.commit(Change(observations=(lost,)))

    async def _last_step(self, job: Job, instance_id: InstanceId) -> int | None:
        reports = await self._store.reports(job.job_id)
        return next((report.step for report in reports.values() if report.instance_id == instance_id), None)

    async def _leaving(self, job: Job, instance_id: InstanceId) -> Migration | None:
        """Return the open migration that has this instance as a source."""
        return next((each for each in await self._store.open_migrations(job.job_id) if each.has_source(instance_id)), None)

    async def _replacement_gone(self, job: Job, gone: ReplacementGone) -> bool:
        if job.migration_id is None:
            return False
        migration = await self._store.migration(job.migration_id)
        if migration.attempt_of(gone.instance_id) is None:
            return False
        await self._migrate.apply(job.migration_id, gone)
        return True
