"""`ports.Store` over Redis or Valkey: one Lua script per transition."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any, TypeVar, cast

from redis.asyncio import Redis
from redis.exceptions import ClusterDownError, OutOfMemoryError, ReadOnlyError, RedisError, ResponseError

from policies.model import CapacityPool
from watchdog.adapters.redis import codec
from watchdog.adapters.redis.keys import Keys
from watchdog.errors import NotFound, StoreUnavailable, VersionConflict
from watchdog.history.observations import Observation, PoolMemory
from watchdog.ids import Incarnation, InstanceId, JobId, MigrationId
from watchdog.migration.agent import AgentReport
from watchdog.migration.model import Job, Migration
from watchdog.notices.model import NoticeRecord
from watchdog.ports import Change, DecisionRecord, JournalEntry, Message, OutboxEntry

R = TypeVar("R", Job, Migration)

_HIDDEN = timedelta(minutes=1)
_SERVER_CANNOT = (ReadOnlyError, OutOfMemoryError, ClusterDownError)
_BATCH = 20
_LISTED = 200
"""How many of the newest records a list returns; cursors come with the API's own issue of lists."""


def _script(name: str) -> str:
    return files("watchdog.adapters.redis").joinpath("scripts", name).read_text()


class RedisStore:
    """The working record of one deployment."""

    def __init__(self, redis: Redis, *, deployment: str, announcers: Sequence[str]) -> None:
        """Use an open client; messages go to each of `announcers`."""
        self._redis = redis
        self._keys = Keys(deployment)
        self._announcers = tuple(announcers)
        self._commit = redis.register_script(_script("commit.lua"))
        self._claim = redis.register_script(_script("claim.lua"))

    async def ping(self) -> None:
        """Return if the store answers. Raises StoreUnavailable."""
        await _answer(self._redis.ping())

    async def commit(self, change: Change) -> None:
        """Apply one transition, all or nothing. Raises VersionConflict."""
        job, migration, keys = change.job, change.migration, self._keys
        migration_id = migration.migration_id if migration else "-"
        script_keys = [
            keys.job(job.job_id if job else "-"),
            keys.migration(migration_id),
            keys.notice(change.notice.key if change.notice else "-"),
            keys.jobs,
            keys.migrations,
            keys.migrations_of(migration.job_id if migration else "-"),
            keys.due,
            keys.journal(migration_id),
            keys.events,
            keys.notices,
            keys.decisions,
            keys.decision_bodies,
            keys.history,
            keys.pool_memory,
            keys.instances,
            keys.outbox,
            keys.outbox_bodies,
            keys.active_jobs,
            keys.open_migrations_of(migration.job_id if migration else "-"),
        ]
        # What a change does not touch is left out: Lua's cjson reads null as a value of its own, not as nil.
        encoded = {name: part for name, part in self._encode(change).items() if part is not None}
        result = await _answer(self._commit(keys=script_keys, args=[json.dumps(encoded)]))
        if _text(result) != "ok":
            raise VersionConflict(f"the {_text(result)} record was changed by somebody else")

    def _encode(self, change: Change) -> dict[str, Any]:
        job, migration, notice, decision = change.job, change.migration, change.notice, change.decision
        return {
            "job": job
            and {
                "id": job.job_id,
                "expected": job.version,
                "body": codec.to_json(job),
                "score": codec.milliseconds(job.created_at),
                "over": job.state.terminal,
            },
            "migration": migration
            and {
                "id": migration.migration_id,
                "job_id": migration.job_id,
                "closed": migration.closed_at is not None,
                "expected": migration.version,
                "body": codec.to_json(migration),
                "score": codec.milliseconds(migration.opened_at),
                **({"due": codec.milliseconds(change.due)} if change.due else {}),
            },
            "instances": [attempt.instance_id for attempt in migration.attempts if attempt.instance_id] if migration else [],
            "notice": notice
            and {
                "id": notice.key,
                "expected": change.notice_version,
                "body": codec.to_json(notice),
                "score": codec.milliseconds(min(notice.seen.values())),
            },
            "decision": decision
            and {"id": decision.decision_id, "body": codec.to_json(decision), "score": codec.milliseconds(decision.at)},
            "journal": [codec.fact_to_json(fact, job_id=migration.job_id, migration_id=migration.migration_id) for fact in change.facts]
            if migration
            else [],
            "observations": [_encode_observation(each) for each in change.observations],
            "messages": [
                {
                    "member": f"{announcer}|{message.message_id}",
                    "body": codec.to_json(message),
                    # Those of one change keep their order: a thousandth of a millisecond is still exact in a sorted set's double.
                    "due": codec.milliseconds(message.at) + place / 1000,
                }
                for place, message in enumerate(change.messages)
                for announcer in self._announcers
            ],
        }

    async def job(self, job_id: JobId) -> Job:
        """Return a job. Raises NotFound."""
        return await self._record(Job, self._keys.job(job_id), job_id)

    async def jobs(self) -> Sequence[Job]:
        """Return the newest jobs, newest first."""
        ids = await self._newest(self._keys.jobs)
        return [await self.job(JobId(each)) for each in ids]

    async def active_jobs(self) -> Sequence[Job]:
        """Return every job that is not over."""
        ids = await _answer(self._redis.smembers(self._keys.active_jobs))
        return [await self.job(JobId(each)) for each in sorted(map(_text, ids))]

    async def open_migrations(self, job_id: JobId) -> Sequence[Migration]:
        """Return those of a job's migrations that are not closed."""
        ids = await _answer(self._redis.smembers(self._keys.open_migrations_of(job_id)))
        return [await self.migration(MigrationId(each)) for each in sorted(map(_text, ids))]

    async def owner_of(self, instance_id: InstanceId) -> JobId | None:
        """Return the job that this instance was started for, or None."""
        found = await _answer(self._redis.hget(self._keys.instances, instance_id))
        return JobId(_text(found)) if found else None

    async def migration(self, migration_id: MigrationId) -> Migration:
        """Return a migration. Raises NotFound."""
        return await self._record(Migration, self._keys.migration(migration_id), migration_id)

    async def migrations(self, job_id: JobId | None = None) -> Sequence[Migration]:
        """Return the newest migrations, newest first."""
        ids = await self._newest(self._keys.migrations_of(job_id) if job_id else self._keys.migrations)
        return [await self.migration(MigrationId(each)) for each in ids]

    async def due(self, now: datetime) -> Sequence[MigrationId]:
        """Return the migrations to be looked at now, the longest due first."""
        found = await _answer(self._redis.zrangebyscore(self._keys.due, "-inf", codec.milliseconds(now), start=0, num=_LISTED))
        return [MigrationId(_text(each)) for each in found]

    async def next_due(self) -> datetime | None:
        """Return when the next migration is due, or None."""
        found = await _answer(self._redis.zrange(self._keys.due, 0, 0, withscores=True))
        return codec.moment(found[0][1]) if found else None

    async def journal(self, migration_id: MigrationId) -> Sequence[JournalEntry]:
        """Return every fact of a migration, oldest first."""
        lines = await _answer(self._redis.lrange(self._keys.journal(migration_id), 0, -1))
        return [codec.from_json(JournalEntry, each) for each in lines]

    async def notice(self, key: str) -> tuple[NoticeRecord | None, int]:
        """Return a notice and its version; (None, 0) if there is none."""
        version, body = await _answer(self._redis.hmget(self._keys.notice(key), ["version", "body"]))
        return (codec.from_json(NoticeRecord, body), int(version)) if body else (None, 0)

    async def notices(self) -> Sequence[NoticeRecord]:
        """Return the newest notices, newest first."""
        found = [await self.notice(each) for each in await self._newest(self._keys.notices)]
        return [record for record, _ in found if record is not None]

    async def decisions(self, job_id: JobId | None = None) -> Sequence[DecisionRecord]:
        """Return the newest decisions, newest first."""
        ids = await self._newest(self._keys.decisions)
        bodies = await _answer(self._redis.hmget(self._keys.decision_bodies, ids)) if ids else []
        records = [codec.from_json(DecisionRecord, body) for body in bodies if body]
        return [record for record in records if job_id is None or record.job_id == job_id]

    async def pool_memory(self) -> Mapping[CapacityPool, PoolMemory]:
        """Return what is remembered of each pool."""
        found = await _answer(self._redis.hgetall(self._keys.pool_memory))
        fields: dict[CapacityPool, dict[str, datetime]] = {}
        for name, value in found.items():
            pool, _, field = _text(name).rpartition("|")
            fields.setdefault(codec.pool_from_text(pool), {})[field] = datetime.fromisoformat(_text(value))
        return {pool: PoolMemory(**moments) for pool, moments in fields.items()}

    async def put_reading(self, name: str, at: datetime, body: Any) -> None:
        """Replace the latest reading of one poll."""
        await _answer(self._redis.hset(self._keys.readings, name, json.dumps({"at": at.isoformat(), "body": body})))

    async def reading(self, name: str) -> tuple[datetime, Any] | None:
        """Return the latest reading and when it was taken, or None."""
        found = await _answer(self._redis.hget(self._keys.readings, name))
        if found is None:
            return None
        reading = json.loads(found)
        return datetime.fromisoformat(reading["at"]), reading["body"]

    async def put_report(self, report: AgentReport) -> None:
        """Replace what is known of one agent."""
        await _answer(self._redis.hset(self._keys.agents(report.job_id), report.incarnation, codec.to_json(report)))

    async def reports(self, job_id: JobId) -> Mapping[Incarnation, AgentReport]:
        """Return the latest report of each of the job's agents."""
        found = await _answer(self._redis.hgetall(self._keys.agents(job_id)))
        return {Incarnation(_text(name)): codec.from_json(AgentReport, body) for name, body in found.items()}

    async def claim_messages(self, now: datetime) -> Sequence[OutboxEntry]:
        """Hand out due messages; each comes back after a minute unless it is settled or postponed."""
        keys = [self._keys.outbox, self._keys.outbox_bodies, self._keys.outbox_tries]
        found = await _answer(self._claim(keys=keys, args=[codec.milliseconds(now), codec.milliseconds(now + _HIDDEN), _BATCH]))
        return [
            OutboxEntry(announcer=_text(member).partition("|")[0], message=codec.from_json(Message, body), tries=int(tries))
            for member, body, tries in found
        ]

    async def settle_message(self, entry: OutboxEntry) -> None:
        """Take a message off the outbox."""
        member = f"{entry.announcer}|{entry.message.message_id}"
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.zrem(self._keys.outbox, member)
            pipe.hdel(self._keys.outbox_bodies, member)
            pipe.hdel(self._keys.outbox_tries, member)
            await _answer(pipe.execute())

    async def postpone_message(self, entry: OutboxEntry, until: datetime) -> None:
        """Hand the message out again at `until`."""
        member = f"{entry.announcer}|{entry.message.message_id}"
        await _answer(self._redis.zadd(self._keys.outbox, {member: codec.milliseconds(until)}, xx=True))

    async def _record(self, kind: type[R], key: str, name: str) -> R:
        version, body = await _answer(self._redis.hmget(key, ["version", "body"]))
        if body is None:
            raise NotFound(f"no {kind.__name__.lower()} {name}")
        return replace(codec.from_json(kind, body), version=int(version))

    async def _newest(self, key: str) -> list[str]:
        return [_text(each) for each in await _answer(self._redis.zrange(key, 0, _LISTED - 1, desc=True))]


def _encode_observation(observation: Observation) -> dict[str, Any]:
    after = PoolMemory().after(observation)
    pool = codec.pool_to_text(observation.pool)
    touched = {"launch_ok": ("refused_at",), "launch_refused": ("refused_at",), "lost": ("lost_at",), "notice": ("lost_at",)}
    memory = {f"{pool}|{name}": _iso(getattr(after, name)) for name in touched.get(observation.kind, ())}
    return {"body": codec.to_json(observation), "memory": memory}


def _iso(at: datetime | None) -> str:
    return at.isoformat() if at else ""


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


async def _answer(call: Any) -> Any:
    """Await a Redis call (typed as maybe awaitable by redis-py) and say in our words that the server did not do it.

    A reply that says our command is wrong is our bug, and no outage: it is raised as it is.
    """
    try:
        return await cast("Awaitable[Any]", call)
    except (RedisError, OSError, TimeoutError) as error:
        if isinstance(error, ResponseError) and not isinstance(error, _SERVER_CANNOT):
            raise
        raise StoreUnavailable(f"Redis does not answer: {error}") from error
