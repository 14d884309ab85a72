"""A receiver that answers like Slack's incoming webhooks, and takes the scheduler's webhook beside them.

    python -m watchdog.emulator.slack --ready FILE

Limits and answers: Slack's documentation of incoming webhooks and Block Kit, and the checks of `slack_sdk.models`. Errors are a bare word in
the body. Under `/_messages` it shows what it took; `PUT /_rate_limit {"posts": 2, "retry_after_seconds": 1}` refuses the next posts with 429.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

_MAX_BODY_BYTES = 1_000_000
_MAX_BLOCKS = 50
_MAX_FIELDS = 10
_MAX_CONTEXT_ELEMENTS = 10
_MAX_ACTIONS = 25
_MAX_ATTACHMENTS = 100
_MAX_ID = 255
_MAX_SECTION_TEXT = 3000
_MAX_FIELD_TEXT = 2000
_MAX_HEADER_TEXT = 150
_MAX_BUTTON_TEXT = 75
_MAX_BUTTON_VALUE = 2000
_MAX_URL = 3000
_MAX_ALT_TEXT = 2000
_MAX_MARKDOWN = 12_000


def refusal(message: Any) -> str | None:
    """Return Slack's word for what is wrong with the payload of an incoming webhook, or None if Slack would take it."""
    if not isinstance(message, dict):
        return "invalid_payload"
    blocks = message.get("blocks")
    attachments = message.get("attachments")
    text = message.get("text")
    if text is not None and not isinstance(text, str):
        return "invalid_payload"
    if blocks is not None and not _blocks_fit(blocks):
        return "invalid_blocks"
    if isinstance(attachments, list) and len(attachments) > _MAX_ATTACHMENTS:
        return "too_many_attachments"
    if not text and not blocks and not attachments:
        return "no_text"
    return None


def _blocks_fit(blocks: Any) -> bool:
    if not isinstance(blocks, list) or len(blocks) > _MAX_BLOCKS or not all(isinstance(block, dict) for block in blocks):
        return False
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    return (
        all(isinstance(name, str) and len(name) <= _MAX_ID for name in ids) and len(ids) == len(set(ids)) and all(map(_block_fits, blocks))
    )


def _block_fits(block: Mapping[str, Any]) -> bool:
    match block.get("type"):
        case "section":
            fields = block.get("fields")
            has_text = "text" in block
            return (
                (has_text or bool(fields))
                and (not has_text or _text_fits(block["text"], _MAX_SECTION_TEXT))
                and (fields is None or _each(fields, _MAX_FIELDS, lambda field: _text_fits(field, _MAX_FIELD_TEXT)))
            )
        case "header":
            return _text_fits(block.get("text"), _MAX_HEADER_TEXT, kinds=("plain_text",))
        case "context":
            return _each(block.get("elements"), _MAX_CONTEXT_ELEMENTS, _context_element_fits)
        case "actions":
            return _each(block.get("elements"), _MAX_ACTIONS, _action_fits)
        case "image":
            return _image_fits(block)
        case "markdown":
            text = block.get("text")
            return isinstance(text, str) and 0 < len(text) <= _MAX_MARKDOWN
        case "divider":
            return True
        case _:
            return False


def _each(items: Any, limit: int, fits: Any) -> bool:
    return isinstance(items, list) and 0 < len(items) <= limit and all(isinstance(item, dict) and fits(item) for item in items)


def _text_fits(text: Any, limit: int, *, kinds: Sequence[str] = ("mrkdwn", "plain_text")) -> bool:
    return isinstance(text, dict) and text.get("type") in kinds and isinstance(text.get("text"), str) and 0 < len(text["text"]) <= limit


def _context_element_fits(element: Mapping[str, Any]) -> bool:
    return _image_fits(element) if element.get("type") == "image" else _text_fits(element, _MAX_SECTION_TEXT)


def _image_fits(image: Mapping[str, Any]) -> bool:
    url, alternative = image.get("image_url"), image.get("alt_text")
    return isinstance(url, str) and 0 < len(url) <= _MAX_URL and isinstance(alternative, str) and 0 < len(alternative) <= _MAX_ALT_TEXT


def _action_fits(element: Mapping[str, Any]) -> bool:
    if element.get("type") != "button":
        return isinstance(element.get("type"), str)
    return (
        _text_fits(element.get("text"), _MAX_BUTTON_TEXT, kinds=("plain_text",))
        and len(str(element.get("value", ""))) <= _MAX_BUTTON_VALUE
        and len(str(element.get("url", ""))) <= _MAX_URL
        and len(str(element.get("action_id", ""))) <= _MAX_ID
    )


class Receiver:
    """What was received, and what is to be refused next; safe to use from several threads."""

    def __init__(self) -> None:
        """Start with no message, a fresh secret path, and nothing to refuse."""
        self.slack_path = f"/services/T{secrets.token_hex(4).upper()}/B{secrets.token_hex(4).upper()}/{secrets.token_urlsafe(18)}"
        self.scheduler_path = "/scheduler"
        self._lock = threading.Lock()
        self._messages: list[dict[str, Any]] = []
        self._refuse_next = 0
        self._retry_after_seconds = 1

    def rate_limit(self, *, posts: int, retry_after_seconds: int) -> None:
        """Answer the next `posts` Slack posts with 429."""
        with self._lock:
            self._refuse_next, self._retry_after_seconds = posts, retry_after_seconds

    def take_slack(self, message: Any) -> tuple[int, str, dict[str, str]]:
        """Keep one Slack message and return status, body and headers of the answer."""
        with self._lock:
            if self._refuse_next > 0:
                self._refuse_next -= 1
                return 429, "rate_limited", {"Retry-After": str(self._retry_after_seconds)}
        word = refusal(message)
        if word is not None:
            return 400, word, {}
        self._keep("slack", message, {})
        return 200, "ok", {}

    def take_scheduler(self, body: str, headers: Mapping[str, str]) -> tuple[int, str, dict[str, str]]:
        """Keep one message to the scheduler as it came, signature headers included."""
        self._keep("scheduler", body, headers)
        return 204, "", {}

    def messages(self) -> list[dict[str, Any]]:
        """Return everything that was taken, oldest first."""
        with self._lock:
            return list(self._messages)

    def _keep(self, to: str, body: Any, headers: Mapping[str, str]) -> None:
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        with self._lock:
            self._messages.append({"seq": len(self._messages) + 1, "at": at, "to": to, "headers": dict(headers), "body": body})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    receiver: Receiver

    def do_GET(self) -> None:
        if self.path == "/_messages":
            self._answer(200, json.dumps({"messages": self.receiver.messages()}), {"Content-Type": "application/json"})
        else:
            self._answer(404, "no_service")

    def do_PUT(self) -> None:
        body = self._body()
        if self.path != "/_rate_limit" or body is None:
            self._answer(404, "no_service")
            return
        mode = json.loads(body)
        self.receiver.rate_limit(posts=int(mode["posts"]), retry_after_seconds=int(mode["retry_after_seconds"]))
        self._answer(204, "")

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            self._answer(400, "invalid_payload")
        elif secrets.compare_digest(self.path.encode(), self.receiver.slack_path.encode()):
            self._answer(*self.receiver.take_slack(self._payload(body)))
        elif self.path == self.receiver.scheduler_path:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._answer(*self.receiver.take_scheduler(body.decode(errors="replace"), headers))
        else:
            self._answer(404, "no_service")

    def _body(self) -> bytes | None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > _MAX_BODY_BYTES:
            self.close_connection = True  # unread bytes would be taken for the next request
            return None
        return self.rfile.read(length)

    def _payload(self, body: bytes) -> Any:
        """Return the parsed JSON, also from the older form with one field `payload`; None if it is no JSON."""
        try:
            text = body.decode()
            if (self.headers.get("Content-Type") or "").startswith("application/x-www-form-urlencoded"):
                text = parse_qs(text)["payload"][0]
            return json.loads(text)
        except (ValueError, KeyError):
            return None

    def _answer(self, status: int, body: str, headers: Mapping[str, str] | None = None) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "text/html", **(headers or {})}.items():
            self.send_header(name, value)
        if status != 204:  # noqa: PLR2004 - no content, and so no length (RFC 9110, 8.6)
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Say nothing: the request line holds the secret path."""


def serve(receiver: Receiver, port: int) -> ThreadingHTTPServer:
    """Return a server of `receiver` bound to 127.0.0.1; port 0 takes a free one."""
    handler = type("Handler", (_Handler,), {"receiver": receiver})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    return server


def main(argv: Sequence[str] | None = None) -> int:
    """Receive until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m watchdog.emulator.slack", description=main.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready", type=Path, required=True, help="where to write the URLs, as JSON, once it listens")
    options = parser.parse_args(argv)
    receiver = Receiver()
    with serve(receiver, options.port) as server:
        base = f"http://127.0.0.1:{server.server_address[1]}"
        urls = {"base_url": base, "slack_url": base + receiver.slack_path, "scheduler_url": base + receiver.scheduler_path}
        # shutdown() waits for the serving loop, which this very thread runs: it has to come from another one.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
        unfinished = options.ready.with_suffix(".tmp")
        unfinished.write_text(json.dumps(urls))
        unfinished.rename(options.ready)
        server.serve_forever(poll_interval=0.1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
