"""What is recorded of a job and of one migration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from policies.model import CapacityPool, JobSnapshot, Market
from watchdog.errors import LaunchScope
from watchdog.ids import DecisionId, Incarnation, InstanceId, JobId, MigrationId
from watchdog.migration.saga import SAGA, MigrationState, StepName, StepState, state_of


class JobState(StrEnum):
    """Where a job is; never silently nowhere."""

    MOVING = "moving"
    RUNNING = "running"
    PARKED = "parked"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    """A fault in its configuration that no retry can mend: a person is needed."""

    @property
    def terminal(self) -> bool:
        """Whether the job is over, so that none of its instances may live on."""
        return self in {JobState.FINISHED, JobState.CANCELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What the owner of a job asked for."""

    name: str
    instance_types: tuple[str, ...]
    markets: tuple[Market, ...]
    availability_zone_ids: tuple[str, ...] | None
    launch_template: str
    command: tuple[str, ...]
    checkpoint_seconds: float | None
    """Seconds between periodic checkpoints; None leaves it to the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An instance that runs, or ran, a job."""

    instance_id: InstanceId
    pool: CapacityPool
    address: str | None = None
    incarnation: Incarnation | None = None
    generation: int = 0
    """The job's generation when it took over: saves asked for before that are none of its business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job under our care."""

    job_id: JobId
    spec: JobSpec
    request_hash: str
    """SHA-256 of the registration, to tell a repeated request from another one under the same idempotency key."""
    state: JobState
    created_at: datetime
    fencing_token: int = 0
    """The highest token we know of; the object store's `HEAD` is the authority."""
    member: Member | None = None
    """The instance that owns the job."""
    migration_id: MigrationId | None = None
    """The migration that is moving the job now."""
    generation: int = 0
    """Grows with every save that the agent is asked for."""
    program_failures: int = 0
    """How often in a row its own program failed on a fresh instance; a completed step sets it back."""
    silent: bool = False
    """Whether people were told that its agent says nothing although its instance runs."""
    note: str | None = None
    """Why the job is parked or blocked, for people."""
    version: int = 0

    def snapshot(self) -> JobSnapshot:
        """Return what a policy may know of this job."""
        return JobSnapshot(
            job_id=self.job_id,
            instance_types=self.spec.instance_types,
            markets=self.spec.markets,
            availability_zone_ids=self.spec.availability_zone_ids,
            pool=self.member.pool if self.member else None,
        )


class Cause(StrEnum):
    """Why a migration was opened."""

    FIRST_LAUNCH = "first_launch"
    INTERRUPTION_NOTICE = "interruption_notice"
    SOURCE_LOST = "source_lost"
    BY_HAND = "by_hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An instance that the job leaves."""

    instance_id: InstanceId
    pool: CapacityPool
    lost_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTarget:
    """One pool of the plan. The plan leaves nothing to choose: the executor walks it in this order."""

    pool: CapacityPool
    why: str
    code: str
    quota_family: str | None = None


class AttemptState(StrEnum):
    """How far one attempt to start a replacement has come."""

    INTENDED = "intended"
    LAUNCHED = "launched"
    REFUSED = "refused"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt to start one replacement in one pool, recorded before EC2 is called."""

    number: int
    target: PlannedTarget
    client_token: str
    intended_at: datetime
    state: AttemptState = AttemptState.INTENDED
    tries: int = 0
    """Calls that got no usable answer; the next one repeats the same token."""
    retry_at: datetime | None = None
    instance_id: InstanceId | None = None
    launched_at: datetime | None = None
    address: str | None = None
    incarnation: Incarnation | None = None
    code: str | None = None
    """AWS's code, if it refused."""
    scope: LaunchScope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """What is stored of one step."""

    state: StepState = StepState.PENDING
    started_at: datetime | None = None
    finished_at: datetime | None = None
    note: str | None = None


def _pending() -> Mapping[StepName, StepRecord]:
    return {step.name: StepRecord() for step in SAGA}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef:
    """A committed checkpoint, as the agent reported it."""

    step: int
    fencing_token: int
    manifest_key: str
    manifest_sha256: str
    bytes: int
    reason: str
    started_at: datetime
    committed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One move of one job. Lists from the first day: jobs of several nodes will not change this record."""

    migration_id: MigrationId
    job_id: JobId
    cause: Cause
    opened_at: datetime
    decision_id: DecisionId
    sources: tuple[Source, ...]
    targets: tuple[PlannedTarget, ...]
    reasons: tuple[str, ...] = ()
    reclaim_at: datetime | None = None
    noticed_at: datetime | None = None
    round_start: int = 0
    """Attempts made before the present plan: those count no more against its pools."""
    attempts: tuple[Attempt, ...] = ()
    steps: Mapping[StepName, StepRecord] = field(default_factory=_pending)
    parks: int = 0
    parked_until: datetime | None = None
    checkpoint: CheckpointRef | None = None
    source_step: int | None = None
    """The last step the source told us of."""
    take_over_from: int | None = None
    """The fencing token whose take-over is granted to the replacement."""
    resumed_from_step: int | None = None
    handed_on: str | None = None
    """Why this migration was closed in favour of whatever comes next."""
    closed_at: datetime | None = None
    version: int = 0

    @property
    def state(self) -> MigrationState:
        """The derived state."""
        states = {name: record.state for name, record in self.steps.items()}
        alive = bool(self.sources) and all(source.lost_at is None for source in self.sources)
        return state_of(states, way_back=alive and self.reclaim_at is None, handed_on=self.handed_on is not None)

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that is open or has won, if any."""
        return next(
            (attempt for attempt in reversed(self.attempts) if attempt.state in {AttemptState.INTENDED, AttemptState.LAUNCHED}), None
        )

    def step_state(self, name: StepName) -> StepState:
        """Return the stored state of one step."""
        return self.steps[name].state

    def attempt_of(self, instance_id: InstanceId) -> Attempt | None:
        """Return the attempt that started this instance, or None."""
        return next((attempt for attempt in self.attempts if attempt.instance_id == instance_id), None)

    def has_source(self, instance_id: InstanceId) -> bool:
        """Return whether the job leaves this instance."""
        return any(source.instance_id == instance_id for source in self.sources)

    def with_attempt(self, attempt: Attempt) -> Migration:
        """Return this migration with one attempt replaced or added."""
        others = tuple(other for other in self.attempts if other.number != attempt.number)
        return replace(self, attempts=tuple(sorted((*others, attempt), key=lambda each: each.number)))
