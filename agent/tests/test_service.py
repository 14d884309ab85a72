"""The agent beside the service: it waits for its turn, obeys, tells, and needs nobody to save."""

from __future__ import annotations

import json
import os
import signal
import threading
from datetime import datetime, timezone

import pytest
import torch
from agent.tests.servers import Answer, Metadata, Service, wait_for
from torch import nn

from spot_watchdog_agent import AgentExit, Checkpointer, SettingsInvalid
from spot_watchdog_agent.fence import Register
from spot_watchdog_agent.stores.folder import FolderStore

NOTICE = '{"action":"terminate","time":"2026-01-15T09:42:00.000Z"}'


@pytest.fixture
def service():
    return Service()


@pytest.fixture
def metadata():
    return Metadata()


@pytest.fixture
def folder(tmp_path):
    """Return a job's prefix as the service leaves it at registration."""
    FolderStore(tmp_path).create(
        "HEAD", b'{"format": 1, "fencing_token": 0, "owner": null, "nonce": "n", "checkpoint": null, "previous": []}'
    )
    return tmp_path


@pytest.fixture
def launched(environment, stub, service, metadata, folder):
    """Set the environment of an instance that the service launched, and return its server."""
    server = stub(service)
    environment.delenv("AWS_EC2_METADATA_DISABLED")
    environment.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", stub(metadata).url)
    environment.setenv("SPOT_WATCHDOG_SERVICE_URL", server.url)
    environment.setenv("SPOT_WATCHDOG_JOB_ID", "job_1")
    environment.setenv("SPOT_WATCHDOG_AGENT_TOKEN", "secret")
    environment.setenv("SPOT_WATCHDOG_STORE_URL", f"file://{folder}")
    return server


@pytest.fixture
def first_launch(launched, environment):
    environment.setenv("SPOT_WATCHDOG_TAKE_OVER_FROM", "0")
    return launched


def job():
    return {"model": nn.Linear(3, 2)}


def head(folder):
    return Register(FolderStore(folder), "reader").peek()


def run_until_stopped(checkpointer, *, from_step=1) -> int:
    """Step on until the checkpointer says stop, and return that step."""
    steps = iter(range(from_step, 10_000_000))
    return wait_for(lambda: next((step for step in [next(steps)] if checkpointer.step(step)), None), "the loop is told to stop")


def test_reports_are_as_documented_and_end_with_finished(first_launch, service, folder):
    with Checkpointer(job()) as checkpointer:
        assert checkpointer.restore() == 0
        assert not checkpointer.step(1)
        assert checkpointer.finish()
    last = service.reports[-1]
    assert set(last) == {
        *("protocol", "instance_id", "availability_zone_id", "address", "node_rank", "phase", "fencing_token", "step"),
        *("resumed_from_step", "notices", "checkpoint", "handled_generation", "save_error", "metadata", "message", "sent_at"),
    }
    assert (last["protocol"], last["phase"], last["fencing_token"], last["step"], last["resumed_from_step"]) == (1, "finished", 1, 1, 0)
    assert (last["instance_id"], last["availability_zone_id"], last["address"]) == ("i-0aaa", "use1-az1", "10.0.0.5")
    assert last["checkpoint"]["reason"] == "final"
    assert last["checkpoint"]["manifest_sha256"] == head(folder).checkpoint.manifest_sha256
    assert all(report["instance_id"] for report in service.reports)  # never an empty identity
    request = first_launch.requests[-1]
    assert request.path.startswith("/agent/v1/jobs/job_1/agents/inc_")
    assert ("Authorization", "Bearer secret") in request.headers


def test_the_first_completed_step_is_told_at_once(first_launch, service):
    service.directive["report_again_seconds"] = 60
    with Checkpointer(job()) as checkpointer:
        checkpointer.restore()
        assert "training" not in service.phases
        checkpointer.step(1)
        wait_for(lambda: "training" in service.phases, "training is told")
        checkpointer.finish()


def test_a_replacement_waits_for_its_grant_and_resumes_the_newest_checkpoint(first_launch, environment, service, folder):
    source = Checkpointer(model := job())
    source.restore()
    source.step(1)
    environment.delenv("SPOT_WATCHDOG_TAKE_OVER_FROM")
    service.directive |= {"desired": "wait"}
    replacement = Checkpointer(other := job())
    resumed = []
    thread = threading.Thread(target=lambda: resumed.append(replacement.restore()))
    thread.start()
    wait_for(lambda: "starting" in service.phases[-3:], "the replacement waits")
    assert head(folder).fencing_token == 1
    with torch.no_grad():
        model["model"].weight.fill_(0.25)
    service.directive |= {"desired": "save_and_stop", "generation": 1}
    assert run_until_stopped(source, from_step=2)
    service.directive |= {"desired": "run", "take_over_from": 1}
    thread.join(30)
    assert resumed == [head(folder).checkpoint.step]
    assert head(folder).fencing_token == 2
    assert torch.equal(other["model"].weight, torch.full((2, 3), 0.25))
    source.finish()
    replacement.step(resumed[0] + 1)
    replacement.finish()
    assert service.reports[-1]["resumed_from_step"] == resumed[0]


def test_a_notice_ends_in_a_durable_checkpoint_before_the_loop_is_told(first_launch, service, metadata, folder):
    checkpointer = Checkpointer(job())
    checkpointer.restore()
    metadata.items["spot/instance-action"] = NOTICE
    step = run_until_stopped(checkpointer)
    assert head(folder).checkpoint.step == step
    assert checkpointer.stopping
    assert not checkpointer.finish()
    last = service.reports[-1]
    assert (last["phase"], last["checkpoint"]["step"], last["checkpoint"]["reason"]) == ("stopped", step, "notice")
    assert last["notices"][0]["kind"] == "spot_interruption"
    assert last["notices"][0]["reclaim_at"] == "2026-01-15T09:42:00Z"


def test_a_time_that_jitters_is_the_same_notice(first_launch, metadata):
    checkpointer = Checkpointer(job())
    checkpointer.restore()
    metadata.items["spot/instance-action"] = NOTICE
    run_until_stopped(checkpointer)
    metadata.items["spot/instance-action"] = NOTICE.replace(".000Z", ".003Z")
    watcher_looks = checkpointer._watcher
    watcher_looks._look(watcher_looks._metadata)
    (notice,) = checkpointer._reporter.report.notices
    assert notice.reclaim_at == datetime(2026, 1, 15, 9, 42, tzinfo=timezone.utc)
    checkpointer.close()


def test_a_recommendation_is_saved_for_and_trained_through(first_launch, service, metadata, folder):
    with Checkpointer(job()) as checkpointer:
        checkpointer.restore()
        metadata.items["events/recommendations/rebalance"] = '{"noticeTime":"2026-01-15T09:30:00Z"}'
        steps = iter(range(1, 10_000_000))

        def saved() -> object:
            assert not checkpointer.step(next(steps))
            return any(report["checkpoint"] and report["checkpoint"]["reason"] == "requested" for report in service.reports)

        assert wait_for(saved, "a checkpoint after the recommendation is reported")
        checkpointer.finish()
    assert service.reports[-1]["phase"] == "finished"


def test_a_requested_save_is_done_once_per_generation(first_launch, service, folder):
    with Checkpointer(job()) as checkpointer:
        checkpointer.restore()
        service.directive |= {"desired": "save", "generation": 3}
        steps = iter(range(1, 10_000_000))

        def handled() -> bool:
            assert not checkpointer.step(next(steps))
            return service.reports[-1]["handled_generation"] == 3

        wait_for(handled, "the generation is handled")
        first = head(folder).checkpoint
        count = len(service.reports)
        wait_for(lambda: not checkpointer.step(next(steps)) and len(service.reports) > count + 3, "it is asked again")
        assert head(folder).checkpoint == first
        checkpointer.finish()


def test_told_to_stop_it_stops_without_saving(first_launch, service, folder):
    checkpointer = Checkpointer(job())
    checkpointer.restore()
    service.directive |= {"desired": "stop", "generation": 1}
    run_until_stopped(checkpointer)
    assert not checkpointer.finish()
    assert head(folder).checkpoint is None
    assert service.phases[-1] == "stopped"


def test_a_dead_service_costs_nothing_and_is_told_later(first_launch, service, metadata, folder):
    service.failure = Answer(503)
    checkpointer = Checkpointer(job())
    checkpointer.restore()
    metadata.items["spot/instance-action"] = NOTICE
    step = run_until_stopped(checkpointer)
    assert head(folder).checkpoint.step == step
    assert service.reports == []
    service.failure = None
    wait_for(lambda: service.reports, "the report is delivered later")
    assert service.reports[-1]["checkpoint"]["step"] == step
    checkpointer.finish()


def test_a_service_that_hangs_does_not_stop_steps(first_launch, service):
    never = threading.Event()
    service.failure = Answer(hang=never)
    with Checkpointer(job()) as checkpointer:
        checkpointer.restore()
        wait_for(lambda: first_launch.requests, "a report hangs")
        assert not any(checkpointer.step(step) for step in range(1, 200))
        never.set()
        service.failure = None
        checkpointer.finish()


def test_the_superseded_source_exits_with_75(first_launch, service, folder):
    zombie = Checkpointer(job())
    zombie.restore()
    zombie.step(1)
    Register(FolderStore(folder), "inc_b").take_over(1)
    with pytest.raises(AgentExit) as raised:
        zombie.finish()
    assert raised.value.code == 75
    assert service.phases[-1] == "superseded"
    assert head(folder).owner == "inc_b"


def test_a_409_makes_the_zombie_look_at_head(first_launch, service, folder):
    zombie = Checkpointer(job())
    zombie.restore()
    service.failure = Answer(409, body=json.dumps({"type": "superseded"}))
    for step in range(1, 50):
        assert not zombie.step(step)  # the service alone is not believed
    Register(FolderStore(folder), "inc_b").take_over(1)
    with pytest.raises(AgentExit) as raised:
        run_until_stopped(zombie, from_step=50)
    assert raised.value.code == 75


@pytest.mark.parametrize(
    ("harm", "code"),
    [("token", 76), ("no head", 77), ("damaged", 77), ("garbage head", 77)],
)
def test_what_cannot_be_resumed_safely_ends_the_process(first_launch, environment, folder, harm, code):
    with Checkpointer(job()) as checkpointer:
        checkpointer.restore()
        checkpointer.step(1)
        checkpointer.finish()
    environment.setenv("SPOT_WATCHDOG_TAKE_OVER_FROM", "0" if harm == "token" else "1")
    if harm == "no head":
        (folder / "HEAD").unlink()
    if harm == "garbage head":
        (folder / "HEAD").write_bytes(b"{}")
    if harm == "damaged":
        for path in (folder / "data").rglob("*.bin"):
            path.write_bytes(b"")
    with pytest.raises(AgentExit) as raised:
        Checkpointer(job()).restore()
    assert raised.value.code == code


def test_an_orphan_told_to_stop_never_takes_over(launched, service, folder):
    service.directive |= {"desired": "stop"}
    with pytest.raises(AgentExit) as raised:
        Checkpointer(job()).restore()
    assert raised.value.code == 76
    assert head(folder).fencing_token == 0


def test_sigterm_saves_stops_and_calls_the_handler_before(tmp_path):
    called = []
    previous = signal.signal(signal.SIGTERM, lambda *_: called.append(1))
    try:
        checkpointer = Checkpointer(job(), store=tmp_path)
        checkpointer.restore()
        os.kill(os.getpid(), signal.SIGTERM)
        assert checkpointer.step(1)
        assert called == [1]
        assert head(tmp_path).checkpoint.step == 1
        ours = signal.getsignal(signal.SIGTERM)
        checkpointer.close()
        assert signal.getsignal(signal.SIGTERM) is not ours
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_a_store_that_breaks_never_breaks_a_step(tmp_path):
    with Checkpointer(job(), store=tmp_path / "store", checkpoint_seconds=0.001) as checkpointer:
        checkpointer.restore()
        # A file where the data folder should be: every save fails from here on.
        (tmp_path / "store" / "data").write_bytes(b"")
        steps = iter(range(1, 10_000_000))
        wait_for(lambda: not checkpointer.step(next(steps)) and checkpointer._reporter.report.save_error, "the failure is told")
        (tmp_path / "store" / "data").unlink()
        assert checkpointer.finish()
    assert head(tmp_path / "store").checkpoint is not None


def test_periodic_checkpoints_are_committed_beside_training(tmp_path):
    with Checkpointer(job(), store=tmp_path, checkpoint_seconds=0.01) as checkpointer:
        checkpointer.restore()
        steps = iter(range(1, 10_000_000))
        wait_for(lambda: not checkpointer.step(next(steps)) and len(head(tmp_path).checkpoints) == 4, "four checkpoints")
        checkpointer.finish()


def test_half_an_environment_is_refused(environment):
    environment.setenv("SPOT_WATCHDOG_SERVICE_URL", "http://127.0.0.1:1")
    with pytest.raises(SettingsInvalid, match="SPOT_WATCHDOG_JOB_ID"):
        Checkpointer(job())


def test_a_job_on_s3_resumes(s3_url, environment):
    environment.setenv("SPOT_WATCHDOG_STORE_URL", s3_url)
    first = job()
    with Checkpointer(first) as checkpointer:
        checkpointer.restore()
        checkpointer.step(5)
        checkpointer.finish()
    second = job()
    with Checkpointer(second) as checkpointer:
        assert checkpointer.restore() == 5
        checkpointer.finish()
    assert torch.equal(first["model"].weight, second["model"].weight)
