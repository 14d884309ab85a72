"""Posting to a URL that is itself a secret, such as a Slack webhook's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from watchdog.clock import Clock
from watchdog.errors import DeliveryFailed, SettingsInvalid

_HTTP_LOG = logging.getLogger("httpx2")
_ANSWER_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the receiver answered."""

    status: int
    text: str
    """The start of the body."""
    retry_after_seconds: float | None
    """From `Retry-After`; None if it is absent or makes no sense."""

    @property
    def ok(self) -> bool:
        """Whether the receiver took the message: 2xx and nothing else."""
        return httpx2.codes.is_success(self.status)

    @property
    def worth_retrying(self) -> bool:
        """Whether the same message may be taken later: the receiver is busy or broken."""
        return self.status == httpx2.codes.TOO_MANY_REQUESTS or httpx2.codes.is_server_error(self.status)


class SecretEndpoint:
    """A URL to post JSON to that appears in no log, error or repr of ours. Redirects are not followed."""

    def __init__(self, url: str, *, setting: str, timeout_seconds: float, clock: Clock) -> None:
        """Take the URL that `setting` gave. Raises SettingsInvalid, naming the setting and not the URL."""
        try:
            parsed = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError):
            raise SettingsInvalid(f"{setting} is not a URL") from None
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise SettingsInvalid(f"{setting} is not an http or https URL")
        self._url = parsed
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._client = httpx2.AsyncClient(timeout=timeout_seconds, follow_redirects=False)
        self._hide = _HideUrl(parsed)
        _HTTP_LOG.addFilter(self._hide)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    async def close(self) -> None:
        """Close connections."""
        await self._client.aclose()
        _HTTP_LOG.removeFilter(self._hide)

    async def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """Post a JSON body once.

        Raises DeliveryFailed if no answer comes in time. The cause is named and not chained: it knows the URL.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds):
                response = await self._client.post(self._url, content=body, headers={"Content-Type": "application/json", **(headers or {})})
        except TimeoutError:
            raise DeliveryFailed(f"no answer within {self._timeout_seconds:g} s", permanent=False) from None
        except httpx2.HTTPError as error:
            raise DeliveryFailed(f"no answer: {type(error).__name__}", permanent=False) from None
        return Answer(
            status=response.status_code,
            text=response.text[:_ANSWER_CHARACTERS],
            retry_after_seconds=_seconds_until(response.headers.get("Retry-After"), now=self._clock.now()),
        )


class _HideUrl(logging.Filter):
    """Takes one URL out of the HTTP client's own log lines, which carry it at level INFO."""

    def __init__(self, url: httpx2.URL) -> None:
        super().__init__()
        self._url = str(url)

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(self._hidden(argument) for argument in record.args)
        return True

    def _hidden(self, argument: Any) -> Any:
        return "(secret URL)" if self._url in str(argument) else argument


def _seconds_until(retry_after: str | None, *, now: datetime) -> float | None:
    """Read `Retry-After`: seconds, or a date."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        at = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max((at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds(), 0.0)
