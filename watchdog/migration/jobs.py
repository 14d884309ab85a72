"""How a job's record follows the facts of its migration."""

from __future__ import annotations

from dataclasses import replace

from watchdog.migration.facts import Fact, JobBlocked, JobEnded, JobResumed, LaunchExhausted, Opened, ReplacementGone, Replanned, TakenOver
from watchdog.migration.model import Job, JobState, Member, Migration
from watchdog.migration.planner import blocking_refusal


def job_after(job: Job, migration: Migration, fact: Fact) -> Job:
    """Return the job after `fact`, which made `migration` what it is now."""
    if job.state.terminal:
        return job
    match fact:
        case Opened():
            return replace(job, state=JobState.MOVING, migration_id=migration.migration_id, generation=job.generation + 1, note=None)
        case Replanned():
            return replace(job, state=JobState.MOVING, note=None)
        case LaunchExhausted():
            blocked = blocking_refusal(migration) is not None
            return replace(job, state=JobState.BLOCKED if blocked else JobState.PARKED, note=fact.why)
        case TakenOver():
            return _taken_over(job, migration, fact)
        case JobResumed():
            return _leave(replace(job, state=JobState.RUNNING, program_failures=0, note=None), migration)
        case JobBlocked():
            return _leave(replace(job, state=JobState.BLOCKED, note=fact.why), migration)
        case ReplacementGone():
            counted = replace(job, program_failures=job.program_failures + fact.program_failed)
            return _lost_after_pivot(counted, migration) if migration.handed_on else counted
        case JobEnded():
            return _leave(replace(job, state=fact.state), migration)
        case _:
            return job


def _taken_over(job: Job, migration: Migration, fact: TakenOver) -> Job:
    attempt = migration.attempt_of(fact.instance_id)
    if attempt is None or fact.fencing_token < job.fencing_token:
        return job
    member = Member(
        instance_id=fact.instance_id,
        pool=attempt.target.pool,
        address=attempt.address,
        incarnation=attempt.incarnation,
        generation=job.generation,
    )
    return replace(job, member=member, fencing_token=fact.fencing_token)


def _leave(job: Job, migration: Migration) -> Job:
    return replace(job, migration_id=None) if job.migration_id == migration.migration_id else job


def _lost_after_pivot(job: Job, migration: Migration) -> Job:
    """Point at the lost replacement, so that the next migration (and every later look) finds whom to replace."""
    lost = migration.attempts[-1]
    if lost.instance_id is None:
        return _leave(job, migration)
    return _leave(replace(job, member=Member(instance_id=lost.instance_id, pool=lost.target.pool, address=lost.address)), migration)
