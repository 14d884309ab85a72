"""The notices that an agent read from its instance's metadata and reports (docs/protocols.md, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watchdog.ids import InstanceId
from watchdog.notices import fields
from watchdog.notices.model import (
    Channel,
    InterruptionAction,
    MalformedMessage,
    NoticeKind,
    RebalanceRecommendation,
    SpotInterruptionNotice,
    Unrecognised,
    reclaim_time,
)

_SOURCE = "agent"


def parse_entry(entry: Mapping[str, Any], *, instance_id: InstanceId) -> SpotInterruptionNotice | RebalanceRecommendation | Unrecognised:
    """Return what one entry of a report's `notices` says of the instance that the report is of.

    Unlike an event, the metadata gives the reclaim time itself. An interruption without one is still an interruption: it is taken to be
    as far from when it was seen as EC2 promises, so that it is acted upon rather than lost.

    Raises:
        MalformedMessage: the entry cannot be understood.
    """
    kind, action = entry.get("kind"), entry.get("action")
    seen_at = fields.instant(entry.get("seen_at"), "seen_at")
    if kind == NoticeKind.REBALANCE_RECOMMENDATION:
        return RebalanceRecommendation(instance_id=instance_id, noticed_at=seen_at, channel=Channel.IMDS)
    if kind != NoticeKind.SPOT_INTERRUPTION:
        return Unrecognised(source=_SOURCE, detail_type=fields.quoted(kind), why="unknown kind of notice")
    if not isinstance(action, str) or action not in set(InterruptionAction):
        return Unrecognised(source=_SOURCE, detail_type=NoticeKind.SPOT_INTERRUPTION, why=f"unknown action {fields.quoted(action)}")
    known = InterruptionAction(action)
    try:
        given = entry.get("reclaim_at")
        reclaim_at = reclaim_time(known, warned_at=seen_at) if given is None else fields.instant(given, "reclaim_at")
    except OverflowError:
        raise MalformedMessage(f"seen_at is out of range: {seen_at}") from None
    return SpotInterruptionNotice(instance_id=instance_id, action=known, reclaim_at=reclaim_at, noticed_at=seen_at, channel=Channel.IMDS)
