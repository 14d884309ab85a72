"""What the emulator remembers of one instance and of the Spot request behind it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from policies.model import CapacityPool, Market
from watchdog.emulator.machine import Machine
from watchdog.emulator.timeline import iso

STATE_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}


@dataclass(slots=True, kw_only=True)
class SpotRequest:
    """One Spot request; one-time, so that it never fulfils itself a second time."""

    request_id: str
    created_at: datetime
    updated_at: datetime
    tags: Mapping[str, str]
    state: str = "active"
    code: str = "fulfilled"

    @property
    def message(self) -> str:
        """A sentence for `Status.Message`."""
        return f"Your Spot request is {self.state}: {self.code}."

    def become(self, state: str, code: str, at: datetime) -> None:
        """Change state and status code; what has been closed by AWS stays closed."""
        if self.state != "closed":
            self.state, self.code, self.updated_at = state, code, at


def new_spot_request(tags: Mapping[str, str], now: datetime) -> SpotRequest:
    """Return a request that was fulfilled at once, as RunInstances does it or refuses."""
    return SpotRequest(request_id=f"sir-{secrets.token_hex(4)}", created_at=now, updated_at=now, tags=dict(tags))


@dataclass(slots=True, kw_only=True)
class EmulatedInstance:
    """One instance. Its state changes only under the cloud's lock."""

    instance_id: str
    pool: CapacityPool
    availability_zone: str
    image_id: str
    private_ip: str
    launched_at: datetime
    client_token: str
    user_data: bytes
    home: Path
    moto: Any
    """moto's own record of the same instance: what the EC2 API shows."""
    release: Callable[[], object]
    """Gives moto's share of the instance back: interfaces, volumes."""
    tags_in_metadata: bool
    spot_request: SpotRequest | None
    state: str = "pending"
    state_reason: str | None = None
    booted_at: datetime | None = None
    noticed_at: datetime | None = None
    reclaim_at: datetime | None = None
    rebalance_at: datetime | None = None
    ended_at: datetime | None = None
    machine: Machine | None = None
    metadata_endpoint: str | None = None
    silent: bool = field(default=False)
    """Its end is told to nobody: state-change events are best effort, and this one's are lost."""

    @property
    def alive(self) -> bool:
        """Whether it is pending or running."""
        return self.state in {"pending", "running"}

    @property
    def spot(self) -> bool:
        """Whether AWS may take it back."""
        return self.pool.market is Market.SPOT

    @property
    def tags(self) -> dict[str, str]:
        """Its tags now: CreateTags can change them at any time."""
        # Not moto's get_tags(), which looks through the tags of everything there is.
        return dict(self.moto.ec2_backend.tags.get(self.instance_id, {}))

    def enter(self, state: str) -> None:
        """Change the state, here and in what the EC2 API shows."""
        self.state = state
        self.moto._state.name = state  # noqa: SLF001 - moto has no other way to set it
        self.moto._state.code = STATE_CODES[state]  # noqa: SLF001

    def because(self, code: str, text: str, at: datetime) -> None:
        """Say why it ends, in the words of `StateReason` and `StateTransitionReason`."""
        self.state_reason = code
        self.moto.state_reason.code = code
        self.moto.state_reason.message = f"{code}: {text}"
        shown = "User initiated" if code == "Client.UserInitiatedShutdown" else code
        self.moto._reason = f"{shown} ({at:%Y-%m-%d %H:%M:%S} GMT)"  # noqa: SLF001

    def as_json(self) -> dict[str, Any]:
        """Return the instance as the control door shows it."""
        return {
            "instance_id": self.instance_id,
            "state": self.state,
            "instance_type": self.pool.instance_type,
            "availability_zone": self.availability_zone,
            "availability_zone_id": self.pool.availability_zone_id,
            "market": self.pool.market.value,
            "launched_at": iso(self.launched_at),
            "booted_at": _iso_or_none(self.booted_at),
            "noticed_at": _iso_or_none(self.noticed_at),
            "reclaim_at": _iso_or_none(self.reclaim_at),
            "ended_at": _iso_or_none(self.ended_at),
            "state_reason": self.state_reason,
            "pid": self.machine.pid if self.machine else None,
            "home": str(self.home),
            "metadata_endpoint": self.metadata_endpoint,
            "client_token": self.client_token,
            "spot_request_id": self.spot_request.request_id if self.spot_request else None,
            "tags": self.tags,
        }


def _iso_or_none(instant: datetime | None) -> str | None:
    return None if instant is None else iso(instant)
