import json
import re
import signal
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import Demo
from tests.waiting import eventually
from watchdog.emulator.processes import leftovers

# Half a minute each on an idle machine; most of it is torch being imported, which a busy machine draws out.
pytestmark = pytest.mark.timeout(200)

MOMENTS = ("notice_to_saved_s", "notice_to_launch_call_s", "notice_to_resumed_s")
NOTICE = ("--notice-seconds", "10")  # the shorter the notice, the shorter the job
UP = "everything is up"
BOOTS = " boots"
TRAINING = "finished step"


def play(demo: Demo, scenario: str) -> dict[str, Any]:
    demo.start("--scenario", scenario, *NOTICE)
    assert demo.wait() == 0, demo.output
    assert demo.run_directories == []
    return check(demo, scenario)


def check(demo: Demo, scenario: str) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads(demo.json.read_text())
    assert all(not isinstance(value, (dict, list)) for value in outcome.values())
    assert outcome["scenario"] == scenario
    assert outcome["ok"] is True
    assert outcome["bit_exact"] is True
    assert outcome["instances_alive"] == 1
    assert outcome["leftover_processes"] == 0
    assert outcome["checkpoint_bytes"] > 0
    assert outcome["slack_messages"] >= 3  # the start, the notice or the loss, the move
    assert leftovers(demo.folder) == []
    return outcome


def test_an_interruption_costs_no_step_and_the_world_can_be_kept_to_look_around(demo: Demo) -> None:
    demo.start("--keep", *NOTICE)
    demo.wait_for("Everything still runs", seconds=170)
    authorization, url = re.findall(r"curl -H 'Authorization: (Bearer \S+)' (\S+/v1/jobs/\S+)", demo.output)[0]
    assert httpx2.get(url, headers={"Authorization": authorization}, trust_env=False).json()["state"] == "finished"
    demo.signal(signal.SIGINT)
    assert demo.wait() == 0, demo.output
    outcome = check(demo, "interruption")
    assert outcome["steps_lost"] == 0
    assert outcome["from_zone"] != outcome["to_zone"]
    assert all(outcome[moment] > 0 for moment in MOMENTS)
    [kept] = demo.run_directories
    assert (kept / "logs" / "service.log").exists()


def test_a_loss_without_notice_resumes_from_the_last_periodic_checkpoint(demo: Demo) -> None:
    outcome = play(demo, "no-notice")
    assert outcome["steps_lost"] >= 0
    assert [outcome[moment] for moment in MOMENTS] == [None, None, None]


@pytest.mark.long
def test_a_rebalance_recommendation_saves_and_stays_until_the_notice(demo: Demo) -> None:
    outcome = play(demo, "rebalance")
    assert outcome["steps_lost"] == 0
    assert outcome["instances_launched"] == 2


@pytest.mark.long
def test_empty_pools_are_passed_over_for_a_third_zone(demo: Demo) -> None:
    outcome = play(demo, "capacity")
    assert outcome["steps_lost"] == 0
    assert outcome["launches_refused"] == 2
    assert outcome["to_market"] == "spot"


def test_a_used_up_spot_quota_leads_to_on_demand(demo: Demo) -> None:
    outcome = play(demo, "quota")
    assert outcome["steps_lost"] == 0
    assert outcome["to_market"] == "on_demand"


def test_nothing_outlives_a_demo_that_is_killed(demo: Demo) -> None:
    demo.start()
    demo.wait_for(TRAINING)
    assert len(leftovers(demo.folder)) >= 6  # the demo, its supervisor, four services, and the job
    demo.signal(signal.SIGKILL)
    demo.wait()
    eventually(lambda: leftovers(demo.folder) == [], "all processes end")
    eventually(lambda: demo.run_directories == [], "the run directory is removed")


@pytest.mark.parametrize("moment", ["starting the service", BOOTS])
def test_ctrl_c_ends_everything_and_says_so(demo: Demo, moment: str) -> None:
    demo.start()
    demo.wait_for(moment)
    demo.signal(signal.SIGINT)
    assert demo.wait() == 130
    assert "stopped; everything that was started has ended" in demo.output
    assert "Traceback" not in demo.output
    assert leftovers(demo.folder) == []
    assert demo.run_directories == []


@pytest.mark.long
def test_a_service_that_dies_is_named_with_the_end_of_its_log(demo: Demo) -> None:
    demo.start()
    demo.wait_for(UP)
    service = next(process for process in leftovers(demo.folder) if "serve" in process.cmdline())
    service.kill()
    assert demo.wait() == 1
    assert "service ended with code -9" in demo.output
    assert "service.log" in demo.output
    assert leftovers(demo.folder) == []
