"""A supervisor that outlives its owner by a moment: whatever it started ends with the owner, even after `kill -9`.

The owner (a demo, a test, a benchmark) starts `python -m watchdog.emulator.processes RUN_DIR` and speaks JSON lines over its standard
input. When that pipe closes, for whatever reason, the supervisor kills everything below it and removes the run directory.

Two things make "everything" true. On Linux the supervisor is a child subreaper, so that a process whose parent dies becomes its child, also
if it has a session of its own. And every process carries the run directory in its environment or command line, which is how leftovers are
found where there is no subreaper (macOS) or after the supervisor itself was killed.

PR_SET_PDEATHSIG is no substitute: it follows the thread that spawned, and does not reach grandchildren.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

import psutil

from watchdog.errors import WatchdogError

RUN_DIR_VARIABLE = "EMULATOR_RUN_DIR"
"""Marks every process of one run."""

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_END_SECONDS = 20.0
_POLL_SECONDS = 0.02
_TAIL_LINES = 25

T = TypeVar("T")


class ProcessFailed(WatchdogError):
    """A process did not start, ended too early, or did not become ready."""


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """Return the last `lines` of a log, or a remark that there is none."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"


def _tails(logs: Sequence[Path]) -> str:
    return "".join(f"\n--- end of {log}\n{tail(log)}" for log in logs)


def leftovers(run_dir: Path) -> list[psutil.Process]:
    """Return every process, other than this one and its ancestors, whose environment or command line mentions `run_dir`.

    PWD and OLDPWD do not count: they only tell that a person's shell stood there.
    """
    mark = str(run_dir)
    me = psutil.Process()
    ours = {me.pid, *(ancestor.pid for ancestor in me.parents())}
    found = []
    for process in psutil.process_iter():
        if process.pid in ours:
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = [*process.cmdline(), *(value for name, value in process.environ().items() if name not in {"PWD", "OLDPWD"})]
            if any(mark in word for word in words):
                found.append(process)
    return found


def sweep(run_dir: Path) -> None:
    """Kill every process that mentions `run_dir` until none is left. Raises ProcessFailed if some cannot be killed."""
    deadline = time.monotonic() + _END_SECONDS
    while remaining := leftovers(run_dir):
        _kill(remaining)
        if time.monotonic() > deadline:
            raise ProcessFailed(f"cannot end processes {sorted(process.pid for process in remaining)}")
        time.sleep(_POLL_SECONDS)


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):  # gone already; psutil compares start times, so a reused pid is safe
            process.kill()


# --- the owner's side -------------------------------------------------------------------------------------------------------------------


class Supervisor:
    """The owner's handle of one supervisor process; leaving the `with` block ends everything that was started through it."""

    def __init__(self, run_dir: Path, *, keep: bool = False) -> None:
        """Look after the processes of `run_dir`, which exists; it is removed at the end unless `keep`."""
        self.run_dir = run_dir
        self._keep = keep
        self._logs: dict[str, Path] = {}
        self._pids: dict[str, int] = {}
        self._exit_codes: dict[str, int] = {}
        self._refusals: dict[str, str] = {}
        self._changed = threading.Condition()
        self._lost = False
        self._closing = False

    def __enter__(self) -> Self:
        """Start the supervisor process."""
        command = [sys.executable, "-m", "watchdog.emulator.processes", str(self.run_dir), *(["--keep"] if self._keep else [])]
        # A session of its own: a Ctrl-C reaches only the owner, who decides what ends and when.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._reader = threading.Thread(target=self._read, name="supervisor", daemon=True)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End everything."""
        self.close()

    @property
    def pid(self) -> int:
        """The supervisor's own process id."""
        return self._process.pid

    def start(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str], log: Path, cwd: Path | None = None, timeout_seconds: float = 20
    ) -> int:
        """Start `argv` as `name` with exactly this environment plus our mark, both outputs into `log`, and return its pid.

        Raises ProcessFailed if the program cannot be started.
        """
        with self._changed:
            for table in (self._pids, self._exit_codes, self._refusals):
                table.pop(name, None)
            self._logs[name] = log
        environment = {**env, RUN_DIR_VARIABLE: str(self.run_dir)}
        self._send({"do": "start", "name": name, "argv": list(argv), "env": environment, "cwd": str(cwd or self.run_dir), "log": str(log)})
        with self._changed:
            self._changed.wait_for(lambda: self._lost or name in self._pids or name in self._refusals, timeout_seconds)
            if name in self._pids:
                return self._pids[name]
            raise ProcessFailed(f"{name} could not be started: {self._refusals.get(name, 'the supervisor does not answer')}")

    def stop(self, name: str, *, grace_seconds: float = 5) -> int:
        """Ask `name` to end, kill it and all it started after `grace_seconds`, and return its exit code (negative: the signal)."""
        self._send({"do": "stop", "name": name, "grace_seconds": grace_seconds})
        with self._changed:
            self._changed.wait_for(lambda: self._lost or name in self._exit_codes, grace_seconds + _END_SECONDS)
            if name not in self._exit_codes:
                raise ProcessFailed(f"{name} does not end")
            return self._exit_codes[name]

    def alive(self, name: str) -> bool:
        """Return whether `name` was started and has not ended."""
        with self._changed:
            return name in self._pids and name not in self._exit_codes and not self._lost

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of `name` (negative: the signal), or None while it runs."""
        with self._changed:
            return self._exit_codes.get(name)

    def wait(self, name: str, *, timeout_seconds: float) -> int | None:
        """Return the exit code of `name` as soon as it ends, or None if it has not ended by then."""
        with self._changed:
            self._changed.wait_for(lambda: self._lost or name in self._exit_codes, timeout_seconds)
            return self._exit_codes.get(name)

    def failure(self, what: str, *names: str) -> ProcessFailed:
        """Return the error that says `what` went wrong, with the ends of these processes' logs."""
        return ProcessFailed(f"{what}{_tails([self._logs[name] for name in names])}")

    def wait_until(
        self,
        what: str,
        condition: Callable[[], T | None],
        *,
        needs: Sequence[str],
        timeout_seconds: float,
        suspects: Callable[[], Sequence[Path]] | None = None,
    ) -> T:
        """Poll `condition` until it is neither None nor False and return that value.

        Raises ProcessFailed if one of the processes in `needs` ends first, with the end of its log, or if the time is over, with the ends
        of the logs that `suspects` returns (by default those of `needs`).
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            value = condition()
            if value is not None and value is not False:
                return value
            for name in needs:
                if not self.alive(name):
                    code = self.exit_code(name)
                    ending = "was lost with its supervisor" if code is None else f"ended with code {code}"
                    raise self.failure(f"{name} {ending} before: {what}", name)
            if time.monotonic() > deadline:
                logs = [self._logs[name] for name in needs] if suspects is None else suspects()
                raise ProcessFailed(f"not within {timeout_seconds:g} s: {what}{_tails(logs)}")
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Close the pipe, wait until the supervisor has ended everything, and sweep if it could not. Doing it again changes nothing."""
        with self._changed:
            self._closing = True
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=_END_SECONDS + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._process.returncode != 0:
            sweep(self.run_dir)
            if not self._keep:
                shutil.rmtree(self.run_dir, ignore_errors=True)

    def _send(self, command: Mapping[str, Any]) -> None:
        pipe = self._process.stdin
        try:
            if pipe is None or pipe.closed:
                raise ProcessFailed("the supervisor was closed")
            pipe.write(json.dumps(command) + "\n")
            pipe.flush()
        except BrokenPipeError:
            raise ProcessFailed("the supervisor has ended") from None

    def _read(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None  # noqa: S101 - we asked for a pipe
        for line in pipe:
            event = json.loads(line)
            name = event["name"]
            with self._changed:
                match event["event"]:
                    case "started":
                        self._pids[name] = event["pid"]
                    case "refused":
                        self._refusals[name] = event["why"]
                    case "exited":
                        self._exit_codes[name] = event["code"]
                self._changed.notify_all()
        with self._changed:
            self._lost = True
            unexpected = not self._closing
            self._changed.notify_all()
        if unexpected:
            sweep(self.run_dir)


# --- the supervisor process -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    kill_at: float | None = None
    """Monotonic: when its grace ends, if it was asked to stop."""
    family: list[psutil.Process] = field(default_factory=list)
    """What it had started when it was asked to stop."""


class _Loop:
    """One thread that reads commands, reaps, and at the end kills."""

    def __init__(self, run_dir: Path, commands: IO[bytes], events: IO[str]) -> None:
        self._run_dir = run_dir
        self._commands = commands
        self._events = events
        self._children: dict[int, _Child] = {}

    def run(self) -> None:
        """Serve until the owner's end of the pipe closes or a signal asks us to end."""
        wake_reader, wake_writer = os.pipe()
        for end in (wake_reader, wake_writer):
            os.set_blocking(end, False)
        ending: list[int] = []
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler must exist for the wake-up below to be written
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, _: ending.append(received))
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        buffer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._commands, selectors.EVENT_READ)
            selector.register(wake_reader, selectors.EVENT_READ)
            while not ending:
                ready = {key.fd for key, _ in selector.select(self._patience())}
                if wake_reader in ready:
                    os.read(wake_reader, 4096)
                self._reap()
                self._kill_overdue()
                if self._commands.fileno() in ready:
                    received = os.read(self._commands.fileno(), 65536)
                    if not received:
                        return
                    *lines, buffer = (buffer + received).split(b"\n")
                    for line in lines:
                        self._obey(json.loads(line))

    def end_everything(self) -> bool:
        """Kill all descendants and whatever else carries our mark, until none is left; return whether that came true."""
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            self._kill_children()
            # Without a subreaper an orphan is nobody's child, and only its mark gives it away.
            if self._reap():
                if not (marked := leftovers(self._run_dir)):
                    return True
                _kill(marked)
            time.sleep(_POLL_SECONDS / 20)
        return False

    @staticmethod
    def _kill_children() -> None:
        children_file = Path(f"/proc/self/task/{os.getpid()}/children")
        try:
            # The fast way, to outrun a process that forks all the time. Children are enough: theirs become ours as they die,
            # and no pid here can be somebody else's, for only `_reap` frees it.
            for pid in children_file.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        except FileNotFoundError:  # macOS, or a kernel without CONFIG_PROC_CHILDREN
            _kill(psutil.Process().children(recursive=True))

    def _patience(self) -> float | None:
        times = [child.kill_at for child in self._children.values() if child.kill_at is not None]
        return max(min(times) - time.monotonic(), 0) if times else None

    def _obey(self, command: Mapping[str, Any]) -> None:
        name = command["name"]
        if command["do"] == "start":
            self._start(name, command)
            return
        for child in self._children.values():
            if child.name == name:
                with contextlib.suppress(psutil.Error):
                    child.family = psutil.Process(child.process.pid).children(recursive=True)
                child.kill_at = time.monotonic() + command["grace_seconds"]
                child.process.terminate()

    def _start(self, name: str, command: Mapping[str, Any]) -> None:
        try:
            with Path(command["log"]).open("ab") as log:
                process = subprocess.Popen(
                    command["argv"],
                    env=command["env"],
                    cwd=command["cwd"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            self._tell(event="refused", name=name, why=str(error))
            return
        self._children[process.pid] = _Child(name=name, process=process)
        self._tell(event="started", name=name, pid=process.pid)

    def _kill_overdue(self) -> None:
        for child in self._children.values():
            if child.kill_at is not None and child.kill_at <= time.monotonic():
                child.kill_at = None
                with contextlib.suppress(psutil.Error):
                    child.family += psutil.Process(child.process.pid).children(recursive=True)
                child.process.kill()

    def _reap(self) -> bool:
        """Collect every ended child, adopted ones too, and return whether none is left at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            child = self._children.pop(pid, None)
            if child is not None:
                child.process.returncode = os.waitstatus_to_exitcode(status)
                _kill(child.family)
                self._tell(event="exited", name=child.name, code=child.process.returncode)

    def _tell(self, **event: Any) -> None:
        with contextlib.suppress(OSError):  # the owner is gone; its pipe ends the loop
            self._events.write(json.dumps(event) + "\n")
            self._events.flush()


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def main(argv: Sequence[str] | None = None) -> int:
    """Supervise until standard input closes; exit with 1 if something could not be ended."""
    parser = argparse.ArgumentParser(prog="python -m watchdog.emulator.processes", description=main.__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--keep", action="store_true", help="leave the run directory in place")
    options = parser.parse_args(argv)
    _adopt_orphans()
    loop = _Loop(options.run_dir, sys.stdin.buffer, sys.stdout)
    try:
        loop.run()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        ended = loop.end_everything()
        if not options.keep:
            shutil.rmtree(options.run_dir, ignore_errors=True)
    # A closed pipe must not turn a clean end into a traceback while the interpreter flushes.
    with contextlib.suppress(OSError):
        sys.stdout.close()
    return 0 if ended else 1


if __name__ == "__main__":
    sys.exit(main())
