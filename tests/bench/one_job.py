"""One job's life in the benchmark: an interruption with a notice, the floor beside it, then a loss without one."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3

from watchdog.cli.demo.doors import Entry
from watchdog.cli.demo.evidence import head_writes, manifest_writes
from watchdog.cli.demo.steplog import StepLog, read_step_log
from watchdog.cli.demo.world import INSTANCE_TYPE, REGION, ZONE_IDS, Digits, World

NOTICE_SECONDS = 20.0
JOB = Digits(steps=100_000)
_STEPS_BEFORE = 100
_LOOK_EVERY_SECONDS = 0.3
_PATIENCE_SECONDS = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What was measured, in seconds."""

    notice_to_saved_s: float
    notice_to_launch_call_s: float
    notice_to_booted_s: float
    notice_to_resumed_s: float
    steps_lost: int
    floor_s: float
    loss_to_new_step_s: float
    steps_redone: int

    @property
    def overlap_s(self) -> float:
        """How long the save and the launch (from its call to the booted instance) ran at the same time."""
        return max(min(self.notice_to_saved_s, self.notice_to_booted_s) - self.notice_to_launch_call_s, 0.0)


def live(world: World) -> Life:
    """Play one life. Raises ProcessFailed if something does not happen in time."""
    return _OneJob(world).live()


class _OneJob:
    def __init__(self, world: World) -> None:
        self._world = world
        self._job_id = ""

    def live(self) -> Life:
        self._job_id = self._world.register(JOB)
        first = self._trains(0, at_least=_STEPS_BEFORE)
        self._world.emulator.interrupt(first["instance_id"], notice_seconds=NOTICE_SECONDS)
        second = self._trains(1, at_least=1)
        floor_s = self._floor()
        # The migration ends when its source is gone; only then does the next loss begin from a job at rest.
        self._wait("the first migration is over", lambda: self._world.service.job(self._job_id)["migration_id"] is None)
        self._trains(1, at_least=_STEPS_BEFORE)
        self._world.emulator.vanish(second["instance_id"])
        last = self._log(1).last_step or 0
        self._trains(2, at_least=1)
        self._wait("the job is past where it was", lambda: (self._log(2).last_step or 0) > last)
        life = self._measure(first, second, floor_s)
        self._world.service.cancel(self._job_id)
        self._wait("the job's instances are gone", lambda: not self._world.alive_of(self._job_id))
        return life

    def _measure(self, first: Mapping[str, Any], second: Mapping[str, Any], floor_s: float) -> Life:
        entries = self._world.emulator.timeline()
        logs = [self._log(place) for place in range(3)]
        noticed = _at(entries, "notice_shown", first["instance_id"])
        lost = _at(entries, "killed", second["instance_id"])
        starts = [log.started for log in logs]
        assert starts[1] is not None
        assert starts[2] is not None
        # Before the replacement is ready to train there are two last writes: the source's for the notice, and the take-over.
        saved = [entry.at for entry in head_writes(entries, self._job_id) if entry.at < starts[1].at][-2]
        assert saved > noticed, "no checkpoint was published for the notice"
        called = next(entry.at for entry in entries if entry.kind == "run_instances_call" and entry.at > noticed)
        last_of_first, last_of_second = logs[0].last_step or 0, logs[1].last_step or 0
        return Life(
            notice_to_saved_s=_seconds(noticed, saved),
            notice_to_launch_call_s=_seconds(noticed, called),
            notice_to_booted_s=_seconds(noticed, _at(entries, "booted", second["instance_id"])),
            notice_to_resumed_s=_seconds(noticed, logs[1].steps[0].at),
            steps_lost=last_of_first - starts[1].resumed_from_step,
            floor_s=floor_s,
            loss_to_new_step_s=_seconds(lost, next(step.at for step in logs[2].steps if step.step > last_of_second)),
            steps_redone=last_of_second - starts[2].resumed_from_step,
        )

    def _floor(self) -> float:
        """Launch a bare instance that boots, imports and builds the model, and return how long that takes while the job trains."""
        words = JOB.command("--floor", log="LOG")
        script = "#!/bin/sh\nexec " + " ".join('"$HOME"/floor.jsonl' if word == "LOG" else shlex.quote(word) for word in words) + "\n"
        ec2: Any = boto3.client(
            "ec2", endpoint_url=self._world.emulator.url, region_name=REGION, aws_access_key_id="bench", aws_secret_access_key="bench"
        )
        instance_id = ec2.run_instances(
            LaunchTemplate={"LaunchTemplateId": self._world.account.launch_template_id},
            InstanceType=INSTANCE_TYPE,
            SubnetId=self._world.account.subnets[ZONE_IDS[-1]],
            UserData=script,
            MinCount=1,
            MaxCount=1,
        )["Instances"][0]["InstanceId"]
        home = Path(next(each["home"] for each in self._world.emulator.instances() if each["instance_id"] == instance_id))
        self._wait("the bare instance has built the model", lambda: read_step_log(home / "floor.jsonl").built_at is not None)
        built = read_step_log(home / "floor.jsonl").built_at
        assert built is not None
        floor_s = _seconds(_at(self._world.emulator.timeline(), "launched", instance_id), built)
        ec2.terminate_instances(InstanceIds=[instance_id])
        ec2.close()
        return floor_s

    def _trains(self, place: int, *, at_least: int) -> Mapping[str, Any]:
        """Wait until the job computed `at_least` steps on its instance number `place` and return that instance."""

        def condition() -> bool:
            instances = self._world.instances_of(self._job_id)
            if len(instances) <= place or len(self._world.step_log(instances[place]).steps) < at_least:
                return False
            return at_least == 1 or len(manifest_writes(self._world.emulator.timeline(), self._job_id)) > 2 * place

        self._wait(f"instance {place + 1} of the job computes {at_least} steps", condition)
        return self._world.instances_of(self._job_id)[place]

    def _log(self, place: int) -> StepLog:
        return self._world.step_log(self._world.instances_of(self._job_id)[place])

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        next_look = 0.0

        def look() -> bool:
            # A look costs the emulator time that the measured processes want.
            nonlocal next_look
            if time.monotonic() < next_look:
                return False
            next_look = time.monotonic() + _LOOK_EVERY_SECONDS
            return condition()

        self._world.supervisor.wait_until(what, look, needs=self._world.needs, timeout_seconds=_PATIENCE_SECONDS)


def _at(entries: list[Entry], kind: str, instance_id: str) -> datetime:
    return next(entry.at for entry in entries if entry.kind == kind and entry.instance_id == instance_id)


def _seconds(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds()
