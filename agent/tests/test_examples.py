"""The example trains, resumes and logs as its users rely on; the README's snippets run; the agent stays small."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from spot_watchdog_agent.examples import digits

README = Path(__file__).parents[1] / "README.md"

FOOTPRINT = """
import json, resource, sys, time
import torch
model = torch.nn.Linear(8, 8)
def rss():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))
modules, memory, begun = set(sys.modules), rss(), time.process_time()
from spot_watchdog_agent import Checkpointer
with Checkpointer({"model": model}, store=sys.argv[1]) as checkpointer:
    checkpointer.restore()
    checkpointer.step(1)
    checkpointer.finish()
print(json.dumps({"seconds": time.process_time() - begun, "bytes": rss() - memory, "modules": sorted(set(sys.modules) - modules)}))
"""


@pytest.fixture(autouse=True)
def torch_as_before():
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    yield
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode(mode)


def events(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_the_digits_job_is_bit_equal_with_and_without_interruptions(tmp_path, monkeypatch):
    common = ["--steps", "60", "--store", str(tmp_path / "store")]
    digits.main([*common, "--plain", "--log", str(tmp_path / "plain.jsonl")])
    train = digits.Job.train
    for stop in (20, 22, 40):  # the first two in one epoch of 22 steps

        def interrupted(job: digits.Job, batch: list[torch.Tensor], stop: int = stop) -> float:
            if job.scheduler.last_epoch == stop - 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return train(job, batch)

        monkeypatch.setattr(digits.Job, "train", interrupted)
        digits.main([*common, "--log", str(tmp_path / "agent.jsonl")])
    monkeypatch.setattr(digits.Job, "train", train)
    digits.main([*common, "--log", str(tmp_path / "agent.jsonl")])

    plain, agent = events(tmp_path / "plain.jsonl"), events(tmp_path / "agent.jsonl")
    assert [event["resumed_from_step"] for event in agent if event["event"] == "started"] == [0, 20, 22, 40]
    assert [event["step"] for event in agent if event["event"] == "step"] == list(range(1, 61))
    assert [event["loss"] for event in agent if event["event"] == "step"] == [e["loss"] for e in plain if e["event"] == "step"]
    assert [event["event"] for event in agent].count("finished") == 1
    for key in ("step", "sha256", "accuracy"):
        assert agent[-1][key] == plain[-1][key]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_the_floor_only_builds(tmp_path):
    digits.main(["--floor", "--log", str(tmp_path / "log.jsonl")])
    assert [event["event"] for event in events(tmp_path / "log.jsonl")] == ["built"]


def test_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, str(README), "exec"), {"__name__": "readme"})  # noqa: S102


def test_the_agent_costs_little_beyond_torch(tmp_path, record_property):
    output = subprocess.run(
        [sys.executable, "-c", FOOTPRINT, str(tmp_path)], check=True, capture_output=True, text=True, env={**os.environ}
    ).stdout
    cost = json.loads(output)
    record_property("seconds", cost["seconds"])
    record_property("bytes", cost["bytes"])
    assert cost["bytes"] < 30_000_000
    foreign = {name.partition(".")[0] for name in cost["modules"]} - set(sys.stdlib_module_names) - {"torch", "spot_watchdog_agent"}
    assert foreign == set()
