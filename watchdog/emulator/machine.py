"""An instance's machine: a local process, its descendants, and nothing of them left afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

_SWEEP_SECONDS = 0.2
_SWEEPS = 20
"""A process that forks faster than this many sweeps catch is not a training job."""


class Machine:
    """The processes of one instance."""

    def __init__(self, home: Path, user_data: bytes, environment: Mapping[str, str]) -> None:
        """Write the user data into `home` and run it if it is a script; `environment` is all that it gets.

        Raises OSError if the home cannot be written.
        """
        self.home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._descendants: list[psutil.Process] = []
        home.mkdir(parents=True, exist_ok=True)
        script = home / "user-data"
        script.write_bytes(user_data)
        script.chmod(0o700)
        with (home / "console.log").open("ab") as console:
            if not user_data.startswith(b"#!"):
                console.write(b"user data is no script (#!): nothing to run\n")
                return
            try:
                self._process = subprocess.Popen(
                    [script],
                    cwd=home,
                    env={**environment, "HOME": str(home)},
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                # As on EC2: a broken script leaves an instance that runs and does nothing.
                console.write(f"user data could not be run: {error}\n".encode())

    @property
    def pid(self) -> int | None:
        """The process id of the user data, also after it ended by itself; None if nothing was started or all was killed."""
        return self._process.pid if self._process else None

    def kill(self) -> bool:
        """Send SIGKILL to everything that came out of the user data; return whether there was anything to kill.

        Quick, so that many instances can go at the same moment; `clear` does what takes time.
        """
        if self._process is None:
            return False
        with contextlib.suppress(psutil.Error):
            self._descendants = psutil.Process(self._process.pid).children(recursive=True)
        # The user data is reaped only by `clear`: until then its id, and that of its group, cannot be given to somebody else.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._kill_descendants()
        return True

    def clear(self) -> None:
        """Reap what `kill` killed, and find and kill what slipped away from it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.wait()
        for _ in range(_SWEEPS):
            self._descendants = self._strays()
            if not self._descendants:
                return
            self._kill_descendants()
            psutil.wait_procs(self._descendants, timeout=_SWEEP_SECONDS)

    def _kill_descendants(self) -> None:
        for descendant in self._descendants:
            with contextlib.suppress(psutil.Error):
                descendant.kill()

    def _strays(self) -> list[psutil.Process]:
        """Return processes that left session and parent behind: the instance's HOME in their environment gives them away."""
        strays = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("HOME") == str(self.home):
                    strays.append(process)
        return strays
