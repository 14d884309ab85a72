"""What the services need from the world, in our words. Adapters implement these; tests use real ones or fakes that behave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from policies.model import CapacityPool, Market
from watchdog.history.observations import Observation, PoolMemory
from watchdog.ids import DecisionId, Incarnation, InstanceId, JobId, MigrationId
from watchdog.migration.agent import AgentReport
from watchdog.migration.facts import Fact
from watchdog.migration.model import Job, Migration
from watchdog.notices.model import NoticeRecord


class InstanceState(StrEnum):
    """EC2's own words. An instance EC2 does not list is in no state: see `Compute.describe`."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"

    @property
    def alive(self) -> bool:
        """Whether the instance may still be running our code."""
        return self in {InstanceState.PENDING, InstanceState.RUNNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One EC2 instance, as EC2 describes it."""

    instance_id: InstanceId
    pool: CapacityPool
    state: InstanceState
    launched_at: datetime
    client_token: str | None = None
    private_ip: str | None = None
    spot_request_id: str | None = None
    state_reason: str | None = None
    """EC2's `StateReason.Code`, e.g. `Server.SpotInstanceTermination`."""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """One attempt to start one instance in one pool."""

    pool: CapacityPool
    client_token: str
    """At most 64 characters. EC2 answers the same token and parameters with the same instance, within one zone."""
    launch_template: str
    """Id (`lt-…`) or name."""
    user_data: str
    """Plain text, at most 16 KiB; the adapter encodes it."""
    tags: Mapping[str, str]


class Compute(Protocol):
    """Starting, finding and ending instances."""

    async def launch(self, request: LaunchRequest) -> Instance:
        """Start one instance, in one call with no hidden retries; the same token returns the same instance.

        Raises:
            LaunchRefused: EC2 said no. `scope` says what to close.
            LaunchOutcomeUnknown: no answer came: repeat with the same token, or look with `find`.
        """

    async def find(self, client_token: str) -> Instance | None:
        """Return the instance started with `client_token`, or None if EC2 lists none (which is no proof just after a launch)."""

    async def describe(self, instance_ids: Iterable[InstanceId]) -> Mapping[InstanceId, Instance]:
        """Return what EC2 says of these instances. An id that is missing from the answer is unknown to EC2, not dead.

        Raises CloudUnavailable.
        """

    async def list_owned(self) -> Sequence[Instance]:
        """Return every instance, not yet terminated, that carries this deployment's tag. Raises CloudUnavailable."""

    async def terminate(self, instance_id: InstanceId) -> None:
        """End an instance; ending it twice is no error. Raises CloudUnavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """What AWS says of one capacity pool. None is unknown."""

    pool: CapacityPool
    vcpus: int
    quota_family: str | None
    price_per_hour: float | None


class MarketData(Protocol):
    """Offerings and prices."""

    async def known_instance_types(self, instance_types: Iterable[str]) -> frozenset[str]:
        """Return those of `instance_types` that EC2 knows in this Region. Raises CloudUnavailable."""

    async def pools(self, instance_types: Iterable[str]) -> Sequence[PoolFacts]:
        """Return the pools, of both markets, where these types are offered and we have a subnet. Raises CloudUnavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaReading:
    """The quota of one family and market in this Region, in vCPUs. None is unknown, never zero."""

    family: str
    market: Market
    code: str
    limit_vcpus: float | None
    used_vcpus: float | None

    @property
    def headroom_vcpus(self) -> float | None:
        """What can still be launched, or None if limit or usage is unknown."""
        if self.limit_vcpus is None or self.used_vcpus is None:
            return None
        return max(self.limit_vcpus - self.used_vcpus, 0.0)


class Quotas(Protocol):
    """Service Quotas of EC2."""

    async def read(self) -> Sequence[QuotaReading]:
        """Return every vCPU quota we know the meaning of. Raises CloudUnavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxMessage:
    """One message of the interruption queue, still ours until it is deleted."""

    message_id: str
    receipt: str
    body: str
    receive_count: int


class Inbox(Protocol):
    """The queue that EventBridge writes to."""

    async def receive(self) -> Sequence[InboxMessage]:
        """Wait up to 20 seconds and return up to ten messages. Raises CloudUnavailable."""

    async def delete(self, message: InboxMessage) -> None:
        """Acknowledge one message, after its intent is stored. Raises CloudUnavailable."""

    async def reject(self, message: InboxMessage, reason: str) -> None:
        """Put a message that can never be understood into the dead-letter queue, with the reason. Raises CloudUnavailable."""


class HeadRegister(Protocol):
    """The object store's side of fencing: one `HEAD` object per job (docs/protocols.md)."""

    async def self_test(self) -> None:
        """Prove that conditional writes are honoured.

        Raises:
            CheckpointStoreUnsuitable: they are not.
            CheckpointStoreUnavailable: the store does not answer.
        """

    async def register(self, job_id: JobId, spec: Mapping[str, Any]) -> None:
        """Write the job's spec and create its `HEAD` at fencing token 0. Doing it again changes nothing.

        Raises CheckpointStoreUnavailable.
        """

    async def read(self, job_id: JobId) -> Mapping[str, Any] | None:
        """Return the job's `HEAD`, or None if there is none. Raises CheckpointStoreUnavailable."""

    def agent_url(self, job_id: JobId) -> str:
        """Return the job's own prefix as the agent is told it, e.g. `s3://bucket/deployment/jobs/job_…`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Something to tell Slack and the scheduler, at least once; receivers drop repeats by `message_id`."""

    message_id: str
    kind: str
    """`migration.started`, `migration.succeeded`, … (docs/protocols.md)."""
    at: datetime
    job_id: str
    data: Mapping[str, Any]
    """JSON values only; what a receiver needs to write one good sentence."""


class Announcer(Protocol):
    """One receiver of messages: Slack, or the scheduler's webhook."""

    name: str

    async def send(self, message: Message) -> None:
        """Deliver one message once. Raises DeliveryFailed."""


class Telemetry(Protocol):
    """Counters, gauges and timings, named `spot_watchdog_<noun>_<unit>`."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Record one duration in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """A policy's answer, with everything it was asked, so that it can be explained and replayed."""

    decision_id: DecisionId
    job_id: JobId
    at: datetime
    policy: str
    """Name and version, e.g. `balanced@1`."""
    signal: Mapping[str, Any]
    view: Mapping[str, Any]
    job: Mapping[str, Any]
    decision: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One fact of a migration, as it was stored."""

    at: datetime
    fact: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Everything that one transition writes; all of it or nothing.

    `job`, `migration` and `notice` carry the version they were loaded with (0: must not exist yet); the store writes the next one.
    """

    job: Job | None = None
    migration: Migration | None = None
    due: datetime | None = None
    """When the migration is looked at next; None takes it off the due set."""
    facts: tuple[Fact, ...] = ()
    """For the migration's journal and the `events` stream."""
    notice: NoticeRecord | None = None
    notice_version: int = 0
    decision: DecisionRecord | None = None
    observations: tuple[Observation, ...] = ()
    messages: tuple[Message, ...] = ()
    """For the outbox: every announcer gets each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEntry:
    """A message on its way to one announcer."""

    announcer: str
    message: Message
    tries: int
    """How often it was handed out, this time included."""


class Store(Protocol):
    """The service's working record. Every method raises StoreUnavailable if Redis does not answer."""

    async def ping(self) -> None:
        """Return if the store answers."""

    async def commit(self, change: Change) -> None:
        """Apply one transition, all or nothing. Raises VersionConflict if any record was changed since it was loaded."""

    async def job(self, job_id: JobId) -> Job:
        """Return a job. Raises NotFound."""

    async def jobs(self) -> Sequence[Job]:
        """Return the newest jobs, newest first."""

    async def active_jobs(self) -> Sequence[Job]:
        """Return every job that is not over, however old."""

    async def owner_of(self, instance_id: InstanceId) -> JobId | None:
        """Return the job that this instance was started for, or None: it is not ours."""

    async def migration(self, migration_id: MigrationId) -> Migration:
        """Return a migration. Raises NotFound."""

    async def migrations(self, job_id: JobId | None = None) -> Sequence[Migration]:
        """Return the newest migrations, newest first."""

    async def open_migrations(self, job_id: JobId) -> Sequence[Migration]:
        """Return every migration of a job that is not closed."""

    async def due(self, now: datetime) -> Sequence[MigrationId]:
        """Return the migrations to be looked at now, the longest due first."""

    async def next_due(self) -> datetime | None:
        """Return when the next migration is due, or None."""

    async def journal(self, migration_id: MigrationId) -> Sequence[JournalEntry]:
        """Return every fact of a migration, oldest first."""

    async def notice(self, key: str) -> tuple[NoticeRecord | None, int]:
        """Return a notice and its version; (None, 0) if there is none."""

    async def notices(self) -> Sequence[NoticeRecord]:
        """Return the notices, newest first."""

    async def decisions(self, job_id: JobId | None = None) -> Sequence[DecisionRecord]:
        """Return decisions, newest first."""

    async def pool_memory(self) -> Mapping[CapacityPool, PoolMemory]:
        """Return what is remembered of each pool."""

    async def put_reading(self, name: str, at: datetime, body: Any) -> None:
        """Replace the latest reading of one poll (`pools`, `quotas`)."""

    async def reading(self, name: str) -> tuple[datetime, Any] | None:
        """Return the latest reading and when it was taken, or None: never read, which is unknown."""

    async def put_report(self, report: AgentReport) -> None:
        """Replace what is known of one agent."""

    async def reports(self, job_id: JobId) -> Mapping[Incarnation, AgentReport]:
        """Return the latest report of each of the job's agents."""

    async def claim_messages(self, now: datetime) -> Sequence[OutboxEntry]:
        """Hand out messages that are due; each comes back after a minute unless it is settled or postponed."""

    async def settle_message(self, entry: OutboxEntry) -> None:
        """Take a message off the outbox: it was delivered, or nothing can deliver it."""

    async def postpone_message(self, entry: OutboxEntry, until: datetime) -> None:
        """Hand the message out again at `until`."""
