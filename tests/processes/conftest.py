import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from watchdog.emulator.processes import Supervisor, leftovers, sweep

ENVIRONMENT = {"PATH": os.environ["PATH"]}


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
