import json
from pathlib import Path

from watchdog.cli.demo.steplog import StepLog, read_step_log


def write(path: Path, *entries: dict[str, object], unfinished: str = "") -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries) + unfinished)
    return path


def test_a_log_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    assert read_step_log(tmp_path / "none") == StepLog()


def test_a_line_cut_off_by_the_kill_does_not_count(tmp_path: Path) -> None:
    step = {"event": "step", "step": 1, "at": 1.0, "loss": 0.1}
    assert read_step_log(write(tmp_path / "log", step, unfinished='{"event": "step", "step": 2')).last_step == 1


def test_everything_is_read(tmp_path: Path) -> None:
    log = read_step_log(
        write(
            tmp_path / "log",
            {"event": "started", "resumed_from_step": 4, "at": 1.0},
            {"event": "step", "step": 5, "at": 2.0, "loss": 0.1},
            {"event": "finished", "step": 5, "sha256": "ab", "accuracy": 0.9, "at": 3.0},
        )
    )
    assert log.started is not None
    assert log.finished is not None
    assert (log.started.resumed_from_step, log.last_step, log.finished.sha256) == (4, 5, "ab")
