"""Things to do at a given moment, done one after the other on a single thread."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

from watchdog.clock import Clock

log = logging.getLogger(__name__)


class Alarms:
    """One thread that runs callbacks when they are due.

    A single thread is the point: the boot and the end of an instance can never overlap.
    """

    def __init__(self, clock: Clock) -> None:
        """Start the thread; nothing is due yet."""
        self._clock = clock
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)
        self._thread.start()

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Run `callback` in `seconds`; those due at the same moment run in the order in which they were set."""
        with self._changed:
            heapq.heappush(self._due, (self._clock.monotonic() + seconds, next(self._order), callback))
            self._changed.notify()

    def close(self) -> None:
        """Let the callback that runs come to its end, drop the others and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            try:
                callback()
            except Exception:
                # One instance that cannot boot must not stop the clock of all others.
                log.exception("emulator.alarm_failed")

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._closed:
                if not self._due:
                    self._changed.wait()
                    continue
                wait = self._due[0][0] - self._clock.monotonic()
                if wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(wait)
            return None
