"""Every error of the agent.

AgentError
├── SettingsInvalid         an environment variable or argument cannot be used
├── UnsupportedState        a value that cannot be saved exactly; names its path
├── StateMismatch           a checkpoint does not fit the objects it should be loaded into
├── CheckpointDamaged       an object is missing, or is not what its digest says
├── MetadataUnavailable     the instance metadata service gave no usable answer: unknown, never "none"
├── ServiceUnavailable      the service gave no usable answer
├── ServiceRefused          the service answered, and said no
├── SaveFailed              a checkpoint did not become durable
├── HeadMissing             the job has no HEAD though a service registered it
├── TakeOverRefused         HEAD is not where the take-over was granted
├── Superseded              another instance owns the job
└── StoreError              the object store
    ├── ObjectMissing       no such object
    ├── ConditionFailed     the condition of a write did not hold
    ├── StoreUnavailable    no answer, or the answer is unknown: the same call may be made again
    ├── StoreRefused        not allowed: the same call will be refused again
    └── StoreUnsuitable     conditional writes are not honoured

AgentExit is a SystemExit, raised in the main thread only, with one of the exit codes of the protocol.
"""

from __future__ import annotations

EXIT_SUPERSEDED = 75
EXIT_TAKE_OVER_REFUSED = 76
EXIT_NO_USABLE_CHECKPOINT = 77
EXIT_STORE_UNSUITABLE = 78


class AgentError(Exception):
    """Something went wrong in the Spot Watchdog agent."""


class SettingsInvalid(AgentError):
    """An environment variable or an argument cannot be used."""


class UnsupportedState(AgentError):
    """A value cannot be saved exactly."""

    def __init__(self, path: str, reason: str) -> None:
        """Name where in the state the value stands, and why it cannot be saved."""
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class StateMismatch(AgentError):
    """A checkpoint does not fit the objects that it should be loaded into."""


class CheckpointDamaged(AgentError):
    """An object of a checkpoint is missing, or is not what its digest says."""


class MetadataUnavailable(AgentError):
    """The instance metadata service gave no usable answer, which is not the same as "nothing there"."""


class ServiceUnavailable(AgentError):
    """The service gave no usable answer."""


class ServiceRefused(AgentError):
    """The service answered, and said no."""

    def __init__(self, status: int, message: str) -> None:
        """Keep the HTTP status: 401, 404 and 409 have a meaning of their own."""
        super().__init__(f"{status}: {message}")
        self.status = status


class SaveFailed(AgentError):
    """A checkpoint did not become durable."""


class HeadMissing(AgentError):
    """The job has no HEAD though a service registered it: starting afresh could throw the job's work away."""


class TakeOverRefused(AgentError):
    """HEAD is not where the take-over was granted: somebody else has this job, or the grant is old."""


class Superseded(AgentError):
    """Another instance has taken the job over."""


class StoreError(AgentError):
    """The object store did not do what was asked."""


class ObjectMissing(StoreError):
    """No such object."""


class ConditionFailed(StoreError):
    """The condition of a conditional write did not hold."""


class StoreUnavailable(StoreError):
    """The store did not answer, or nobody knows whether it did: the same call may be made again."""


class StoreRefused(StoreError):
    """The store does not allow this, and will not the next time either."""


class StoreUnsuitable(StoreError):
    """The store does not honour conditional writes, so two instances could both own a job."""


class AgentExit(SystemExit):
    """End the process on purpose, with an exit code of the protocol (75 to 78)."""

    def __init__(self, code: int, reason: str) -> None:
        """Keep the reason for whoever catches this; it has been logged already."""
        super().__init__(code)
        self.reason = reason

    def __str__(self) -> str:
        return f"exit code {self.code}: {self.reason}"
