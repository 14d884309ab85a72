"""The only module of the service that reads a clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What the service needs to know of time."""

    def now(self) -> datetime:
        """Return the current instant as an aware UTC datetime."""

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> datetime:
        """Return the current instant as an aware UTC datetime."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to: for tests and simulations."""

    def __init__(self, start: datetime) -> None:
        """Stand still at `start`, which must be aware."""
        self._now = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        """Return the instant this clock stands at."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds this clock has been moved by."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds`, which may not be negative."""
        if seconds < 0:
            msg = f"a clock cannot go back: {seconds}"
            raise ValueError(msg)
        self._now += timedelta(seconds=seconds)
        self._elapsed += seconds
