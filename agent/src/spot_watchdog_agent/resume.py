"""Finds the newest checkpoint that proves good, and fetches it early while a replacement waits for its turn."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from spot_watchdog_agent import checkpoint
from spot_watchdog_agent.checkpoint import CheckpointReference, Snapshot
from spot_watchdog_agent.errors import AgentError, CheckpointDamaged, StoreUnavailable
from spot_watchdog_agent.fence import Register
from spot_watchdog_agent.stores import ObjectStore

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 300.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0


class Found(NamedTuple):
    """The checkpoint to resume from, and what was wrong with newer ones."""

    snapshot: Snapshot | None
    """None: the job has no checkpoint yet."""
    warnings: list[str]


class Prefetch:
    """Keeps the newest published checkpoint in memory, verified, until it is needed."""

    def __init__(self, store: ObjectStore, register: Register) -> None:
        """Fetch nothing before `start`."""
        self._store = store
        self._register = register
        self._done = threading.Event()
        self._have: tuple[CheckpointReference, Snapshot] | None = None
        self._thread = threading.Thread(target=self._run, name="spot-watchdog-prefetch", daemon=True)

    def start(self) -> None:
        """Begin to follow HEAD."""
        self._thread.start()

    def finish(self) -> None:
        """Stop following; a fetch that is under way is completed."""
        self._done.set()
        self._thread.join()

    def take(self, reference: CheckpointReference) -> Snapshot | None:
        """Return what was fetched, if it is `reference`."""
        return self._have[1] if self._have and self._have[0] == reference else None

    def _run(self) -> None:
        while not self._done.is_set():
            try:
                head = self._register.peek()
                if head and head.checkpoint and (self._have is None or self._have[0] != head.checkpoint):
                    self._have = None  # not two of them in memory at a time
                    self._have = (head.checkpoint, checkpoint.read(self._store, head.checkpoint))
            except AgentError as error:
                log.debug("Fetching ahead failed; it is tried again, and done in earnest after the take-over: %s", error)
            self._done.wait(_LOOK_SECONDS)


def patiently(call: Callable[[], T], *, check: Callable[[], None]) -> T:
    """Repeat a call that the store does not answer, for some minutes; `check` is called before each pause and may end it by raising.

    Raises whatever the call raises, and StoreUnavailable in the end.
    """
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return call()
        except StoreUnavailable as error:
            if time.monotonic() > give_up_at:
                raise
            log.warning("The checkpoint store does not answer; trying again. %s", error)
        check()
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def find_checkpoint(store: ObjectStore, register: Register, prefetch: Prefetch | None, *, check: Callable[[], None]) -> Found:
    """Return the newest checkpoint in HEAD that proves good; damaged ones are left out of HEAD from now on.

    Raises:
        CheckpointDamaged: there are checkpoints, and none is good.
        StoreError: the store does not answer, which says nothing about the checkpoints.
    """
    warnings: list[str] = []
    for reference in register.head.checkpoints:
        try:
            snapshot = (prefetch.take(reference) if prefetch else None) or patiently(
                partial(checkpoint.read, store, reference), check=check
            )
        except CheckpointDamaged as error:
            warnings.append(f"The checkpoint of step {reference.step} is damaged, the one before is used: {error}")
            log.error("%s", warnings[-1])  # noqa: TRY400  # a traceback would hide the one sentence that matters
            register.leave_out(reference)
        else:
            return Found(snapshot, warnings)
    if warnings:
        raise CheckpointDamaged(f"All {len(warnings)} checkpoints are damaged. {warnings[-1]}")
    return Found(None, warnings)
