"""THE table of periodic jobs. APScheduler only starts them; it never drives a migration."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from watchdog.errors import WatchdogError
from watchdog.ports import Telemetry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicJob:
    """One poll."""

    name: str
    every_seconds: float
    run: Callable[[], Awaitable[None]]


class Schedule:
    """Runs periodic jobs side by side; one that is still running is not started again, one that fails is tried again next time."""

    def __init__(self, jobs: Sequence[PeriodicJob], *, telemetry: Telemetry) -> None:
        """Know the jobs; start nothing yet."""
        self._telemetry = telemetry
        # In memory, on every replica: a job store shared by two replicas ran every job twice.
        self._scheduler = AsyncIOScheduler(timezone=UTC)
        for job in jobs:
            self._scheduler.add_job(
                self._guarded,
                IntervalTrigger(seconds=job.every_seconds, timezone=UTC),
                args=[job],
                id=job.name,
                name=job.name,
                next_run_time=datetime.now(UTC),
                coalesce=True,
                max_instances=1,
                misfire_grace_time=int(job.every_seconds) + 60,
            )

    def start(self) -> None:
        """Start, each job at once for the first time."""
        self._scheduler.start()

    def stop(self) -> None:
        """Start no more runs."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    async def _guarded(self, job: PeriodicJob) -> None:
        try:
            await job.run()
        except WatchdogError as error:
            self._telemetry.count("spot_watchdog_polls_total", job=job.name, outcome="unavailable")
            log.warning("poll.failed", extra={"job": job.name, "why": str(error)})
        except Exception:
            self._telemetry.count("spot_watchdog_polls_total", job=job.name, outcome="error")
            log.exception("poll.broken", extra={"job": job.name})
        else:
            self._telemetry.count("spot_watchdog_polls_total", job=job.name, outcome="ok")
