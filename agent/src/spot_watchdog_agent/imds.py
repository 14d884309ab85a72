"""The instance metadata service (IMDSv2), read with the standard library.

Facts: EC2 User Guide, "Use IMDSv2" and "Spot Instance interruption notices".
"""

from __future__ import annotations

import http.client
import json
import os
import threading
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from spot_watchdog_agent.errors import MetadataUnavailable
from spot_watchdog_agent.wire import parse_instant

if TYPE_CHECKING:
    from obstore.store import S3Credential

LINK_LOCAL = "http://169.254.169.254"
_TIMEOUT_SECONDS = 1.0
"""For connecting and for each read: a call never takes two seconds, and a notice has only two minutes."""
_TOKEN_LIFE_SECONDS = 21_600


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceIdentity:
    """Which instance this is. None: the metadata service has no such item."""

    instance_id: str | None
    availability_zone_id: str | None
    address: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceAction:
    """What AWS is about to do with this Spot Instance."""

    action: str
    """`terminate`, `stop` or `hibernate`."""
    at: datetime
    """Approximate. Hibernation starts at once, whatever this says."""


class InstanceMetadata:
    """A client of one metadata service. Proxy settings are never looked at; safe to use from several threads."""

    def __init__(self, endpoint: str) -> None:
        """Use the service at `endpoint`, e.g. `http://169.254.169.254`."""
        parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
        self.endpoint = endpoint
        self._host = parts.hostname or ""
        self._port = parts.port or 80
        self._token: str | None = None
        self._lock = threading.Lock()

    @classmethod
    def from_environment(cls) -> InstanceMetadata | None:
        """Return the service that every AWS SDK would use, or None if it is switched off."""
        if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            return None
        return cls(os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or LINK_LOCAL)

    def get(self, path: str) -> str | None:
        """Return the item at `/latest/meta-data/<path>`, or None if an authenticated request was told that there is none.

        Raises MetadataUnavailable.
        """
        with self._lock:
            status, body = self._get_once(path)
            if status == http.HTTPStatus.UNAUTHORIZED:
                self._token = None
                status, body = self._get_once(path)
            elif status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
                status, body = self._get_once(path)  # a few hosts of many answer 503 now and then
        if status == http.HTTPStatus.OK:
            return body.strip()
        if status == http.HTTPStatus.NOT_FOUND:
            return None
        raise MetadataUnavailable(f"{self.endpoint} answered {status} for {path}.")

    def identity(self) -> InstanceIdentity:
        """Return which instance this is. Raises MetadataUnavailable."""
        return InstanceIdentity(
            instance_id=self.get("instance-id"),
            availability_zone_id=self.get("placement/availability-zone-id"),
            address=self.get("local-ipv4"),
        )

    def instance_action(self) -> InstanceAction | None:
        """Return the Spot interruption notice, if there is one. Raises MetadataUnavailable."""
        notice = self._get_json("spot/instance-action")
        if notice is None:
            return None
        try:
            return InstanceAction(action=str(notice["action"]), at=parse_instant(notice["time"]))
        except (KeyError, TypeError, ValueError) as error:
            raise MetadataUnavailable(f"The interruption notice cannot be read: {notice!r}.") from error

    def rebalance_recommended(self) -> bool:
        """Return whether AWS recommends to leave this instance. Raises MetadataUnavailable."""
        return self._get_json("events/recommendations/rebalance") is not None

    def role_credentials(self) -> S3Credential:
        """Return the credentials of the instance's role. Raises MetadataUnavailable."""
        role = self.get("iam/security-credentials/")
        found = self._get_json(f"iam/security-credentials/{role.splitlines()[0]}") if role else None
        if found is None:
            raise MetadataUnavailable("This instance has no role, so there are no credentials for the checkpoint store.")
        try:
            return {
                "access_key_id": found["AccessKeyId"],
                "secret_access_key": found["SecretAccessKey"],
                "token": found["Token"],
                "expires_at": parse_instant(found["Expiration"]),
            }
        except (KeyError, TypeError, ValueError) as error:
            raise MetadataUnavailable("The credentials of the instance's role cannot be read.") from error

    def _get_json(self, path: str) -> dict[str, Any] | None:
        text = self.get(path)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except ValueError as error:
            raise MetadataUnavailable(f"{path} is no JSON: {text[:200]!r}.") from error
        if not isinstance(value, dict):
            raise MetadataUnavailable(f"{path} is no JSON object: {text[:200]!r}.")
        return value

    def _get_once(self, path: str) -> tuple[int, str]:
        if self._token is None:
            self._token = self._new_token()
        return self._request("GET", f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self._token})

    def _new_token(self) -> str:
        try:
            status, token = self._request("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_LIFE_SECONDS)})
        except MetadataUnavailable as error:
            raise MetadataUnavailable(f"{error}{self._hop_limit_hint()}") from error
        if status != http.HTTPStatus.OK:
            raise MetadataUnavailable(f"{self.endpoint} answered {status} to the request for a token.")
        return token.strip()

    def _hop_limit_hint(self) -> str:
        # A token's answer may travel only as many hops as the instance's options allow (default 1), other answers any number:
        # an address that answers a plain request and not the token request means a container behind a bridge.
        try:
            self._request("GET", "/latest/meta-data/", {})
        except MetadataUnavailable:
            return " The address may be filtered by a firewall."
        return " The address itself answers: raise the instance's metadata hop limit (HttpPutResponseHopLimit) to 2."

    def _request(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise MetadataUnavailable(f"{self.endpoint} does not answer: {error or type(error).__name__}.") from error
        finally:
            connection.close()
