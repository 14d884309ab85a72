"""`next_actions` is the only place that decides what runs next. It reads recorded facts and the time, nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from watchdog.errors import LaunchScope
from watchdog.ids import InstanceId
from watchdog.migration import budgets
from watchdog.migration.model import Attempt, AttemptState, Migration, PlannedTarget
from watchdog.migration.saga import PIVOT, MigrationState, StepName, StepState, may_start


@dataclass(frozen=True, slots=True, kw_only=True)
class IntendLaunch:
    """Record an attempt in this pool."""

    number: int
    target: PlannedTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLaunch:
    """Call EC2 for a recorded attempt; a repeat adopts what an earlier call started."""

    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpLaunching:
    """No pool of the plan is left."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """Ask the policy again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpSaving:
    """The source had its time."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantTakeOver:
    """The pivot: let the replacement take over from the token that `HEAD` holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReplacement:
    """The replacement did not do its part in time: end it and try another."""

    instance_id: InstanceId
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSource:
    """The job has left this instance for good: end it."""

    instance_id: InstanceId


Action = IntendLaunch | CallLaunch | GiveUpLaunching | Replan | GiveUpSaving | GrantTakeOver | EndReplacement | EndSource


def next_actions(migration: Migration, *, now: datetime) -> tuple[Action, ...]:
    """Return everything that is to be done now; the actions do not depend on each other and may run side by side."""
    if migration.closed_at is not None or migration.state.terminal:
        return ()
    return (
        *_saving(migration, now),
        *_launching(migration, now),
        *_awaiting(migration, now),
        *_cutting_over(migration),
        *_retiring(migration, now),
    )


def wake_at(migration: Migration, *, now: datetime) -> datetime | None:
    """Return the next moment at which `next_actions` may answer something new by the passing of time alone; None if never."""
    if migration.closed_at is not None:
        return None
    moments = [migration.parked_until, budgets.retire_at(migration)]
    if migration.step_state(StepName.SAVE_CHECKPOINT) is StepState.RUNNING:
        moments.append(budgets.save_ends(migration))
    if migration.step_state(StepName.RESUME_JOB) is not StepState.DONE:
        moments.append(budgets.agent_due(migration))
    attempt = migration.attempt
    if attempt and attempt.state is AttemptState.INTENDED:
        moments.append(attempt.retry_at)
    return min((moment for moment in moments if moment is not None and moment > now), default=None)


def next_target(migration: Migration) -> PlannedTarget | None:
    """Return the first pool of the plan that was not tried in this round and that no refusal of this round rules out."""
    tried = [attempt for attempt in migration.attempts if attempt.number > migration.round_start]
    pools = {attempt.target.pool for attempt in tried if attempt.scope is not LaunchScope.ATTEMPT}
    if any(attempt.scope in {LaunchScope.CONFIGURATION, LaunchScope.ACCOUNT, LaunchScope.OURS} for attempt in tried):
        return None
    full = {(attempt.target.pool.market, attempt.target.quota_family) for attempt in tried if attempt.scope is LaunchScope.FAMILY}
    for target in migration.targets:
        if target.pool not in pools and (target.pool.market, target.quota_family) not in full:
            return target
    return None


def blocking_refusal(migration: Migration) -> Attempt | None:
    """Return the attempt of this round whose refusal only a person can mend, or None."""
    blocked = {LaunchScope.CONFIGURATION, LaunchScope.ACCOUNT, LaunchScope.OURS}
    return next((attempt for attempt in migration.attempts if attempt.number > migration.round_start and attempt.scope in blocked), None)


def _saving(migration: Migration, now: datetime) -> tuple[Action, ...]:
    if migration.step_state(StepName.SAVE_CHECKPOINT) is StepState.RUNNING and now >= budgets.save_ends(migration):
        return (GiveUpSaving(why="no checkpoint came in time"),)
    return ()


def _launching(migration: Migration, now: datetime) -> tuple[Action, ...]:
    state = migration.step_state(StepName.LAUNCH_REPLACEMENT)
    if state is StepState.EXHAUSTED and migration.state is MigrationState.PARKED:
        due = migration.parked_until is not None and now >= migration.parked_until
        return (Replan(),) if due else ()
    if state is not StepState.RUNNING:
        return ()
    attempt = migration.attempt
    if attempt is not None:
        return (CallLaunch(attempt=attempt),) if attempt.retry_at is None or now >= attempt.retry_at else ()
    target = next_target(migration)
    if target is None:
        return (GiveUpLaunching(why=_why_exhausted(migration)),)
    return (IntendLaunch(number=len(migration.attempts) + 1, target=replace(target, why=target.why + _after_refusals(migration))),)


def _after_refusals(migration: Migration) -> str:
    """Return what the refusals of this round add to the reason for the next target: nobody should have to guess why it is not the first."""
    refused = [attempt for attempt in migration.attempts if attempt.number > migration.round_start and attempt.code]
    if not refused:
        return ""
    return "; before it: " + ", ".join(f"{attempt.target.pool} {_said(attempt)}" for attempt in refused)


def _said(attempt: Attempt) -> str:
    if attempt.state is AttemptState.LOST:
        return f"was lost ({attempt.code})"
    if attempt.scope is LaunchScope.FAMILY:
        return f"met a full quota of family {attempt.target.quota_family} ({attempt.code}), which no other zone can help"
    return f"refused ({attempt.code})"


def _why_exhausted(migration: Migration) -> str:
    tried = [f"{attempt.target.pool}: {attempt.code}" for attempt in migration.attempts if attempt.number > migration.round_start]
    return "; ".join(tried) if tried else "; ".join(migration.reasons) or "the plan names no pool"


def _awaiting(migration: Migration, now: datetime) -> tuple[Action, ...]:
    attempt = migration.attempt
    if attempt is None or attempt.instance_id is None or migration.step_state(StepName.RESUME_JOB) is StepState.DONE:
        return ()
    due = budgets.agent_due(migration)
    if due is not None and now >= due:
        return (EndReplacement(instance_id=attempt.instance_id, why="no progress from its agent in time"),)
    return ()


def _cutting_over(migration: Migration) -> tuple[Action, ...]:
    states = {name: record.state for name, record in migration.steps.items()}
    if states[PIVOT] is StepState.PENDING and may_start(PIVOT, states):
        return (GrantTakeOver(),)
    return ()


def _retiring(migration: Migration, now: datetime) -> tuple[Action, ...]:
    due = budgets.retire_at(migration)
    if migration.step_state(StepName.RETIRE_SOURCE) is not StepState.RUNNING or due is None or now < due:
        return ()
    return tuple(EndSource(instance_id=source.instance_id) for source in migration.sources if source.lost_at is None)
