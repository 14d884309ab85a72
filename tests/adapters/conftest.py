"""Real servers for the adapters: moto in a process of its own, and small HTTP servers that answer what a test says."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from uuid import uuid4

import httpx2
import pytest

from tests.adapters.servers import Receiver, Reply, serving
from watchdog.adapters.aws.session import Aws, AwsConfig, open_aws

MOTO = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=True)
"""
REGION = "us-east-1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_answering(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        with contextlib.suppress(httpx2.TransportError):
            httpx2.get(url, timeout=5)
            return
        time.sleep(0.05)  # the poll of a condition with a deadline
    raise RuntimeError(f"{url} does not answer")


@pytest.fixture(scope="session", autouse=True)
def credentials() -> Iterator[None]:
    names = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", MOTO, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ}
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_answering(f"{url}/moto-api/", process)
        yield url
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def clients(endpoint_url: str) -> Iterator[Aws]:
    """Make clients once for many tests: to make them takes longer than most tests."""
    with asyncio.Runner() as runner:
        manager = open_aws(AwsConfig(region=REGION, endpoint_url=endpoint_url))
        yield runner.run(manager.__aenter__())
        runner.run(manager.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def moto_clients(moto_url: str) -> Iterator[Aws]:
    with clients(moto_url) as opened:
        yield opened


@pytest.fixture
def aws(moto_clients: Aws) -> Aws:
    """An AWS that all tests share: what a test makes there it names `unique`."""
    return moto_clients


@pytest.fixture
def unique() -> str:
    return f"n{uuid4().hex}"


@pytest.fixture(scope="session")
def server() -> Iterator[Receiver]:
    with serving() as started:
        yield started


@pytest.fixture
def receiver(server: Receiver) -> Receiver:
    """A server that was sent nothing yet and says ok."""
    server.requests = []
    server.script(Reply())
    return server


@pytest.fixture(scope="session")
def server_clients(server: Receiver) -> Iterator[Aws]:
    with clients(server.url) as opened:
        yield opened


@pytest.fixture
def scripted_aws(server_clients: Aws, receiver: Receiver) -> Aws:
    """An AWS that answers what the test tells `receiver`."""
    return server_clients
