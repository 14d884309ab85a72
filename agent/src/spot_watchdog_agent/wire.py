"""What agent and service say to each other (docs/protocols.md, section 3), and times as they stand on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from spot_watchdog_agent.errors import ServiceUnavailable

PROTOCOL = 1


class Phase(str, Enum):
    """What the agent is doing."""

    STARTING = "starting"
    RESTORING = "restoring"
    TRAINING = "training"
    SAVING = "saving"
    STOPPED = "stopped"
    FINISHED = "finished"
    SUPERSEDED = "superseded"
    FAILED = "failed"


class NoticeKind(str, Enum):
    """What AWS said through instance metadata."""

    SPOT_INTERRUPTION = "spot_interruption"
    REBALANCE_RECOMMENDATION = "rebalance_recommendation"


class MetadataState(str, Enum):
    """Whether the agent would see a notice."""

    WATCHING = "watching"
    BLIND = "blind"
    ABSENT = "absent"


class SaveReason(str, Enum):
    """Why a checkpoint was saved."""

    PERIODIC = "periodic"
    NOTICE = "notice"
    REQUESTED = "requested"
    FINAL = "final"


class Desired(str, Enum):
    """What the service wants the agent to do."""

    WAIT = "wait"
    RUN = "run"
    SAVE = "save"
    SAVE_AND_STOP = "save_and_stop"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notice as this agent saw it; a repeat with a slightly different time is the same notice."""

    kind: NoticeKind
    action: str | None
    reclaim_at: datetime | None
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """The newest checkpoint that this agent committed."""

    step: int
    fencing_token: int
    manifest_key: str
    manifest_sha256: str
    bytes: int
    reason: SaveReason
    started_at: datetime
    committed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is. None is "not known yet"."""

    instance_id: str | None = None
    availability_zone_id: str | None = None
    address: str | None = None
    node_rank: int = 0
    phase: Phase = Phase.STARTING
    fencing_token: int | None = None
    step: int | None = None
    resumed_from_step: int | None = None
    notices: tuple[Notice, ...] = ()
    checkpoint: CheckpointReport | None = None
    handled_generation: int = 0
    save_error: str | None = None
    metadata: MetadataState = MetadataState.ABSENT
    message: str | None = None

    def to_wire(self, *, sent_at: datetime) -> dict[str, Any]:
        """Return the JSON object of the report."""
        return {"protocol": PROTOCOL, **_jsonable(asdict(self)), "sent_at": format_instant(sent_at)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """What should be."""

    generation: int
    desired: Desired
    take_over_from: int | None
    report_again_seconds: float

    @classmethod
    def from_wire(cls, value: Any) -> Directive:
        """Read the service's answer; fields of later protocols are passed over. Raises ServiceUnavailable."""
        try:
            token = value["take_over_from"]
            return cls(
                generation=int(value["generation"]),
                desired=Desired(value["desired"]),
                take_over_from=None if token is None else int(token),
                report_again_seconds=float(value["report_again_seconds"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ServiceUnavailable(f"The service's answer cannot be read: {error!r}.") from error


def now() -> datetime:
    """Return the present instant."""
    return datetime.now(timezone.utc)


def format_instant(instant: datetime) -> str:
    """Return an instant as ISO 8601 in UTC, e.g. `2026-03-04T10:15:30.4Z`."""
    return instant.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def parse_instant(text: str) -> datetime:
    """Return an instant from ISO 8601; without an offset it is UTC. Raises ValueError."""
    instant = datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 does not know the Z
    return instant.replace(tzinfo=timezone.utc) if instant.tzinfo is None else instant.astimezone(timezone.utc)


def _jsonable(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, Mapping):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    return value
