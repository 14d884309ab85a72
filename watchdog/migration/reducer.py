"""How a fact changes a migration. A fact that says nothing new changes nothing, so that each may come twice, late or out of order."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from watchdog.migration.facts import (
    AgentArrived,
    CheckpointCommitted,
    Fact,
    JobBlocked,
    JobEnded,
    JobResumed,
    Launched,
    LaunchExhausted,
    LaunchIntended,
    LaunchRefusedBy,
    LaunchUnanswered,
    NoticeReceived,
    Opened,
    ReplacementGone,
    Replanned,
    SaveGivenUp,
    SourceGone,
    TakenOver,
    TakeOverGranted,
)
from watchdog.migration.model import Attempt, AttemptState, Migration
from watchdog.migration.saga import PIVOT, SAGA, StepName, StepState, may_start

_RUNNING_OR_PENDING = frozenset({StepState.PENDING, StepState.RUNNING})


def reduce(migration: Migration, fact: Fact) -> Migration:
    """Return the migration after `fact`. A closed migration changes no more."""
    if migration.closed_at is not None:
        return migration
    after = _advance(_apply(migration, fact), fact.at)
    if after.state.terminal:
        after = replace(after, closed_at=fact.at)
    return after


def _apply(migration: Migration, fact: Fact) -> Migration:  # noqa: C901, PLR0911, PLR0912 - one branch per kind of fact is the point
    match fact:
        case Opened():
            if not migration.sources:
                skipped = _finish(migration, StepName.SAVE_CHECKPOINT, StepState.SKIPPED, fact.at, "the job has no source")
                return _finish(skipped, StepName.RETIRE_SOURCE, StepState.SKIPPED, fact.at, "the job has no source")
            return migration
        case NoticeReceived():
            if not migration.has_source(fact.instance_id):
                return migration
            earliest = fact.reclaim_at if migration.reclaim_at is None else min(migration.reclaim_at, fact.reclaim_at)
            return replace(migration, reclaim_at=earliest, noticed_at=migration.noticed_at or fact.at)
        case CheckpointCommitted():
            if migration.step_state(StepName.SAVE_CHECKPOINT) is not StepState.RUNNING:
                return migration
            saved = replace(migration, checkpoint=fact.checkpoint, source_step=fact.source_step)
            return _finish(saved, StepName.SAVE_CHECKPOINT, StepState.DONE, fact.at, f"step {fact.checkpoint.step}")
        case SaveGivenUp():
            return _skip_save(migration, fact.at, fact.why)
        case SourceGone():
            return _source_gone(migration, fact)
        case LaunchIntended():
            if any(attempt.number == fact.number for attempt in migration.attempts):
                return migration
            return migration.with_attempt(
                Attempt(number=fact.number, target=fact.target, client_token=fact.client_token, intended_at=fact.at)
            )
        case Launched():
            attempt = _open_attempt(migration, fact.number)
            if attempt is None:
                return migration
            launched = replace(
                attempt, state=AttemptState.LAUNCHED, instance_id=fact.instance_id, launched_at=fact.at, address=fact.address
            )
            return _finish(migration.with_attempt(launched), StepName.LAUNCH_REPLACEMENT, StepState.DONE, fact.at, str(attempt.target.pool))
        case LaunchRefusedBy():
            attempt = _open_attempt(migration, fact.number)
            if attempt is None:
                return migration
            return migration.with_attempt(replace(attempt, state=AttemptState.REFUSED, code=fact.code, scope=fact.scope, retry_at=None))
        case LaunchUnanswered():
            attempt = _open_attempt(migration, fact.number)
            if attempt is None:
                return migration
            return migration.with_attempt(replace(attempt, tries=attempt.tries + 1, retry_at=fact.retry_at))
        case LaunchExhausted():
            if migration.step_state(StepName.LAUNCH_REPLACEMENT) is not StepState.RUNNING:
                return migration
            parked = replace(migration, parks=migration.parks + 1, parked_until=fact.until)
            return _finish(parked, StepName.LAUNCH_REPLACEMENT, StepState.EXHAUSTED, fact.at, fact.why)
        case Replanned():
            if migration.step_state(StepName.LAUNCH_REPLACEMENT) is not StepState.EXHAUSTED:
                return migration
            fresh = replace(
                migration,
                targets=fact.targets,
                reasons=fact.reasons,
                decision_id=fact.decision_id,
                round_start=len(migration.attempts),
                parked_until=None,
            )
            return _restart(fresh, StepName.LAUNCH_REPLACEMENT, fact.at)
        case AgentArrived():
            attempt = migration.attempt_of(fact.instance_id)
            if (
                attempt is None
                or attempt.state is not AttemptState.LAUNCHED
                or migration.step_state(StepName.AWAIT_AGENT) is not StepState.RUNNING
            ):
                return migration
            arrived = replace(attempt, incarnation=fact.incarnation, address=fact.address or attempt.address)
            return _finish(migration.with_attempt(arrived), StepName.AWAIT_AGENT, StepState.DONE, fact.at, fact.instance_id)
        case TakeOverGranted():
            if migration.step_state(PIVOT) is not StepState.PENDING or not _may_start(migration, PIVOT):
                return migration
            return _start(replace(migration, take_over_from=fact.take_over_from), PIVOT, fact.at)
        case TakenOver():
            if migration.step_state(PIVOT) is not StepState.RUNNING or migration.attempt_of(fact.instance_id) != migration.attempt:
                return migration
            return _finish(migration, PIVOT, StepState.DONE, fact.at, f"fencing token {fact.fencing_token}")
        case JobResumed():
            if (
                migration.step_state(StepName.RESUME_JOB) is not StepState.RUNNING
                or migration.attempt_of(fact.instance_id) != migration.attempt
            ):
                return migration
            resumed = replace(migration, resumed_from_step=fact.resumed_from_step)
            return _finish(resumed, StepName.RESUME_JOB, StepState.DONE, fact.at, f"from step {fact.resumed_from_step}")
        case ReplacementGone():
            return _replacement_gone(migration, fact)
        case JobBlocked():
            return replace(migration, handed_on=f"blocked: {fact.why}")
        case JobEnded():
            if migration.step_state(StepName.RESUME_JOB) is StepState.DONE:
                return migration
            return replace(migration, handed_on=f"the job is {fact.state}")
        case _:
            assert_never(fact)


def _source_gone(migration: Migration, fact: SourceGone) -> Migration:
    if not migration.has_source(fact.instance_id):
        return migration
    sources = tuple(
        replace(source, lost_at=source.lost_at or fact.at) if source.instance_id == fact.instance_id else source
        for source in migration.sources
    )
    gone = replace(migration, sources=sources, source_step=fact.source_step if fact.source_step is not None else migration.source_step)
    if any(source.lost_at is None for source in sources):
        return gone
    gone = _skip_save(gone, fact.at, fact.why)
    if gone.step_state(StepName.RETIRE_SOURCE) is StepState.RUNNING:
        return _finish(gone, StepName.RETIRE_SOURCE, StepState.DONE, fact.at, fact.why)
    return gone


def _skip_save(migration: Migration, at: datetime, why: str) -> Migration:
    if migration.step_state(StepName.SAVE_CHECKPOINT) not in _RUNNING_OR_PENDING:
        return migration
    return _finish(migration, StepName.SAVE_CHECKPOINT, StepState.SKIPPED, at, why)


def _replacement_gone(migration: Migration, fact: ReplacementGone) -> Migration:
    attempt = migration.attempt_of(fact.instance_id)
    if attempt is None or attempt.state is not AttemptState.LAUNCHED or migration.step_state(StepName.RESUME_JOB) is StepState.DONE:
        return migration
    lost = migration.with_attempt(replace(attempt, state=AttemptState.LOST, code=fact.why))
    if migration.step_state(PIVOT) is not StepState.PENDING:
        # After the pivot the job may already belong to the lost instance: what follows is a new migration with that one as its source.
        return replace(lost, handed_on=f"the replacement was lost after the pivot: {fact.why}")
    waiting = _replace_step(lost, StepName.AWAIT_AGENT, StepState.PENDING)
    return _restart(waiting, StepName.LAUNCH_REPLACEMENT, fact.at)


def _open_attempt(migration: Migration, number: int) -> Attempt | None:
    return next((each for each in migration.attempts if each.number == number and each.state is AttemptState.INTENDED), None)


def _advance(migration: Migration, at: datetime) -> Migration:
    """Start every step whose predecessors are settled, except the pivot: that starts by a grant only."""
    for step in SAGA:
        if step.pivot or migration.step_state(step.name) is not StepState.PENDING or not _may_start(migration, step.name):
            continue
        migration = _start(migration, step.name, at)
        if step.name is StepName.RETIRE_SOURCE and all(source.lost_at is not None for source in migration.sources):
            migration = _finish(migration, step.name, StepState.SKIPPED, at, "the source is gone already")
    return migration


def _may_start(migration: Migration, name: StepName) -> bool:
    return may_start(name, {each: record.state for each, record in migration.steps.items()})


def _start(migration: Migration, name: StepName, at: datetime) -> Migration:
    record = replace(migration.steps[name], state=StepState.RUNNING, started_at=at)
    return replace(migration, steps={**migration.steps, name: record})


def _restart(migration: Migration, name: StepName, at: datetime) -> Migration:
    record = replace(
        migration.steps[name], state=StepState.RUNNING, started_at=migration.steps[name].started_at or at, finished_at=None, note=None
    )
    return replace(migration, steps={**migration.steps, name: record})


def _finish(migration: Migration, name: StepName, state: StepState, at: datetime, note: str) -> Migration:
    record = replace(migration.steps[name], state=state, finished_at=at, note=note)
    return replace(migration, steps={**migration.steps, name: record})


def _replace_step(migration: Migration, name: StepName, state: StepState) -> Migration:
    record = replace(migration.steps[name], state=state, started_at=None, finished_at=None, note=None)
    return replace(migration, steps={**migration.steps, name: record})
