"""`spot-watchdog serve`: run the service until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import uvicorn

from api.app import create_app
from watchdog.adapters import jsonlog
from watchdog.bootstrap import bootstrap
from watchdog.errors import CheckpointStoreUnsuitable, SettingsInvalid
from watchdog.settings import Settings, load_settings

log = logging.getLogger(__name__)

EXIT_SETTINGS = 78  # EX_CONFIG of sysexits.h


def main(argv: Sequence[str]) -> int:
    """Serve; return 0 after an orderly stop, 78 if a setting cannot be used."""
    argparse.ArgumentParser(
        prog="spot-watchdog serve", description="Run the service. Everything is set by SPOT_WATCHDOG_* variables (README.md)."
    ).parse_args(argv)
    try:
        settings = load_settings()
        jsonlog.configure()
        asyncio.run(_serve(settings))
    except (SettingsInvalid, CheckpointStoreUnsuitable) as error:
        print(f"spot-watchdog cannot start:\n{error}", file=sys.stderr)
        return EXIT_SETTINGS
    return 0


def _orderly(signal_number: int, _frame: FrameType | None) -> None:
    """Do nothing: uvicorn has stopped by now, and passes the signal on to whoever had it before.

    Python's own answer would end the process here, in the middle of the drain.
    """
    log.info("service.stopping", extra={"signal": signal_number})


async def _serve(settings: Settings) -> None:
    async with bootstrap(settings) as service:
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(service),
                host=settings.host,
                port=settings.port,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=5,
            )
        )
        async with service.running():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, _orderly)
            await server.serve()
