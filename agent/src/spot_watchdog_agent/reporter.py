"""Tells the service what is, in a thread of its own, so that a slow or dead service costs training nothing."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spot_watchdog_agent.client import ServiceClient
from spot_watchdog_agent.errors import ServiceRefused, ServiceUnavailable
from spot_watchdog_agent.wire import Directive, Report, now

log = logging.getLogger(__name__)

_SHORTEST_SECONDS = 0.05
_LONGEST_SECONDS = 60.0
_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 15.0
_LEAST_GAP_AFTER_FAILURE_SECONDS = 0.2
_IDENTITY_SECONDS = 30.0
"""How long the first report waits to learn which instance this is: the service knows an agent by it."""


class Reporter:
    """Keeps the newest report and delivers it: at once when it changed, and whenever the service asked to hear again."""

    def __init__(
        self,
        client: ServiceClient | None,
        *,
        hold: threading.Event,
        on_directive: Callable[[Directive], None],
        on_refusal: Callable[[ServiceRefused], None],
    ) -> None:
        """Send nothing before `start`, nor before `hold` is set; without a client there is nobody to tell."""
        self._client = client
        self._hold = hold
        self._on_directive = on_directive
        self._on_refusal = on_refusal
        self._report = Report()
        self._changed = threading.Condition()
        self._version = 1
        self._tried_version = 0
        self._delivered_version = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def report(self) -> Report:
        """The report as it would be sent now."""
        return self._report

    def start(self) -> None:
        """Begin to report."""
        if self._client is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._client,), name="spot-watchdog-reporter", daemon=True)
            self._thread.start()

    def update(self, **changes: Any) -> None:
        """Change the report; if anything is new it is sent at once. Never waits for the network."""
        with self._changed:
            changed = replace(self._report, **changes)
            if changed != self._report:
                self._report = changed
                self._version += 1
                self._changed.notify_all()

    def note_step(self, step: int) -> None:
        """Change the step without sending: steps are too many to tell each."""
        with self._changed:
            self._report = replace(self._report, step=step)

    def flush(self, seconds: float) -> bool:
        """Wait until the newest report is delivered, for `seconds` at most, and return whether it is."""
        if self._thread is None:
            return True
        with self._changed:
            wanted = self._version
            return self._changed.wait_for(lambda: self._delivered_version >= wanted, timeout=seconds)

    def close(self) -> None:
        """End the thread; a report that is under way is given the time it may take."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._hold.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, client: ServiceClient) -> None:
        self._hold.wait(_IDENTITY_SECONDS)
        failures = 0
        delay = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._version != self._tried_version, timeout=delay)
                if self._closed:
                    break
                version = self._tried_version = self._version
                report = self._report
            try:
                directive = client.report(report.to_wire(sent_at=now()))
            except (ServiceUnavailable, ServiceRefused) as error:
                failures += 1
                if failures == 1:
                    log.warning("The service did not take a report; training goes on and it is told later. %s", error)
                delay = min(_FIRST_BACKOFF_SECONDS * 2 ** min(failures - 1, 10), _LONGEST_BACKOFF_SECONDS) * random.uniform(0.5, 1.0)
                if isinstance(error, ServiceRefused):
                    self._on_refusal(error)
                time.sleep(_LEAST_GAP_AFTER_FAILURE_SECONDS)
                continue
            if failures:
                log.info("The service takes reports again, after %d failures.", failures)
            failures = 0
            delay = min(max(directive.report_again_seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)
            with self._changed:
                self._delivered_version = version
                self._changed.notify_all()
            self._on_directive(directive)
        client.close()
