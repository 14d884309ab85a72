"""Time is an argument: decisions can be replayed, simulated and explained only if they never look at a clock."""

import pytest

from tests.architecture.clocks import naive_readings, wall_clock_readings
from tests.architecture.project import PACKAGES, ROOT, python_files

TIMELESS = ("policies", "watchdog/migration", "watchdog/notices", "watchdog/services", "watchdog/history")


def test_decisions_and_use_cases_never_read_a_clock() -> None:
    found = [
        f"{name}:{line}: {clock}"
        for name in python_files(*TIMELESS)
        for line, clock in wall_clock_readings((ROOT / name).read_text("utf-8"))
    ]

    assert found == [], "take `now` as an argument, or a Clock from watchdog.clock"


def test_whoever_reads_a_clock_says_utc() -> None:
    found = [
        f"{name}:{line}: {clock}" for name in python_files(*PACKAGES) for line, clock in naive_readings((ROOT / name).read_text("utf-8"))
    ]

    assert found == [], "datetime.now(UTC): an instant without a zone is a bug in another zone"


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import datetime, UTC\ndatetime.now(UTC)",
        "import datetime as dt\ndt.datetime.now(dt.UTC)",
        "import datetime\ndatetime.datetime.utcnow()",
        "from time import time as seconds\nseconds()",
        "import time\nfield(default_factory=time.time)",
    ],
)
def test_the_rule_finds_a_clock_under_any_name(source: str) -> None:
    assert len(list(wall_clock_readings(source))) == 1


@pytest.mark.parametrize(
    "source", ["import time\ntime.monotonic()", "def now(): ...\nnow()", "clock.now()", "from datetime import timedelta\ntimedelta(1)"]
)
def test_the_rule_leaves_other_names_alone(source: str) -> None:
    assert list(wall_clock_readings(source)) == []


@pytest.mark.parametrize(
    ("source", "naive"),
    [
        ("from datetime import datetime, UTC\ndatetime.now(UTC)", False),
        ("from datetime import datetime, timezone\ndatetime.now(tz=timezone.utc)", False),
        ("from datetime import datetime\ndatetime.now()", True),
        ("from datetime import datetime\ndatetime.now(None)", True),
        ("from datetime import datetime\nfield(default_factory=datetime.now)", True),
        ("from datetime import datetime, UTC\ndatetime.utcnow()", True),
        ("from datetime import date\ndate.today()", True),
    ],
)
def test_the_rule_tells_utc_from_local_time(source: str, *, naive: bool) -> None:
    assert bool(list(naive_readings(source))) == naive
