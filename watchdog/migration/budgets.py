"""How long a migration waits for what. Absolute moments, computed from what is recorded."""

from __future__ import annotations

from datetime import datetime, timedelta

from watchdog.migration.model import Migration
from watchdog.migration.saga import StepName, StepState

RECLAIM_GRACE = timedelta(seconds=10)
"""AWS's reclaim time is approximate (EC2 User Guide, "Spot Instance interruption notices"); after this much more the source counts as lost."""

SAVE_LIMIT = timedelta(minutes=10)
"""How long a save without a reclaim time may take."""

BOOT_LIMIT = timedelta(minutes=10)
"""From the launch to the agent's hello; an image with large models boots for minutes."""

RESTORE_LIMIT = timedelta(hours=2)
"""From the grant to the first step: a large restore or a long compilation is no failure. One that dies meanwhile is found otherwise."""

PARK_FIRST = timedelta(seconds=10)
PARK_LONGEST = timedelta(minutes=5)


def save_ends(migration: Migration) -> datetime:
    """Return when to stop waiting for the source's checkpoint."""
    if migration.reclaim_at is not None:
        return migration.reclaim_at + RECLAIM_GRACE
    return migration.opened_at + SAVE_LIMIT


def agent_due(migration: Migration) -> datetime | None:
    """Return when a replacement that was launched must have said hello, or, once it may take over, have done its first step."""
    granted = migration.steps[StepName.CUT_OVER].started_at
    if granted is not None:
        return granted + RESTORE_LIMIT
    attempt = migration.attempt
    waiting = migration.step_state(StepName.AWAIT_AGENT) is StepState.RUNNING
    return attempt.launched_at + BOOT_LIMIT if waiting and attempt and attempt.launched_at else None


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
