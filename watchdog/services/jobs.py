"""Register jobs, look at them, cancel them."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict, dataclass, replace

from policies.model import FirstLaunch
from watchdog.clock import Clock
from watchdog.errors import CloudUnavailable, Fault, JobRejected, NotFound, VersionConflict, WatchdogError
from watchdog.ids import JobId
from watchdog.migration.facts import JobEnded
from watchdog.migration.model import Cause, Job, JobSpec, JobState
from watchdog.ports import Change, HeadRegister, MarketData, Store
from watchdog.services.migrate import MigrateService, Opening

log = logging.getLogger(__name__)


class IdempotencyKeyReused(WatchdogError):
    """The idempotency key was used before, for another request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A registered job, and whether it had been registered before under the same key."""

    job: Job
    replayed: bool


class JobService:
    """Jobs as their owners see them."""

    def __init__(
        self,
        *,
        store: Store,
        heads: HeadRegister,
        market: MarketData,
        migrate: MigrateService,
        clock: Clock,
        launch_templates: Collection[str],
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        """Use these ports; `launch_templates` is the operator's allow-list, `ready` raises while the checkpoint store is not proved."""
        self._ready = ready
        self._store = store
        self._heads = heads
        self._market = market
        self._migrate = migrate
        self._clock = clock
        self._launch_templates = frozenset(launch_templates)

    async def register(self, spec: JobSpec, *, principal: str, idempotency_key: str) -> Registration:
        """Register a job and open its first launch.

        The job's id follows from the principal and the key, so that a lost answer and a repeated request cannot make two jobs, whatever
        was lost in between.

        Raises:
            JobRejected: the specification cannot be accepted; every fault is named.
            IdempotencyKeyReused: the key belongs to another request.
            CheckpointStoreUnsuitable: no job can be fenced in this store.
            CheckpointStoreUnavailable, StoreUnavailable: nothing was started; try again with the same key.
        """
        job_id = _job_id(principal, idempotency_key)
        request_hash = hashlib.sha256(json.dumps(asdict(spec), sort_keys=True, default=str).encode()).hexdigest()
        existing = await self._existing(job_id)
        if existing is not None:
            return _replayed(existing, request_hash)
        await self._ready()
        await self._check(spec)
        await self._heads.register(job_id, {**asdict(spec), "job_id": job_id})
        job = Job(job_id=job_id, spec=spec, request_hash=request_hash, state=JobState.MOVING, created_at=self._clock.now())
        try:
            # The job and its first launch are one write: a job is never nowhere, whatever crashes.
            await self._migrate.open(job, Opening(cause=Cause.FIRST_LAUNCH, signal=FirstLaunch()))
        except VersionConflict:
            return _replayed(await self._store.job(job_id), request_hash)
        return Registration(job=await self._store.job(job_id), replayed=False)

    async def _existing(self, job_id: JobId) -> Job | None:
        try:
            return await self._store.job(job_id)
        except NotFound:
            return None

    async def _check(self, spec: JobSpec) -> None:
        faults = []
        if spec.launch_template not in self._launch_templates:
            # A job runs with the template's role: an arbitrary template would be a way to run code under somebody's role.
            faults.append(Fault(pointer="/launch_template", detail="not on the operator's allow-list (SPOT_WATCHDOG_LAUNCH_TEMPLATES)"))
        try:
            known = await self._market.known_instance_types(spec.instance_types)
        except CloudUnavailable:
            log.warning("job.types_unchecked", extra={"instance_types": spec.instance_types})
        else:
            faults += [
                Fault(pointer=f"/instance_types/{place}", detail=f"EC2 knows no instance type {name!r} in this Region")
                for place, name in enumerate(spec.instance_types)
                if name not in known
            ]
        if faults:
            raise JobRejected(tuple(faults))

    async def cancel(self, job_id: JobId) -> Job:
        """End a job; its instances are ended by the sweep. Cancelling twice is no error. Raises NotFound, VersionConflict."""
        for _ in range(20):
            job = await self._store.job(job_id)
            if job.state.terminal:
                return job
            if job.migration_id is not None:
                await self._migrate.apply(job.migration_id, JobEnded(at=self._clock.now(), state=JobState.CANCELLED))
                continue
            try:
                await self._store.commit(Change(job=replace(job, state=JobState.CANCELLED)))
            except VersionConflict:
                continue
            log.info("job.cancelled", extra={"job_id": job_id})
            return await self._store.job(job_id)
        raise VersionConflict(f"{job_id} is being changed too fast")


def _replayed(job: Job, request_hash: str) -> Registration:
    if job.request_hash != request_hash:
        raise IdempotencyKeyReused("this idempotency key was used for another request; take a new one")
    return Registration(job=job, replayed=True)


def _job_id(principal: str, idempotency_key: str) -> JobId:
    return JobId(f"job_{hashlib.sha256(f'{principal}/{idempotency_key}'.encode()).hexdigest()[:20]}")
