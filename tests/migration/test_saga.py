"""The saga's facts, states and plans, with no world around them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.model import CapacityPool, Market
from watchdog.errors import LaunchScope
from watchdog.ids import DecisionId, Incarnation, InstanceId, JobId, MigrationId
from watchdog.migration import budgets, planner
from watchdog.migration.facts import (
    AgentArrived,
    CheckpointCommitted,
    Fact,
    JobEnded,
    JobResumed,
    Launched,
    LaunchExhausted,
    LaunchIntended,
    LaunchRefusedBy,
    LaunchUnanswered,
    NoticeReceived,
    Opened,
    ReplacementGone,
    Replanned,
    SaveGivenUp,
    SourceGone,
    TakenOver,
    TakeOverGranted,
)
from watchdog.migration.model import Cause, CheckpointRef, JobState, Migration, PlannedTarget, Source
from watchdog.migration.reducer import reduce
from watchdog.migration.saga import SAGA, MigrationState, StepName, StepState

NOW = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
RECLAIM = NOW + timedelta(minutes=2)
SOURCE = InstanceId("i-source")
NEW = InstanceId("i-new")


def pool(zone: int, market: Market = Market.SPOT) -> CapacityPool:
    return CapacityPool(region="us-east-1", availability_zone_id=f"use1-az{zone}", instance_type="g5.xlarge", market=market)


def target(zone: int, market: Market = Market.SPOT) -> PlannedTarget:
    return PlannedTarget(pool=pool(zone, market), why="because", code="cheapest", quota_family="G")


def opened(*, sources: bool = True, reclaim: datetime | None = RECLAIM, targets: tuple[PlannedTarget, ...] | None = None) -> Migration:
    migration = Migration(
        migration_id=MigrationId("mig_1"),
        job_id=JobId("job_1"),
        cause=Cause.INTERRUPTION_NOTICE if sources else Cause.FIRST_LAUNCH,
        opened_at=NOW,
        decision_id=DecisionId("dec_1"),
        sources=(Source(instance_id=SOURCE, pool=pool(1)),) if sources else (),
        targets=targets if targets is not None else (target(2), target(3)),
        reclaim_at=reclaim if sources else None,
    )
    return reduce(migration, Opened(at=NOW))


def checkpoint(step: int = 120) -> CheckpointRef:
    return CheckpointRef(
        step=step,
        fencing_token=1,
        manifest_key="m",
        manifest_sha256="s",
        bytes=10,
        reason="notice",
        started_at=NOW,
        committed_at=NOW,
    )


INTENDED = LaunchIntended(at=NOW, number=1, target=target(2), client_token="token-1")
LAUNCHED = Launched(at=NOW, number=1, instance_id=NEW, address="10.0.0.2")
SAVED = CheckpointCommitted(at=NOW, checkpoint=checkpoint())
ARRIVED = AgentArrived(at=NOW, instance_id=NEW, incarnation=Incarnation("inc_2"), address=None)
GRANTED = TakeOverGranted(at=NOW, take_over_from=1)
TAKEN = TakenOver(at=NOW, instance_id=NEW, incarnation=Incarnation("inc_2"), fencing_token=2)
RESUMED = JobResumed(at=NOW, instance_id=NEW, step=121, resumed_from_step=120)
GONE = SourceGone(at=NOW, instance_id=SOURCE, why="terminated")
HAPPY: tuple[Fact, ...] = (INTENDED, LAUNCHED, SAVED, ARRIVED, GRANTED, TAKEN, RESUMED, GONE)


def after(migration: Migration, *facts: Fact) -> Migration:
    for fact in facts:
        migration = reduce(migration, fact)
    return migration


def kinds(migration: Migration, now: datetime = NOW) -> set[str]:
    return {type(action).__name__ for action in planner.next_actions(migration, now=now)}


def test_the_save_and_the_launch_run_side_by_side() -> None:
    migration = opened()
    assert StepState.RUNNING is migration.step_state(StepName.SAVE_CHECKPOINT)
    assert StepState.RUNNING is migration.step_state(StepName.LAUNCH_REPLACEMENT)
    assert kinds(migration) == {"IntendLaunch"}


def test_the_states_of_a_move_in_order() -> None:
    migration = opened()
    states = [migration.state]
    for fact in HAPPY:
        migration = reduce(migration, fact)
        states.append(migration.state)
    assert states == [
        MigrationState.PREPARING,
        MigrationState.PREPARING,
        MigrationState.PREPARING,
        MigrationState.PREPARING,
        MigrationState.PREPARING,
        MigrationState.CUTTING_OVER,
        MigrationState.RESUMING,
        MigrationState.RESUMING,
        MigrationState.SUCCEEDED,
    ]
    assert migration.closed_at == NOW
    assert planner.next_actions(migration, now=NOW) == ()


def test_no_take_over_is_granted_before_both_the_save_is_settled_and_the_agent_is_there() -> None:
    without_save = after(opened(), INTENDED, LAUNCHED, ARRIVED)
    without_agent = after(opened(), INTENDED, LAUNCHED, SAVED)
    assert "GrantTakeOver" not in kinds(without_save)
    assert "GrantTakeOver" not in kinds(without_agent)
    assert "GrantTakeOver" in kinds(after(without_save, SAVED))
    assert reduce(without_save, GRANTED) == without_save
    assert reduce(without_agent, GRANTED) == without_agent


def test_a16_a_source_lost_without_a_notice_resumes_from_the_last_committed_checkpoint() -> None:
    migration = after(opened(reclaim=None), GONE)
    assert StepState.SKIPPED is migration.step_state(StepName.SAVE_CHECKPOINT)
    migration = after(migration, INTENDED, LAUNCHED, ARRIVED, GRANTED, TAKEN, RESUMED)
    assert MigrationState.SUCCEEDED is migration.state


def test_a_first_launch_is_a_migration_without_a_source() -> None:
    migration = after(opened(sources=False), INTENDED, LAUNCHED, ARRIVED, replace(GRANTED, take_over_from=0), TAKEN, RESUMED)
    assert MigrationState.SUCCEEDED is migration.state


def test_a_source_under_notice_is_left_to_aws_until_the_reclaim_time_and_a_grace() -> None:
    migration = after(opened(), *HAPPY[:-1])
    assert kinds(migration, RECLAIM) == set()
    assert kinds(migration, RECLAIM + budgets.RECLAIM_GRACE) == {"EndSource"}
    assert planner.wake_at(migration, now=NOW) == RECLAIM + budgets.RECLAIM_GRACE


def test_a_checkpoint_that_never_comes_is_given_up_after_the_reclaim_time() -> None:
    migration = after(opened(), INTENDED, LAUNCHED, ARRIVED)
    assert kinds(migration, RECLAIM) == set()
    assert kinds(migration, RECLAIM + budgets.RECLAIM_GRACE) == {"GiveUpSaving"}
    assert "GrantTakeOver" in kinds(reduce(migration, SaveGivenUp(at=NOW, why="late")))


def test_insufficient_capacity_goes_on_to_the_next_pool_with_an_attempt_of_its_own() -> None:
    refused = after(
        opened(), INTENDED, LaunchRefusedBy(at=NOW, number=1, code="InsufficientInstanceCapacity", message="", scope=LaunchScope.POOL)
    )
    (action,) = planner.next_actions(refused, now=NOW)
    assert isinstance(action, planner.IntendLaunch)
    assert (action.number, action.target.pool) == (2, pool(3))
    assert action.target.why == "because; before it: use1-az2/g5.xlarge/spot refused (InsufficientInstanceCapacity)"


def test_d05_a_full_spot_quota_closes_every_spot_pool_of_the_family_but_not_on_demand() -> None:
    plan = (target(2), target(3), target(2, Market.ON_DEMAND))
    refusal = LaunchRefusedBy(at=NOW, number=1, code="MaxSpotInstanceCountExceeded", message="", scope=LaunchScope.FAMILY)
    refused = after(opened(targets=plan), INTENDED, refusal)
    assert planner.next_target(refused) == target(2, Market.ON_DEMAND)


@pytest.mark.parametrize("scope", [LaunchScope.CONFIGURATION, LaunchScope.ACCOUNT, LaunchScope.OURS])
def test_e28_what_only_a_person_can_mend_is_called_once_and_not_tried_elsewhere(scope: LaunchScope) -> None:
    refused = after(opened(), INTENDED, LaunchRefusedBy(at=NOW, number=1, code="InvalidAMIID.NotFound", message="", scope=scope))
    assert kinds(refused) == {"GiveUpLaunching"}
    blocked = reduce(refused, LaunchExhausted(at=NOW, until=None, why="x"))
    assert kinds(blocked, NOW + timedelta(days=1)) <= {"GiveUpSaving"}


def test_a_call_without_an_answer_is_repeated_with_the_same_token_before_any_other_pool() -> None:
    retry_at = NOW + timedelta(seconds=1)
    unanswered = after(opened(), INTENDED, LaunchUnanswered(at=NOW, number=1, why="timeout", retry_at=retry_at))
    assert kinds(unanswered) == set()
    (action,) = planner.next_actions(unanswered, now=retry_at)
    assert isinstance(action, planner.CallLaunch)
    assert action.attempt.client_token == "token-1"


def test_no_pool_left_parks_and_looks_again_later() -> None:
    parked = reduce(opened(targets=()), LaunchExhausted(at=NOW, until=NOW + timedelta(seconds=10), why="nothing"))
    assert MigrationState.PARKED is parked.state
    assert kinds(parked) == set()
    assert kinds(parked, NOW + timedelta(seconds=10)) == {"Replan"}
    again = reduce(parked, Replanned(at=NOW, decision_id=DecisionId("dec_2"), targets=(target(4),), reasons=()))
    assert MigrationState.PREPARING is again.state
    assert planner.next_target(again) == target(4)


def test_a_pool_that_refused_in_an_earlier_round_is_tried_again_in_the_next() -> None:
    refusal = LaunchRefusedBy(at=NOW, number=1, code="InsufficientInstanceCapacity", message="", scope=LaunchScope.POOL)
    parked = after(opened(targets=(target(2),)), INTENDED, refusal, LaunchExhausted(at=NOW, until=NOW, why="nothing"))
    again = reduce(parked, Replanned(at=NOW, decision_id=DecisionId("dec_2"), targets=(target(2),), reasons=()))
    (action,) = planner.next_actions(again, now=NOW)
    assert action == planner.IntendLaunch(number=2, target=target(2))


def test_e36_a_replacement_lost_before_the_pivot_is_replaced_in_the_next_pool() -> None:
    lost = after(opened(), INTENDED, LAUNCHED, ARRIVED, ReplacementGone(at=NOW, instance_id=NEW, why="notice"))
    assert MigrationState.PREPARING is lost.state
    (action,) = planner.next_actions(lost, now=NOW)
    assert isinstance(action, planner.IntendLaunch)
    assert (action.number, action.target.pool) == (2, pool(3))


def test_e34_a_replacement_lost_after_the_pivot_closes_the_migration_for_the_next_one() -> None:
    lost = after(opened(), INTENDED, LAUNCHED, SAVED, ARRIVED, GRANTED, ReplacementGone(at=NOW, instance_id=NEW, why="terminated"))
    assert MigrationState.HANDED_ON is lost.state
    assert lost.closed_at == NOW


def test_a_late_boot_of_a_lost_attempt_changes_nothing() -> None:
    lost = after(opened(), INTENDED, LAUNCHED, ReplacementGone(at=NOW, instance_id=NEW, why="no hello"))
    assert after(lost, ARRIVED, TAKEN, RESUMED) == lost


def test_the_earliest_reclaim_time_of_all_channels_counts() -> None:
    earlier = NoticeReceived(at=NOW, instance_id=SOURCE, reclaim_at=RECLAIM - timedelta(seconds=3), channel="imds")
    later = NoticeReceived(at=NOW, instance_id=SOURCE, reclaim_at=RECLAIM + timedelta(seconds=3), channel="event_bridge")
    assert after(opened(), earlier, later).reclaim_at == RECLAIM - timedelta(seconds=3)


def test_an_agent_that_never_says_hello_is_ended() -> None:
    waiting = after(opened(), INTENDED, LAUNCHED)
    assert "EndReplacement" not in kinds(waiting, NOW + budgets.BOOT_LIMIT - timedelta(seconds=1))
    assert "EndReplacement" in kinds(waiting, NOW + budgets.BOOT_LIMIT)


def test_f05_a_job_that_ended_closes_its_migration_and_nothing_reopens_it() -> None:
    ended = after(opened(), INTENDED, JobEnded(at=NOW, state=JobState.CANCELLED))
    assert MigrationState.HANDED_ON is ended.state
    assert after(ended, *HAPPY) == ended


FACTS = (*HAPPY, SaveGivenUp(at=NOW, why="late"), ReplacementGone(at=NOW, instance_id=NEW, why="gone"))


@given(st.lists(st.sampled_from(FACTS), max_size=14))
@settings(max_examples=300)
def test_e17_every_fact_may_come_twice_and_in_any_order(facts: list[Fact]) -> None:
    migration = opened()
    for fact in facts:
        once = reduce(migration, fact)
        assert reduce(once, fact) == once
        migration = once
    states = {name: record.state for name, record in migration.steps.items()}
    if migration.handed_on is None:
        for step in SAGA:
            if states[step.name] is StepState.RUNNING or states[step.name] is StepState.DONE:
                assert all(states[before].settled for before in step.after), f"{step.name} ran before what it waits for"
    assert sum(1 for attempt in migration.attempts if attempt.state == "launched") <= 1
