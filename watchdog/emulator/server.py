"""The emulator as one process: moto behind the front, on a loopback port, until it is told to end."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from watchdog.clock import SystemClock
from watchdog.emulator import moto_bus, moto_ec2, moto_quotas
from watchdog.emulator.cloud import Cloud, CloudOptions
from watchdog.emulator.control import Control
from watchdog.emulator.front import Front
from watchdog.emulator.market import SpotMarket

REGION = "us-east-1"
_HOST = "127.0.0.1"
_SHUTDOWN_POLL_SECONDS = 0.1


class _QuietHandler(MotoRequestHandler):
    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Say nothing: instances and tests ask many times a second."""


@contextmanager
def serving(options: CloudOptions, *, port: int, seed: int) -> Iterator[str]:
    """Serve the emulated AWS and yield its endpoint; at the end no instance is left.

    Once per process: moto keeps its state in module globals, and what is wrapped there stays wrapped.
    """
    clock = SystemClock()
    cloud = Cloud(options, SpotMarket(moto_ec2.catalogue_of(REGION), clock, seed=seed), moto_bus.publish, clock)
    moto_ec2.install(cloud)
    moto_quotas.install(cloud.market)
    moto = DomainDispatcherApplication(create_backend_app)
    server = make_server(_HOST, port, moto, threaded=True, request_handler=_QuietHandler)
    cloud.endpoint = f"http://{_HOST}:{server.server_port}"
    # The front comes last, since its parts must know the endpoint, and with port 0 that is known only now.
    front = Front(moto, Control(cloud, lambda faults: setattr(front, "faults", faults)), cloud)
    server.app = front
    thread = threading.Thread(target=server.serve_forever, args=(_SHUTDOWN_POLL_SECONDS,), name="aws", daemon=True)
    thread.start()
    try:
        yield cloud.endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        cloud.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator until SIGTERM or SIGINT; say the endpoint in one line of JSON on stdout once it serves."""
    arguments = _parser().parse_args(argv)
    run_dir: Path = arguments.run_dir.resolve()
    run_dir.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # moto and its libraries warn about their own ageing, which nobody who reads this log can do anything about.
    warnings.simplefilter("ignore")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    options = CloudOptions(run_dir=run_dir, boot_seconds=arguments.boot_seconds, instance_path=arguments.instance_path)
    with serving(options, port=arguments.port, seed=arguments.seed) as endpoint:
        print(json.dumps({"endpoint": endpoint}), flush=True)  # noqa: T201 - the one line that the starter reads
        stop.wait()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m watchdog.emulator", description="A local AWS with a spot market in it.")
    parser.add_argument("--run-dir", type=Path, required=True, help="where instances live: RUN_DIR/instances/INSTANCE_ID")
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0 takes a free one (default)")
    parser.add_argument("--boot-seconds", type=float, default=3.0, help="from RunInstances until an instance runs (default: 3)")
    parser.add_argument("--instance-path", default=os.environ.get("PATH", os.defpath), help="PATH of instances (default: this PATH)")
    parser.add_argument("--seed", type=int, default=1, help="of the market's prices (default: 1)")
    return parser
