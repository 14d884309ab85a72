"""Real little servers that the agent talks to in its tests."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DEADLINE_SECONDS = 30.0


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Poll until `condition` is true, and fail the test if it never is."""
    give_up_at = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < give_up_at:
        if value := condition():
            return value
        threading.Event().wait(0.01)
    raise AssertionError(f"never happened: {what}")


@dataclass
class Answer:
    status: int = 200
    body: str = ""
    hang: threading.Event | None = None


@dataclass
class Request:
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes


@dataclass
class Stub:
    """A small HTTP server that answers what a test's function says."""

    respond: Callable[[Request], Answer]
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def serve(self) -> ThreadingHTTPServer:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = Request(self.command, self.path, list(self.headers.items()), body)
                stub.requests.append(request)
                answer = stub.respond(request)
                if answer.hang is not None:
                    answer.hang.wait(DEADLINE_SECONDS)
                    self.close_connection = True
                    return
                data = answer.body.encode()
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                return  # clients that gave up

        server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server


class Metadata:
    """IMDSv2: a token is needed, and items can come and go."""

    def __init__(self) -> None:
        self.items = {"instance-id": "i-0aaa", "placement/availability-zone-id": "use1-az1", "local-ipv4": "10.0.0.5"}
        self.tokens: set[str] = set()
        self.failure: Answer | None = None

    def __call__(self, request: Request) -> Answer:
        if self.failure is not None:
            return self.failure
        if request.method == "PUT" and request.path == "/latest/api/token":
            token = uuid.uuid4().hex
            self.tokens.add(token)
            return Answer(body=token)
        sent = [value for name, value in request.headers if name.lower() == "x-aws-ec2-metadata-token"]
        if len(sent) != 1 or sent[0] not in self.tokens:
            return Answer(401)
        item = self.items.get(request.path.removeprefix("/latest/meta-data/"))
        return Answer(404) if item is None else Answer(body=item)


class Service:
    """The service's side of the agent API."""

    def __init__(self) -> None:
        self.directive: dict[str, Any] = {
            "protocol": 1,
            "generation": 0,
            "desired": "run",
            "take_over_from": None,
            "hazard_rate_per_hour": None,
            "report_again_seconds": 0.05,
        }
        self.reports: list[dict[str, Any]] = []
        self.failure: Answer | None = None

    def __call__(self, request: Request) -> Answer:
        if self.failure is not None:
            return self.failure
        self.reports.append(json.loads(request.body))
        return Answer(body=json.dumps(self.directive))

    @property
    def phases(self) -> list[str]:
        return [report["phase"] for report in self.reports]
