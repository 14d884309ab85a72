import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeVar

import pytest

from watchdog.emulator.processes import Supervisor, leftovers, sweep

T = TypeVar("T")
ENVIRONMENT = {"PATH": os.environ["PATH"]}


def eventually(condition: Callable[[], T], what: str, *, seconds: float = 20) -> T:
    """Poll until `condition` is truthy and return its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return value


@pytest.fixture
def run_dir() -> Iterator[Path]:
    path = Path(mkdtemp(prefix="watchdog-test-"))
    yield path
    remaining = leftovers(path)
    sweep(path)
    assert remaining == []


@pytest.fixture
def supervisor(run_dir: Path) -> Iterator[Supervisor]:
    with Supervisor(run_dir) as started:
        yield started
