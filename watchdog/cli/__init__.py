"""Commands a person types."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status. Each command's modules are imported only when it runs."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="spot-watchdog", description="Keeps GPU jobs alive on AWS Spot.")
    parser.add_argument(
        "command",
        choices=("serve", "demo", "openapi"),
        help="serve: run the service; demo: a job survives an interruption on a local AWS; openapi: print the API's description",
    )
    if not arguments or arguments[0] in {"-h", "--help"}:
        parser.print_help()
        return 0 if arguments else 2
    command = parser.parse_args(arguments[:1]).command
    if command == "serve":
        from watchdog.cli.serve import main as serve

        return serve(arguments[1:])
    if command == "openapi":
        from watchdog.cli.openapi import main as openapi

        return openapi(arguments[1:])
    from watchdog.cli.demo import main as demo

    return demo(arguments[1:])
