"""Watches the instance metadata service for notices, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from spot_watchdog_agent.errors import MetadataUnavailable
from spot_watchdog_agent.imds import InstanceIdentity, InstanceMetadata
from spot_watchdog_agent.wire import MetadataState, Notice, NoticeKind, now

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
_MISSES_UNTIL_BLIND = 3
_RETRY_ABSENT_SECONDS = 60.0


class WatchListener(Protocol):
    """Who is told; called from the watcher's thread."""

    def identified(self, identity: InstanceIdentity) -> None:
        """Take note of which instance this is."""

    def noticed(self, notice: Notice) -> None:
        """Act on a notice; it is told in every cycle while it stands."""

    def watching(self, state: MetadataState, message: str | None) -> None:
        """Take note of whether a notice would be seen."""


class NoticeWatcher:
    """Polls the metadata service every second. "No notice" is said only after an authenticated 404; anything else is unknown."""

    def __init__(self, metadata: InstanceMetadata | None, listener: WatchListener, *, expected: bool) -> None:
        """Watch `metadata`. Where it is not `expected` to exist (a laptop), silence means absent and is asked about rarely."""
        self._metadata = metadata
        self._listener = listener
        self._expected = expected
        self._closed = threading.Event()
        self._misses = 0
        self._identity: InstanceIdentity | None = None
        self._state: MetadataState | None = None
        self._thread: threading.Thread | None = None
        self.settled = threading.Event()
        """Set once it is known which instance this is, or that nobody can tell."""

    def start(self) -> None:
        """Begin to watch."""
        if self._metadata is None:
            self._tell(MetadataState.ABSENT, None)
            self.settled.set()
        else:
            self._thread = threading.Thread(target=self._run, args=(self._metadata,), name="spot-watchdog-notices", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread, after the request that is under way."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, metadata: InstanceMetadata) -> None:
        delay = 0.0
        while not self._closed.wait(delay):
            try:
                self._look(metadata)
            except MetadataUnavailable as error:
                delay = self._missed(error)
            else:
                self._misses = 0
                delay = _POLL_SECONDS
                self._tell(MetadataState.WATCHING, None)

    def _look(self, metadata: InstanceMetadata) -> None:
        # The notice first: the identity costs three requests more.
        action = metadata.instance_action()
        if action is not None:
            self._listener.noticed(Notice(kind=NoticeKind.SPOT_INTERRUPTION, action=action.action, reclaim_at=action.at, seen_at=now()))
        if self._identity is None:
            self._identity = metadata.identity()
            self._listener.identified(self._identity)
            self.settled.set()
        if metadata.rebalance_recommended():
            self._listener.noticed(Notice(kind=NoticeKind.REBALANCE_RECOMMENDATION, action=None, reclaim_at=None, seen_at=now()))

    def _missed(self, error: MetadataUnavailable) -> float:
        self._misses += 1
        if self._misses < _MISSES_UNTIL_BLIND:
            return _POLL_SECONDS
        if self._expected or self._identity is not None:
            self._tell(MetadataState.BLIND, str(error))
            return _POLL_SECONDS
        self._tell(MetadataState.ABSENT, None)
        self.settled.set()
        return _RETRY_ABSENT_SECONDS

    def _tell(self, state: MetadataState, message: str | None) -> None:
        if state is self._state:
            return
        if state is MetadataState.BLIND:
            log.warning("Interruption notices cannot be seen: %s", message)
        elif self._state is MetadataState.BLIND:
            log.info("Interruption notices can be seen again.")
        self._state = state
        self._listener.watching(state, message)
