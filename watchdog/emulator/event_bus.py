"""EC2's events on the account's default bus, in the shapes of the EC2 User Guide."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

from watchdog.emulator.instance import EmulatedInstance

ACCOUNT_ID = "123456789012"
"""moto's default account."""
INTERRUPTION = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"

Publish = Callable[[dict[str, Any]], list[str]]
"""Hands one event to every rule that matches and returns the ARNs of the targets it went to."""


def interruption_warning(instance: EmulatedInstance, now: datetime) -> dict[str, Any]:
    """Return the warning. Its ARN names the zone in the place of the Region and no account, as AWS sends it (EC2 User Guide, a note)."""
    arn = f"arn:aws:ec2:{instance.availability_zone}:instance/{instance.instance_id}"
    detail = {"instance-id": instance.instance_id, "instance-action": "terminate"}
    return _event(instance, INTERRUPTION, detail, now, arn=arn)


def rebalance_recommendation(instance: EmulatedInstance, now: datetime) -> dict[str, Any]:
    """Return the recommendation."""
    return _event(instance, REBALANCE, {"instance-id": instance.instance_id}, now)


def state_change(instance: EmulatedInstance, now: datetime) -> dict[str, Any]:
    """Return the event of the state the instance is in now."""
    return _event(instance, STATE_CHANGE, {"instance-id": instance.instance_id, "state": instance.state}, now)


def _event(
    instance: EmulatedInstance, detail_type: str, detail: dict[str, str], now: datetime, *, arn: str | None = None
) -> dict[str, Any]:
    region = instance.pool.region
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": detail_type,
        "source": "aws.ec2",
        "account": ACCOUNT_ID,
        # Seconds since the epoch: moto writes them out as ISO 8601 with whole seconds, which is what EventBridge sends.
        "time": int(now.timestamp()),
        "region": region,
        "resources": [arn or f"arn:aws:ec2:{region}:{ACCOUNT_ID}:instance/{instance.instance_id}"],
        "detail": detail,
    }
