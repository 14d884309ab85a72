from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from watchdog.cli.demo.doors import Entry
from watchdog.cli.demo.evidence import Evidence, measure
from watchdog.cli.demo.scenarios import SCENARIOS
from watchdog.cli.demo.steplog import Finished, Started, Step, StepLog
from watchdog.cli.demo.summary import broken_claims

T0 = datetime(2026, 3, 4, 10, 15, 30, tzinfo=UTC)
HEAD = "demo/jobs/job_1/HEAD"


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def entries(*rows: tuple[float, str, str | None, dict[str, Any]]) -> list[Entry]:
    return [Entry(seq=seq, at=at(when), kind=kind, instance_id=who, detail=what) for seq, (when, kind, who, what) in enumerate(rows, 1)]


def log(first: int, last: int, *, begin: float, resumed_from: int, sha256: str | None = None) -> StepLog:
    steps = tuple(Step(at=at(begin + place * 0.04), step=step) for place, step in enumerate(range(first, last + 1), 1))
    finished = Finished(at=steps[-1].at, step=last, sha256=sha256, accuracy=0.97) if sha256 else None
    return StepLog(started=Started(at=at(begin), resumed_from_step=resumed_from), steps=steps, finished=finished)


def instance(instance_id: str, zone: str, market: str = "spot") -> dict[str, Any]:
    return {"instance_id": instance_id, "availability_zone_id": zone, "market": market, "instance_type": "g5.xlarge"}


TIMELINE = entries(
    (-20, "run_instances_call", None, {}),
    (-8, "object_written", None, {"key": HEAD}),  # the source's take-over
    (-1, "object_written", None, {"key": HEAD}),  # its periodic checkpoint
    (0, "notice_shown", "i-1", {}),
    (0.3, "run_instances_call", None, {}),
    (0.4, "object_written", None, {"key": "demo/jobs/job_2/HEAD"}),  # somebody else's
    (0.5, "object_written", None, {"key": HEAD}),  # the checkpoint for the notice
    (6.0, "object_written", None, {"key": HEAD}),  # the replacement's take-over
    (11, "object_written", None, {"key": HEAD}),  # its first periodic checkpoint
    (20, "killed", "i-1", {}),
)


@pytest.fixture
def evidence() -> Evidence:
    return Evidence(
        job_id="job_1",
        source=instance("i-1", "use1-az1"),
        replacement=instance("i-2", "use1-az2"),
        source_log=log(1, 151, begin=-6, resumed_from=0),
        replacement_log=log(152, 700, begin=6.1, resumed_from=151, sha256="ab"),
        reference_log=log(1, 700, begin=-6, resumed_from=0, sha256="ab"),
        entries=TIMELINE,
        migration={"replacements": [{"instance_id": "i-2", "why": "the cheapest left"}], "reasons": []},
        decision_kinds=["Launch", "Migrate"],
        checkpoint_bytes=1000,
        slack_messages=3,
        scheduler_kinds=["migration.succeeded", "job.finished"],
        instances_alive=1,
        instances_launched=2,
    )


def broken(scenario: str, evidence: Evidence) -> list[str]:
    return broken_claims(SCENARIOS[scenario], evidence, measure(scenario, evidence))


def without(kind: str) -> Sequence[Entry]:
    return [entry for entry in TIMELINE if entry.kind != kind]


def test_the_moments_are_counted_from_the_notice(evidence: Evidence) -> None:
    outcome = measure("interruption", evidence)
    assert (outcome.notice_to_launch_call_s, outcome.notice_to_saved_s, outcome.notice_to_resumed_s) == (0.3, 0.5, 6.14)


def test_a_good_run_breaks_no_claim(evidence: Evidence) -> None:
    assert broken("interruption", evidence) == []


def test_steps_computed_twice_are_lost_steps(evidence: Evidence) -> None:
    late = replace(evidence, replacement_log=log(101, 700, begin=6.1, resumed_from=100, sha256="ab"))
    assert measure("interruption", late).steps_lost == 51
    assert broken("interruption", late) == ["no training step was lost"]


def test_a_periodic_checkpoint_from_before_the_notice_is_no_save_for_it(evidence: Evidence) -> None:
    unsaved = replace(evidence, entries=[entry for entry in TIMELINE if entry.at != at(0.5)])
    assert measure("interruption", unsaved).notice_to_saved_s is None
    assert broken("interruption", unsaved) == ["saved, launched and resumed were all seen after the notice"]


def test_without_a_notice_there_are_no_moments_after_it(evidence: Evidence) -> None:
    outcome = measure("no-notice", replace(evidence, entries=without("notice_shown")))
    assert (outcome.notice_to_saved_s, outcome.notice_to_launch_call_s, outcome.notice_to_resumed_s) == (None, None, None)


@pytest.mark.parametrize("end", [{"sha256": "cd"}, {"sha256": None}])
def test_other_weights_or_none_are_not_bit_exact(evidence: Evidence, end: dict[str, Any]) -> None:
    other = replace(evidence, reference_log=log(1, 700, begin=-6, resumed_from=0, **end))
    assert not measure("interruption", other).bit_exact


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        ({"instances_alive": 2}, "exactly one instance"),
        ({"instances_alive": 0}, "exactly one instance"),
        ({"instances_launched": 3}, "two instances needed"),
        ({"replacement": instance("i-2", "use1-az1")}, "another Availability Zone"),
        ({"scheduler_kinds": ["job.started"]}, "were told"),
        ({"slack_messages": 0}, "were told"),
    ],
)
def test_each_claim_can_break(evidence: Evidence, change: dict[str, Any], claim: str) -> None:
    assert any(claim in text for text in broken("interruption", replace(evidence, **change)))


def test_staying_on_a_recommendation_means_no_launch_before_the_notice(evidence: Evidence) -> None:
    stayed = replace(evidence, decision_kinds=["Launch", "SaveOnly", "Migrate"])
    assert broken("rebalance", stayed) == []
    early = entries((-5, "run_instances_call", None, {}))
    assert len(broken("rebalance", replace(stayed, entries=[*early, *TIMELINE]))) == 1


def test_on_demand_without_the_quota_as_reason_is_not_enough(evidence: Evidence) -> None:
    moved = replace(evidence, replacement=instance("i-2", "use1-az2", "on_demand"))
    assert len(broken("quota", moved)) == 1
    plan: dict[str, Any] = {"replacements": [], "reasons": []}
    won = {"instance_id": "i-2", "why": "On-Demand; before it: use1-az1 met a full quota"}
    for reason in ({"reasons": ["the Spot quota has no room"]}, {"replacements": [won]}):
        assert broken("quota", replace(moved, migration={**plan, **reason})) == []
    lost = {"instance_id": "i-0", "why": "met a full quota"}
    assert len(broken("quota", replace(moved, migration={**plan, "replacements": [lost]}))) == 1


def test_a_third_zone_needs_two_refusals(evidence: Evidence) -> None:
    refusals = entries((0.1, "launch_refused", None, {}), (0.2, "launch_refused", None, {}))
    assert len(broken("capacity", evidence)) == 1
    assert broken("capacity", replace(evidence, entries=[*TIMELINE, *refusals])) == []
