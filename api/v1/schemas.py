"""The shapes of the REST API. Reading and creating have schemas of their own; a list item and a single read have one shape."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from policies.model import CapacityPool, Market
from watchdog.migration.agent import AgentReport
from watchdog.migration.model import Cause, Job, JobSpec, JobState, Migration
from watchdog.migration.saga import MigrationState, StepName, StepState
from watchdog.notices.model import NoticeRecord
from watchdog.ports import DecisionRecord, JournalEntry

T = TypeVar("T")
Name = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]
InstanceType = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$", max_length=64)]
ZoneId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+-[a-z0-9-]*az[0-9]+$", max_length=32)]


class JobIn(BaseModel):
    """A job to keep alive."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "llama-finetune",
                    "instance_types": ["g5.xlarge"],
                    "markets": ["spot", "on_demand"],
                    "launch_template": "lt-0123456789abcdef0",
                    "command": ["python", "train.py"],
                }
            ]
        },
    )

    name: Name = Field(description="For people; need not be unique.")
    instance_types: Annotated[list[InstanceType], Field(min_length=1, max_length=20)] = Field(
        description="EC2 instance types that may run the job, the favourite first."
    )
    markets: Annotated[list[Market], Field(min_length=1, max_length=2)] = Field(
        default=[Market.SPOT], description="On-Demand is used only if it is listed, after Spot."
    )
    availability_zone_ids: Annotated[list[ZoneId], Field(min_length=1)] | None = Field(
        default=None, description="Zones that may be used, by AZ ID (`use1-az4`); null: every zone with a subnet."
    )
    launch_template: Annotated[str, StringConstraints(min_length=3, max_length=128)] = Field(
        description="Id or name of a launch template on the operator's allow-list."
    )
    command: Annotated[list[str], Field(min_length=1, max_length=200)] = Field(description="The program and its arguments.")
    checkpoint_seconds: Annotated[float, Field(ge=1, le=86400)] | None = Field(
        default=None, description="Seconds between periodic checkpoints; null leaves it to the agent."
    )

    def to_spec(self) -> JobSpec:
        """Return what the service keeps."""
        return JobSpec(
            name=self.name,
            instance_types=tuple(dict.fromkeys(self.instance_types)),
            markets=tuple(dict.fromkeys(self.markets)),
            availability_zone_ids=tuple(self.availability_zone_ids) if self.availability_zone_ids else None,
            launch_template=self.launch_template,
            command=tuple(self.command),
            checkpoint_seconds=self.checkpoint_seconds,
        )


class PoolOut(BaseModel):
    """One instance type in one zone, in one market."""

    region: str
    availability_zone_id: str
    instance_type: str
    market: Market

    @classmethod
    def of(cls, pool: CapacityPool) -> PoolOut:
        """Return the wire form of a pool."""
        return cls(
            region=pool.region,
            availability_zone_id=pool.availability_zone_id,
            instance_type=pool.instance_type,
            market=pool.market,
        )


class InstanceOut(BaseModel):
    """An instance that runs the job."""

    instance_id: str
    pool: PoolOut
    address: str | None


class CheckpointOut(BaseModel):
    """The newest checkpoint that an agent of the job reported as committed."""

    step: int
    fencing_token: int
    manifest_key: str
    manifest_sha256: str
    bytes: int
    reason: str
    committed_at: datetime


class JobOut(BaseModel):
    """A job."""

    job_id: str
    name: str
    state: JobState
    note: str | None = Field(description="Why the job is parked or blocked.")
    fencing_token: int
    instance: InstanceOut | None = Field(description="The instance that owns the job; null before its first launch.")
    migration_id: str | None = Field(description="The migration that moves the job now.")
    checkpoint: CheckpointOut | None
    step: int | None = Field(description="The last training step that an agent reported.")
    metadata: str | None = Field(description="Whether the agent can see notices: `watching`, `blind` or `absent`; null: no report yet.")
    last_report_at: datetime | None
    instance_types: list[str]
    markets: list[Market]
    availability_zone_ids: list[str] | None
    launch_template: str
    command: list[str]
    checkpoint_seconds: float | None
    created_at: datetime

    @classmethod
    def of(cls, job: Job, report: AgentReport | None) -> JobOut:
        """Return the wire form of a job and of what its owner's agent reported last."""
        member, spec = job.member, job.spec
        checkpoint = report.checkpoint if report else None
        return cls(
            job_id=job.job_id,
            name=spec.name,
            state=job.state,
            note=job.note,
            fencing_token=job.fencing_token,
            instance=InstanceOut(instance_id=member.instance_id, pool=PoolOut.of(member.pool), address=member.address) if member else None,
            migration_id=job.migration_id,
            checkpoint=CheckpointOut(
                step=checkpoint.step,
                fencing_token=checkpoint.fencing_token,
                manifest_key=checkpoint.manifest_key,
                manifest_sha256=checkpoint.manifest_sha256,
                bytes=checkpoint.bytes,
                reason=checkpoint.reason,
                committed_at=checkpoint.committed_at,
            )
            if checkpoint
            else None,
            step=report.step if report else None,
            metadata=report.metadata if report else None,
            last_report_at=report.received_at if report else None,
            instance_types=list(spec.instance_types),
            markets=list(spec.markets),
            availability_zone_ids=list(spec.availability_zone_ids) if spec.availability_zone_ids else None,
            launch_template=spec.launch_template,
            command=list(spec.command),
            checkpoint_seconds=spec.checkpoint_seconds,
            created_at=job.created_at,
        )


class StepOut(BaseModel):
    """One step of a migration."""

    name: StepName
    state: StepState
    started_at: datetime | None
    finished_at: datetime | None
    note: str | None


class SourceOut(BaseModel):
    """An instance that the job leaves."""

    instance_id: str
    pool: PoolOut
    lost_at: datetime | None


class AttemptOut(BaseModel):
    """One attempt to start a replacement."""

    number: int
    pool: PoolOut
    why: str = Field(description="Why this pool, with what the pools before it answered.")
    state: str
    instance_id: str | None
    intended_at: datetime
    launched_at: datetime | None
    address: str | None
    code: str | None = Field(description="AWS's error code, if it refused.")


class TargetOut(BaseModel):
    """One pool of the plan."""

    pool: PoolOut
    why: str
    code: str


class MigrationOut(BaseModel):
    """One move of one job."""

    migration_id: str
    job_id: str
    cause: Cause
    state: MigrationState
    decision_id: str
    opened_at: datetime
    noticed_at: datetime | None
    reclaim_at: datetime | None
    closed_at: datetime | None
    sources: list[SourceOut]
    replacements: list[AttemptOut]
    steps: list[StepOut]
    targets: list[TargetOut]
    reasons: list[str]
    take_over_from: int | None
    resumed_from_step: int | None
    handed_on: str | None

    @classmethod
    def of(cls, migration: Migration) -> MigrationOut:
        """Return the wire form of a migration."""
        return cls(
            migration_id=migration.migration_id,
            job_id=migration.job_id,
            cause=migration.cause,
            state=migration.state,
            decision_id=migration.decision_id,
            opened_at=migration.opened_at,
            noticed_at=migration.noticed_at,
            reclaim_at=migration.reclaim_at,
            closed_at=migration.closed_at,
            sources=[
                SourceOut(instance_id=each.instance_id, pool=PoolOut.of(each.pool), lost_at=each.lost_at) for each in migration.sources
            ],
            replacements=[
                AttemptOut(
                    number=each.number,
                    pool=PoolOut.of(each.target.pool),
                    why=each.target.why,
                    state=each.state,
                    instance_id=each.instance_id,
                    intended_at=each.intended_at,
                    launched_at=each.launched_at,
                    address=each.address,
                    code=each.code,
                )
                for each in migration.attempts
            ],
            steps=[
                StepOut(name=name, state=each.state, started_at=each.started_at, finished_at=each.finished_at, note=each.note)
                for name, each in migration.steps.items()
            ],
            targets=[TargetOut(pool=PoolOut.of(each.pool), why=each.why, code=each.code) for each in migration.targets],
            reasons=list(migration.reasons),
            take_over_from=migration.take_over_from,
            resumed_from_step=migration.resumed_from_step,
            handed_on=migration.handed_on,
        )


class JournalEntryOut(BaseModel):
    """One fact of a migration, as stored."""

    at: datetime
    fact: str
    detail: dict[str, Any]

    @classmethod
    def of(cls, entry: JournalEntry) -> JournalEntryOut:
        """Return the wire form of an entry."""
        return cls(at=entry.at, fact=entry.fact, detail=dict(entry.detail))


class NoticeOut(BaseModel):
    """One notice, merged from all channels."""

    instance_id: str
    kind: str
    action: str | None
    reclaim_at: datetime | None
    seen: dict[str, datetime] = Field(description="When each channel first told of it.")

    @classmethod
    def of(cls, record: NoticeRecord) -> NoticeOut:
        """Return the wire form of a notice."""
        return cls(
            instance_id=record.instance_id,
            kind=record.kind,
            action=record.action,
            reclaim_at=record.reclaim_at,
            seen={str(channel): at for channel, at in record.seen.items()},
        )


class DecisionOut(BaseModel):
    """Why the service did what it did: what the policy was asked and what it answered."""

    decision_id: str
    job_id: str
    at: datetime
    policy: str
    signal: dict[str, Any]
    view: dict[str, Any]
    job: dict[str, Any]
    decision: dict[str, Any]

    @classmethod
    def of(cls, record: DecisionRecord) -> DecisionOut:
        """Return the wire form of a decision."""
        return cls(
            decision_id=record.decision_id,
            job_id=record.job_id,
            at=record.at,
            policy=record.policy,
            signal=dict(record.signal),
            view=dict(record.view),
            job=dict(record.job),
            decision=dict(record.decision),
        )


class Listed(BaseModel, Generic[T]):
    """A list, newest first."""

    items: list[T]
