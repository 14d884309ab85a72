"""A world around the services: the real record, a manual clock, and a cloud, a checkpoint store and a market that behave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from policies.model import CapacityPool, Market
from watchdog.adapters.redis.store import RedisStore
from watchdog.clock import ManualClock
from watchdog.errors import CheckpointStoreUnavailable, LaunchOutcomeUnknown, LaunchRefused, LaunchScope
from watchdog.ids import Incarnation, InstanceId, JobId, RandomIds
from watchdog.migration.agent import AgentReport, Directive, Phase
from watchdog.migration.model import CheckpointRef, JobSpec
from watchdog.migration.planner import Action
from watchdog.ports import DecisionRecord, Instance, InstanceState, LaunchRequest, PoolFacts
from watchdog.services.agents import AgentService
from watchdog.services.decide import DecideService
from watchdog.services.effects import Effects
from watchdog.services.ingest import IngestService
from watchdog.services.jobs import JobService
from watchdog.services.migrate import MigrateService
from watchdog.services.observe import ObserveService
from watchdog.services.sweep import SweepService
from watchdog.services.user_data import AgentEnvironment

START = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)


def pool(zone: int, market: Market = Market.SPOT) -> CapacityPool:
    return CapacityPool(region="us-east-1", availability_zone_id=f"use1-az{zone}", instance_type="g5.xlarge", market=market)


class Crash(Exception):
    """The process died here."""


@dataclass
class Cloud:
    """An EC2 that knows client tokens, empty pools and lost answers."""

    clock: ManualClock
    instances: dict[InstanceId, Instance] = field(default_factory=dict)
    refusals: dict[CapacityPool, tuple[str, LaunchScope]] = field(default_factory=dict)
    calls: list[LaunchRequest] = field(default_factory=list)
    lose_next_answer: bool = False

    async def launch(self, request: LaunchRequest) -> Instance:
        self.calls.append(request)
        if request.pool in self.refusals:
            code, scope = self.refusals[request.pool]
            raise LaunchRefused(code, "", scope)
        known = next((each for each in self.instances.values() if each.client_token == request.client_token), None)
        if known is None:
            known = Instance(
                instance_id=InstanceId(f"i-{len(self.instances) + 1}"),
                pool=request.pool,
                state=InstanceState.RUNNING,
                launched_at=self.clock.now(),
                client_token=request.client_token,
                private_ip=f"10.0.0.{len(self.instances) + 1}",
                tags=dict(request.tags),
            )
            self.instances[known.instance_id] = known
        if self.lose_next_answer:
            self.lose_next_answer = False
            raise LaunchOutcomeUnknown("timed out")
        return known

    async def find(self, client_token: str) -> Instance | None:
        return next((each for each in self.instances.values() if each.client_token == client_token), None)

    async def describe(self, instance_ids: Iterable[InstanceId]) -> Mapping[InstanceId, Instance]:
        return {each: self.instances[each] for each in instance_ids if each in self.instances}

    async def list_owned(self) -> Sequence[Instance]:
        return [each for each in self.instances.values() if each.state is not InstanceState.TERMINATED]

    async def terminate(self, instance_id: InstanceId) -> None:
        self.end(instance_id, "Client.UserInitiatedShutdown")

    def end(self, instance_id: InstanceId, reason: str = "Server.SpotInstanceTermination") -> None:
        self.instances[instance_id] = replace(self.instances[instance_id], state=InstanceState.TERMINATED, state_reason=reason)

    @property
    def alive(self) -> list[InstanceId]:
        return [each.instance_id for each in self.instances.values() if each.state.alive]


@dataclass
class Heads:
    """The register of every job."""

    tokens: dict[JobId, int] = field(default_factory=dict)
    deaf: bool = False

    async def self_test(self) -> None:
        return

    async def register(self, job_id: JobId, spec: Mapping[str, Any]) -> None:
        self.tokens.setdefault(job_id, 0)

    async def read(self, job_id: JobId) -> Mapping[str, Any] | None:
        if self.deaf:
            raise CheckpointStoreUnavailable("no route to host")
        return {"fencing_token": self.tokens[job_id]} if job_id in self.tokens else None

    def agent_url(self, job_id: JobId) -> str:
        return f"s3://bucket/test/jobs/{job_id}"


@dataclass
class PriceList:
    """A market with fixed prices, the cheapest zone first."""

    prices: dict[CapacityPool, float | None]

    async def known_instance_types(self, instance_types: Iterable[str]) -> frozenset[str]:
        return frozenset(instance_types) & {"g5.xlarge"}

    async def pools(self, instance_types: Iterable[str]) -> Sequence[PoolFacts]:
        return [PoolFacts(pool=each, vcpus=4, quota_family="G", price_per_hour=price) for each, price in self.prices.items()]


class Silence:
    """Telemetry that nobody reads."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None: ...
    def gauge(self, name: str, value: float, **labels: str) -> None: ...
    def observe(self, name: str, seconds: float, **labels: str) -> None: ...


class NoQuotas:
    """Quotas that were never read."""

    async def read(self) -> Sequence[Any]:
        return []


SPEC = JobSpec(
    name="digits",
    instance_types=("g5.xlarge",),
    markets=(Market.SPOT, Market.ON_DEMAND),
    availability_zone_ids=None,
    launch_template="lt-1",
    command=("python", "train.py"),
    checkpoint_seconds=None,
)


class World:
    """Everything that survives a crash of the service, and a way to start the service again."""

    def __init__(self, store: RedisStore, deployment: str) -> None:
        self.store = store
        self.deployment = deployment
        self.clock = ManualClock(START)
        self.cloud = Cloud(self.clock)
        self.heads = Heads()
        self.market = PriceList({pool(1): 0.4, pool(2): 0.5, pool(3): 0.6, pool(1, Market.ON_DEMAND): None})
        self.job_id = JobId("")
        self.crash_after: str | None = None
        self.start()

    def start(self) -> None:
        """Start the service anew: nothing of it but the record survives."""
        telemetry, ids = Silence(), RandomIds()
        decide = DecideService(store=self.store, market=self.market, clock=self.clock, ids=ids)
        environment = AgentEnvironment(deployment=self.deployment, service_url="http://127.0.0.1", agent_key=b"key", heads=self.heads)
        self.environment = environment
        effects = CrashingEffects(
            store=self.store,
            compute=self.cloud,
            heads=self.heads,
            decide=decide,
            environment=environment,
            clock=self.clock,
            telemetry=telemetry,
        )
        effects.world = self
        self.migrate = MigrateService(
            store=self.store,
            decide=decide,
            effects=effects,
            clock=self.clock,
            ids=ids,
            telemetry=telemetry,
            deployment=self.deployment,
            wake=lambda: None,
        )
        self.ingest = IngestService(
            store=self.store,
            compute=self.cloud,
            decide=decide,
            migrate=self.migrate,
            clock=self.clock,
            telemetry=telemetry,
            deployment=self.deployment,
        )
        self.agents = AgentService(
            store=self.store,
            ingest=self.ingest,
            migrate=self.migrate,
            clock=self.clock,
            telemetry=telemetry,
            deployment=self.deployment,
        )
        self.jobs = JobService(
            store=self.store,
            heads=self.heads,
            market=self.market,
            migrate=self.migrate,
            clock=self.clock,
            launch_templates=["lt-1"],
            ready=self.heads.self_test,
        )
        self.observe = ObserveService(
            store=self.store,
            compute=self.cloud,
            market=self.market,
            quotas=NoQuotas(),
            ingest=self.ingest,
            migrate=self.migrate,
            clock=self.clock,
            telemetry=telemetry,
            deployment=self.deployment,
        )
        self.sweep = SweepService(store=self.store, compute=self.cloud, heads=self.heads, clock=self.clock, telemetry=telemetry)

    async def work(self) -> None:
        """Drive everything that is due; a crash starts the service again, as an orchestrator would. Work takes a moment."""
        self.clock.advance(0.001)
        while due := await self.store.due(self.clock.now()):
            for migration_id in due:
                try:
                    await self.migrate.drive(migration_id)
                except Crash:
                    self.start()

    async def report(self, instance_id: str, phase: Phase, **fields: Any) -> Directive:
        """Let the agent of an instance report; the incarnation follows from the instance."""
        report = AgentReport(
            job_id=self.job_id,
            incarnation=Incarnation(f"inc-{instance_id}"),
            instance_id=InstanceId(instance_id),
            phase=phase,
            received_at=self.clock.now(),
            sent_at=self.clock.now(),
            **fields,
        )
        directive, _ = await self.agents.report(report)
        await self.work()
        return directive

    async def boot(self, instance_id: str, *, resumed_from: int = 0) -> None:
        """Play a replacement's agent from its hello to its first step, if it is granted the take-over."""
        await self.report(instance_id, Phase.STARTING)
        granted = (await self.report(instance_id, Phase.STARTING)).take_over_from
        assert granted == self.heads.tokens[self.job_id], f"{instance_id} was granted {granted}"
        token = granted + 1
        self.heads.tokens[self.job_id] = token
        await self.report(instance_id, Phase.RESTORING, fencing_token=token, resumed_from_step=resumed_from)
        await self.report(instance_id, Phase.TRAINING, fencing_token=token, resumed_from_step=resumed_from, step=resumed_from + 1)

    async def run_a_job(self) -> str:
        """Register a job and bring it to training; return its instance."""
        registration = await self.jobs.register(SPEC, principal="operator", idempotency_key="key-1")
        self.job_id = registration.job.job_id
        await self.work()
        (instance_id,) = self.cloud.alive
        await self.boot(instance_id)
        return instance_id

    def notice(self, seconds: float = 120) -> dict[str, Any]:
        """Return an interruption notice as an agent reports it."""
        reclaim_at = self.clock.now() + timedelta(seconds=seconds)
        return {
            "kind": "spot_interruption",
            "action": "terminate",
            "reclaim_at": reclaim_at.isoformat(),
            "seen_at": self.clock.now().isoformat(),
        }

    def checkpoint(self, step: int, token: int, reason: str = "notice") -> CheckpointRef:
        """Return a committed checkpoint."""
        now = self.clock.now()
        return CheckpointRef(
            step=step,
            fencing_token=token,
            manifest_key="m",
            manifest_sha256="s",
            bytes=10,
            reason=reason,
            started_at=now,
            committed_at=now,
        )

    async def told(self) -> list[str]:
        """Return the kinds of the messages in the outbox, in order."""
        self.clock.advance(0.001)
        entries = await self.store.claim_messages(self.clock.now())
        return [entry.message.kind for entry in entries if entry.announcer == "slack"]

    async def decisions(self) -> Sequence[DecisionRecord]:
        """Return the job's decisions, newest first."""
        return await self.store.decisions(self.job_id)


class CrashingEffects(Effects):
    """The real effects; the process may die when one is done and before anybody has recorded it."""

    world: World

    async def run(self, action: Action, job: Any, migration: Any) -> Any:
        facts = await super().run(action, job, migration)
        if self.world.crash_after == type(action).__name__:
            self.world.crash_after = None
            raise Crash
        return facts
