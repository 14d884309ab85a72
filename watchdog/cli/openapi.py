"""`spot-watchdog openapi`: print the API's description, as it is checked in at docs/openapi.json."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from api.app import create_app


def main(argv: Sequence[str]) -> int:
    """Print the OpenAPI document."""
    argparse.ArgumentParser(prog="spot-watchdog openapi", description="Print the OpenAPI document of the REST API.").parse_args(argv)
    print(json.dumps(create_app(None).openapi(), indent=2, sort_keys=True))
    return 0
