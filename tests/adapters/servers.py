"""A small real HTTP server that keeps what it is sent and answers what a test says."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes | str = "ok"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Receiver:
    """A real HTTP server that keeps what it was sent and answers by `answer`."""

    url: str
    answer: Callable[[Request], Reply | None]
    requests: list[Request] = field(default_factory=list)

    def script(self, *replies: Reply) -> None:
        """Answer with these in turn, the last one for ever."""
        left = list(replies)
        self.answer = lambda _request: left.pop(0) if len(left) > 1 else left[0]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hung up."""


@contextmanager
def serving() -> Iterator[Receiver]:
    """Serve until the end of the block."""
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # answers `Expect: 100-continue`, which S3 clients wait for

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Request(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            kept.requests.append(request)
            reply = kept.answer(request)
            if reply is None:  # never answer
                released.wait(60)
                return
            content = reply.body.encode() if isinstance(reply.body, str) else reply.body
            self.send_response(reply.status)
            for name, value in {"Connection": "close", **reply.headers}.items():
                self.send_header(name, value)
            if "Content-Length" not in reply.headers:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - http.server's names

    server = _Server(("127.0.0.1", 0), Handler)
    kept = Receiver(url=f"http://127.0.0.1:{server.server_address[1]}", answer=lambda _request: Reply())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield kept
    finally:
        released.set()
        server.shutdown()
        thread.join()
        server.server_close()
