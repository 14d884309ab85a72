"""How EC2's events get onto moto's default event bus."""

from __future__ import annotations

import logging
from typing import Any, cast

from moto.core.exceptions import ServiceException
from moto.events.models import events_backends
from moto.events.utils import EventMessageType
from werkzeug.exceptions import HTTPException

from watchdog.emulator.event_bus import ACCOUNT_ID

log = logging.getLogger(__name__)


def publish(event: dict[str, Any]) -> list[str]:
    """Hand an event to every enabled rule of the default bus that matches; return the ARNs of the targets.

    Straight to the rules: moto's `put_events` would add a field to the envelope that real events do not have, and its input
    transformation would drop the account.
    """
    bus = events_backends[ACCOUNT_ID][event["region"]].describe_event_bus("default")
    message = cast("EventMessageType", event)
    targets: list[str] = []
    for rule in list(bus.rules.values()):
        if rule.state == "ENABLED" and rule.event_pattern.matches_event(message):
            try:
                rule.send_to_targets(message, transform_input=False)
            except (ServiceException, HTTPException) as error:
                # A target that is gone costs the event, not the instance.
                log.warning("emulator.event_undeliverable", extra={"rule": rule.name, "error": str(error)})
                continue
            targets.extend(target["Arn"] for target in rule.targets)
    return targets
