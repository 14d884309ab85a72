"""Logs as JSON lines."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from watchdog.adapters.jsonlog import configure


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    for handler in handlers:
        root.removeHandler(handler)
    written = io.StringIO()
    configure(logging.INFO, written)
    try:
        yield written
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_with_its_fields(stream: io.StringIO) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    logging.getLogger("watchdog.test").info("migration.opened", extra={"job_id": "job_1", "step": 3, "why": 'a "quoted"\nline'})
    logging.getLogger("watchdog.test").debug("poll.nothing")
    [line] = lines(stream)
    assert before <= datetime.fromisoformat(line.pop("at")) <= datetime.now(UTC) + timedelta(milliseconds=1)
    assert line == {
        "level": "info",
        "event": "migration.opened",
        "logger": "watchdog.test",
        "job_id": "job_1",
        "step": 3,
        "why": 'a "quoted"\nline',
    }


def test_a_field_hides_none_of_the_events_own(stream: io.StringIO) -> None:
    logging.getLogger("watchdog.test").info("notice.recorded", extra={"event": "other", "level": "high", "at": "noon"})
    [line] = lines(stream)
    assert (line["event"], line["event_"], line["level"], line["level_"], line["at_"]) == (
        "notice.recorded",
        "other",
        "info",
        "high",
        "noon",
    )


def test_what_json_does_not_know_is_written_as_text(stream: io.StringIO) -> None:
    logging.getLogger("watchdog.test").info("x", extra={"when": datetime(2026, 3, 4, tzinfo=UTC), "who": {1: {2}}})
    [line] = lines(stream)
    assert (line["when"], line["who"]) == ("2026-03-04 00:00:00+00:00", {"1": "{2}"})


def test_an_exception_keeps_its_traceback_on_the_same_line(stream: io.StringIO) -> None:
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logging.getLogger("watchdog.test").exception("effect.failed")
    [line] = lines(stream)
    assert line["event"] == "effect.failed"
    assert "ZeroDivisionError" in line["exception"]
