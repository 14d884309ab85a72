"""Play one scenario in a world from the job's registration to its end, and collect the evidence."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from watchdog.cli.demo.doors import DoorClosed
from watchdog.cli.demo.evidence import Evidence, manifest_writes
from watchdog.cli.demo.scenarios import Scenario, Strike, decision_kinds
from watchdog.cli.demo.steplog import StepLog, read_step_log
from watchdog.cli.demo.timeline import Timeline
from watchdog.cli.demo.world import STEP_MILLISECONDS, Digits, World

STRIKE_AT_STEP = 150
_LOOK_EVERY_SECONDS = 0.4
_START_SECONDS = 60.0
_TRAIN_SECONDS = 120.0
_TELL_SECONDS = 15.0
_END_IS_TOLD_SECONDS = 1.0


def job_for(notice_seconds: float) -> Digits:
    """Return a job that trains on for the whole notice after it was struck, so that it is still there when the source is taken back."""
    return Digits(steps=STRIKE_AT_STEP + round(notice_seconds * 1000 / STEP_MILLISECONDS))


class Play:
    """One scenario on its way."""

    def __init__(self, world: World, scenario: Scenario, job: Digits, console: Console, *, notice_seconds: float) -> None:
        """Prepare to play; nothing is started yet."""
        self._world = world
        self._scenario = scenario
        self._job = job
        self._console = console
        self._notice_seconds = notice_seconds
        self._timeline = Timeline(world, console)
        self._next_look = 0.0
        self._status = Status("", console=console)
        self._job_id = ""

    def run(self) -> Evidence:
        """Play to the end. Raises ProcessFailed, with the end of the guilty log, if something does not happen in time."""
        supervisor = self._world.supervisor
        try:
            return self._run()
        except DoorClosed as error:
            # The connection breaks a moment before the supervisor hears of the end.
            code = supervisor.wait(error.door, timeout_seconds=_END_IS_TOLD_SECONDS)
            ending = "" if code is None else f"{error.door} ended with code {code}; "
            raise supervisor.failure(f"{ending}{error}", error.door) from error

    def _run(self) -> Evidence:
        world = self._world
        self._job_id = world.register(self._job)
        self._timeline.follow(self._job_id)
        with self._status:
            reference = world.start_reference(self._job)
            self._wait("the job trains on its first instance", self._source_trains, _START_SECONDS)
            source = self._instance(0)
            self._timeline.call(source["instance_id"], "source")
            self._wait(
                f"the job reaches step {STRIKE_AT_STEP} and has a periodic checkpoint",
                lambda: (self._log(0).last_step or 0) >= STRIKE_AT_STEP and len(manifest_writes(self._timeline.entries, self._job_id)) > 0,
                _TRAIN_SECONDS,
            )
            self._scenario.strike(
                Strike(world=world, source=source, job_id=self._job_id, notice_seconds=self._notice_seconds, wait=self._wait)
            )
            self._wait("a replacement is started", lambda: self._count() > 1, _START_SECONDS)
            self._timeline.call(self._instance(1)["instance_id"], "replacement")
            self._wait("the job resumes on its replacement", lambda: bool(self._log(1).steps), _START_SECONDS)
            self._wait(
                "the source is taken back", lambda: self._instance(0)["state"] == "terminated", self._notice_seconds + _START_SECONDS
            )
            alive = len(world.alive_of(self._job_id))
            self._wait("the job finishes", lambda: self._log(1).finished is not None, self._notice_seconds + _TRAIN_SECONDS)
            self._wait(
                "the uninterrupted run finishes",
                lambda: read_step_log(reference).finished is not None,
                self._notice_seconds + _TRAIN_SECONDS,
            )
            self._wait("Slack and the scheduler are told", self._all_told, _TELL_SECONDS)
        self._timeline.advance()
        return self._evidence(reference, alive)

    def _evidence(self, reference: Path, alive: int) -> Evidence:
        world, job_id = self._world, self._job_id
        migration = next(each for each in world.service.migrations(job_id) if each["cause"] != "first_launch")
        messages = world.scheduler_messages()
        return Evidence(
            job_id=job_id,
            source=self._instance(0),
            replacement=self._instance(1),
            source_log=self._log(0),
            replacement_log=self._log(1),
            reference_log=read_step_log(reference),
            entries=world.emulator.timeline(),
            migration=migration,
            decision_kinds=decision_kinds(world, job_id),
            checkpoint_bytes=self._checkpoint_bytes(messages),
            slack_messages=sum(message["to"] == "slack" for message in world.slack.messages()),
            scheduler_kinds=[str(message["type"]) for message in messages],
            instances_alive=alive,
            instances_launched=self._count(),
        )

    def _checkpoint_bytes(self, messages: Sequence[Mapping[str, Any]]) -> int | None:
        """Return the size of the checkpoint that the job moved with; without a notice that is not told, and the newest one's is taken."""
        told = next((message["data"].get("checkpoint_bytes") for message in messages if message["type"] == "migration.succeeded"), None)
        size: int | None = told or self._world.newest_checkpoint(self._job_id).get("bytes")
        return size

    def _source_trains(self) -> bool:
        return self._count() > 0 and bool(self._log(0).steps)

    def _all_told(self) -> bool:
        return {"migration.succeeded", "job.finished"} <= {message["type"] for message in self._world.scheduler_messages()}

    def _count(self) -> int:
        return len(self._world.instances_of(self._job_id))

    def _instance(self, place: int) -> Mapping[str, Any]:
        return self._world.instances_of(self._job_id)[place]

    def _log(self, place: int) -> StepLog:
        return self._world.step_log(self._instance(place))

    def _wait(self, what: str, condition: Callable[[], bool], timeout_seconds: float) -> None:
        """Wait for `condition` while the story goes on."""
        self._status.update(f"waiting until {what}")

        def look() -> bool:
            # Every look asks three processes over HTTP; on a small machine that is time the training job wants.
            if time.monotonic() < self._next_look:
                return False
            self._next_look = time.monotonic() + _LOOK_EVERY_SECONDS
            self._timeline.advance()
            return condition()

        supervisor, needs = self._world.supervisor, self._world.needs
        supervisor.wait_until(what, look, needs=needs, timeout_seconds=timeout_seconds, suspects=self._suspects)

    def _suspects(self) -> list[Path]:
        """Return the logs that tell most about a job that does not get on."""
        consoles = [Path(instance["home"]) / "console.log" for instance in self._world.instances_of(self._job_id)]
        return [self._world.log_path("service"), *consoles]
