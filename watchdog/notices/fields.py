"""Reading the fields that every channel has: instants and instance ids."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from watchdog.ids import InstanceId
from watchdog.notices.model import MalformedMessage

_INSTANCE_ID = re.compile(r"i-[0-9a-z]{1,40}", re.ASCII)
_QUOTED = 60


def instant(value: object, field: str) -> datetime:
    """Return an instant in UTC, from ISO 8601 with a zone, or from RFC 5322 (`Wed, 4 Mar 2026 10:02:51 GMT`, weekday optional).

    Raises MalformedMessage for any other form and for a time without a zone.
    """
    at = value if isinstance(value, datetime) else _parsed(value, field)
    if at.tzinfo is None:
        raise MalformedMessage(f"{field} has no time zone: {quoted(value)}")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise MalformedMessage(f"{field} is out of range: {quoted(value)}") from None


def instance_id(value: object, field: str) -> InstanceId:
    """Return an instance id. Raises MalformedMessage for anything that cannot be one."""
    text = value.strip() if isinstance(value, str) else ""
    if not _INSTANCE_ID.fullmatch(text):
        raise MalformedMessage(f"{field} is not an instance id: {quoted(value)}")
    return InstanceId(text)


def quoted(value: object) -> str:
    """Return a short form of a value from outside, safe to log."""
    return ascii(value if value is None or isinstance(value, str | int | float) else type(value).__name__)[:_QUOTED]


def _parsed(value: object, field: str) -> datetime:
    if not isinstance(value, str):
        raise MalformedMessage(f"{field} is not a time: {quoted(value)}")
    try:
        return datetime.fromisoformat(value.strip())
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(value)
    except (ValueError, IndexError, TypeError, OverflowError):
        raise MalformedMessage(f"{field} is not a time: {quoted(value)}") from None
