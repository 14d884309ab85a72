"""Polls: prices and offerings, quotas, and the instances of agents that fell silent."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta

from watchdog.clock import Clock
from watchdog.ids import InstanceId
from watchdog.migration.agent import AgentReport
from watchdog.migration.model import Job
from watchdog.notices.model import Channel, InstanceStateChange
from watchdog.ports import Compute, MarketData, Quotas, Store, Telemetry
from watchdog.services.decide import POOLS, QUOTAS, pool_facts_to_data, quota_to_data
from watchdog.services.ingest import IngestService

log = logging.getLogger(__name__)

SILENT = timedelta(seconds=10)
"""Agents report every second. After this much silence EC2 is asked: silence alone is never taken for death."""
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
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        """Use these ports."""
        self._store = store
        self._compute = compute
        self._market = market
        self._quotas = quotas
        self._ingest = ingest
        self._clock = clock
        self._telemetry = telemetry

    async def pools(self) -> None:
        """Read offerings and prices of every type that a live job allows. Raises CloudUnavailable."""
        wanted = {name for job in await self._store.jobs() if not job.state.terminal for name in job.spec.instance_types}
        if not wanted:
            return
        facts = await self._market.pools(wanted)
        await self._store.put_reading(POOLS, self._clock.now(), [pool_facts_to_data(each) for each in facts])
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

    async def silent_instances(self) -> None:
        """Ask EC2 about instances that we have not heard of for a while, and act on those that have ended. Raises CloudUnavailable."""
        suspects = await self._suspects()
        if not suspects:
            return
        described = await self._compute.describe(suspects)
        now = self._clock.now()
        for instance_id, silent_for in suspects.items():
            instance = described.get(instance_id)
            if instance is not None and instance.state.alive:
                continue
            if instance is None and silent_for < FORGOTTEN:
                continue
            state = instance.state if instance else "terminated"
            log.warning("instance.found_dead", extra={"instance_id": instance_id, "state": state, "silent_s": silent_for.total_seconds()})
            await self._ingest.handle(InstanceStateChange(instance_id=instance_id, state=state, at=now, channel=Channel.DESCRIBE_INSTANCES))

    async def _suspects(self) -> Mapping[InstanceId, timedelta]:
        now = self._clock.now()
        suspects: dict[InstanceId, timedelta] = {}
        for job in await self._store.jobs():
            if job.state.terminal:
                continue
            reports = {report.instance_id: report for report in (await self._store.reports(job.job_id)).values() if report.instance_id}
            if job.member is not None:
                suspects[job.member.instance_id] = self._silence(reports.get(job.member.instance_id), job)
            for migration in await self._store.migrations(job.job_id):
                if migration.closed_at is not None:
                    continue
                for source in migration.sources:
                    overdue = migration.reclaim_at is not None and now >= migration.reclaim_at
                    if source.lost_at is None and overdue:
                        suspects[source.instance_id] = max(now - migration.reclaim_at, SILENT) if migration.reclaim_at else SILENT
                attempt = migration.attempt
                if attempt and attempt.instance_id and attempt.launched_at:
                    report = reports.get(attempt.instance_id)
                    suspects[attempt.instance_id] = now - (report.received_at if report else attempt.launched_at)
        return {instance_id: silence for instance_id, silence in suspects.items() if silence >= SILENT}

    def _silence(self, report: AgentReport | None, job: Job) -> timedelta:
        return self._clock.now() - (report.received_at if report else job.created_at)
