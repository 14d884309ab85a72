"""Posting to a secret URL."""

from datetime import UTC, datetime

import pytest

from tests.adapters.servers import Receiver
from watchdog.adapters.http_post import SecretEndpoint
from watchdog.clock import ManualClock
from watchdog.errors import DeliveryFailed


async def test_a_receiver_that_never_answers_costs_a_limited_time_i01(receiver: Receiver) -> None:
    receiver.answer = lambda _sent: None
    endpoint = SecretEndpoint(receiver.url, setting="X", timeout_seconds=0.2, clock=ManualClock(datetime(2026, 3, 4, tzinfo=UTC)))
    with pytest.raises(DeliveryFailed, match="no answer") as failed:
        await endpoint.post(b"{}")
    await endpoint.close()
    assert not failed.value.permanent
    assert len(receiver.requests) == 1
