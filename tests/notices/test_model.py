"""How the copies of one notice meet."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.ids import InstanceId
from watchdog.notices.model import (
    Channel,
    InterruptionAction,
    NoticeKind,
    NoticeRecord,
    RebalanceRecommendation,
    SpotInterruptionNotice,
    Warned,
    merge,
    notice_key,
)

INSTANCE = InstanceId("i-0aaa")
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


def interruption(
    channel: Channel = Channel.IMDS,
    *,
    seen: float = 0.0,
    reclaim: float = 120.0,
    action: InterruptionAction = InterruptionAction.TERMINATE,
) -> SpotInterruptionNotice:
    return SpotInterruptionNotice(
        instance_id=INSTANCE,
        action=action,
        reclaim_at=NOON + timedelta(seconds=reclaim),
        noticed_at=NOON + timedelta(seconds=seen),
        channel=channel,
    )


def recommendation(channel: Channel = Channel.IMDS) -> RebalanceRecommendation:
    return RebalanceRecommendation(instance_id=INSTANCE, noticed_at=NOON, channel=channel)


SECONDS = st.floats(-1e5, 1e5).map(lambda seconds: round(seconds, 3))
INTERRUPTIONS = st.builds(
    lambda channel, seen, reclaim, action: NoticeRecord.of(interruption(channel, seen=seen, reclaim=reclaim, action=action)),
    st.sampled_from(Channel),
    SECONDS,
    SECONDS,
    st.sampled_from(InterruptionAction),
)


def test_a_time_that_jitters_does_not_make_a_second_notice_a10() -> None:
    copies = [interruption(reclaim=120.0), interruption(reclaim=120.003), interruption(Channel.EVENT_BRIDGE, reclaim=118)]
    assert len({notice_key(copy) for copy in copies}) == 1


def test_an_interruption_and_a_recommendation_of_one_instance_are_two_notices() -> None:
    assert notice_key(interruption()) != notice_key(recommendation())


def test_the_earliest_reclaim_time_wins_and_every_channel_keeps_its_time() -> None:
    first = NoticeRecord.of(interruption(Channel.IMDS, seen=1, reclaim=120))
    second = NoticeRecord.of(interruption(Channel.EVENT_BRIDGE, seen=3, reclaim=118))
    merged = merge(first, second)
    assert merged.reclaim_at == NOON + timedelta(seconds=118)
    assert merged.seen == {Channel.IMDS: NOON + timedelta(seconds=1), Channel.EVENT_BRIDGE: NOON + timedelta(seconds=3)}
    assert merged.first_seen_at == NOON + timedelta(seconds=1)


@given(INTERRUPTIONS, INTERRUPTIONS, INTERRUPTIONS)
def test_the_order_and_the_number_of_copies_do_not_matter(first: NoticeRecord, second: NoticeRecord, third: NoticeRecord) -> None:
    assert merge(first, second) == merge(second, first)
    assert merge(merge(first, second), third) == merge(first, merge(second, third))
    assert merge(merge(first, second), second) == merge(first, second)


def test_two_different_notices_do_not_merge() -> None:
    with pytest.raises(ValueError, match="two notices"):
        merge(NoticeRecord.of(interruption()), NoticeRecord.of(recommendation()))


@pytest.mark.parametrize("notice", [interruption(action=InterruptionAction.STOP), recommendation(Channel.DESCRIBE_INSTANCES)])
def test_a_record_survives_json(notice: Warned) -> None:
    record = NoticeRecord.of(notice)
    assert NoticeRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record
    assert record.key == notice_key(notice)


def test_a_recommendation_is_recorded_without_time_or_action() -> None:
    record = NoticeRecord.of(recommendation())
    assert (record.kind, record.reclaim_at, record.action) == (NoticeKind.REBALANCE_RECOMMENDATION, None, None)
