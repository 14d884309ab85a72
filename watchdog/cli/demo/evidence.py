"""What was seen of one scenario, and the numbers that follow from it. Nothing here asks anybody anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from watchdog.cli.demo.doors import Entry
from watchdog.cli.demo.steplog import StepLog

ENDINGS = frozenset({"killed", "terminated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything the numbers rest on, from the sources that cannot flatter: the emulated AWS and the job's own logs."""

    job_id: str
    source: Mapping[str, Any]
    replacement: Mapping[str, Any]
    source_log: StepLog
    replacement_log: StepLog
    reference_log: StepLog
    entries: Sequence[Entry]
    """The emulator's timeline."""
    migration: Mapping[str, Any]
    """The migration that left the source, as the service tells it."""
    decision_kinds: Sequence[str]
    checkpoint_bytes: int | None
    slack_messages: int
    scheduler_kinds: Sequence[str]
    instances_alive: int
    """Of this job, just after the source was reclaimed."""
    instances_launched: int
    """Of this job, all in all."""

    @property
    def noticed_at(self) -> datetime | None:
        """When EC2 showed the interruption notice, or None if it never did."""
        return self._first(kinds={"notice_shown"}, instance_id=self.source["instance_id"])

    @property
    def source_ended_at(self) -> datetime | None:
        """When the source was taken away."""
        return self._first(kinds=ENDINGS, instance_id=self.source["instance_id"])

    @property
    def resumed_at(self) -> datetime | None:
        """When the replacement finished its first step."""
        return self.replacement_log.steps[0].at if self.replacement_log.steps else None

    @property
    def launch_called_at(self) -> datetime | None:
        """When RunInstances was first called after the source was hit."""
        struck = self.noticed_at or self.source_ended_at
        return next((entry.at for entry in self.entries if entry.kind == "run_instances_call" and struck and entry.at > struck), None)

    @property
    def saved_at(self) -> datetime | None:
        """When the checkpoint that the notice asked for became the one to resume from.

        The last write of `HEAD` before the replacement's process is ready to train is its take-over, for no other may write from there
        on; the write before that is the source's last.
        """
        noticed, started = self.noticed_at, self.replacement_log.started
        if noticed is None or started is None:
            return None
        writes = [entry.at for entry in head_writes(self.entries, self.job_id) if entry.at < started.at]
        if len(writes) < 2 or writes[-2] < noticed:  # noqa: PLR2004 - the source's and the take-over
            return None
        return writes[-2]

    @property
    def why(self) -> str:
        """Why the replacement stands where it stands, in the service's words."""
        attempts = self.migration["replacements"]
        won = [str(each["why"]) for each in attempts if each["instance_id"] == self.replacement["instance_id"]]
        return "; ".join([*won, *self.migration["reasons"]])

    def _first(self, *, kinds: frozenset[str] | set[str], instance_id: str) -> datetime | None:
        return next((entry.at for entry in self.entries if entry.kind in kinds and entry.instance_id == instance_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The numbers of one scenario; what `--json` writes. None: this scenario has no such moment, or it never came."""

    scenario: str
    steps_lost: int | None
    bit_exact: bool
    instances_alive: int
    instances_launched: int
    launches_refused: int
    from_zone: str
    to_zone: str | None
    to_market: str | None
    notice_to_saved_s: float | None
    notice_to_launch_call_s: float | None
    notice_to_resumed_s: float | None
    checkpoint_bytes: int | None
    slack_messages: int
    leftover_processes: int | None = None
    """Counted after everything was shut down."""
    demo_after_setup_s: float | None = None
    ok: bool = False


def measure(scenario: str, evidence: Evidence) -> Outcome:
    """Return the numbers that follow from what was seen."""
    noticed = evidence.noticed_at
    finals = [log.finished.sha256 for log in (evidence.reference_log, evidence.replacement_log) if log.finished]
    last, started = evidence.source_log.last_step, evidence.replacement_log.started
    return Outcome(
        scenario=scenario,
        steps_lost=None if last is None or started is None else last - started.resumed_from_step,
        bit_exact=len(finals) == 2 and len(set(finals)) == 1,  # noqa: PLR2004 - both finished
        instances_alive=evidence.instances_alive,
        instances_launched=evidence.instances_launched,
        launches_refused=sum(entry.kind == "launch_refused" for entry in evidence.entries),
        from_zone=evidence.source["availability_zone_id"],
        to_zone=evidence.replacement["availability_zone_id"],
        to_market=evidence.replacement["market"],
        notice_to_saved_s=_seconds(noticed, evidence.saved_at),
        notice_to_launch_call_s=_seconds(noticed, evidence.launch_called_at),
        notice_to_resumed_s=_seconds(noticed, evidence.resumed_at),
        checkpoint_bytes=evidence.checkpoint_bytes,
        slack_messages=evidence.slack_messages,
    )


def head_writes(entries: Sequence[Entry], job_id: str) -> list[Entry]:
    """Return the writes of the job's register, oldest first."""
    return [entry for entry in entries if entry.kind == "object_written" and str(entry.detail["key"]).endswith(f"/jobs/{job_id}/HEAD")]


def manifest_writes(entries: Sequence[Entry], job_id: str) -> list[Entry]:
    """Return the writes of the job's manifests, oldest first: one for each checkpoint."""
    return [entry for entry in entries if entry.kind == "object_written" and f"/jobs/{job_id}/manifests/" in str(entry.detail["key"])]


def pool_of(place: Mapping[str, Any]) -> str:
    """Return the pool of an instance or of the REST API, as messages write it."""
    return f"{place['availability_zone_id']}/{place['instance_type']}/{place['market']}"


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else round((end - start).total_seconds(), 3)
