"""Compare the cloud with our records, cloud first, and end what is ours and has no place any more."""

from __future__ import annotations

import logging
from datetime import timedelta

from watchdog.clock import Clock
from watchdog.errors import NotFound
from watchdog.ids import InstanceId, JobId
from watchdog.ports import Compute, Instance, Store, Telemetry

log = logging.getLogger(__name__)

GRACE = timedelta(minutes=2)
"""Between a launch and its record there may be a crash and a restart; an instance younger than this is left alone."""
JOB_TAG = "spot-watchdog:job-id"


class SweepService:
    """A safety net with its own counter, not a step of the design."""

    def __init__(self, *, store: Store, compute: Compute, clock: Clock, telemetry: Telemetry) -> None:
        """Use these ports."""
        self._store = store
        self._compute = compute
        self._clock = clock
        self._telemetry = telemetry

    async def sweep(self) -> None:
        """End orphans, and the instances of jobs that are over. Raises CloudUnavailable."""
        # The cloud first: what is launched after this line cannot look like an orphan.
        running = await self._compute.list_owned()
        for instance in running:
            if not instance.state.alive:
                continue
            if await self._has_a_place(instance):
                continue
            await self._compute.terminate(instance.instance_id)
            log.warning("instance.swept", extra={"instance_id": instance.instance_id, "pool": str(instance.pool)})
            self._telemetry.count("spot_watchdog_instances_swept_total")

    async def _has_a_place(self, instance: Instance) -> bool:
        young = self._clock.now() - instance.launched_at < GRACE
        try:
            job = await self._store.job(JobId(instance.tags.get(JOB_TAG, "")))
        except NotFound:
            return young
        if job.state.terminal:
            return await self._is_reclaimed_soon(job.job_id, instance.instance_id)
        if job.member is not None and job.member.instance_id == instance.instance_id:
            return True
        for migration in await self._store.migrations(job.job_id):
            if migration.closed_at is None and migration.has_source(instance.instance_id):
                return True
            attempt = migration.attempt
            if migration.closed_at is None and attempt is not None and attempt.instance_id == instance.instance_id:
                return True
        return young

    async def _is_reclaimed_soon(self, job_id: JobId, instance_id: InstanceId) -> bool:
        """Leave a source under notice to AWS: ending it ourselves could forfeit its free first hour."""
        migrations = await self._store.migrations(job_id)
        return any(each.closed_at is None and each.has_source(instance_id) for each in migrations)
