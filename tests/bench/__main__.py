"""`python -m tests.bench NAME [--json FILE] [--runs N]`; without a name: the names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console

from tests.bench import main_bench
from tests.bench.report import Report

BENCHES: Mapping[str, tuple[str, Callable[[int, Console], Report]]] = {
    "main": ("from the notice to the first new step, against the usual way; sizes and times of the parts", main_bench.run),
}


def main() -> int:
    """Run one benchmark: 0 if every limit was kept, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure, and compare with the limits.")
    parser.add_argument("name", nargs="?", choices=list(BENCHES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the medians, and every run under `detail`")
    parser.add_argument("--runs", type=int, default=5, help="how often each thing is measured (%(default)s)")
    options = parser.parse_args()
    console = Console(highlight=False)
    if options.name is None:
        for name, (meaning, _) in BENCHES.items():
            console.print(f"{name:10} {meaning}")
        return 0
    report = BENCHES[options.name][1](options.runs, console)
    report.print(console)
    if options.json is not None:
        report.write(options.json)
    return 0 if report.kept else 1


if __name__ == "__main__":
    sys.exit(main())
