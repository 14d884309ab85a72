"""Polls: prices and offerings, quotas, and the instances of agents that fell silent."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from watchdog.clock import Clock
from watchdog.ids import InstanceId
from watchdog.migration.model import JobState
from watchdog.notices.model import Channel, InstanceStateChange
from watchdog.ports import Change, Compute, MarketData, Quotas, Store, Telemetry
from watchdog.services.announce import message
from watchdog.services.decide import POOLS, QUOTAS, pools_reading, quota_to_data
from watchdog.services.ingest import IngestService
from watchdog.services.migrate import MigrateService

log = logging.getLogger(__name__)

SILENT = timedelta(seconds=10)
"""Agents report every second. After this much silence EC2 is asked: silence alone is never taken for death."""
TOLD_AFTER = timedelta(minutes=10)
"""So long may an agent that was heard before be silent on a living instance until people are told."""
FORGOTTEN = timedelta(minutes=2)
"""EC2 may not list an instance just after its launch; one that was silent for so long and is not listed is gone."""


class ObserveService:
    """Looks at the world at intervals, so that what no event told is still seen."""

    def __init__(
        self,
        *,
        store: Store,
        compute: Compute,
        market: MarketData,
        quotas: Quotas,
        ingest: IngestService,
        migrate: MigrateService,
        clock: Clock,
        telemetry: Telemetry,
        deployment: str,
    ) -> None:
        """Use these ports."""
        self._migrate = migrate
        self._deployment = deployment
        self._store = store
        self._compute = compute
        self._market = market
        self._quotas = quotas
        self._ingest = ingest
        self._clock = clock
        self._telemetry = telemetry

    async def pools(self) -> None:
        """Read offerings and prices of every type that a live job allows. Raises CloudUnavailable."""
        wanted = {name for job in await self._store.active_jobs() for name in job.spec.instance_types}
        if not wanted:
            return
        facts = await self._market.pools(wanted)
        await self._store.put_reading(POOLS, self._clock.now(), pools_reading(wanted, facts))
        for each in facts:
            if each.price_per_hour is not None:
                self._telemetry.gauge("spot_watchdog_price_dollars", each.price_per_hour, pool=str(each.pool))

    async def quotas(self) -> None:
        """Read the vCPU quotas and their usage. Raises CloudUnavailable."""
        readings = await self._quotas.read()
        await self._store.put_reading(QUOTAS, self._clock.now(), [quota_to_data(each) for each in readings])
        for each in readings:
            if each.headroom_vcpus is not None:
                self._telemetry.gauge("spot_watchdog_quota_headroom_vcpus", each.headroom_vcpus, family=each.family, market=each.market)

    async def stranded_jobs(self) -> None:
        """Open the migration that a moving job lacks because the service died between closing one and opening the next."""
        for job in await self._store.active_jobs():
            await self._migrate.follow_up(job.job_id)

    async def silent_instances(self) -> None:
        """Ask EC2 about instances that we have not heard of for a while. Raises CloudUnavailable.

        Those that have ended are acted on. One that runs on in silence is neither well nor dead: after a while people are told.
        """
        suspects = await self._suspects()
        if not suspects:
            return
        described = await self._compute.describe(suspects)
        now = self._clock.now()
        for instance_id, silent_for in suspects.items():
            instance = described.get(instance_id)
            if instance is not None and instance.state.alive:
                await self._tell_silence(instance_id, silent_for)
                continue
            if instance is None and silent_for < FORGOTTEN:
                continue
            state = instance.state if instance else "terminated"
            log.warning("instance.found_dead", extra={"instance_id": instance_id, "state": state, "silent_s": silent_for.total_seconds()})
            await self._ingest.handle(InstanceStateChange(instance_id=instance_id, state=state, at=now, channel=Channel.DESCRIBE_INSTANCES))

    async def _tell_silence(self, instance_id: InstanceId, silent_for: timedelta) -> None:
        job_id = await self._store.owner_of(instance_id)
        if job_id is None or silent_for < TOLD_AFTER:
            return
        job = await self._store.job(job_id)
        if job.silent or job.state is not JobState.RUNNING or job.member is None or job.member.instance_id != instance_id:
            return
        why = f"nothing was heard of it for {silent_for.total_seconds() / 60:.0f} minutes, though its instance runs: has its process died?"
        told = message(
            "job.silent",
            job,
            self._clock.now(),
            message_id=f"{job_id}.silent.{job.version}",
            deployment=self._deployment,
            instance_id=instance_id,
            why=why,
        )
        await self._store.commit(Change(job=replace(job, silent=True, note=why), messages=(told,)))
        log.error("job.silent", extra={"job_id": job_id, "instance_id": instance_id})

    async def _suspects(self) -> Mapping[InstanceId, timedelta]:
        """Return how long each instance has been silent from which a report, or an end, is due."""
        now = self._clock.now()
        suspects: dict[InstanceId, timedelta] = {}
        for job in await self._store.active_jobs():
            if job.state is JobState.BLOCKED:
                continue
            heard = {each.instance_id: each.received_at for each in (await self._store.reports(job.job_id)).values() if each.instance_id}
            migrations = await self._store.open_migrations(job.job_id)
            gone = {source.instance_id for each in migrations for source in each.sources if source.lost_at is not None}
            if job.member is not None and job.member.instance_id not in gone:
                suspects[job.member.instance_id] = now - heard.get(job.member.instance_id, job.created_at)
            for migration in migrations:
                for source in migration.sources:
                    if source.lost_at is None and migration.reclaim_at is not None and now >= migration.reclaim_at:
                        suspects[source.instance_id] = max(now - migration.reclaim_at, SILENT)
                attempt = migration.attempt
                if attempt and attempt.instance_id and attempt.launched_at:
                    suspects[attempt.instance_id] = now - heard.get(attempt.instance_id, attempt.launched_at)
        return {instance_id: silence for instance_id, silence in suspects.items() if silence >= SILENT}
