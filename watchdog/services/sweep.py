"""Compare the cloud with our records, cloud first, and end what is ours and has no place any more."""

from __future__ import annotations

import logging
from datetime import timedelta

from watchdog.clock import Clock
from watchdog.errors import CheckpointStoreUnavailable, NotFound
from watchdog.ids import JobId
from watchdog.migration.model import JobState
from watchdog.ports import Compute, HeadRegister, Instance, Store, Telemetry

log = logging.getLogger(__name__)

GRACE = timedelta(minutes=2)
"""Between a launch and its record there may be a crash and a restart; an instance younger than this is left alone."""
JOB_TAG = "spot-watchdog:job-id"


class SweepService:
    """A safety net with its own counter, not a step of the design."""

    def __init__(self, *, store: Store, compute: Compute, heads: HeadRegister, clock: Clock, telemetry: Telemetry) -> None:
        """Use these ports."""
        self._store = store
        self._compute = compute
        self._heads = heads
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
        job_id = JobId(instance.tags.get(JOB_TAG, ""))
        try:
            job = await self._store.job(job_id)
        except NotFound:
            return young or await self._is_only_forgotten(job_id, instance)
        open_migrations = await self._store.open_migrations(job_id)
        if any(each.has_source(instance.instance_id) for each in open_migrations):
            return True  # left to AWS, or ended by its migration
        if job.state.terminal or job.state is JobState.BLOCKED:
            return False  # a GPU that nobody uses is paid for all the same
        if job.member is not None and job.member.instance_id == instance.instance_id:
            return True
        winners = [each.attempt.instance_id for each in open_migrations if each.attempt is not None]
        return instance.instance_id in winners or young

    async def _is_only_forgotten(self, job_id: JobId, instance: Instance) -> bool:
        """Tell an orphan from a lost record. A job is recorded before its first launch, so that no record means: Redis lost it.

        The object store knows the jobs too, and it does not forget. What it cannot answer counts as: leave the instance alone.
        """
        try:
            forgotten = await self._heads.read(job_id) is not None
        except CheckpointStoreUnavailable:
            forgotten = True
        if forgotten:
            log.error("instance.unrecorded", extra={"instance_id": instance.instance_id, "job_id": job_id})
            self._telemetry.count("spot_watchdog_instances_unrecorded_total")
        return forgotten
