"""The working record on a real server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis

from policies.model import CapacityPool, Market
from watchdog.adapters.redis.store import RedisStore
from watchdog.errors import NotFound, StoreUnavailable, VersionConflict
from watchdog.history.observations import Observation, ObservationKind
from watchdog.ids import DecisionId, Incarnation, InstanceId, JobId, MigrationId
from watchdog.migration.agent import AgentReport, Phase
from watchdog.migration.facts import Launched, LaunchIntended, Opened
from watchdog.migration.model import Cause, CheckpointRef, Job, JobSpec, JobState, Member, Migration, PlannedTarget, Source
from watchdog.migration.reducer import reduce
from watchdog.notices.model import Channel, InterruptionAction, NoticeRecord, SpotInterruptionNotice
from watchdog.ports import Change, Message

NOW = datetime(2026, 3, 4, 10, 0, 0, 123000, tzinfo=UTC)
POOL = CapacityPool(region="us-east-1", availability_zone_id="use1-az1", instance_type="g5.xlarge", market=Market.SPOT)


def job(job_id: str = "job_1") -> Job:
    spec = JobSpec(
        name="ünïcode ☃",
        instance_types=("g5.xlarge",),
        markets=(Market.SPOT, Market.ON_DEMAND),
        availability_zone_ids=None,
        launch_template="lt-1",
        command=("python", "train.py"),
        checkpoint_seconds=5.5,
    )
    member = Member(instance_id=InstanceId("i-1"), pool=POOL, address=None, incarnation=Incarnation("inc_1"))
    return Job(job_id=JobId(job_id), spec=spec, request_hash="h", state=JobState.RUNNING, created_at=NOW, member=member, fencing_token=3)


def migration() -> Migration:
    blank = Migration(
        migration_id=MigrationId("mig_1"),
        job_id=JobId("job_1"),
        cause=Cause.INTERRUPTION_NOTICE,
        opened_at=NOW,
        decision_id=DecisionId("dec_1"),
        sources=(Source(instance_id=InstanceId("i-1"), pool=POOL),),
        targets=(PlannedTarget(pool=POOL, why="w", code="c", quota_family=None),),
        reclaim_at=NOW + timedelta(minutes=2),
        checkpoint=CheckpointRef(
            step=1, fencing_token=1, manifest_key="k", manifest_sha256="s", bytes=2, reason="notice", started_at=NOW, committed_at=NOW
        ),
    )
    facts = (
        Opened(at=NOW),
        LaunchIntended(at=NOW, number=1, target=blank.targets[0], client_token="t"),
        Launched(at=NOW, number=1, instance_id=InstanceId("i-2"), address="10.0.0.1"),
    )
    for fact in facts:
        blank = reduce(blank, fact)
    return blank


def message(message_id: str = "msg_1", at: datetime = NOW) -> Message:
    return Message(message_id=message_id, kind="job.started", at=at, job_id="job_1", data={"text": 'a"b\\c\n☃'})


async def test_records_come_back_as_they_were_with_the_next_version(store: RedisStore) -> None:
    await store.commit(Change(job=job(), migration=migration(), due=NOW))
    assert await store.job(JobId("job_1")) == replace(job(), version=1)
    assert await store.migration(MigrationId("mig_1")) == replace(migration(), version=1)
    assert [replace(job(), version=1)] == list(await store.jobs())
    assert [replace(migration(), version=1)] == list(await store.migrations(JobId("job_1")))


async def test_what_is_not_there_is_not_found(store: RedisStore) -> None:
    with pytest.raises(NotFound, match="job_9"):
        await store.job(JobId("job_9"))
    assert await store.owner_of(InstanceId("i-9")) is None
    assert await store.reading("pools") is None
    assert await store.notice("i-9:spot_interruption") == (None, 0)


async def test_a_stale_write_changes_nothing_at_all(store: RedisStore) -> None:
    await store.commit(Change(job=job(), migration=migration()))
    newer = replace(await store.job(JobId("job_1")), fencing_token=4)
    await store.commit(Change(job=newer))
    stale = replace(migration(), version=1, parks=7)
    with pytest.raises(VersionConflict):
        await store.commit(Change(job=replace(job(), version=1), migration=stale, facts=(Opened(at=NOW),), messages=(message(),)))
    assert (await store.migration(MigrationId("mig_1"))).parks == 0
    assert await store.journal(MigrationId("mig_1")) == []
    assert await store.claim_messages(NOW) == []
    assert (await store.job(JobId("job_1"))).fencing_token == 4


async def test_of_rival_writers_exactly_one_wins(store: RedisStore) -> None:
    await store.commit(Change(job=job()))
    loaded = await store.job(JobId("job_1"))
    results = await asyncio.gather(
        *(store.commit(Change(job=replace(loaded, fencing_token=10 + number))) for number in range(8)), return_exceptions=True
    )
    assert sum(1 for result in results if result is None) == 1
    assert sum(1 for result in results if isinstance(result, VersionConflict)) == 7


async def test_creating_what_exists_is_a_conflict(store: RedisStore) -> None:
    await store.commit(Change(job=job()))
    with pytest.raises(VersionConflict):
        await store.commit(Change(job=job()))


async def test_the_due_set_says_what_is_due_and_when_the_next_is(store: RedisStore) -> None:
    await store.commit(Change(migration=migration(), due=NOW + timedelta(seconds=5)))
    assert await store.due(NOW) == []
    assert await store.next_due() == NOW + timedelta(seconds=5)
    assert await store.due(NOW + timedelta(seconds=5)) == [MigrationId("mig_1")]
    await store.commit(Change(migration=await store.migration(MigrationId("mig_1")), due=None))
    assert await store.next_due() is None


async def test_the_journal_keeps_every_fact_in_order(store: RedisStore) -> None:
    facts = (Opened(at=NOW), LaunchIntended(at=NOW, number=1, target=migration().targets[0], client_token="t"))
    await store.commit(Change(migration=migration(), facts=facts))
    entries = await store.journal(MigrationId("mig_1"))
    assert [entry.fact for entry in entries] == ["Opened", "LaunchIntended"]
    assert entries[1].detail["client_token"] == "t"
    assert entries[0].at == NOW


async def test_an_instance_is_known_by_its_job_once_it_was_launched(store: RedisStore) -> None:
    await store.commit(Change(migration=migration()))
    assert await store.owner_of(InstanceId("i-2")) == "job_1"


async def test_copies_of_a_notice_are_merged_under_compare_and_set(store: RedisStore) -> None:
    notice = SpotInterruptionNotice(
        instance_id=InstanceId("i-1"), action=InterruptionAction.TERMINATE, reclaim_at=NOW, noticed_at=NOW, channel=Channel.IMDS
    )
    record = NoticeRecord.of(notice)
    await store.commit(Change(notice=record))
    assert await store.notice(record.key) == (record, 1)
    with pytest.raises(VersionConflict):
        await store.commit(Change(notice=record, notice_version=0))
    assert list(await store.notices()) == [record]


async def test_a_message_is_handed_out_to_each_announcer_until_it_is_settled(store: RedisStore) -> None:
    await store.commit(Change(messages=(message(),)))
    first = await store.claim_messages(NOW)
    assert {"slack", "scheduler"} == {entry.announcer for entry in first}
    assert {message().data["text"]} == {entry.message.data["text"] for entry in first}
    assert await store.claim_messages(NOW + timedelta(seconds=59)) == []
    again = await store.claim_messages(NOW + timedelta(seconds=61))
    assert [entry.tries for entry in again] == [2, 2]
    for entry in again:
        await store.settle_message(entry)
    assert await store.claim_messages(NOW + timedelta(days=1)) == []


async def test_a_postponed_message_comes_back_at_its_time(store: RedisStore) -> None:
    await store.commit(Change(messages=(message(),)))
    for entry in await store.claim_messages(NOW):
        await store.postpone_message(entry, NOW + timedelta(seconds=3))
    assert await store.claim_messages(NOW + timedelta(seconds=2)) == []
    assert len(await store.claim_messages(NOW + timedelta(seconds=3))) == 2


async def test_pools_remember_refusals_and_losses_and_a_launch_clears_the_refusal(store: RedisStore) -> None:
    def seen(kind: ObservationKind, seconds: int) -> Observation:
        return Observation(at=NOW + timedelta(seconds=seconds), kind=kind, pool=POOL, source="test")

    await store.commit(Change(observations=(seen(ObservationKind.LAUNCH_REFUSED, 1), seen(ObservationKind.LOST, 2))))
    memory = (await store.pool_memory())[POOL]
    assert (memory.refused_at, memory.lost_at) == (NOW + timedelta(seconds=1), NOW + timedelta(seconds=2))
    await store.commit(Change(observations=(seen(ObservationKind.LAUNCH_OK, 3),)))
    assert (await store.pool_memory())[POOL].refused_at is None
    assert (await store.pool_memory())[POOL].lost_at is not None


async def test_the_latest_report_of_each_agent_is_kept(store: RedisStore) -> None:
    report = AgentReport(
        job_id=JobId("job_1"),
        incarnation=Incarnation("inc_1"),
        instance_id=InstanceId("i-1"),
        phase=Phase.TRAINING,
        received_at=NOW,
        sent_at=NOW,
        notices=({"kind": "spot_interruption"},),
    )
    await store.put_report(report)
    await store.put_report(replace(report, step=7))
    assert {"inc_1": replace(report, step=7)} == dict(await store.reports(JobId("job_1")))


async def test_readings_carry_their_age(store: RedisStore) -> None:
    await store.put_reading("quotas", NOW, [{"code": "L-1"}])
    assert await store.reading("quotas") == (NOW, [{"code": "L-1"}])


async def test_every_key_carries_the_deployments_hash_tag_and_none_a_time_to_live(store: RedisStore, redis: Redis, deployment: str) -> None:
    await store.commit(Change(job=job(), migration=migration(), due=NOW, facts=(Opened(at=NOW),), messages=(message(),)))
    keys = [key async for key in redis.scan_iter(match=f"*{deployment}*")]
    assert len(keys) > 8
    assert all(key.decode().startswith(f"{{{deployment}}}:") for key in keys)
    assert {-1} == {await redis.ttl(key) for key in keys}


async def test_a_server_that_does_not_answer_is_said_in_our_words() -> None:
    async with Redis.from_url("redis://127.0.0.1:1/0") as nobody:
        store = RedisStore(nobody, deployment="d", announcers=())
        with pytest.raises(StoreUnavailable, match="Redis does not answer"):
            await store.ping()
        with pytest.raises(StoreUnavailable):
            await store.commit(Change(job=job()))
