"""Typed notices, and the record in which the copies of one notice meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from watchdog.errors import WatchdogError
from watchdog.ids import InstanceId

WARNING_TIME = timedelta(minutes=2)
"""Between the warning and the reclaim of a terminated or stopped instance. EC2 User Guide, "Spot Instance interruption notices"."""


class MalformedMessage(WatchdogError):
    """A message that can never be understood."""


class Channel(StrEnum):
    """How a notice reached us."""

    IMDS = "imds"
    """The agent read it from the instance metadata and reported it."""
    EVENT_BRIDGE = "event_bridge"
    """EventBridge put it on the queue."""
    DESCRIBE_INSTANCES = "describe_instances"
    """EC2 said so when we asked about an instance whose agent was silent."""


class NoticeKind(StrEnum):
    """What kind of notice, in the words of the agent API."""

    SPOT_INTERRUPTION = "spot_interruption"
    REBALANCE_RECOMMENDATION = "rebalance_recommendation"


class InterruptionAction(StrEnum):
    """What AWS does to the instance at the reclaim time."""

    TERMINATE = "terminate"
    STOP = "stop"
    HIBERNATE = "hibernate"
    """Begins at once: there are no two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotInterruptionNotice:
    """AWS takes the instance back at `reclaim_at`."""

    instance_id: InstanceId
    action: InterruptionAction
    reclaim_at: datetime
    noticed_at: datetime
    channel: Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRecommendation:
    """The risk of this instance has risen; AWS gives no time, and the instance may live on."""

    instance_id: InstanceId
    noticed_at: datetime
    channel: Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStateChange:
    """EC2 moved the instance into another state, for whatever reason: also after our own calls."""

    instance_id: InstanceId
    state: str
    """Exactly one of EC2's six states, e.g. `shutting-down`."""
    at: datetime
    channel: Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrecognised:
    """A well-formed message that says nothing we act on: to be counted and acknowledged."""

    source: str
    detail_type: str
    why: str


Warned = SpotInterruptionNotice | RebalanceRecommendation
"""The notices that several channels carry copies of."""
Notice = Warned | InstanceStateChange | Unrecognised


def reclaim_time(action: InterruptionAction, *, warned_at: datetime) -> datetime:
    """Return when AWS acts on an instance that was warned at `warned_at`, where the channel itself gives no time.

    Raises OverflowError for an instant that no `datetime` can hold.
    """
    return warned_at if action is InterruptionAction.HIBERNATE else warned_at + WARNING_TIME


def kind_of(notice: Warned) -> NoticeKind:
    """Return the kind of a notice."""
    match notice:
        case SpotInterruptionNotice():
            return NoticeKind.SPOT_INTERRUPTION
        case RebalanceRecommendation():
            return NoticeKind.REBALANCE_RECOMMENDATION


def notice_key(notice: Warned) -> str:
    """Return the one key under which the copies of a notice meet.

    Event ids differ between copies and times jitter by seconds; which instance and which kind of notice cannot. An instance is never
    given back after an interruption (we ask for terminate), so that one key per instance and kind is enough.
    """
    return f"{notice.instance_id}:{kind_of(notice)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRecord:
    """One notice, as told by every channel so far."""

    instance_id: InstanceId
    kind: NoticeKind
    seen: Mapping[Channel, datetime]
    """When each channel first told of it."""
    reclaim_at: datetime | None = None
    """The earliest that any channel gave. None for a recommendation, which has no time."""
    action: InterruptionAction | None = None

    @property
    def key(self) -> str:
        """Return the same key as `notice_key` of each copy."""
        return f"{self.instance_id}:{self.kind}"

    @property
    def first_seen_at(self) -> datetime:
        """Return when the first channel told of it."""
        return min(self.seen.values())

    @classmethod
    def of(cls, notice: Warned) -> Self:
        """Return the record of a notice that only one channel told of yet."""
        interruption = notice if isinstance(notice, SpotInterruptionNotice) else None
        return cls(
            instance_id=notice.instance_id,
            kind=kind_of(notice),
            seen={notice.channel: notice.noticed_at},
            reclaim_at=interruption.reclaim_at if interruption else None,
            action=interruption.action if interruption else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; instants as ISO 8601 in UTC."""
        return {
            "instance_id": self.instance_id,
            "kind": self.kind.value,
            "seen": {channel.value: _written(at) for channel, at in self.seen.items()},
            "reclaim_at": _written(self.reclaim_at) if self.reclaim_at else None,
            "action": self.action.value if self.action else None,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what `to_dict` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            instance_id=InstanceId(values["instance_id"]),
            kind=NoticeKind(values["kind"]),
            seen={Channel(channel): datetime.fromisoformat(at) for channel, at in values["seen"].items()},
            reclaim_at=datetime.fromisoformat(values["reclaim_at"]) if values["reclaim_at"] else None,
            action=InterruptionAction(values["action"]) if values["action"] else None,
        )


def merge(first: NoticeRecord, second: NoticeRecord) -> NoticeRecord:
    """Return what two copies of one notice say together, whichever came first.

    The earliest reclaim time wins: to be early costs seconds of training, to be late costs the checkpoint. Each channel keeps the time at
    which it first told of it.

    Raises ValueError if the two are not copies of one notice.
    """
    if first.key != second.key:
        msg = f"{first.key} and {second.key} are two notices"
        raise ValueError(msg)
    timed = [(record.reclaim_at, record.action or "") for record in (first, second) if record.reclaim_at]
    reclaim_at, action = min(timed) if timed else (None, "")
    seen = dict(first.seen)
    for channel, at in second.seen.items():
        seen[channel] = min(at, seen.get(channel, at))
    return NoticeRecord(
        instance_id=first.instance_id,
        kind=first.kind,
        seen=seen,
        reclaim_at=reclaim_at,
        action=InterruptionAction(action) if action else None,
    )


def _written(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
