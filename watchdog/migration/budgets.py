"""How long a migration waits for what. Absolute moments, computed from what is recorded."""

from __future__ import annotations

from datetime import datetime, timedelta

from watchdog.migration.model import Migration
from watchdog.migration.saga import StepName

RECLAIM_GRACE = timedelta(seconds=10)
"""AWS's reclaim time is approximate (EC2 User Guide, "Spot Instance interruption notices"); after this much more the source counts as lost."""

SAVE_LIMIT = timedelta(minutes=10)
"""How long a save without a reclaim time may take."""

BOOT_LIMIT = timedelta(minutes=10)
"""From the launch to the agent's hello, and from the grant to the first step; an image with large models boots for minutes."""

PARK_FIRST = timedelta(seconds=10)
PARK_LONGEST = timedelta(minutes=5)


def save_ends(migration: Migration) -> datetime:
    """Return when to stop waiting for the source's checkpoint."""
    if migration.reclaim_at is not None:
        return migration.reclaim_at + RECLAIM_GRACE
    return migration.opened_at + SAVE_LIMIT


def agent_due(migration: Migration) -> datetime | None:
    """Return when a replacement that was launched must have said hello, or taken over and resumed."""
    for name in (StepName.RESUME_JOB, StepName.CUT_OVER):
        if migration.steps[name].started_at is not None:
            started = migration.steps[name].started_at
            return started + BOOT_LIMIT if started else None
    attempt = migration.attempt
    return attempt.launched_at + BOOT_LIMIT if attempt and attempt.launched_at else None


def retire_at(migration: Migration) -> datetime | None:
    """Return when a source that still lives is to be ended by us; None before the job has resumed.

    A source under notice is left to AWS: terminating it would forfeit the free first hour of an interrupted instance
    (EC2 User Guide, "Billing for interrupted Spot Instances").
    """
    resumed = migration.steps[StepName.RESUME_JOB].finished_at
    if resumed is None:
        return None
    return resumed if migration.reclaim_at is None else max(resumed, migration.reclaim_at + RECLAIM_GRACE)


def parked_until(migration: Migration, now: datetime) -> datetime:
    """Return when to look at the market again: 10 s, doubling up to 5 min."""
    return now + min(PARK_FIRST * float(2 ** min(migration.parks, 10)), PARK_LONGEST)
