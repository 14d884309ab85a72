"""Jobs move: the services over the real record, in a world that behaves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from policies.model import Market
from tests.services.world import SPEC, Crash, Silence, World, pool
from watchdog.adapters.redis.store import RedisStore
from watchdog.errors import JobRejected, LaunchScope
from watchdog.ids import InstanceId
from watchdog.migration.agent import Desired, Phase
from watchdog.migration.model import Cause, JobState
from watchdog.migration.saga import MigrationState
from watchdog.notices.model import Channel, InstanceStateChange, InterruptionAction, RebalanceRecommendation, SpotInterruptionNotice
from watchdog.ports import Message
from watchdog.services.announce import AnnounceService
from watchdog.services.ingest import Outcome
from watchdog.services.jobs import IdempotencyKeyReused


@pytest.fixture
def world(store: RedisStore, deployment: str) -> World:
    return World(store, deployment)


async def finish_a_move(world: World, source: str, *, step: int = 120) -> str:
    """Play both agents until the job runs on the replacement; return the replacement."""
    token = world.heads.tokens[world.job_id]
    notices = (world.notice(),)
    await world.report(source, Phase.TRAINING, fencing_token=token, step=step, notices=notices)
    saved = world.checkpoint(step, token)
    await world.report(source, Phase.STOPPED, fencing_token=token, step=step, notices=notices, checkpoint=saved)
    replacement = next(each for each in world.cloud.alive if each != source)
    await world.boot(replacement, resumed_from=step)
    return replacement


def event_bridge(world: World, instance_id: str) -> SpotInterruptionNotice:
    world.clock.advance(0.001)
    return SpotInterruptionNotice(
        instance_id=InstanceId(instance_id),
        action=InterruptionAction.TERMINATE,
        reclaim_at=world.clock.now() + timedelta(seconds=120),
        noticed_at=world.clock.now(),
        channel=Channel.EVENT_BRIDGE,
    )


def ended(world: World, instance_id: str) -> InstanceStateChange:
    world.clock.advance(0.001)
    return InstanceStateChange(instance_id=InstanceId(instance_id), state="terminated", at=world.clock.now(), channel=Channel.EVENT_BRIDGE)


async def test_a_noticed_job_moves_to_another_zone_and_resumes(world: World) -> None:
    source = await world.run_a_job()
    replacement = await finish_a_move(world, source)
    job = await world.store.job(world.job_id)
    assert job.state is JobState.RUNNING
    assert job.member is not None
    assert (job.member.instance_id, job.fencing_token) == (replacement, 2)
    assert job.member.pool != world.cloud.instances[InstanceId(source)].pool
    world.cloud.end(InstanceId(source))
    await world.ingest.handle(ended(world, source))
    migration, first = await world.store.migrations(world.job_id)
    assert (migration.state, first.state) == (MigrationState.SUCCEEDED, MigrationState.SUCCEEDED)
    assert migration.resumed_from_step == 120
    entries = [entry.message for entry in await world.store.claim_messages(world.clock.now()) if entry.announcer == "slack"]
    assert [message.kind for message in entries] == ["job.started", "notice.received", "migration.started", "migration.succeeded"]
    assert entries[-1].data["lost_steps"] == 0


@pytest.mark.parametrize("action", ["IntendLaunch", "CallLaunch", "GrantTakeOver"])
async def test_e12_a_crash_after_any_effect_leaves_one_replacement(world: World, action: str) -> None:
    source = await world.run_a_job()
    world.crash_after = action
    replacement = await finish_a_move(world, source)
    assert world.crash_after is None
    assert sorted(world.cloud.alive) == sorted([source, replacement])


async def test_e09_a_launch_without_an_answer_is_settled_before_another_zone_is_tried(world: World) -> None:
    source = await world.run_a_job()
    world.cloud.lose_next_answer = True
    await world.ingest.handle(event_bridge(world, source))
    await world.work()
    world.clock.advance(1)
    await world.work()
    assert len(world.cloud.alive) == 2
    first, second = world.cloud.calls[-2:]
    assert first == second


async def test_b17_copies_from_all_channels_make_one_migration(world: World) -> None:
    source = await world.run_a_job()
    outcomes = [await world.ingest.handle(event_bridge(world, source)) for _ in range(5)]
    await world.report(source, Phase.TRAINING, fencing_token=1, step=10, notices=(world.notice(), world.notice()))
    await world.work()
    assert outcomes == [Outcome.ACTED, *[Outcome.KNOWN] * 4]
    assert len(await world.store.migrations(world.job_id)) == 2
    (record,) = await world.store.notices()
    assert {Channel.IMDS, Channel.EVENT_BRIDGE} == set(record.seen)


async def test_b16_a_notice_that_comes_after_the_move_changes_nothing(world: World) -> None:
    source = await world.run_a_job()
    await finish_a_move(world, source)
    world.cloud.end(InstanceId(source))
    await world.ingest.handle(ended(world, source))
    assert await world.ingest.handle(event_bridge(world, source)) is Outcome.LATE
    assert len(await world.store.migrations(world.job_id)) == 2


async def test_b12_foreign_instances_are_none_of_our_business(world: World) -> None:
    await world.run_a_job()
    assert await world.ingest.handle(event_bridge(world, "i-foreign")) is Outcome.FOREIGN
    assert list(await world.store.notices()) == []


async def test_a16_a_vanished_instance_is_replaced_and_resumes_from_the_last_commit(world: World) -> None:
    source = await world.run_a_job()
    await world.report(source, Phase.TRAINING, fencing_token=1, step=130, checkpoint=world.checkpoint(100, 1, "periodic"))
    world.cloud.end(InstanceId(source))
    assert await world.ingest.handle(ended(world, source)) is Outcome.ACTED
    await world.work()
    (replacement,) = world.cloud.alive
    await world.boot(replacement, resumed_from=100)
    migration = (await world.store.migrations(world.job_id))[0]
    assert (migration.cause, migration.state, migration.source_step) == (Cause.SOURCE_LOST, MigrationState.SUCCEEDED, 130)


async def test_f01_silence_alone_is_not_death(world: World) -> None:
    await world.run_a_job()
    world.clock.advance(600)
    await world.observe.silent_instances()
    assert len(await world.store.migrations(world.job_id)) == 1


async def test_f03_a_death_that_no_event_told_of_is_found_by_asking(world: World) -> None:
    source = await world.run_a_job()
    world.cloud.end(InstanceId(source))
    world.clock.advance(11)
    await world.observe.silent_instances()
    await world.work()
    assert len(world.cloud.alive) == 1
    assert (await world.store.migrations(world.job_id))[0].cause is Cause.SOURCE_LOST


async def test_e34_a_replacement_that_is_reclaimed_in_its_turn_is_replaced(world: World) -> None:
    source = await world.run_a_job()
    await world.ingest.handle(event_bridge(world, source))
    await world.work()
    first = next(each for each in world.cloud.alive if each != source)
    await world.ingest.handle(event_bridge(world, first))
    await world.work()
    attempts = (await world.store.migrations(world.job_id))[0].attempts
    assert [attempt.state for attempt in attempts] == ["lost", "launched"]
    assert (await world.report(first, Phase.STARTING)).desired is Desired.STOP


async def test_a_replacement_lost_after_the_pivot_opens_the_next_migration_by_itself(world: World) -> None:
    source = await world.run_a_job()
    await world.report(source, Phase.STOPPED, fencing_token=1, step=9, notices=(world.notice(),), checkpoint=world.checkpoint(9, 1))
    first = next(each for each in world.cloud.alive if each != source)
    await world.report(first, Phase.STARTING)
    assert (await world.report(first, Phase.STARTING)).take_over_from == 1
    world.heads.tokens[world.job_id] = 2  # it took over, and died before anybody heard of it
    world.cloud.end(InstanceId(first))
    await world.ingest.handle(ended(world, first))
    await world.work()
    newest, before, _ = await world.store.migrations(world.job_id)
    assert (before.state, newest.cause) == (MigrationState.HANDED_ON, Cause.SOURCE_LOST)
    second = next(each for each in world.cloud.alive if each not in {source, first})
    await world.boot(second, resumed_from=9)
    assert (await world.store.job(world.job_id)).fencing_token == 3


async def test_f13_a_program_that_fails_on_every_instance_blocks_the_job_and_launches_no_more(world: World) -> None:
    source = await world.run_a_job()
    await world.ingest.handle(event_bridge(world, source))
    world.cloud.end(InstanceId(source))
    await world.ingest.handle(ended(world, source))
    await world.work()
    for _ in range(3):
        newest = max(world.cloud.alive, key=lambda each: int(each.removeprefix("i-")))
        await world.report(newest, Phase.STARTING)
        granted = (await world.report(newest, Phase.STARTING)).take_over_from
        assert granted is not None
        world.heads.tokens[world.job_id] = granted + 1
        await world.report(newest, Phase.RESTORING, fencing_token=granted + 1)
        await world.report(newest, Phase.FAILED, fencing_token=granted + 1, message="KeyError: 'layer1'")
    job = await world.store.job(world.job_id)
    assert job.state is JobState.BLOCKED
    assert "KeyError: 'layer1'" in (job.note or "")
    assert len(world.cloud.calls) == 4
    assert "job.blocked" in await world.told()


async def test_f13_a_crash_of_the_program_is_not_taken_for_a_reclaim(world: World) -> None:
    source = await world.run_a_job()
    await world.report(source, Phase.FAILED, fencing_token=1, step=30, message="ZeroDivisionError")
    job = await world.store.job(world.job_id)
    assert (job.state, job.note) == (JobState.BLOCKED, "its program failed: ZeroDivisionError")
    assert len(world.cloud.calls) == 1


async def test_empty_pools_are_walked_in_the_order_of_the_plan(world: World) -> None:
    world.cloud.refusals = {pool(1): ("InsufficientInstanceCapacity", LaunchScope.POOL), pool(2): ("Unsupported", LaunchScope.POOL)}
    await world.jobs.register(SPEC, principal="operator", idempotency_key="key-1")
    await world.work()
    assert [pool(1), pool(2), pool(3)] == [call.pool for call in world.cloud.calls]


async def test_a_full_spot_quota_goes_to_on_demand_after_one_refusal(world: World) -> None:
    full = ("MaxSpotInstanceCountExceeded", LaunchScope.FAMILY)
    world.cloud.refusals = {pool(zone): full for zone in (1, 2, 3)}
    await world.jobs.register(SPEC, principal="operator", idempotency_key="key-1")
    await world.work()
    assert [pool(1), pool(1, Market.ON_DEMAND)] == [call.pool for call in world.cloud.calls]
    attempt = (await world.store.migrations())[0].attempt
    assert attempt is not None
    assert "full quota of family G (MaxSpotInstanceCountExceeded)" in attempt.target.why


async def test_e01_no_capacity_anywhere_parks_tells_once_and_tries_again(world: World) -> None:
    everywhere = ("InsufficientInstanceCapacity", LaunchScope.POOL)
    world.cloud.refusals = dict.fromkeys(world.market.prices, everywhere)
    registration = await world.jobs.register(SPEC, principal="operator", idempotency_key="key-1")
    await world.work()
    assert (await world.store.job(registration.job.job_id)).state is JobState.PARKED
    for _ in range(20):
        world.clock.advance(60)
        await world.work()
    rounds = len(world.cloud.calls) / len(world.market.prices)
    assert 4 <= rounds <= 9, "twenty minutes hold a growing pause between rounds"
    assert await world.told() == ["migration.parked"]
    world.cloud.refusals = {}
    world.clock.advance(300)
    await world.work()
    assert len(world.cloud.alive) == 1
    assert (await world.store.job(registration.job.job_id)).state is JobState.MOVING


async def test_e28_a_configuration_error_blocks_the_job_after_one_call(world: World) -> None:
    world.cloud.refusals = dict.fromkeys(world.market.prices, ("InvalidAMIID.NotFound", LaunchScope.CONFIGURATION))
    registration = await world.jobs.register(SPEC, principal="operator", idempotency_key="key-1")
    await world.work()
    world.clock.advance(3600)
    await world.work()
    job = await world.store.job(registration.job.job_id)
    assert job.state is JobState.BLOCKED
    assert "InvalidAMIID.NotFound" in (job.note or "")
    assert len(world.cloud.calls) == 1
    assert await world.told() == ["job.blocked"]


async def test_a_rebalance_recommendation_asks_for_one_save_and_moves_nothing(world: World) -> None:
    source = await world.run_a_job()
    notice = RebalanceRecommendation(instance_id=InstanceId(source), noticed_at=world.clock.now(), channel=Channel.EVENT_BRIDGE)
    assert (await world.report(source, Phase.TRAINING, fencing_token=1, step=4)).desired is Desired.RUN
    assert await world.ingest.handle(notice) is Outcome.ACTED
    assert await world.ingest.handle(notice) is Outcome.KNOWN
    asked = await world.report(source, Phase.TRAINING, fencing_token=1, step=5)
    assert asked.desired is Desired.SAVE
    done = await world.report(source, Phase.TRAINING, fencing_token=1, step=6, handled_generation=asked.generation)
    assert done.desired is Desired.RUN
    assert len(world.cloud.alive) == 1
    assert (await world.decisions())[0].decision["kind"] == "SaveOnly"


async def test_a_source_that_hears_of_its_notice_from_us_is_told_to_save_and_stop(world: World) -> None:
    source = await world.run_a_job()
    await world.ingest.handle(event_bridge(world, source))
    assert (await world.report(source, Phase.TRAINING, fencing_token=1, step=50)).desired is Desired.SAVE_AND_STOP


async def test_a_checkpoint_from_before_the_notice_does_not_end_the_save(world: World) -> None:
    source = await world.run_a_job()
    early = world.checkpoint(40, 1, "requested")
    await world.report(source, Phase.TRAINING, fencing_token=1, step=50, notices=(world.notice(),), checkpoint=early)
    replacement = next(each for each in world.cloud.alive if each != source)
    await world.report(replacement, Phase.STARTING)
    assert (await world.report(replacement, Phase.STARTING)).take_over_from is None
    await world.report(source, Phase.STOPPED, fencing_token=1, step=51, notices=(world.notice(),), checkpoint=world.checkpoint(51, 1))
    assert (await world.report(replacement, Phase.STARTING)).take_over_from == 1


async def test_a_superseded_source_is_told_to_stop(world: World) -> None:
    source = await world.run_a_job()
    await finish_a_move(world, source)
    assert (await world.report(source, Phase.TRAINING, fencing_token=1, step=500)).desired is Desired.STOP


async def test_the_same_key_makes_one_job_and_another_body_under_it_is_refused(world: World) -> None:
    first = await world.jobs.register(SPEC, principal="operator", idempotency_key="key-1")
    again = await world.jobs.register(SPEC, principal="operator", idempotency_key="key-1")
    assert (first.job.job_id, first.replayed, again.replayed) == (again.job.job_id, False, True)
    with pytest.raises(IdempotencyKeyReused):
        await world.jobs.register(changed(name="other"), principal="operator", idempotency_key="key-1")
    other = await world.jobs.register(SPEC, principal="operator", idempotency_key="key-2")
    assert other.job.job_id != first.job.job_id


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [({"launch_template": "lt-evil"}, "/launch_template"), ({"instance_types": ("p99.48xlarge", "g5.xlarge")}, "/instance_types/0")],
)
async def test_a_job_that_cannot_be_accepted_is_refused_with_the_field(world: World, spec: dict[str, Any], pointer: str) -> None:
    with pytest.raises(JobRejected) as refused:
        await world.jobs.register(changed(**spec), principal="operator", idempotency_key="key-1")
    assert [pointer] == [fault.pointer for fault in refused.value.faults]
    assert list(await world.store.jobs()) == []
    assert world.heads.tokens == {}


async def test_f05_a_cancelled_job_is_over_whatever_comes_later(world: World) -> None:
    source = await world.run_a_job()
    await world.ingest.handle(event_bridge(world, source))
    await world.jobs.cancel(world.job_id)
    await world.work()
    await world.report(source, Phase.TRAINING, fencing_token=1, step=60, notices=(world.notice(),))
    world.clock.advance(200)
    await world.work()
    await world.sweep.sweep()
    assert (await world.store.job(world.job_id)).state is JobState.CANCELLED
    assert world.cloud.alive == []


async def test_a_finished_job_is_finished_once_and_its_instance_is_ended(world: World) -> None:
    source = await world.run_a_job()
    for _ in range(2):
        await world.report(source, Phase.FINISHED, fencing_token=1, step=600, checkpoint=world.checkpoint(600, 1, "final"))
    assert (await world.store.job(world.job_id)).state is JobState.FINISHED
    await world.sweep.sweep()
    assert world.cloud.alive == []
    assert await world.told() == ["job.started", "job.finished"]


async def test_e13_the_sweep_ends_orphans_after_their_grace_and_nothing_else(world: World) -> None:
    source = await world.run_a_job()
    orphan = await world.cloud.launch(
        type(world.cloud.calls[0])(
            pool=pool(3),
            client_token="stray",
            launch_template="lt-1",
            user_data="#!",
            tags={"spot-watchdog:job-id": world.job_id},
        )
    )
    await world.sweep.sweep()
    assert len(world.cloud.alive) == 2
    world.clock.advance(121)
    await world.sweep.sweep()
    assert [source] == world.cloud.alive
    assert orphan.instance_id not in world.cloud.alive


async def test_every_decision_is_kept_with_what_it_was_asked(world: World) -> None:
    source = await world.run_a_job()
    await world.ingest.handle(event_bridge(world, source))
    newest, first = await world.decisions()
    assert (first.signal["kind"], newest.signal["kind"]) == ("FirstLaunch", "InterruptionNoticed")
    assert newest.policy == "balanced@1"
    assert newest.decision["kind"] == "Migrate"
    assert len(newest.view["offers"]) == 4


async def test_agents_tokens_fit_their_own_job_only(world: World) -> None:
    await world.run_a_job()
    token = world.environment.token(world.job_id)
    assert world.environment.accepts(world.job_id, token)
    assert not world.environment.accepts(type(world.job_id)("job_other"), token)


async def test_a_lost_record_does_not_make_orphans_of_running_instances(world: World, redis: Redis) -> None:
    source = await world.run_a_job()
    world.clock.advance(600)
    await redis.flushall()
    await world.sweep.sweep()
    world.heads.deaf = True
    await world.sweep.sweep()
    assert world.cloud.alive == [source]


async def test_a_job_that_no_record_and_no_register_knows_is_an_orphan(world: World) -> None:
    await world.run_a_job()
    request = replace(world.cloud.calls[0], client_token="stray", tags={"spot-watchdog:job-id": "job_unheard_of"})
    stray = await world.cloud.launch(request)
    world.clock.advance(121)
    await world.sweep.sweep()
    assert stray.instance_id not in world.cloud.alive


async def test_a_crash_between_closing_a_migration_and_opening_the_next_is_mended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    source = await world.run_a_job()
    await world.report(source, Phase.STOPPED, fencing_token=1, step=9, notices=(world.notice(),), checkpoint=world.checkpoint(9, 1))
    first = next(each for each in world.cloud.alive if each != source)
    await world.report(first, Phase.STARTING)
    await world.report(first, Phase.STARTING)

    async def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(world.migrate, "open", crash)
        with pytest.raises(Crash):
            await world.ingest.handle(ended(world, first))
    world.start()
    assert (await world.store.job(world.job_id)).migration_id is None
    await world.observe.stranded_jobs()
    await world.work()
    job = await world.store.job(world.job_id)
    assert (job.state, job.migration_id is None) == (JobState.MOVING, False)


async def test_old_jobs_are_looked_after_however_many_came_later(world: World) -> None:
    source = await world.run_a_job()
    world.cloud.refusals = dict.fromkeys(world.market.prices, ("InsufficientInstanceCapacity", LaunchScope.POOL))
    for number in range(205):
        await world.jobs.register(SPEC, principal="operator", idempotency_key=f"later-{number}")
    assert world.job_id not in {job.job_id for job in await world.store.jobs()}
    world.cloud.end(InstanceId(source))
    world.clock.advance(11)
    await world.observe.silent_instances()
    assert (await world.store.job(world.job_id)).state is JobState.MOVING


async def test_a_process_that_was_stopped_though_nobody_asked_goes_on_elsewhere(world: World) -> None:
    source = await world.run_a_job()
    await world.report(source, Phase.STOPPED, fencing_token=1, step=77, checkpoint=world.checkpoint(77, 1))
    replacement = next(each for each in world.cloud.alive if each != source)
    await world.boot(replacement, resumed_from=77)
    world.clock.advance(121)
    await world.sweep.sweep()
    assert world.cloud.alive == [replacement]


async def test_silence_on_a_living_instance_is_told_once_and_taken_back(world: World) -> None:
    source = await world.run_a_job()
    await world.told()
    for _ in range(3):
        world.clock.advance(601)
        await world.observe.silent_instances()
    job = await world.store.job(world.job_id)
    assert (job.state, job.silent) == (JobState.RUNNING, True)
    assert "job.silent" in await world.told()
    await world.report(source, Phase.TRAINING, fencing_token=1, step=2)
    assert not (await world.store.job(world.job_id)).silent
    assert world.cloud.alive == [source]


async def test_a_notice_in_the_same_report_as_the_first_steps_costs_none_of_them(world: World) -> None:
    source = await world.run_a_job()
    await world.report(source, Phase.STOPPED, fencing_token=1, step=9, notices=(world.notice(),), checkpoint=world.checkpoint(9, 1))
    second = next(each for each in world.cloud.alive if each != source)
    await world.report(second, Phase.STARTING)
    assert (await world.report(second, Phase.STARTING)).take_over_from == 1
    world.heads.tokens[world.job_id] = 2  # and then the service was away for five hundred steps
    notices = (world.notice(),)
    await world.report(second, Phase.SAVING, fencing_token=2, resumed_from_step=9, step=500, notices=notices)
    third = next(each for each in world.cloud.alive if each not in {source, second})
    await world.report(third, Phase.STARTING)
    assert (await world.report(third, Phase.STARTING)).take_over_from is None, "the second is still saving"
    saved = world.checkpoint(500, 2)
    await world.report(second, Phase.STOPPED, fencing_token=2, resumed_from_step=9, step=500, notices=notices, checkpoint=saved)
    await world.boot(third, resumed_from=500)
    assert (await world.store.job(world.job_id)).fencing_token == 3


async def test_a_replacement_noticed_after_the_pivot_may_still_save(world: World) -> None:
    source = await world.run_a_job()
    await world.report(source, Phase.STOPPED, fencing_token=1, step=9, notices=(world.notice(),), checkpoint=world.checkpoint(9, 1))
    second = next(each for each in world.cloud.alive if each != source)
    await world.report(second, Phase.STARTING)
    await world.report(second, Phase.STARTING)
    world.heads.tokens[world.job_id] = 2
    await world.report(second, Phase.RESTORING, fencing_token=2, resumed_from_step=9)
    await world.ingest.handle(event_bridge(world, second))
    newest = (await world.store.migrations(world.job_id))[0]
    assert (newest.cause, newest.sources[0].lost_at) == (Cause.INTERRUPTION_NOTICE, None)


async def test_an_agent_that_boots_before_its_launch_is_recorded_waits(world: World) -> None:
    source = await world.run_a_job()
    world.cloud.lose_next_answer = True
    await world.ingest.handle(event_bridge(world, source))
    await world.work()
    early = next(each for each in world.cloud.alive if each != source)
    assert (await world.report(early, Phase.STARTING)).desired is Desired.WAIT
    world.clock.advance(1)
    await world.work()
    assert (await world.store.migrations(world.job_id))[0].attempt_of(InstanceId(early)) is not None


async def test_a_long_restore_is_no_failure(world: World) -> None:
    source = await world.run_a_job()
    await world.report(source, Phase.STOPPED, fencing_token=1, step=9, notices=(world.notice(),), checkpoint=world.checkpoint(9, 1))
    second = next(each for each in world.cloud.alive if each != source)
    await world.report(second, Phase.STARTING)
    await world.report(second, Phase.STARTING)
    for _ in range(30):
        world.clock.advance(60)
        await world.report(second, Phase.RESTORING, fencing_token=2, resumed_from_step=9)
    assert second in world.cloud.alive


async def test_only_the_owner_can_finish_a_job(world: World) -> None:
    source = await world.run_a_job()
    await world.ingest.handle(event_bridge(world, source))
    await world.work()
    replacement = next(each for each in world.cloud.alive if each != source)
    await world.report(replacement, Phase.FINISHED, step=1)
    assert (await world.store.job(world.job_id)).state is JobState.MOVING
    await world.report(source, Phase.FINISHED, fencing_token=1, step=600)
    assert (await world.store.job(world.job_id)).state is JobState.FINISHED
    entries = await world.store.claim_messages(world.clock.now() + timedelta(seconds=1))
    finished = next(entry.message for entry in entries if entry.message.kind == "job.finished")
    assert finished.data["step"] == 600


async def test_a_full_quota_that_was_read_long_ago_is_unknown(world: World) -> None:
    full = {"family": "G", "market": "spot", "code": "L-1", "limit_vcpus": 4.0, "used_vcpus": 4.0}
    await world.store.put_reading("quotas", world.clock.now(), [full])
    world.clock.advance(3600)
    await world.run_a_job()
    assert world.cloud.calls[0].pool.market is Market.SPOT


class Broken:
    """An announcer with a fault of its own."""

    name = "slack"

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def send(self, message: Message) -> None:
        if message.kind == "job.started":
            raise RecursionError
        self.sent.append(message.kind)


async def test_a_message_that_breaks_its_announcer_holds_up_no_other(world: World) -> None:
    source = await world.run_a_job()
    await world.report(source, Phase.FINISHED, fencing_token=1, step=600)
    broken = Broken()
    announce = AnnounceService(store=world.store, announcers=[broken], clock=world.clock, telemetry=Silence())
    for _ in range(40):
        world.clock.advance(36000)
        await announce.deliver()
    assert broken.sent == ["job.finished"]
    assert await world.store.claim_messages(world.clock.now() + timedelta(days=9)) == [], "it was given up in the end"


def changed(**fields: Any) -> Any:
    return replace(SPEC, **fields)
