"""The documented problems are the ones there are."""

from __future__ import annotations

import re
from pathlib import Path

from api.problems import PROBLEMS

DOCUMENTED = Path(__file__).parents[2] / "docs" / "problems.md"


def test_every_problem_is_documented_with_its_status() -> None:
    rows = re.findall(r"^\| ([a-z-]+) \| (\d+) \|", DOCUMENTED.read_text(), re.MULTILINE)
    assert {(name, int(status)) for name, status in rows} == {(problem.name, problem.status) for problem in PROBLEMS}
