"""THE list of a migration's steps and states. Step states are stored; the migration's state is derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class StepName(StrEnum):
    """The steps, in the order people read them."""

    SAVE_CHECKPOINT = "save_checkpoint"
    LAUNCH_REPLACEMENT = "launch_replacement"
    AWAIT_AGENT = "await_agent"
    CUT_OVER = "cut_over"
    RESUME_JOB = "resume_job"
    RETIRE_SOURCE = "retire_source"


class StepState(StrEnum):
    """How far one step has come."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    EXHAUSTED = "exhausted"
    UNDONE = "undone"

    @property
    def settled(self) -> bool:
        """Whether the steps after this one may start."""
        return self in {StepState.DONE, StepState.SKIPPED}


@dataclass(frozen=True, slots=True)
class Step:
    """One step and what must be settled before it."""

    name: StepName
    after: tuple[StepName, ...] = ()
    pivot: bool = False
    """Once this step has begun there is no way back."""


SAGA: tuple[Step, ...] = (
    Step(StepName.SAVE_CHECKPOINT),
    Step(StepName.LAUNCH_REPLACEMENT),  # beside the save: there are two minutes only
    Step(StepName.AWAIT_AGENT, after=(StepName.LAUNCH_REPLACEMENT,)),
    Step(StepName.CUT_OVER, after=(StepName.SAVE_CHECKPOINT, StepName.AWAIT_AGENT), pivot=True),
    Step(StepName.RESUME_JOB, after=(StepName.CUT_OVER,)),
    Step(StepName.RETIRE_SOURCE, after=(StepName.RESUME_JOB,)),
)

PIVOT = next(step.name for step in SAGA if step.pivot)


class MigrationState(StrEnum):
    """Derived, never stored."""

    PREPARING = "preparing"
    CUTTING_OVER = "cutting_over"
    RESUMING = "resuming"
    SUCCEEDED = "succeeded"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"
    PARKED = "parked"
    FAILED = "failed"
    HANDED_ON = "handed_on"
    """The replacement was lost after the pivot, or the job ended: this migration is closed, whatever comes next is another one."""

    @property
    def terminal(self) -> bool:
        """Whether nothing more will happen in this migration."""
        return self in {MigrationState.SUCCEEDED, MigrationState.ROLLED_BACK, MigrationState.FAILED, MigrationState.HANDED_ON}


def may_start(name: StepName, states: Mapping[StepName, StepState]) -> bool:
    """Return whether everything before `name` is settled."""
    step = next(step for step in SAGA if step.name is name)
    return all(states[before].settled for before in step.after)


def state_of(states: Mapping[StepName, StepState], *, way_back: bool, handed_on: bool) -> MigrationState:
    """Derive the migration's state.

    Args:
        states: the state of every step.
        way_back: whether the source lives on, so that giving up leaves the job where it was.
        handed_on: whether the migration was closed in favour of whatever comes next.
    """
    if handed_on:
        return MigrationState.HANDED_ON
    pivot = states[PIVOT]
    if all(state.settled for state in states.values()):
        return MigrationState.SUCCEEDED
    if pivot is StepState.PENDING or pivot is StepState.UNDONE:
        if StepState.EXHAUSTED in states.values():
            return MigrationState.ROLLING_BACK if way_back else MigrationState.PARKED
        if StepState.UNDONE in states.values():
            return MigrationState.ROLLED_BACK
        return MigrationState.PREPARING
    if StepState.EXHAUSTED in states.values():
        return MigrationState.FAILED
    return MigrationState.RESUMING if pivot.settled else MigrationState.CUTTING_OVER
