"""Real servers and small jobs for the agent's tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agent.tests.servers import Answer, Request, Stub, wait_for

from spot_watchdog_agent.stores import ObjectStore, open_store

MOTO = """
import logging, sys
logging.getLogger("werkzeug").setLevel(logging.ERROR)
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=True)
"""


@pytest.fixture
def stub() -> Iterator[Callable[[Callable[[Request], Answer]], Stub]]:
    servers = []

    def start(respond: Callable[[Request], Answer]) -> Stub:
        one = Stub(respond)
        servers.append(one.serve())
        return one

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No test sees this machine's AWS or watchdog settings."""
    for name in list(os.environ):
        if name.startswith(("SPOT_WATCHDOG_", "AWS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-c", MOTO, str(port)])
    try:

        def serves() -> bool:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                return False
            return True

        wait_for(serves, "moto serves")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def s3_url(s3_endpoint: str, environment: pytest.MonkeyPatch) -> str:
    """Return a fresh prefix in a real bucket of a local S3, with the environment set up for it."""
    import http.client
    from urllib.parse import urlsplit

    for name, value in {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        environment.setenv(name, value)
    connection = http.client.HTTPConnection(urlsplit(s3_endpoint).netloc)
    connection.request("PUT", "/checkpoints", headers={"Content-Length": "0"})
    connection.getresponse().read()
    connection.close()
    return f"s3://checkpoints/demo/jobs/{uuid.uuid4().hex}"


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> ObjectStore:
    """Return an empty store of each kind."""
    return open_store(tmp_path / "store" if request.param == "folder" else request.getfixturevalue("s3_url"))
