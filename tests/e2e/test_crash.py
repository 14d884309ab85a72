"""The service dies in the middle of a move; the job does not."""

from __future__ import annotations

import psutil
import pytest

from tests.waiting import eventually
from watchdog.cli.demo.steplog import read_step_log
from watchdog.cli.demo.world import Digits, open_world

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.mark.parametrize("moment", ["notice_shown", "run_instances_call", "booted"])
def test_a_service_killed_in_the_middle_of_a_move_finishes_it_after_a_restart(moment: str) -> None:
    job = Digits(steps=400, step_milliseconds=30)
    with open_world(say=lambda _: None) as world:
        reference = world.start_reference(job)
        job_id = world.register(job)
        (source,) = eventually(lambda: world.instances_of(job_id), "the job's first instance is launched")
        eventually(lambda: (world.step_log(source).last_step or 0) >= 60, "the job trains", seconds=90)
        seen = max(entry.seq for entry in world.emulator.timeline())
        world.emulator.interrupt(source["instance_id"], notice_seconds=20)
        eventually(lambda: any(entry.kind == moment for entry in world.emulator.timeline(seen)), moment)
        psutil.Process(world.service_pid).kill()
        eventually(lambda: not world.supervisor.alive("service"), "the service is dead")
        world.start_service()
        replacement = eventually(lambda: next(iter(world.instances_of(job_id)[1:]), None), "a replacement is launched", seconds=60)
        finished = eventually(lambda: world.step_log(replacement).finished, "the job finishes on it", seconds=150)
        uninterrupted = eventually(lambda: read_step_log(reference).finished, "the reference ends", seconds=60)
        started = world.step_log(replacement).started
        assert started is not None
        assert started.resumed_from_step == world.step_log(source).last_step
        assert finished.sha256 == uninterrupted.sha256
        assert len(world.instances_of(job_id)) == 2
