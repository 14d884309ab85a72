"""The scheduler's webhook."""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.adapters.servers import Receiver, Reply
from watchdog.adapters.webhooks import SchedulerWebhook, decode_secret, sign
from watchdog.clock import ManualClock
from watchdog.errors import DeliveryFailed, SettingsInvalid
from watchdog.ports import Message

VECTOR = json.loads((Path(__file__).parent / "samples" / "standard-webhooks-vector.json").read_text())
NOW = datetime(2026, 3, 4, 10, 15, 31, 500_000, tzinfo=UTC)
MESSAGE = Message(
    message_id="msg_1", kind="job.finished", at=NOW, job_id="job_1", data={"job_id": "job_1", "job_name": "dïgits", "step": 9}
)


def test_the_signature_is_that_of_standard_webhooks() -> None:
    headers = VECTOR["headers"]
    made = sign(
        decode_secret(VECTOR["secret"]),
        message_id=headers["webhook-id"],
        timestamp=int(headers["webhook-timestamp"]),
        body=VECTOR["raw_body"].encode(),
    )
    assert made == headers["webhook-signature"]


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_AAAA", "whsec_not base64!" + "A" * 32, "hunter2hunter2", "whsec_" + "A" * 88])
def test_a_weak_or_broken_secret_is_refused_without_showing_it(secret: str) -> None:
    with pytest.raises(SettingsInvalid, match="SPOT_WATCHDOG_SCHEDULER_WEBHOOK_SECRET") as refused:
        decode_secret(secret)
    assert "hunter2" not in str(refused.value)


@pytest.fixture
async def webhook(receiver: Receiver) -> AsyncIterator[SchedulerWebhook]:
    made = SchedulerWebhook(f"{receiver.url}/hooks?key=verysecrettoken", VECTOR["secret"], ManualClock(NOW))
    yield made
    await made.close()


async def test_a_receiver_can_verify_what_it_gets(webhook: SchedulerWebhook, receiver: Receiver) -> None:
    for _ in range(2):
        await webhook.send(MESSAGE)
    first, again = receiver.requests
    assert {first.headers["webhook-id"], again.headers["webhook-id"]} == {"msg_1"}
    assert abs(int(first.headers["webhook-timestamp"]) - NOW.timestamp()) < 1
    key = base64.b64decode(VECTOR["secret"].removeprefix("whsec_"))
    signed = f"msg_1.{first.headers['webhook-timestamp']}.".encode() + first.body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert first.headers["webhook-signature"] == f"v1,{expected}"
    assert json.loads(first.body) == {
        "type": "job.finished",
        "timestamp": "2026-03-04T10:15:31.500000Z",
        "data": {"job_id": "job_1", "job_name": "dïgits", "step": 9},
    }


@pytest.mark.parametrize("status", [200, 201, 204])
async def test_every_2xx_is_a_success(webhook: SchedulerWebhook, receiver: Receiver, status: int) -> None:
    receiver.script(Reply(status, ""))
    await webhook.send(MESSAGE)


@pytest.mark.parametrize(
    ("reply", "permanent", "wait"),
    [
        (Reply(410), True, None),
        (Reply(429, "", {"Retry-After": "7"}), False, 7.0),
        (Reply(502), False, None),
        (Reply(404), False, None),
        (Reply(307, "", {"Location": "/elsewhere"}), False, None),
    ],
)
async def test_only_410_is_for_good_and_no_redirect_is_followed(
    webhook: SchedulerWebhook, receiver: Receiver, reply: Reply, *, permanent: bool, wait: float | None
) -> None:
    receiver.script(reply)
    with pytest.raises(DeliveryFailed) as failed:
        await webhook.send(MESSAGE)
    assert (failed.value.permanent, failed.value.retry_after_seconds) == (permanent, wait)
    assert len(receiver.requests) == 1


async def test_a_receiver_that_hangs_up_is_worth_another_try(webhook: SchedulerWebhook, receiver: Receiver) -> None:
    receiver.script(Reply(200, b"", {"Content-Length": "10"}))
    with pytest.raises(DeliveryFailed) as failed:
        await webhook.send(MESSAGE)
    assert not failed.value.permanent
