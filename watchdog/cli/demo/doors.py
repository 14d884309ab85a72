"""The three HTTP doors a demo goes through: the emulated AWS's own, the service's REST API, the Slack receiver's."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import httpx2

from watchdog.errors import WatchdogError

_TIMEOUT_SECONDS = 10.0


class DoorClosed(WatchdogError):
    """A process that has to answer did not, or refused."""

    def __init__(self, door: str, detail: str) -> None:
        """Keep whose door it is."""
        super().__init__(f"{door}: {detail}")
        self.door = door


class _Door:
    """A JSON client of one process on 127.0.0.1."""

    def __init__(self, name: str, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.url = url
        # No proxies and no .netrc: everything here is on loopback.
        self._client = httpx2.Client(base_url=url, headers=dict(headers or {}), timeout=_TIMEOUT_SECONDS, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._client.close()

    def answers(self, path: str) -> bool:
        """Return whether `path` answers 200 now."""
        try:
            return self._client.get(path).status_code == httpx2.codes.OK
        except httpx2.HTTPError:
            return False

    def _call(self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> Any:
        try:
            answer = self._client.request(method, path, json=body, headers=dict(headers or {}))
        except httpx2.HTTPError as error:
            raise DoorClosed(self.name, f"{method} {path}: {type(error).__name__}: {error}") from error
        if not answer.is_success:
            raise DoorClosed(self.name, f"{method} {path}: {answer.status_code} {answer.text.strip()[:500]}")
        return answer.json() if answer.content else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the emulator's timeline."""

    seq: int
    at: datetime
    kind: str
    instance_id: str | None
    detail: Mapping[str, Any]


class EmulatorDoor(_Door):
    """`/_emulator/` (docs/protocols.md, section 5)."""

    def instances(self) -> list[dict[str, Any]]:
        """Return every instance there is or was."""
        return list(self._call("GET", "/_emulator/instances")["instances"])

    def timeline(self, after: int = 0) -> list[Entry]:
        """Return the entries after sequence number `after`, oldest first."""
        entries = self._call("GET", f"/_emulator/timeline?after={after}")["entries"]
        return [
            Entry(
                seq=entry["seq"],
                at=datetime.fromisoformat(entry["at"]),
                kind=entry["kind"],
                instance_id=entry.get("instance_id"),
                detail=entry.get("detail") or {},
            )
            for entry in entries
        ]

    def interrupt(self, instance_id: str, *, notice_seconds: float) -> None:
        """Give the interruption notice, and take the instance back after `notice_seconds`."""
        self._call("POST", f"/_emulator/instances/{instance_id}/interrupt", {"notice_seconds": notice_seconds})

    def rebalance(self, instance_id: str) -> None:
        """Give the rebalance recommendation."""
        self._call("POST", f"/_emulator/instances/{instance_id}/rebalance")

    def vanish(self, instance_id: str) -> None:
        """End the instance at once, without a notice; EC2 reports its new state."""
        self._call("POST", f"/_emulator/instances/{instance_id}/vanish", {"events": True})

    def set_pool(
        self, availability_zone_id: str, instance_type: str, market: str, *, capacity: int | None = None, price: float | None = None
    ) -> None:
        """Set how many more instances a pool can start, or what one costs in USD per hour."""
        body = {name: value for name, value in (("capacity", capacity), ("price", price)) if value is not None}
        self._call("PUT", f"/_emulator/pools/{availability_zone_id}/{instance_type}/{market}", body)

    def set_quota(self, code: str, vcpus: float) -> None:
        """Set a quota of EC2."""
        self._call("PUT", f"/_emulator/quotas/{code}", {"value": vcpus})


class ServiceDoor(_Door):
    """The service's public API."""

    def __init__(self, url: str, *, token: str) -> None:
        """Speak to the service at `url` as the holder of `token`."""
        super().__init__("service", url, headers={"Authorization": f"Bearer {token}"})

    def register(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Register a job and return its resource."""
        return dict(self._call("POST", "/v1/jobs", job, headers={"Idempotency-Key": f'"{uuid.uuid4()}"'}))

    def job(self, job_id: str) -> dict[str, Any]:
        """Return a job's resource."""
        return dict(self._call("GET", f"/v1/jobs/{job_id}"))

    def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        self._call("DELETE", f"/v1/jobs/{job_id}")

    def migrations(self, job_id: str) -> list[dict[str, Any]]:
        """Return a job's migrations, oldest first."""
        return sorted(self._items(f"/v1/migrations?job_id={job_id}"), key=lambda item: str(item["opened_at"]))

    def journal(self, migration_id: str) -> list[dict[str, Any]]:
        """Return what was recorded of one migration, oldest first."""
        return self._items(f"/v1/migrations/{migration_id}/journal")

    def decisions(self, job_id: str) -> list[dict[str, Any]]:
        """Return the decisions made about a job."""
        return self._items(f"/v1/decisions?job_id={job_id}")

    def _items(self, path: str) -> list[dict[str, Any]]:
        return list(self._call("GET", path)["items"])


class SlackDoor(_Door):
    """What the Slack receiver took."""

    def messages(self) -> list[dict[str, Any]]:
        """Return every message to Slack and to the scheduler, oldest first."""
        return list(self._call("GET", "/_messages")["messages"])
