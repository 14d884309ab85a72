"""`spot-watchdog demo`: a real training job survives a Spot interruption, on a local AWS."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Play one scenario and say how it went: 0 if everything held, 1 if not, 130 after Ctrl-C."""
    try:
        from watchdog.cli.demo.command import run  # noqa: PLC0415 - what it needs is an extra
    except ModuleNotFoundError as error:
        print(f"The demo needs more than the service does ({error}): pip install 'spot-watchdog[demo]'", file=sys.stderr)
        return 1
    return run(argv)
