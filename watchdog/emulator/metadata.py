"""The instance metadata service, version 2 only: one loopback port per instance.

Rules and paths: EC2 User Guide, "Use IMDSv2", "Instance metadata categories" and "Spot Instance interruption notices".
"""

from __future__ import annotations

import json
import math
import secrets
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from watchdog.clock import Clock
from watchdog.emulator.event_bus import ACCOUNT_ID
from watchdog.emulator.instance import EmulatedInstance

ROLE = "spot-watchdog-instance"
TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105 - the name of a header
TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"

_LONGEST_TTL_SECONDS = 21_600
_CREDENTIALS_LAST = timedelta(hours=6)
_TAGS = "meta-data/tags/instance"
_SHUTDOWN_POLL_SECONDS = 0.05
_CLIENT_TIMEOUT_SECONDS = 5


def whole_seconds(instant: datetime) -> str:
    """Return an instant as IMDS writes times: UTC, whole seconds, rounded down so that no one is promised more time than there is."""
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


class MetadataService:
    """The metadata of one instance, served until it is closed."""

    def __init__(self, instance: EmulatedInstance, clock: Clock) -> None:
        """Bind a free loopback port and start to serve."""
        self._instance = instance
        self._clock = clock
        self._tokens: dict[str, float] = {}
        self._items = self._catalogue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_SHUTDOWN_POLL_SECONDS,), name=f"imds-{instance.instance_id}", daemon=True
        )
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """What AWS_EC2_METADATA_SERVICE_ENDPOINT has to say."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def close(self) -> None:
        """Stop serving: an instance that has ended answers nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def new_token(self, ttl_seconds: int) -> str:
        """Return a token that is good for `ttl_seconds`; several may live at once."""
        token = secrets.token_urlsafe(40)
        self._tokens[token] = self._clock.monotonic() + ttl_seconds
        return token

    def remaining_seconds(self, token: str | None) -> int | None:
        """Return how long a token is still good for, or None if it is none of ours or has expired."""
        expires_at = self._tokens.get(token or "")
        if expires_at is None or expires_at <= self._clock.monotonic():
            return None
        return math.ceil(expires_at - self._clock.monotonic())

    def item(self, path: str) -> str | bytes | None:
        """Return what lies under `/latest/<path>`, or None if the instance has no such item (yet)."""
        path = path.strip("/")
        if path == _TAGS or path.startswith(f"{_TAGS}/"):
            return self._tags(path.removeprefix(_TAGS).removeprefix("/"))
        read = self._items.get(path)
        return None if read is None else read()

    def _tags(self, key: str) -> str | None:
        if not self._instance.tags_in_metadata:
            return None
        tags = {name: value for name, value in self._instance.tags.items() if not name.startswith("aws:")}
        return tags.get(key) if key else "\n".join(sorted(tags))

    def _catalogue(self) -> dict[str, Callable[[], str | bytes | None]]:
        instance = self._instance
        life_cycle = "spot" if instance.spot else "on-demand"
        return {
            "meta-data/ami-id": lambda: instance.image_id,
            "meta-data/instance-id": lambda: instance.instance_id,
            "meta-data/instance-type": lambda: instance.pool.instance_type,
            "meta-data/instance-life-cycle": lambda: life_cycle,
            "meta-data/local-ipv4": lambda: instance.private_ip,
            "meta-data/placement/availability-zone": lambda: instance.availability_zone,
            "meta-data/placement/availability-zone-id": lambda: instance.pool.availability_zone_id,
            "meta-data/placement/region": lambda: instance.pool.region,
            "meta-data/iam/info": self._role_information,
            "meta-data/iam/security-credentials": lambda: ROLE,
            f"meta-data/iam/security-credentials/{ROLE}": self._credentials,
            "meta-data/spot/instance-action": self._instance_action,
            "meta-data/spot/termination-time": lambda: None if instance.reclaim_at is None else whole_seconds(instance.reclaim_at),
            "meta-data/events/recommendations/rebalance": self._rebalance,
            "meta-data/events/maintenance/scheduled": lambda: "[]",
            "dynamic/instance-identity/document": self._identity_document,
            "user-data": lambda: instance.user_data or None,
        }

    def _instance_action(self) -> str | None:
        reclaim_at = self._instance.reclaim_at
        return None if reclaim_at is None else json.dumps({"action": "terminate", "time": whole_seconds(reclaim_at)})

    def _rebalance(self) -> str | None:
        noticed_at = self._instance.rebalance_at
        return None if noticed_at is None else json.dumps({"noticeTime": whole_seconds(noticed_at)})

    def _role_information(self) -> str:
        return json.dumps(
            {
                "Code": "Success",
                "LastUpdated": whole_seconds(self._instance.launched_at),
                "InstanceProfileArn": f"arn:aws:iam::{ACCOUNT_ID}:instance-profile/{ROLE}",
                "InstanceProfileId": "AIPAEMULATEDPROFILE00",
            }
        )

    def _credentials(self) -> str:
        now = self._clock.now()
        return json.dumps(
            {
                "Code": "Success",
                "LastUpdated": whole_seconds(now),
                "Type": "AWS-HMAC",
                # moto takes any key that it does not know for the default account's.
                "AccessKeyId": "ASIAEMULATEDINSTANCE",
                "SecretAccessKey": "emulated",
                "Token": "emulated",
                "Expiration": whole_seconds(now + _CREDENTIALS_LAST),
            }
        )

    def _identity_document(self) -> str:
        instance = self._instance
        document: dict[str, Any] = {
            "accountId": ACCOUNT_ID,
            "architecture": "x86_64",
            "availabilityZone": instance.availability_zone,
            "billingProducts": None,
            "devpayProductCodes": None,
            "marketplaceProductCodes": None,
            "imageId": instance.image_id,
            "instanceId": instance.instance_id,
            "instanceType": instance.pool.instance_type,
            "kernelId": None,
            "pendingTime": whole_seconds(instance.launched_at),
            "privateIp": instance.private_ip,
            "ramdiskId": None,
            "region": instance.pool.region,
            "version": "2017-09-30",
        }
        return json.dumps(document, indent=2)


def _handler_of(service: MetadataService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _CLIENT_TIMEOUT_SECONDS

        def do_PUT(self) -> None:
            if self.path != "/latest/api/token" or self.headers.get("X-Forwarded-For") is not None:
                # A dated path, or a request that came through a proxy: the instance itself would send neither.
                self._answer(HTTPStatus.FORBIDDEN)
                return
            ttl = self.headers.get(TTL_HEADER, "")
            if not (ttl.isascii() and ttl.isdigit() and 1 <= int(ttl) <= _LONGEST_TTL_SECONDS):
                self._answer(HTTPStatus.BAD_REQUEST)
                return
            self._answer(HTTPStatus.OK, service.new_token(int(ttl)), ttl_seconds=int(ttl))

        def do_GET(self) -> None:
            ttl_seconds = service.remaining_seconds(self.headers.get(TOKEN_HEADER))
            if ttl_seconds is None:
                self._answer(HTTPStatus.UNAUTHORIZED)
                return
            path = self.path.partition("?")[0]
            body = service.item(path.removeprefix("/latest/")) if path.startswith("/latest/") else None
            if body is None:
                self._answer(HTTPStatus.NOT_FOUND)
            else:
                self._answer(HTTPStatus.OK, body, ttl_seconds=ttl_seconds)

        def _answer(self, status: HTTPStatus, body: str | bytes = "", *, ttl_seconds: int | None = None) -> None:
            content = body.encode() if isinstance(body, str) else body
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(content)))
            if ttl_seconds is not None:
                self.send_header(TTL_HEADER, str(ttl_seconds))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name for it
            """Say nothing: agents poll every second."""

    return Handler
