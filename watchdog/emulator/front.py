"""The WSGI front of moto: faults, the HTTP statuses that moto cannot give, and what the timeline sees of the calls."""

from __future__ import annotations

import io
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

from watchdog.emulator.cloud import Cloud

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]

CONTROL_PREFIX = "/_emulator/"

_STATUS_OF_CODE = {
    "DryRunOperation": "412 Precondition Failed",
    "InsufficientInstanceCapacity": "500 Internal Server Error",
    "RequestLimitExceeded": "503 Service Unavailable",
    "UnauthorizedOperation": "403 Forbidden",
}
"""moto sends every error of EC2 as HTTP 400. EC2 API reference, "Error codes": the second and third are server errors."""
_CONDITIONS = {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"}
_ERROR_CODE = re.compile(rb"<Code>([^<]+)</Code>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong by order."""

    conditional_writes: bool = True
    """False: the object store ignores If-Match and If-None-Match on writes."""
    throttle_actions: frozenset[str] = field(default_factory=frozenset)
    """API actions that are refused because there were too many calls."""
    latency_seconds: float = 0
    """Added before every AWS call."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: str
    headers: list[tuple[str, str]]
    body: list[bytes]

    def send(self, start_response: StartResponse) -> Iterable[bytes]:
        start_response(self.status, self.headers)
        return self.body


class Front:
    """Stands between the socket and moto."""

    def __init__(self, moto: Application, control: Application, cloud: Cloud) -> None:
        """Pass AWS calls to `moto` and everything below `/_emulator/` to `control`."""
        self._moto = moto
        self._control = control
        self._cloud = cloud
        self._conditional_writes = threading.Lock()
        self.faults = Faults()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        if environ.get("PATH_INFO", "").startswith(CONTROL_PREFIX):
            return self._control(environ, start_response)
        faults = self.faults
        if faults.latency_seconds > 0:
            time.sleep(faults.latency_seconds)
        service = _service(environ)
        if service == "ec2":
            return self._ec2(environ, faults).send(start_response)
        target = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        if target in faults.throttle_actions:
            return _json_throttle().send(start_response)
        if service in {"", "s3"} and environ["REQUEST_METHOD"] in {"PUT", "POST"}:
            return self._object_write(environ, faults).send(start_response)
        return self._moto(environ, start_response)

    def _ec2(self, environ: Environ, faults: Faults) -> _Answer:
        form = _form(environ)
        action = form.get("Action", "")
        if action == "RunInstances" and form.get("DryRun") != "true":
            self._cloud.timeline.add(
                "run_instances_call",
                client_token=form.get("ClientToken"),
                instance_type=form.get("InstanceType"),
                subnet_id=form.get("SubnetId"),
                market="spot" if form.get("InstanceMarketOptions.MarketType") == "spot" else "on_demand",
            )
        if action in faults.throttle_actions:
            if action == "RunInstances":
                self._cloud.timeline.add("launch_refused", code="RequestLimitExceeded", client_token=form.get("ClientToken"))
            return _ec2_error("RequestLimitExceeded", "Request limit exceeded.")
        try:
            with self._cloud.lock:
                answer = _call(self._moto, environ)
        except NotImplementedError as error:
            return _ec2_error("UnsupportedOperation", f"not emulated: {error}")
        if answer.status.startswith("400") and (match := _ERROR_CODE.search(b"".join(answer.body))):
            return _Answer(_STATUS_OF_CODE.get(match.group(1).decode(), answer.status), answer.headers, answer.body)
        return answer

    def _object_write(self, environ: Environ, faults: Faults) -> _Answer:
        if not faults.conditional_writes:
            for header in _CONDITIONS:
                environ.pop(header, None)
        key = unquote(environ.get("PATH_INFO", "")).lstrip("/").partition("/")[2]
        watched = environ["REQUEST_METHOD"] == "PUT" and "uploadId=" not in environ.get("QUERY_STRING", "")
        if _CONDITIONS & environ.keys():
            # moto compares and writes in two steps: without the lock, two writers with the same If-Match could both win.
            _read_ahead(environ)
            with self._conditional_writes:
                answer = _call(self._moto, environ)
        else:
            answer = _call(self._moto, environ)
        if watched and answer.status.startswith("2") and (f"/{key}".endswith("/HEAD") or "/manifests/" in f"/{key}"):
            self._cloud.timeline.add("object_written", key=key)
        return answer


def _service(environ: Environ) -> str:
    """Return the service that a SigV4 signature is for, or an empty string if the request is not signed."""
    scope = re.search(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/aws4_request", environ.get("HTTP_AUTHORIZATION", ""))
    return scope.group(1).lower() if scope else ""


def _read_ahead(environ: Environ) -> bytes:
    """Read the whole body off the socket and leave it in place for moto, so that a slow client holds no lock."""
    stream, length = environ["wsgi.input"], environ.get("CONTENT_LENGTH")
    if length:
        body: bytes = stream.read(int(length))
    else:
        # Without a length only a chunked body has an end; anything else would be read until the client hangs up.
        body = stream.read() if environ.get("wsgi.input_terminated") else b""
    environ["wsgi.input"] = io.BytesIO(body)
    return body


def _form(environ: Environ) -> dict[str, str]:
    """Return the form fields of a request."""
    return {name: values[0] for name, values in parse_qs(_read_ahead(environ).decode(errors="replace")).items()}


def _call(application: Application, environ: Environ) -> _Answer:
    """Run a WSGI application to its end, so that its answer can be looked at."""
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> Callable[[bytes], object]:
        started.append((status, headers))
        return body.append

    body: list[bytes] = []
    chunks = application(environ, start_response)
    try:
        body.extend(chunks)
    finally:
        if hasattr(chunks, "close"):
            chunks.close()
    return _Answer(*started[-1], body)


def _ec2_error(code: str, message: str) -> _Answer:
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Response><Errors><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></Errors>"
        f"<RequestID>{uuid.uuid4()}</RequestID></Response>"
    )
    body = text.encode()
    headers = [("Content-Type", "text/xml;charset=UTF-8"), ("Content-Length", str(len(body)))]
    return _Answer(_STATUS_OF_CODE.get(code, "400 Bad Request"), headers, [body])


def _json_throttle() -> _Answer:
    body = b'{"__type": "ThrottlingException", "message": "Rate exceeded"}'
    return _Answer("400 Bad Request", [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))], [body])
