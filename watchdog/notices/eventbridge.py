"""EventBridge's messages on the interruption queue, read into notices.

Every body, whatever it holds, ends in one of three ways: a notice, `Unrecognised`, or `MalformedMessage`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from watchdog.ids import InstanceId
from watchdog.notices import fields
from watchdog.notices.model import (
    Channel,
    InstanceStateChange,
    InterruptionAction,
    MalformedMessage,
    Notice,
    RebalanceRecommendation,
    SpotInterruptionNotice,
    Unrecognised,
    reclaim_time,
)

_EC2_STATES = frozenset({"pending", "running", "shutting-down", "terminated", "stopping", "stopped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """What every event about an instance says."""

    source: str
    detail_type: str
    at: datetime
    instance_id: InstanceId
    detail: Mapping[str, Any]

    def unrecognised(self, why: str) -> Unrecognised:
        return Unrecognised(source=self.source, detail_type=self.detail_type, why=why)


def parse(body: str) -> Notice:
    """Return what one message of the queue says.

    The instance is read from `detail` only: in an interruption warning the ARN carries a zone name where the Region belongs.

    Raises:
        MalformedMessage: the body can never be understood; it belongs into the dead-letter queue.
    """
    message = _object(body)
    source = message.get("source")
    detail_type = message.get("detail-type", message.get("detail_type"))
    if not isinstance(source, str) or not isinstance(detail_type, str) or not source or not detail_type:
        return _without_envelope(message)
    parser = _PARSERS.get((source, detail_type))
    if parser is None:
        return Unrecognised(source=source, detail_type=detail_type, why="no parser for this kind of event")
    detail = message.get("detail")
    if not isinstance(detail, dict):
        raise MalformedMessage(f"detail is not an object: {fields.quoted(detail)}")
    event = _Event(
        source=source,
        detail_type=detail_type,
        at=fields.instant(message.get("time"), "time"),
        instance_id=fields.instance_id(detail.get("instance-id"), "detail.instance-id"),
        detail=detail,
    )
    return parser(event)


def _object(body: str) -> Mapping[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        # ValueError is any JSON error, also a number of too many digits; RecursionError is nesting deeper than the parser goes.
        raise MalformedMessage(f"not JSON: {type(error).__name__}") from None
    if not isinstance(message, dict):
        raise MalformedMessage(f"not a JSON object but {type(message).__name__}")
    return message


def _without_envelope(message: Mapping[str, Any]) -> Notice:
    """Tell Auto Scaling's own messages, which carry no EventBridge envelope, from rubbish.

    A lifecycle hook that targets the queue writes such bodies, and a `autoscaling:TEST_NOTIFICATION` when it is made; SNS wraps them.
    """
    for field, source in (("Event", "autoscaling"), ("LifecycleTransition", "autoscaling"), ("TopicArn", "sns")):
        if isinstance(message.get(field), str):
            return Unrecognised(source=source, detail_type=str(message[field]), why="a message without EventBridge's envelope")
    raise MalformedMessage("neither source and detail-type nor any form of message we know")


def _interruption(event: _Event) -> Notice:
    action = event.detail.get("instance-action")
    if not isinstance(action, str) or action not in set(InterruptionAction):
        return event.unrecognised(f"unknown instance-action {fields.quoted(action)}")
    known = InterruptionAction(action)
    try:
        # EventBridge says when the warning was sent, not when EC2 acts.
        reclaim_at = reclaim_time(known, warned_at=event.at)
    except OverflowError:
        raise MalformedMessage(f"time is out of range: {event.at}") from None
    return SpotInterruptionNotice(
        instance_id=event.instance_id, action=known, reclaim_at=reclaim_at, noticed_at=event.at, channel=Channel.EVENT_BRIDGE
    )


def _rebalance(event: _Event) -> Notice:
    return RebalanceRecommendation(instance_id=event.instance_id, noticed_at=event.at, channel=Channel.EVENT_BRIDGE)


def _state_change(event: _Event) -> Notice:
    state = event.detail.get("state")
    if not isinstance(state, str) or state not in _EC2_STATES:
        return event.unrecognised(f"unknown state {fields.quoted(state)}")
    return InstanceStateChange(instance_id=event.instance_id, state=state, at=event.at, channel=Channel.EVENT_BRIDGE)


_PARSERS: Mapping[tuple[str, str], Callable[[_Event], Notice]] = {
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): _interruption,
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): _rebalance,
    ("aws.ec2", "EC2 Instance State-change Notification"): _state_change,
}
