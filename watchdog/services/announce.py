"""What is told to people and schedulers, and how it gets there: put into the outbox with the fact, delivered afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from watchdog.clock import Clock
from watchdog.errors import DeliveryFailed
from watchdog.migration.facts import Fact, JobBlocked, JobEnded, JobResumed, LaunchExhausted, Opened
from watchdog.migration.model import Cause, Job, JobState, Migration
from watchdog.migration.saga import StepName
from watchdog.ports import Announcer, Message, OutboxEntry, Store, Telemetry

log = logging.getLogger(__name__)

LADDER_SECONDS = (1, 3, 10, 30, 300, 1800, 7200, 18000, 36000)
"""Waits between tries, as Standard Webhooks advises, with a short start: a move lasts two minutes."""
_LONGEST_WAIT_SECONDS = LADDER_SECONDS[-1]
"""Whatever the receiver asks for."""


def messages_for(fact: Fact, job: Job, migration: Migration, *, deployment: str) -> tuple[Message, ...]:
    """Return what `fact`, which made `job` and `migration` what they are now, is worth telling."""
    kind, data = _tell(fact, job, migration)
    if kind is None:
        return ()
    message_id = f"{migration.migration_id}.{kind}.{migration.version + 1}"
    return (message(kind, job, fact.at, message_id=message_id, deployment=deployment, **data),)


def message(kind: str, job: Job, at: datetime, *, message_id: str, deployment: str, **data: Any) -> Message:
    """Return one message of `kind` about `job`, with the fields that every message has."""
    common = {"job_id": job.job_id, "job_name": job.spec.name, "deployment": deployment, "at": at.isoformat()}
    return Message(message_id=message_id, kind=kind, at=at, job_id=job.job_id, data={**common, **data})


def _tell(fact: Fact, job: Job, migration: Migration) -> tuple[str | None, dict[str, Any]]:
    first = migration.cause is Cause.FIRST_LAUNCH
    base = {"migration_id": migration.migration_id, "cause": migration.cause.value, "from_pool": _from_pool(migration)}
    match fact:
        case Opened() if not first:
            target = migration.targets[0] if migration.targets else None
            why = target.why if target else "no pool has room"
            return "migration.started", {
                **base,
                "to_pool": str(target.pool) if target else None,
                "why": why,
                "reasons": list(migration.reasons),
            }
        case JobResumed() if first:
            return "job.started", _where(job)
        case JobResumed():
            return "migration.succeeded", {**base, **_where(job), **_outcome(migration, fact)}
        case LaunchExhausted() if job.state is JobState.BLOCKED:
            return "job.blocked", {**base, "why": fact.why}
        case JobBlocked():
            return "job.blocked", {**base, "why": fact.why}
        case LaunchExhausted() if migration.parks == 1:
            until = fact.until.isoformat() if fact.until else None
            return "migration.parked", {**base, "why": fact.why, "next_try_at": until}
        case JobEnded() if job.state is JobState.FINISHED:
            return "job.finished", {"step": fact.step}
        case _:
            return None, {}


def _from_pool(migration: Migration) -> str | None:
    return str(migration.sources[0].pool) if migration.sources else None


def _where(job: Job) -> dict[str, Any]:
    member = job.member
    return {
        "instance_id": member.instance_id if member else None,
        "address": member.address if member else None,
        "to_pool": str(member.pool) if member else None,
        "fencing_token": job.fencing_token,
    }


def _outcome(migration: Migration, fact: JobResumed) -> dict[str, Any]:
    attempt = migration.attempt_of(fact.instance_id)
    # As far as we were told: a source that vanished may have made steps after its last report. Its own log knows better.
    lost = None if migration.source_step is None else max(migration.source_step - fact.resumed_from_step, 0)
    began = migration.noticed_at or migration.opened_at
    saved = migration.steps[StepName.SAVE_CHECKPOINT].finished_at if migration.checkpoint else None
    return {
        "why": attempt.target.why if attempt else None,
        "reasons": list(migration.reasons),
        "resumed_from_step": fact.resumed_from_step,
        "lost_steps": lost,
        "notice_to_saved_seconds": round((saved - began).total_seconds(), 3) if saved else None,
        "notice_to_resumed_seconds": round((fact.at - began).total_seconds(), 3),
        "checkpoint_bytes": migration.checkpoint.bytes if migration.checkpoint else None,
    }


class AnnounceService:
    """Delivers the outbox, at least once, without ever holding up a migration."""

    def __init__(self, *, store: Store, announcers: Sequence[Announcer], clock: Clock, telemetry: Telemetry) -> None:
        """Use these ports."""
        self._store = store
        self._announcers: Mapping[str, Announcer] = {each.name: each for each in announcers}
        self._clock = clock
        self._telemetry = telemetry

    async def deliver(self) -> int:
        """Try every message that is due once; return how many there were. Each announcer gets its own in order and waits for no other."""
        entries = await self._store.claim_messages(self._clock.now())
        names = dict.fromkeys(entry.announcer for entry in entries)
        await asyncio.gather(*(self._deliver_all([entry for entry in entries if entry.announcer == name]) for name in names))
        return len(entries)

    async def _deliver_all(self, entries: Sequence[OutboxEntry]) -> None:
        for entry in entries:
            await self._deliver(entry)

    async def _deliver(self, entry: OutboxEntry) -> None:
        announcer = self._announcers.get(entry.announcer)
        if announcer is None:
            # Switched off since the message was written.
            await self._store.settle_message(entry)
            return
        announcer_name, kind = entry.announcer, entry.message.kind
        try:
            await announcer.send(entry.message)
        except Exception as fault:  # noqa: BLE001 - a message that breaks its announcer must not hold up those behind it
            error = fault if isinstance(fault, DeliveryFailed) else DeliveryFailed(f"{type(fault).__name__}: {fault}", permanent=False)
            self._telemetry.count("spot_watchdog_messages_failed_total", announcer=announcer_name, kind=kind)
            extra = {"message_id": entry.message.message_id, "tries": entry.tries, "announcer": announcer_name, "kind": kind}
            if error.permanent or entry.tries > len(LADDER_SECONDS):
                log.error("message.given_up", extra={**extra, "why": str(error)})  # noqa: TRY400 - expected, and the cause may hold the secret URL
                await self._store.settle_message(entry)
                return
            wait = min(error.retry_after_seconds or LADDER_SECONDS[entry.tries - 1], _LONGEST_WAIT_SECONDS)
            log.warning("message.postponed", extra={**extra, "why": str(error), "wait_s": wait})
            await self._store.postpone_message(entry, self._clock.now() + timedelta(seconds=wait))
            return
        self._telemetry.count("spot_watchdog_messages_sent_total", announcer=announcer_name, kind=kind)
        await self._store.settle_message(entry)
