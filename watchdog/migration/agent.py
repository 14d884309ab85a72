"""What an agent says of itself, what it is told, and which facts follow from its report. Pure. The wire form is in docs/protocols.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from watchdog.ids import Incarnation, InstanceId, JobId
from watchdog.migration.facts import AgentArrived, CheckpointCommitted, Fact, JobBlocked, JobResumed, ReplacementGone, TakenOver
from watchdog.migration.model import AttemptState, CheckpointRef, Job, Migration
from watchdog.migration.saga import StepName, StepState

WAITING_SECONDS = 0.1
"""How often a replacement asks for its grant: it waits for seconds only, and each wait lengthens the move."""
PROGRAM_FAILURES = 3
"""So many fresh instances on which a job's own program failed before its first step are proof that a fresh instance does not help."""
WATCHING_SECONDS = 1.0
"""How often an agent reports when nothing changed."""


class Phase(StrEnum):
    """What an agent is doing."""

    STARTING = "starting"
    RESTORING = "restoring"
    TRAINING = "training"
    SAVING = "saving"
    STOPPED = "stopped"
    FINISHED = "finished"
    SUPERSEDED = "superseded"
    FAILED = "failed"


class Desired(StrEnum):
    """What an agent should do."""

    WAIT = "wait"
    RUN = "run"
    SAVE = "save"
    SAVE_AND_STOP = "save_and_stop"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """What an agent says of itself; level-triggered, so the latest report is the whole truth."""

    job_id: JobId
    incarnation: Incarnation
    instance_id: InstanceId | None
    phase: Phase
    received_at: datetime
    sent_at: datetime
    node_rank: int = 0
    availability_zone_id: str | None = None
    address: str | None = None
    fencing_token: int | None = None
    step: int | None = None
    resumed_from_step: int | None = None
    notices: tuple[Mapping[str, Any], ...] = ()
    """Entries as the agent wrote them; `watchdog.notices.imds` reads them."""
    checkpoint: CheckpointRef | None = None
    handled_generation: int = 0
    save_error: str | None = None
    metadata: str = "absent"
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """What an agent is told."""

    desired: Desired
    generation: int
    take_over_from: int | None
    report_again_seconds: float


def directive_for(job: Job, migration: Migration | None, report: AgentReport) -> Directive:
    """Derive what this agent should do from what is recorded; the same report always gets the same answer."""
    desired, grant = _desired(job, migration, report)
    seconds = WAITING_SECONDS if desired is Desired.WAIT else WATCHING_SECONDS
    return Directive(desired=desired, generation=job.generation, take_over_from=grant, report_again_seconds=seconds)


def _desired(job: Job, migration: Migration | None, report: AgentReport) -> tuple[Desired, int | None]:
    if job.state.terminal:
        return Desired.STOP, None
    if report.fencing_token is not None:
        return _desired_of_owner(job, migration, report), None
    if report.instance_id is None:
        return Desired.WAIT, None  # its metadata is not readable yet: who it is will show
    attempt = migration.attempt_of(report.instance_id) if migration else None
    if migration is not None and attempt is None and migration.attempt is not None and migration.attempt.state is AttemptState.INTENDED:
        return Desired.WAIT, None  # it may have booted before the answer of the call that launched it
    if migration is None or attempt is None or attempt.state is not AttemptState.LAUNCHED:
        # Not one of ours, or an attempt that was given up: a late boot must not take over.
        return Desired.STOP, None
    return Desired.WAIT, migration.take_over_from


def _desired_of_owner(job: Job, migration: Migration | None, report: AgentReport) -> Desired:
    if is_superseded(job, report):
        return Desired.STOP
    leaving = migration is not None and report.instance_id is not None and migration.has_source(report.instance_id)
    if leaving and report.phase is not Phase.STOPPED:
        return Desired.SAVE_AND_STOP
    handled = max(report.handled_generation, job.member.generation if job.member else 0)
    return Desired.SAVE if job.generation > handled and not leaving else Desired.RUN


def is_superseded(job: Job, report: AgentReport) -> bool:
    """Return whether another instance is known to own the job. Safety rests on `HEAD`, not on this."""
    return report.fencing_token is not None and report.fencing_token < job.fencing_token


def owns(job: Job, report: AgentReport) -> bool:
    """Return whether the report comes from the instance that is known to own the job, under a token that is not older than ours."""
    mine = job.member is not None and job.member.instance_id == report.instance_id
    return mine and report.fencing_token is not None and report.fencing_token >= max(job.fencing_token, 1)


def facts_from(report: AgentReport, job: Job, migration: Migration) -> tuple[Fact, ...]:
    """Return the facts for `migration` that this report proves, in the order in which they happened."""
    if report.instance_id is None:
        return ()
    if migration.has_source(report.instance_id):
        return _facts_of_source(report, migration)
    attempt = migration.attempt_of(report.instance_id)
    if attempt is not None and attempt.state is AttemptState.LAUNCHED:
        return _facts_of_replacement(report, report.instance_id, job)
    return ()


def _facts_of_source(report: AgentReport, migration: Migration) -> tuple[Fact, ...]:
    checkpoint = report.checkpoint
    if checkpoint is None or migration.step_state(StepName.SAVE_CHECKPOINT) is not StepState.RUNNING:
        return ()
    # Only the checkpoint on which training has stopped is the one this migration waits for: an earlier one would cost its later steps.
    if report.phase is not Phase.STOPPED:
        return ()
    return (CheckpointCommitted(at=report.received_at, checkpoint=checkpoint, source_step=report.step),)


def _facts_of_replacement(report: AgentReport, instance_id: InstanceId, job: Job) -> tuple[Fact, ...]:
    at = report.received_at
    facts: list[Fact] = [AgentArrived(at=at, instance_id=instance_id, incarnation=report.incarnation, address=report.address)]
    if report.phase in {Phase.SUPERSEDED, Phase.FAILED}:
        failed = report.phase is Phase.FAILED
        why = report.message or f"its agent reports {report.phase}"
        gone = ReplacementGone(at=at, instance_id=instance_id, why=why, program_failed=failed)
        if failed and job.program_failures + 1 >= PROGRAM_FAILURES:
            return (*facts, JobBlocked(at=at, why=f"its program failed on {PROGRAM_FAILURES} instances in a row: {why}"))
        return (*facts, gone)
    if report.fencing_token is not None and report.fencing_token > 0:
        facts.append(TakenOver(at=at, instance_id=instance_id, incarnation=report.incarnation, fencing_token=report.fencing_token))
        began = report.step is not None and report.step > (report.resumed_from_step or 0)
        if report.step is not None and (began or report.phase is Phase.FINISHED):
            facts.append(JobResumed(at=at, instance_id=instance_id, step=report.step, resumed_from_step=report.resumed_from_step or 0))
    return tuple(facts)
