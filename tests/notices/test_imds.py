"""What the entries of an agent's report become."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from watchdog.ids import InstanceId
from watchdog.notices.imds import parse_entry
from watchdog.notices.model import (
    Channel,
    InterruptionAction,
    MalformedMessage,
    RebalanceRecommendation,
    SpotInterruptionNotice,
    Unrecognised,
)

INSTANCE = InstanceId("i-0aaa")
SEEN = datetime(2026, 3, 4, 10, 15, 30, 400_000, tzinfo=UTC)
SEEN_TEXT = "2026-03-04T10:15:30.4Z"
SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize("action", InterruptionAction)
def test_the_metadata_gives_the_reclaim_time_itself(action: InterruptionAction) -> None:
    read = json.loads((SAMPLES / f"imds-spot-instance-action-{action}.json").read_text())
    entry = {"kind": "spot_interruption", "action": read["action"], "reclaim_at": read["time"], "seen_at": SEEN_TEXT}
    assert parse_entry(entry, instance_id=INSTANCE) == SpotInterruptionNotice(
        instance_id=INSTANCE,
        action=action,
        reclaim_at=datetime.fromisoformat(read["time"]),
        noticed_at=SEEN,
        channel=Channel.IMDS,
    )


def test_instants_that_are_parsed_already_are_taken_as_they_are() -> None:
    entry = {"kind": "spot_interruption", "action": "stop", "reclaim_at": SEEN + timedelta(seconds=20), "seen_at": SEEN}
    notice = parse_entry(entry, instance_id=INSTANCE)
    assert isinstance(notice, SpotInterruptionNotice)
    assert notice.reclaim_at - notice.noticed_at == timedelta(seconds=20)


@pytest.mark.parametrize(("action", "seconds"), [("terminate", 120), ("stop", 120), ("hibernate", 0)])
def test_an_interruption_without_a_time_is_still_an_interruption(action: str, seconds: int) -> None:
    entry = {"kind": "spot_interruption", "action": action, "reclaim_at": None, "seen_at": SEEN_TEXT}
    notice = parse_entry(entry, instance_id=INSTANCE)
    assert isinstance(notice, SpotInterruptionNotice)
    assert notice.reclaim_at == SEEN + timedelta(seconds=seconds)


def test_a_recommendation_has_no_time() -> None:
    entry = {"kind": "rebalance_recommendation", "action": None, "reclaim_at": None, "seen_at": SEEN_TEXT}
    expected = RebalanceRecommendation(instance_id=INSTANCE, noticed_at=SEEN, channel=Channel.IMDS)
    assert parse_entry(entry, instance_id=INSTANCE) == expected


@pytest.mark.parametrize("changes", [{"kind": "maintenance"}, {"kind": None}, {"kind": ["x"]}, {"action": "explode"}, {"action": None}])
def test_what_we_do_not_know_is_unrecognised(changes: dict[str, Any]) -> None:
    entry = {"kind": "spot_interruption", "action": "terminate", "reclaim_at": None, "seen_at": SEEN_TEXT} | changes
    assert isinstance(parse_entry(entry, instance_id=INSTANCE), Unrecognised)


@pytest.mark.parametrize("changes", [{"seen_at": "soon"}, {"seen_at": None}, {"seen_at": "9999-12-31T23:59:59Z"}, {"reclaim_at": "soon"}])
def test_a_time_that_is_none_is_malformed(changes: dict[str, Any]) -> None:
    entry = {"kind": "spot_interruption", "action": "terminate", "reclaim_at": None, "seen_at": SEEN_TEXT} | changes
    with pytest.raises(MalformedMessage):
        parse_entry(entry, instance_id=INSTANCE)
