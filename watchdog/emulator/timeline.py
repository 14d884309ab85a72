"""What happened in the emulated AWS, in order, with the time it happened at."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from watchdog.clock import Clock


def iso(instant: datetime) -> str:
    """Return an aware UTC datetime as ISO 8601 with microseconds and a Z."""
    return instant.isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that happened."""

    seq: int
    at: datetime
    kind: str
    instance_id: str | None
    detail: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the entry as the control door shows it."""
        return {"seq": self.seq, "at": iso(self.at), "kind": self.kind, "instance_id": self.instance_id, "detail": self.detail}


class Timeline:
    """An append-only record that any thread may write."""

    def __init__(self, clock: Clock) -> None:
        """Start empty."""
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: list[Entry] = []

    def add(self, kind: str, instance_id: str | None = None, **detail: Any) -> Entry:
        """Record that something happened just now."""
        with self._lock:
            entry = Entry(seq=len(self._entries) + 1, at=self._clock.now(), kind=kind, instance_id=instance_id, detail=detail)
            self._entries.append(entry)
            return entry

    def after(self, seq: int) -> list[Entry]:
        """Return the entries that come after number `seq`; 0 returns all."""
        with self._lock:
            return self._entries[max(seq, 0) :]
