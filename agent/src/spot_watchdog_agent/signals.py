"""SIGTERM, turned into a wish that the training loop reads at its next step boundary."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any


class TerminationSignal:
    """Remembers a SIGTERM. The handler does nothing else: it may run in the middle of a step."""

    def __init__(self) -> None:
        """Install nothing yet."""
        self._received = False
        self._previous: Any = None
        self._installed = False
        self._process = os.getpid()

    @property
    def received(self) -> bool:
        """Whether the process was asked to end."""
        return self._received

    def install(self) -> None:
        """Take SIGTERM over, if this is the main thread; Python allows it nowhere else."""
        if not self._installed and threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._handle)
            self._installed = True

    def restore(self) -> None:
        """Give SIGTERM back, unless somebody else has taken it since."""
        if self._installed and threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._previous is None else self._previous)
            self._installed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A forked child, such as a data loader's worker, has no loop of ours and must end as it would without us.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._received = True
        if callable(self._previous):
            self._previous(number, frame)
