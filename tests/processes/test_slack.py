import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.processes.conftest import ENVIRONMENT
from watchdog.emulator.processes import Supervisor
from watchdog.emulator.slack import Receiver, refusal, serve

SECTION = {"type": "section", "text": {"type": "mrkdwn", "text": "hello"}}


def section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def client(receiver: Receiver) -> Iterator[httpx2.Client]:
    with serve(receiver, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        with httpx2.Client(base_url=f"http://127.0.0.1:{server.server_address[1]}", trust_env=False) as opened:
            yield opened
        server.shutdown()
        thread.join()


def test_a_good_message_is_answered_ok_and_kept(client: httpx2.Client, receiver: Receiver) -> None:
    answer = client.post(receiver.slack_path, json={"text": "hello", "blocks": [SECTION]})
    assert (answer.status_code, answer.text) == (200, "ok")
    [kept] = client.get("/_messages").json()["messages"]
    assert kept["to"] == "slack"
    assert kept["body"] == {"text": "hello", "blocks": [SECTION]}


def test_a_wrong_path_finds_no_service_and_nothing_is_kept(client: httpx2.Client, receiver: Receiver) -> None:
    answer = client.post(receiver.slack_path[:-1], json={"text": "hello"})
    assert (answer.status_code, answer.text) == (404, "no_service")
    assert receiver.messages() == []


@pytest.mark.parametrize("body", [b"{", b"\xff", b""])
def test_what_is_no_json_is_an_invalid_payload(client: httpx2.Client, receiver: Receiver, body: bytes) -> None:
    answer = client.post(receiver.slack_path, content=body)
    assert (answer.status_code, answer.text) == (400, "invalid_payload")


def test_the_older_form_field_is_understood(client: httpx2.Client, receiver: Receiver) -> None:
    assert client.post(receiver.slack_path, data={"payload": json.dumps({"text": "hello"})}).text == "ok"


def test_a_rate_limit_says_when_to_come_back_and_ends(client: httpx2.Client, receiver: Receiver) -> None:
    client.put("/_rate_limit", json={"posts": 1, "retry_after_seconds": 3})
    refused = client.post(receiver.slack_path, json={"text": "hello"})
    assert (refused.status_code, refused.text, refused.headers["Retry-After"]) == (429, "rate_limited", "3")
    assert client.post(receiver.slack_path, json={"text": "hello"}).status_code == 200


def test_the_schedulers_message_is_kept_byte_for_byte_with_its_signature(client: httpx2.Client, receiver: Receiver) -> None:
    body = '{"type": "job.started",  "data": {}}'
    headers = {"webhook-id": "msg_1", "webhook-timestamp": "1", "webhook-signature": "v1,abc"}
    assert client.post("/scheduler", content=body, headers=headers).status_code == 204
    [kept] = receiver.messages()
    assert kept["body"] == body
    assert headers.items() <= kept["headers"].items()


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ({"text": "x"}, None),
        ({"blocks": [SECTION]}, None),
        ({"attachments": [{"text": "x"}]}, None),
        ([], "invalid_payload"),
        ({"text": 1}, "invalid_payload"),
        ({}, "no_text"),
        ({"text": ""}, "no_text"),
        ({"text": "x", "attachments": [{}] * 101}, "too_many_attachments"),
        ({"blocks": [{"type": "divider"}] * 50}, None),
        ({"blocks": [{"type": "divider"}] * 51}, "invalid_blocks"),
        ({"blocks": "x"}, "invalid_blocks"),
        ({"blocks": [{"type": "paragraph"}]}, "invalid_blocks"),
        ({"blocks": [{"type": "section"}]}, "invalid_blocks"),
        ({"blocks": [section("")]}, "invalid_blocks"),
        ({"blocks": [section("x" * 3000)]}, None),
        ({"blocks": [section("x" * 3001)]}, "invalid_blocks"),
        ({"blocks": [{"type": "section", "fields": [{"type": "mrkdwn", "text": "x" * 2000}] * 10}]}, None),
        ({"blocks": [{"type": "section", "fields": [{"type": "mrkdwn", "text": "x"}] * 11}]}, "invalid_blocks"),
        ({"blocks": [{"type": "section", "fields": [{"type": "mrkdwn", "text": "x" * 2001}]}]}, "invalid_blocks"),
        ({"blocks": [{"type": "header", "text": {"type": "plain_text", "text": "x" * 150}}]}, None),
        ({"blocks": [{"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}]}, "invalid_blocks"),
        ({"blocks": [{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}]}, "invalid_blocks"),
        ({"blocks": [{"type": "context", "elements": [{"type": "mrkdwn", "text": "x"}] * 10}]}, None),
        ({"blocks": [{"type": "context", "elements": [{"type": "mrkdwn", "text": "x"}] * 11}]}, "invalid_blocks"),
        ({"blocks": [{"type": "actions", "elements": [{"type": "button", "text": {"type": "plain_text", "text": "x" * 75}}]}]}, None),
        (
            {"blocks": [{"type": "actions", "elements": [{"type": "button", "text": {"type": "plain_text", "text": "x" * 76}}]}]},
            "invalid_blocks",
        ),
        ({"blocks": [{"type": "divider", "block_id": "x" * 256}]}, "invalid_blocks"),
        ({"blocks": [{"type": "divider", "block_id": "same"}] * 2}, "invalid_blocks"),
    ],
)
def test_the_limits_are_slacks(message: object, word: str | None) -> None:
    assert refusal(message) == word


def test_the_process_tells_its_urls_and_ends_on_sigterm(supervisor: Supervisor, run_dir: Path) -> None:
    ready = run_dir / "slack.json"
    argv = [sys.executable, "-m", "watchdog.emulator.slack", "--ready", str(ready)]
    supervisor.start("slack", argv, env=ENVIRONMENT, log=run_dir / "slack.log")
    supervisor.wait_until("Slack listens", ready.exists, needs=["slack"], timeout_seconds=20)
    urls = json.loads(ready.read_text())
    assert httpx2.post(urls["slack_url"], json={"text": "hello"}, trust_env=False).text == "ok"
    assert supervisor.stop("slack") == 0
