"""The scheduler's webhook, signed as Standard Webhooks 1.0."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from datetime import UTC

import httpx2

from watchdog.adapters.http_post import SecretEndpoint
from watchdog.clock import Clock
from watchdog.errors import DeliveryFailed, SettingsInvalid
from watchdog.ports import Message

_TIMEOUT_SECONDS = 15.0
_SECRET_PREFIX = "whsec_"  # noqa: S105 - the mark of a secret, not one
_SECRET_BYTES = range(24, 65)


def sign(secret: bytes, *, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the `webhook-signature` of one delivery. Standard Webhooks 1.0, "Symmetric signatures"."""
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return "v1," + base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()


def decode_secret(secret: str) -> bytes:
    """Return the bytes of a secret written as `whsec_` and base64. Raises SettingsInvalid without showing it."""
    try:
        decoded = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) not in _SECRET_BYTES:
        raise SettingsInvalid("SPOT_WATCHDOG_SCHEDULER_WEBHOOK_SECRET is not whsec_ and the base64 of 24 to 64 random bytes")
    return decoded


class SchedulerWebhook:
    """`ports.Announcer` over the scheduler's webhook."""

    name = "scheduler"

    def __init__(self, url: str, secret: str, clock: Clock) -> None:
        """Deliver to `url`, signed with `secret`. Raises SettingsInvalid."""
        self._secret = decode_secret(secret)
        self._clock = clock
        self._endpoint = SecretEndpoint(url, setting="SPOT_WATCHDOG_SCHEDULER_WEBHOOK_URL", timeout_seconds=_TIMEOUT_SECONDS, clock=clock)

    async def close(self) -> None:
        """Close connections."""
        await self._endpoint.close()

    async def send(self, message: Message) -> None:
        """Deliver one message once: only 2xx is a success, a redirect is a failure, 410 says that the receiver is gone for good.

        Raises DeliveryFailed.
        """
        body = json.dumps(
            {
                "type": message.kind,
                "timestamp": message.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
                "data": {"job_id": message.job_id, **message.data},
            },
            separators=(",", ":"),
        ).encode()
        timestamp = int(self._clock.now().timestamp())
        headers = {
            "webhook-id": message.message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(self._secret, message_id=message.message_id, timestamp=timestamp, body=body),
        }
        answer = await self._endpoint.post(body, headers)
        if not answer.ok:
            raise DeliveryFailed(
                f"the scheduler's webhook answered {answer.status}",
                permanent=answer.status == httpx2.codes.GONE,
                retry_after_seconds=answer.retry_after_seconds,
            )
