"""Append-only observations: what happened in a pool, when, and who said so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from policies.model import CapacityPool


class ObservationKind(StrEnum):
    """What was observed."""

    LAUNCH_OK = "launch_ok"
    LAUNCH_REFUSED = "launch_refused"
    """Refused for lack of capacity; quota and configuration errors say nothing about a pool."""
    NOTICE = "notice"
    LOST = "lost"
    """AWS took an instance of ours; our own terminations are not losses."""
    BOOT_OK = "boot_ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One thing seen of one pool."""

    at: datetime
    kind: ObservationKind
    pool: CapacityPool
    source: str
    """Who said so: `run_instances`, `event_bridge`, `imds`, `agent`."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMemory:
    """What the breaker and the placement need of a pool's past."""

    refused_at: datetime | None = None
    lost_at: datetime | None = None

    def after(self, observation: Observation) -> PoolMemory:
        """Return this memory after one more observation."""
        match observation.kind:
            case ObservationKind.LAUNCH_REFUSED:
                return replace(self, refused_at=observation.at)
            case ObservationKind.LOST | ObservationKind.NOTICE:
                return replace(self, lost_at=observation.at)
            case ObservationKind.LAUNCH_OK | ObservationKind.BOOT_OK:
                return replace(self, refused_at=None) if observation.kind is ObservationKind.LAUNCH_OK else self
