"""The service's agent API over HTTP, with the standard library."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any
from urllib.parse import quote, urlsplit

from spot_watchdog_agent.errors import ServiceRefused, ServiceUnavailable
from spot_watchdog_agent.settings import AgentSettings
from spot_watchdog_agent.wire import Directive

_TIMEOUT_SECONDS = 5.0


class ServiceClient:
    """One connection to the service, kept open between reports. One thread at a time; proxy settings are not looked at."""

    def __init__(self, settings: AgentSettings) -> None:
        """Connect when first used."""
        parts = urlsplit(settings.service_url or "")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._path = f"{parts.path}/agent/v1/jobs/{quote(settings.job_id, safe='')}/agents/{quote(settings.incarnation, safe='')}"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if settings.agent_token:
            self._headers["Authorization"] = f"Bearer {settings.agent_token}"
        self._connection: http.client.HTTPConnection | None = None

    def report(self, report: dict[str, Any]) -> Directive:
        """Say what is, and return what should be.

        Raises:
            ServiceRefused: 401, 404, 409 and other refusals.
            ServiceUnavailable: no answer, or none that can be understood.
        """
        body = json.dumps(report).encode()
        kept = self._connection is not None
        try:
            status, text = self._exchange(body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not kept:
                raise ServiceUnavailable(f"The service does not answer: {error or type(error).__name__}.") from error
            # The service closes connections that were idle for long; a report may be sent twice without harm.
            try:
                status, text = self._exchange(body)
            except (OSError, http.client.HTTPException) as again:
                self.close()
                raise ServiceUnavailable(f"The service does not answer: {again or type(again).__name__}.") from again
        if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR or status == http.HTTPStatus.TOO_MANY_REQUESTS:
            raise ServiceUnavailable(f"The service answered {status}.")
        if status != http.HTTPStatus.OK:
            raise ServiceRefused(status, text[:300].decode("utf-8", "replace"))
        try:
            return Directive.from_wire(json.loads(text))
        except ValueError as error:
            raise ServiceUnavailable("The service's answer is no JSON.") from error

    def close(self) -> None:
        """Close the connection; the next report opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, body: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request("PUT", self._path, body=body, headers=self._headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS, context=ssl.create_default_context())
        return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
