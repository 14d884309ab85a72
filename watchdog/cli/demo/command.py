"""The demo's command line: play one scenario, show it while it happens, and judge it."""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from watchdog.cli.demo.evidence import Outcome, measure
from watchdog.cli.demo.play import Play, job_for
from watchdog.cli.demo.scenarios import SCENARIOS, Scenario
from watchdog.cli.demo.summary import broken_claims, summary
from watchdog.cli.demo.world import World, open_world
from watchdog.emulator.processes import ProcessFailed, leftovers

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def run(argv: Sequence[str]) -> int:
    """Play one scenario and say how it went: 0 if everything held, 1 if not, 130 after Ctrl-C."""
    options = _parse(argv)
    console = Console(highlight=False)
    # A polite kill takes the same way out as Ctrl-C; after an impolite one the supervisor cleans up.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _demo(SCENARIOS[options.scenario], options, console)
    except KeyboardInterrupt:
        console.print("\nstopped; everything that was started has ended", style="yellow")
        return _INTERRUPTED
    except ProcessFailed as error:
        console.print(f"\nthe demo failed: {error}", style="red", markup=False)
        return 1


def _demo(scenario: Scenario, options: argparse.Namespace, console: Console) -> int:
    console.print(f"Scenario [bold]{scenario.name}[/]: {scenario.title}.")
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"  {time.monotonic() - began:5.1f} s  {text}", style="dim", markup=False)

    with open_world(say=say, arrange=scenario.arrange, keep=options.keep) as world:
        run_dir = world.run_dir
        ready = time.monotonic()
        evidence = Play(world, scenario, job_for(options.notice_seconds), console, notice_seconds=options.notice_seconds).run()
        outcome = replace(measure(scenario.name, evidence), demo_after_setup_s=round(time.monotonic() - ready, 1))
        console.print(summary(scenario, evidence, outcome, notice_seconds=options.notice_seconds))
        if options.keep:
            _let_look_around(world, evidence.job_id, console)
    remaining = leftovers(run_dir)
    broken = broken_claims(scenario, evidence, outcome)
    outcome = replace(outcome, leftover_processes=len(remaining), ok=not broken and not remaining)
    if options.json is not None:
        _write(outcome, options.json)
    for claim in broken:
        console.print(f"does not hold: {claim}", style="bold red", markup=False)
    for process in remaining:
        console.print(f"left behind: process {process.pid}", style="bold red")
    took = f"{outcome.demo_after_setup_s} s after set-up, {time.monotonic() - began:.1f} s in all; no process left behind."
    console.print(f"Everything held. {took}" if outcome.ok else "Not everything held.", style="bold green" if outcome.ok else "bold red")
    return 0 if outcome.ok else 1


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="spot-watchdog demo", description="A real training job survives a Spot interruption, on a local AWS."
    )
    parser.add_argument("--scenario", choices=list(SCENARIOS), default="interruption", help="what happens to the job (%(default)s)")
    parser.add_argument(
        "--notice-seconds", type=float, default=20, help="how long before the reclaim AWS tells (%(default)s; the real AWS: 120)"
    )
    parser.add_argument("--keep", action="store_true", help="leave everything running afterwards, to look around, until Ctrl-C")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as one JSON object")
    return parser.parse_args(argv)


def _write(outcome: Outcome, file: Path) -> None:
    file.write_text(json.dumps(asdict(outcome), indent=2) + "\n")


def _let_look_around(world: World, job_id: str, console: Console) -> None:
    lines = {
        "service": f"curl -H 'Authorization: Bearer {world.token}' {world.service.url}/v1/jobs/{job_id}",
        "migrations": f"curl -H 'Authorization: Bearer {world.token}' '{world.service.url}/v1/migrations?job_id={job_id}'",
        "emulated AWS": f"curl {world.emulator.url}/_emulator/timeline",
        "AWS CLI": f"AWS_ENDPOINT_URL={world.emulator.url} AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x aws s3 ls --recursive s3://{world.account.bucket}",
        "Slack": f"curl {world.slack.url}/_messages",
        "Redis": f"redis-cli -u {world.valkey.url}",
        "logs": str(world.run_dir / "logs"),
    }
    console.print("\nEverything still runs. Ctrl-C ends it; the run directory stays.", style="bold")
    for name, text in lines.items():
        console.print(f"  {name:13} {text}", markup=False, soft_wrap=True)
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        console.print("\nending everything ...", style="dim")
