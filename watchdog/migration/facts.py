"""What can happen in a migration. Facts are fed to the reducer and written to the journal; they are never special cases in the runner."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from watchdog.errors import LaunchScope
from watchdog.ids import DecisionId, Incarnation, InstanceId
from watchdog.migration.model import CheckpointRef, JobState, PlannedTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The migration was opened: steps without a predecessor start, steps without an object are skipped."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeReceived:
    """A channel told of the reclaim of a source; the earliest time counts."""

    at: datetime
    instance_id: InstanceId
    reclaim_at: datetime
    channel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted:
    """The source published the checkpoint that this migration waits for."""

    at: datetime
    checkpoint: CheckpointRef
    source_step: int | None = None
    """The last step the source made, as it reported together with the checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveGivenUp:
    """No checkpoint will come from the source any more: the last committed one is used."""

    at: datetime
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceGone:
    """A source has ended."""

    at: datetime
    instance_id: InstanceId
    why: str
    source_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchIntended:
    """An attempt is recorded, before EC2 is called."""

    at: datetime
    number: int
    target: PlannedTarget
    client_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """EC2 started the replacement."""

    at: datetime
    number: int
    instance_id: InstanceId
    address: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefusedBy:
    """EC2 said no; the scope says to what."""

    at: datetime
    number: int
    code: str
    message: str
    scope: LaunchScope


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchUnanswered:
    """EC2 throttled or did not answer: the same token again at `retry_at`."""

    at: datetime
    number: int
    why: str
    retry_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchExhausted:
    """No pool of the plan is left; the market is looked at again at `until`, or never if only a person can help."""

    at: datetime
    until: datetime | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanned:
    """A new plan after the old one was used up."""

    at: datetime
    decision_id: DecisionId
    targets: tuple[PlannedTarget, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentArrived:
    """The replacement's agent said hello."""

    at: datetime
    instance_id: InstanceId
    incarnation: Incarnation
    address: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOverGranted:
    """The pivot: the replacement may write the next fencing token."""

    at: datetime
    take_over_from: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """The replacement wrote its token into `HEAD`."""

    at: datetime
    instance_id: InstanceId
    incarnation: Incarnation
    fencing_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResumed:
    """The replacement finished its first step."""

    at: datetime
    instance_id: InstanceId
    step: int
    resumed_from_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementGone:
    """The replacement ended, was given notice, or never said hello."""

    at: datetime
    instance_id: InstanceId
    why: str
    program_failed: bool = False
    """Whether the job's own program ended it, and not AWS: that counts against the program."""
    reclaim_at: datetime | None = None
    """If it was given notice: it lives on until then, and may still save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBlocked:
    """The job's own program failed on one instance after another: no further instance will help."""

    at: datetime
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """The job finished by itself or was cancelled."""

    at: datetime
    state: JobState
    step: int | None = None
    """The last step, if the job finished."""


Fact = (
    Opened
    | NoticeReceived
    | CheckpointCommitted
    | SaveGivenUp
    | SourceGone
    | LaunchIntended
    | Launched
    | LaunchRefusedBy
    | LaunchUnanswered
    | LaunchExhausted
    | Replanned
    | AgentArrived
    | TakeOverGranted
    | TakenOver
    | JobResumed
    | ReplacementGone
    | JobBlocked
    | JobEnded
)
