"""The training job's own account of itself: JSON lines that the job writes, one log per instance."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The job's process is ready to train."""

    at: datetime
    resumed_from_step: int
    """0: from the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step was computed."""

    at: datetime
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The job ran to its end."""

    at: datetime
    step: int
    sha256: str
    """Of the final weights."""
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLog:
    """Everything one process wrote so far."""

    started: Started | None = None
    steps: tuple[Step, ...] = field(default=())
    finished: Finished | None = None
    built_at: datetime | None = None
    """When the model stood, of a process that was asked for no more than that."""

    @property
    def last_step(self) -> int | None:
        """The last step that was computed, or None if none was."""
        return self.steps[-1].step if self.steps else None


def read_step_log(path: Path) -> StepLog:
    """Read a log that may still be written: no file is an empty log, and a last line without its end does not count yet."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return StepLog()
    complete, _, _ = text.rpartition("\n")
    started: Started | None = None
    steps: list[Step] = []
    finished: Finished | None = None
    built_at: datetime | None = None
    for line in filter(None, complete.split("\n")):
        entry = json.loads(line)
        at = datetime.fromtimestamp(entry["at"], UTC) if "at" in entry else datetime.fromtimestamp(path.stat().st_mtime, UTC)
        match entry["event"]:
            case "started":
                started = Started(at=at, resumed_from_step=entry["resumed_from_step"] or 0)
            case "step":
                steps.append(Step(at=at, step=entry["step"]))
            case "finished":
                finished = Finished(at=at, step=entry["step"], sha256=entry["sha256"], accuracy=entry["accuracy"])
            case "built":
                built_at = at
    return StepLog(started=started, steps=tuple(steps), finished=finished, built_at=built_at)
