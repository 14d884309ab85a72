"""The numbers that the product stands for."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console

from tests.bench import agent_import
from tests.bench.one_job import NOTICE_SECONDS, Life, live
from tests.bench.report import Measurement, Report
from watchdog.cli.demo.world import CHECKPOINT_SECONDS, World, open_world

PEER_DETECTION_SECONDS = (20, 120)
"""How much later others notice a lost machine: a status loop of 20 s, a heartbeat time-out of two minutes."""
_MB = 1_000_000


def run(runs: int, console: Console) -> Report:
    """Measure everything `runs` times; the demo itself once."""
    console.print(f"{runs} lives of a job, each with an interruption, a floor and a loss; about {runs} minutes", style="dim")
    lives: list[Life] = []
    with open_world(say=lambda text: console.print(f"  {text}", style="dim", markup=False)) as world:
        service_rss_mb = _rss_mb(world)
        for number in range(1, runs + 1):
            lives.append(live(world))
            console.print(f"  life {number}: {_in_words(lives[-1])}", style="dim", markup=False)
    imports = [agent_import.measure() for _ in range(runs)]
    return _report(lives, imports, service_rss_mb=service_rss_mb, demo_s=_demo_after_setup_s(console))


def _report(lives: list[Life], imports: list[agent_import.ImportCost], *, service_rss_mb: float, demo_s: float) -> Report:
    resumed = [life.notice_to_resumed_s for life in lives]
    serial = [NOTICE_SECONDS + life.loss_to_new_step_s for life in lives]
    peers = [
        Measurement(
            key=f"serial_plus_{late}_s",
            meaning=f"the same where the loss is noticed {late} s late; {(median(serial) + late) / median(resumed):.1f} times our time",
            values=[each + late for each in serial],
        )
        for late in PEER_DETECTION_SECONDS
    ]
    measurements = [
        Measurement(
            key="notice_to_saved_s",
            meaning="notice to a published checkpoint",
            values=[life.notice_to_saved_s for life in lives],
            at_most=2.0,
        ),
        Measurement(
            key="notice_to_launch_call_s",
            meaning="notice to RunInstances",
            values=[life.notice_to_launch_call_s for life in lives],
            at_most=1.5,
        ),
        Measurement(key="notice_to_resumed_s", meaning="notice to the first new step on the replacement", values=resumed),
        Measurement(
            key="floor_s",
            meaning="launch, boot (3 s), imports and model of the same job on a bare instance, while the job trains",
            values=[life.floor_s for life in lives],
        ),
        Measurement(
            key="resume_excess_s",
            meaning="what we add to the floor",
            values=[life.notice_to_resumed_s - life.floor_s for life in lives],
            at_most=2.0,
        ),
        Measurement(key="overlap_s", meaning="how long save and launch run side by side", values=[life.overlap_s for life in lives]),
        Measurement(key="steps_lost", meaning="after a notice", values=[life.steps_lost for life in lives], at_most=0),
        Measurement(
            key="serial_baseline_s",
            meaning=f"the usual way: notice ignored, {NOTICE_SECONDS:g} s until the kill, loss noticed at once, launch, last checkpoint",
            values=serial,
        ),
        Measurement(key="speedup", meaning="the usual way against ours", values=_ratios(serial, resumed), at_least=2.0),
        *peers,
        Measurement(key="demo_after_setup_s", meaning="the demo, from the job's registration to its summary", values=[demo_s], at_most=60),
        Measurement(key="service_rss_mb", meaning="memory of the service, idle", values=[service_rss_mb], at_most=150),
        Measurement(
            key="agent_import_ms", meaning="import of the agent beyond torch", values=[each.agent_ms for each in imports], at_most=150
        ),
        Measurement(key="agent_import_mb", meaning="its memory beyond torch", values=[each.agent_mb for each in imports], at_most=30),
        Measurement(key="s3_client_ms", meaning="an S3 client on top", values=[each.s3_client_ms for each in imports]),
    ]
    return Report(
        title="from the notice to the next step",
        measurements=measurements,
        notes=_notes(lives),
        detail={"lives": [asdict(life) for life in lives]},
    )


def _notes(lives: list[Life]) -> list[str]:
    saved, called, booted = (
        median(getattr(life, name) for life in lives) for name in ("notice_to_saved_s", "notice_to_launch_call_s", "notice_to_booted_s")
    )
    redone = median(life.steps_redone for life in lives)
    return [
        f"side by side, in seconds since the notice: save 0.00 to {saved:.2f}, launch {called:.2f} to {booted:.2f}",
        f"the notice period of {NOTICE_SECONDS:g} s is what the usual way waits here; with AWS's 120 s it waits 100 s longer",
        f"periodic checkpoints every {CHECKPOINT_SECONDS} s; after a loss the usual way computed {redone:g} steps again",
    ]


def _in_words(life: Life) -> str:
    return (
        f"saved {life.notice_to_saved_s:.2f} s, resumed {life.notice_to_resumed_s:.2f} s after the notice, floor {life.floor_s:.2f} s; "
        f"after the loss {life.loss_to_new_step_s:.2f} s"
    )


def _ratios(above: list[float], below: list[float]) -> list[float]:
    return [one / other for one, other in zip(above, below, strict=True)]


def _rss_mb(world: World) -> float:
    return psutil.Process(world.service_pid).memory_info().rss / _MB


def _demo_after_setup_s(console: Console) -> float:
    console.print("  the demo itself", style="dim")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "demo.json"
        command = [sys.executable, "-m", "watchdog.cli", "demo", "--json", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return float(json.loads(file.read_text())["demo_after_setup_s"])
