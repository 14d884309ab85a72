import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.waiting import eventually
from watchdog.emulator.processes import leftovers, sweep


class Demo:
    """The demo as a person starts it, with its output in a file and everything it makes below one directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.json = folder / "outcome.json"
        self._output = folder / "output.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "watchdog.cli", "demo", "--json", str(self.json), *arguments]
        environment = {**os.environ, "TMPDIR": str(self.folder), "COLUMNS": "160"}
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)

    @property
    def output(self) -> str:
        return self._output.read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole process group, as a terminal does."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def wait(self, *, seconds: float = 170) -> int:
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the demo does not end:\n{self.output}")

    def wait_for(self, text: str, *, seconds: float = 60) -> None:
        eventually(lambda: text in self.output or not self.running, f"the demo says {text!r}", seconds=seconds)
        assert text in self.output, self.output

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def run_directories(self) -> list[Path]:
        return list(self.folder.glob("spot-watchdog-*"))


@pytest.fixture
def demo() -> Iterator[Demo]:
    # Not pytest's own tmp_path: its name is in the environment of other tests' processes too, and the leftovers are counted by name.
    with TemporaryDirectory(prefix="watchdog-e2e-") as name:
        folder = Path(name).resolve()
        started = Demo(folder)
        yield started
        if started.running:
            started.signal(signal.SIGKILL)
            started.wait()
        sweep(folder)
        assert leftovers(folder) == []
