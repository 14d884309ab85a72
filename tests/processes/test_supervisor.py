import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes.conftest import ENVIRONMENT
from tests.waiting import eventually
from watchdog.emulator.processes import ProcessFailed, Supervisor, leftovers

PYTHON = [sys.executable, "-I", "-S", "-c"]
FOREVER = [*PYTHON, "import time; time.sleep(600)"]
DAEMONISES = [
    *PYTHON,
    """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        open(os.environ["PID_FILE"], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
""",
]
FORKS_ON_AND_ON = [
    *PYTHON,
    """
import os, time
open(os.environ["PID_FILE"], "w").write(str(os.getpid()))
until = time.monotonic() + 30  # whoever fails to catch it shall not have it for ever
while time.monotonic() < until:
    if os.fork():      # the parent ends, the child goes on: no snapshot of the process table holds the one alive now
        os._exit(0)
    os.setsid()
""",
]
OWNER = """
import json, sys, time
from pathlib import Path
from watchdog.emulator.processes import Supervisor
run_dir, programs = Path(sys.argv[1]), json.loads(sys.argv[2])
with Supervisor(run_dir) as supervisor:
    for name, argv in programs.items():
        supervisor.start(name, argv, env={"PID_FILE": str(run_dir / "pid")}, log=run_dir / "log")
    while not (run_dir / "pid").exists() or not (run_dir / "pid").read_text():
        time.sleep(0.01)
    try:
        print(supervisor.pid, flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        print(supervisor.wait("forever", timeout_seconds=1), flush=True)
"""


def start_owner(run_dir: Path) -> tuple[subprocess.Popen[str], int]:
    """Return an owner in a process group of its own, once its daemon runs, and its supervisor's pid."""
    programs = json.dumps({"forever": FOREVER, "daemon": DAEMONISES})
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(run_dir), programs], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert owner.stdout is not None
    return owner, int(owner.stdout.readline())


def started_pid(file: Path) -> int:
    return int(eventually(lambda: file.read_text() if file.exists() else None, f"{file} is written"))


def test_an_exit_code_is_reported(supervisor: Supervisor, run_dir: Path) -> None:
    supervisor.start("seven", [*PYTHON, "raise SystemExit(7)"], env=ENVIRONMENT, log=run_dir / "log")
    assert eventually(lambda: supervisor.exit_code("seven"), "the process ends") == 7
    assert not supervisor.alive("seven")


def test_a_program_that_does_not_exist_is_an_error_at_once(supervisor: Supervisor, run_dir: Path) -> None:
    with pytest.raises(ProcessFailed, match="no-such-program"):
        supervisor.start("ghost", ["/no-such-program"], env=ENVIRONMENT, log=run_dir / "log")


def test_a_process_gets_exactly_the_environment_given_and_the_mark(supervisor: Supervisor, run_dir: Path) -> None:
    log = run_dir / "log"
    supervisor.start("env", [*PYTHON, "import os; print(sorted(os.environ))"], env={"ONE": "1"}, log=log)
    eventually(lambda: supervisor.exit_code("env") is not None, "the process ends")
    assert [name for name in ast.literal_eval(log.read_text()) if name != "LC_CTYPE"] == ["EMULATOR_RUN_DIR", "ONE"]


def test_a_daemon_in_a_session_of_its_own_ends_with_the_owner(run_dir: Path) -> None:
    with Supervisor(run_dir) as supervisor:
        supervisor.start("daemon", DAEMONISES, env={"PID_FILE": str(run_dir / "pid")}, log=run_dir / "log")
        daemon = psutil.Process(started_pid(run_dir / "pid"))
        assert daemon.is_running()
    assert not daemon.is_running()


@pytest.mark.skipif(sys.platform != "linux", reason="only a subreaper can win this race")
def test_a_process_that_forks_on_and_on_is_caught(run_dir: Path) -> None:
    with Supervisor(run_dir) as supervisor:
        supervisor.start("forks", FORKS_ON_AND_ON, env={"PID_FILE": str(run_dir / "pid")}, log=run_dir / "log")
        started_pid(run_dir / "pid")
    assert leftovers(run_dir) == []


def test_nothing_outlives_an_owner_that_is_killed(run_dir: Path) -> None:
    owner, _ = start_owner(run_dir)
    assert len(leftovers(run_dir)) >= 4  # the owner, its supervisor, the process and the daemon
    owner.kill()
    owner.communicate()
    eventually(lambda: leftovers(run_dir) == [], "all processes end")
    eventually(lambda: not run_dir.exists(), "the run directory is removed")


def test_ctrl_c_reaches_only_the_owner_who_then_ends_everything(run_dir: Path) -> None:
    owner, _ = start_owner(run_dir)
    os.killpg(owner.pid, signal.SIGINT)
    output, _ = owner.communicate(timeout=30)
    assert output == "None\n"  # its process had not ended a second after the interrupt
    assert leftovers(run_dir) == []
    assert not run_dir.exists()


def test_the_owner_sweeps_when_the_supervisor_itself_is_killed(run_dir: Path) -> None:
    with Supervisor(run_dir) as supervisor:
        supervisor.start("daemon", DAEMONISES, env={"PID_FILE": str(run_dir / "pid")}, log=run_dir / "log")
        daemon = psutil.Process(started_pid(run_dir / "pid"))
        os.kill(supervisor.pid, signal.SIGKILL)
        eventually(lambda: not daemon.is_running(), "the daemon ends")
        with pytest.raises(ProcessFailed, match="supervisor"):
            supervisor.start("late", FOREVER, env=ENVIRONMENT, log=run_dir / "log")
    assert not run_dir.exists()


def test_an_exception_in_the_middle_ends_everything(run_dir: Path) -> None:
    def fails_in_the_middle() -> None:
        with Supervisor(run_dir) as supervisor:
            supervisor.start("forever", FOREVER, env=ENVIRONMENT, log=run_dir / "log")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fails_in_the_middle()
    assert leftovers(run_dir) == []


def test_the_run_directory_stays_if_asked(run_dir: Path) -> None:
    with Supervisor(run_dir, keep=True) as supervisor:
        supervisor.start("forever", FOREVER, env=ENVIRONMENT, log=run_dir / "log")
    assert run_dir.exists()
    shutil.rmtree(run_dir)


def test_stop_kills_what_ignores_sigterm_and_all_it_started(supervisor: Supervisor, run_dir: Path) -> None:
    stubborn = f"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen({FOREVER!r}, start_new_session=True)
open(os.environ["PID_FILE"], "w").write(str(child.pid))
time.sleep(600)
"""
    environment = {"PID_FILE": str(run_dir / "pid")}
    supervisor.start("stubborn", [*PYTHON, stubborn], env=environment, log=run_dir / "log")
    child = psutil.Process(started_pid(run_dir / "pid"))
    assert supervisor.stop("stubborn", grace_seconds=0.1) == -signal.SIGKILL
    eventually(lambda: not child.is_running(), "the child of the stopped process ends")


def test_stop_leaves_the_others_alone(supervisor: Supervisor, run_dir: Path) -> None:
    for name in ("one", "two"):
        supervisor.start(name, FOREVER, env=ENVIRONMENT, log=run_dir / "log")
    assert supervisor.stop("one") == -signal.SIGTERM
    assert supervisor.alive("two")


def test_waiting_for_a_process_that_ends_shows_the_end_of_its_log(supervisor: Supervisor, run_dir: Path) -> None:
    supervisor.start("guilty", [*PYTHON, "raise SystemExit('the cause')"], env=ENVIRONMENT, log=run_dir / "log")
    with pytest.raises(ProcessFailed, match=r"(?s)guilty ended with code 1 before: it answers.*the cause"):
        supervisor.wait_until("it answers", lambda: None, needs=["guilty"], timeout_seconds=20)


def test_a_name_can_be_started_again_after_it_ended(supervisor: Supervisor, run_dir: Path) -> None:
    first = supervisor.start("service", FOREVER, env=ENVIRONMENT, log=run_dir / "log")
    supervisor.stop("service")
    second = supervisor.start("service", FOREVER, env=ENVIRONMENT, log=run_dir / "log")
    assert first != second
    assert supervisor.alive("service")
