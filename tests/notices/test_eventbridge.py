"""What bodies of the interruption queue become."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.ids import InstanceId
from watchdog.notices.eventbridge import parse
from watchdog.notices.model import (
    Channel,
    InstanceStateChange,
    InterruptionAction,
    MalformedMessage,
    RebalanceRecommendation,
    SpotInterruptionNotice,
    Unrecognised,
)

SAMPLES = Path(__file__).parent / "samples"
WARNING = "EC2 Spot Instance Interruption Warning"
STATE_CHANGE = "EC2 Instance State-change Notification"
AN_INSTANCE = InstanceId("i-0a1b2c3d4e5f60718")


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.json").read_text()


def event(**changes: Any) -> str:
    envelope = {
        "version": "0",
        "id": "e-1",
        "detail-type": WARNING,
        "source": "aws.ec2",
        "account": "111122223333",
        "time": "2026-01-15T09:40:00Z",
        "region": "us-east-2",
        "resources": ["arn:aws:ec2:us-east-2a:instance/i-0aaa"],
        "detail": {"instance-id": "i-0aaa", "instance-action": "terminate"},
    }
    return json.dumps({key: value for key, value in (envelope | changes).items() if value is not ...})


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_warning_means_reclaim_two_minutes_after_it_was_sent() -> None:
    assert parse(sample("eventbridge-spot-interruption-warning")) == SpotInterruptionNotice(
        instance_id=AN_INSTANCE,
        action=InterruptionAction.TERMINATE,
        reclaim_at=at("2026-03-04T10:17:30"),
        noticed_at=at("2026-03-04T10:15:30"),
        channel=Channel.EVENT_BRIDGE,
    )


def test_hibernation_begins_with_the_warning() -> None:
    notice = parse(sample("eventbridge-spot-interruption-warning-account-arn"))
    assert isinstance(notice, SpotInterruptionNotice)
    assert (notice.action, notice.reclaim_at) == (InterruptionAction.HIBERNATE, notice.noticed_at)


def test_a_recommendation_has_no_time() -> None:
    assert parse(sample("eventbridge-rebalance-recommendation")) == RebalanceRecommendation(
        instance_id=AN_INSTANCE, noticed_at=at("2026-03-04T09:58:02"), channel=Channel.EVENT_BRIDGE
    )


@pytest.mark.parametrize("state", ["pending", "running", "shutting-down", "terminated"])
def test_a_state_change_carries_ec2s_own_word(state: str) -> None:
    notice = parse(sample(f"eventbridge-instance-state-{state}"))
    assert isinstance(notice, InstanceStateChange)
    assert (notice.instance_id, notice.state) == (AN_INSTANCE, state)


@pytest.mark.parametrize("state", ["", "stop", "ed", "Shutting-Down", "running ", None, 5, [], {"running": 1}])
def test_a_state_is_matched_exactly_b19(state: object) -> None:
    body = event(**{"detail-type": STATE_CHANGE, "detail": {"instance-id": "i-0aaa", "state": state}})
    assert isinstance(parse(body), Unrecognised)


def test_the_arn_is_never_needed_b21() -> None:
    for resources in ([], "arn:aws:ec2:us-east-1:1:instance/i-0fff", ["nonsense"], None, ...):
        notice = parse(event(resources=resources))
        assert isinstance(notice, SpotInterruptionNotice)
        assert notice.instance_id == "i-0aaa"


def test_both_spellings_of_the_detail_type_are_read() -> None:
    assert isinstance(parse(event(**{"detail-type": ..., "detail_type": WARNING})), SpotInterruptionNotice)


def test_blanks_around_the_instance_id_are_dropped() -> None:
    notice = parse(event(detail={"instance-id": " i-0aaa\n", "instance-action": "stop"}))
    assert isinstance(notice, SpotInterruptionNotice)
    assert notice.instance_id == "i-0aaa"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2020-05-08T16:00:00Z", "2020-05-08T16:00:00"),
        ("2020-05-08T16:00:00.123Z", "2020-05-08T16:00:00.123"),
        ("2020-05-08T18:00:00+02:00", "2020-05-08T16:00:00"),
        ("Fri, 08 May 2020 16:00:00 GMT", "2020-05-08T16:00:00"),
        ("08 May 2020 16:00:00 GMT", "2020-05-08T16:00:00"),
        ("8 May 2020 16:00:00 GMT", "2020-05-08T16:00:00"),
    ],
)
def test_times_are_read_in_every_form_aws_writes_b01(written: str, meant: str) -> None:
    notice = parse(event(time=written))
    assert isinstance(notice, SpotInterruptionNotice)
    assert notice.noticed_at == at(meant)


@pytest.mark.parametrize("name", ["asg-lifecycle-test-notification", "asg-lifecycle-direct-to-sqs"])
def test_auto_scalings_own_messages_are_known_and_ignored_b06(name: str) -> None:
    notice = parse(sample(name))
    assert isinstance(notice, Unrecognised)
    assert notice.detail_type.startswith("autoscaling:")


def test_every_other_kind_of_event_is_unrecognised_by_name() -> None:
    known = ("spot-interruption-warning", "rebalance", "instance-state")
    others = [path for path in sorted(SAMPLES.glob("eventbridge-*.json")) if not any(part in path.name for part in known)]
    assert len(others) > 10
    for path in others:
        notice = parse(path.read_text())
        assert isinstance(notice, Unrecognised), path.name
        assert notice.detail_type in path.read_text()


def test_an_unknown_action_is_reported_and_not_guessed() -> None:
    assert isinstance(parse(event(detail={"instance-id": "i-0aaa", "instance-action": "explode"})), Unrecognised)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "abcd",
        "{}",
        "[]",
        "null",
        "3",
        '{"source":""}',
        "x" * 262_144,
        b"\xff\xfe{}".decode("utf-8", "replace"),
        "[" * 200_000,
        '{"a":' * 200_000,
        "1" * 5_000,
        event(detail=...),
        event(detail="i-0aaa"),
        event(detail={}),
        event(detail={"instance-id": "", "instance-action": "terminate"}),
        event(detail={"instance-id": "arn:aws:ec2:us-east-1:1:instance/i-0aaa", "instance-action": "terminate"}),
        event(detail={"instance-id": ["i-0aaa"], "instance-action": "terminate"}),
        event(time=...),
        event(time="soon"),
        event(time=""),
        event(time=1768470000),
        event(time="2026-01-15T09:40:00"),
        event(time="0001-01-01T00:00:00+23:59"),
        event(time="9999-12-31T23:59:59Z"),
        event(source=["aws.ec2"]),
        event(source=""),
    ],
)
def test_a_body_that_can_never_be_understood_is_malformed_b05(body: str) -> None:
    with pytest.raises(MalformedMessage):
        parse(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["source", "detail-type", "time", "detail", "Event"])
VALUES = JSON | st.sampled_from(["aws.ec2", WARNING, STATE_CHANGE, "2026-01-15T09:40:00Z", {"instance-id": "i-0aaa"}])


@given(st.text() | JSON.map(json.dumps) | st.dictionaries(FIELDS, VALUES).map(lambda changes: event(**changes)))
def test_no_body_whatever_crashes_the_parser(body: str) -> None:
    try:
        notice = parse(body)
    except MalformedMessage:
        return
    assert isinstance(notice, SpotInterruptionNotice | RebalanceRecommendation | InstanceStateChange | Unrecognised)
