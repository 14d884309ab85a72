"""The thread that everything with a date runs on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from watchdog.clock import SystemClock
from watchdog.emulator.alarms import Alarms


@pytest.fixture
def alarms() -> Iterator[Alarms]:
    running = Alarms(SystemClock())
    yield running
    running.close()


def test_what_is_due_earlier_runs_earlier_whatever_the_order_of_setting(alarms: Alarms) -> None:
    ran: list[str] = []
    over = threading.Event()
    alarms.after(0.2, over.set)
    alarms.after(0.1, lambda: ran.append("second"))
    alarms.after(0.0, lambda: ran.append("first"))
    assert over.wait(30)
    assert ran == ["first", "second"]


def test_a_callback_that_fails_is_logged_and_does_not_stop_the_others(alarms: Alarms, caplog: pytest.LogCaptureFixture) -> None:
    over = threading.Event()

    def fail() -> None:
        raise ValueError("cannot boot")

    with caplog.at_level(logging.ERROR):
        alarms.after(0, fail)
        alarms.after(0, over.set)
        assert over.wait(30)
    assert "emulator.alarm_failed" in caplog.text


def test_what_is_not_due_yet_is_dropped_at_the_end() -> None:
    ran: list[str] = []
    running = Alarms(SystemClock())
    running.after(600, lambda: ran.append("late"))
    running.close()
    assert ran == []
