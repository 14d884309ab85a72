"""Every error of the service.

WatchdogError
├── SettingsInvalid            start-up: one or more settings cannot be used
├── StoreUnavailable           Redis does not answer
├── VersionConflict            somebody else wrote this record first
├── NotFound                   no such record
├── CheckpointStoreUnsuitable  the object store ignores conditional writes
├── CheckpointStoreUnavailable the object store does not answer
├── CloudUnavailable           AWS does not answer, or throttles
├── LaunchRefused              EC2 said no; `scope` says for what
├── LaunchOutcomeUnknown       EC2 did not answer: the instance may exist
├── DeliveryFailed             Slack or a webhook did not take the message
└── JobRejected                a job's specification cannot be accepted
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WatchdogError(Exception):
    """Something went wrong in Spot Watchdog."""


class SettingsInvalid(WatchdogError):
    """One or more settings cannot be used."""


class StoreUnavailable(WatchdogError):
    """Redis does not answer."""


class VersionConflict(WatchdogError):
    """Somebody else changed this record first: load it again and decide again."""


class NotFound(WatchdogError):
    """No such record."""


class CheckpointStoreUnsuitable(WatchdogError):
    """The object store does not honour conditional writes, so two instances could both own a job."""


class CheckpointStoreUnavailable(WatchdogError):
    """The object store does not answer."""


class CloudUnavailable(WatchdogError):
    """AWS does not answer or throttles; the same call may be made again later."""


class LaunchScope(StrEnum):
    """What a refused launch says no to: it decides where to try next."""

    POOL = "pool"
    """This instance type in this zone and market: try the next pool."""
    SUBNET = "subnet"
    """This subnet has no addresses left: another subnet, the same zone."""
    FAMILY = "family"
    """The quota of this family and market in this Region: no zone helps."""
    ACCOUNT = "account"
    """Something of the whole account: a person is needed."""
    CONFIGURATION = "configuration"
    """The job's own request is wrong or forbidden: stop and tell a person."""
    THROTTLED = "throttled"
    """Too many calls: the same call again, later, with the same token."""
    TRANSIENT = "transient"
    """AWS had an internal error: the same call again with the same token."""
    ATTEMPT = "attempt"
    """This attempt is over (its instance has ended): a new attempt number."""
    OURS = "ours"
    """A bug of this service: fail loudly."""


class LaunchRefused(WatchdogError):
    """EC2 refused to start an instance."""

    def __init__(self, code: str, message: str, scope: LaunchScope) -> None:
        """Keep AWS's code and message and what they mean."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.scope = scope


class LaunchOutcomeUnknown(WatchdogError):
    """EC2 did not answer a launch call: the instance may or may not exist."""


class DeliveryFailed(WatchdogError):
    """A message was not taken."""

    def __init__(self, message: str, *, permanent: bool, retry_after_seconds: float | None = None) -> None:
        """Say whether trying again can help, and after how many seconds the receiver asked for."""
        super().__init__(message)
        self.permanent = permanent
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with an input, and where."""

    pointer: str
    """JSON pointer to the field, e.g. `/instance_types/0`."""
    detail: str


class JobRejected(WatchdogError):
    """A job's specification cannot be accepted."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        """Keep every fault found, not only the first."""
        super().__init__("; ".join(f"{fault.pointer}: {fault.detail}" for fault in faults))
        self.faults = faults
