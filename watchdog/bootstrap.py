"""The only place where all parts meet: settings in, a running service out, everything closed again at the end."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from watchdog.adapters.aws.ec2 import Ec2Compute
from watchdog.adapters.aws.head_register import S3HeadRegister
from watchdog.adapters.aws.instance_types import InstanceTypes
from watchdog.adapters.aws.market import AwsMarketData
from watchdog.adapters.aws.quotas import AwsQuotas
from watchdog.adapters.aws.session import Aws, AwsConfig, open_aws
from watchdog.adapters.aws.sqs import SqsInbox
from watchdog.adapters.aws.zones import Network, discover_network
from watchdog.adapters.prometheus import PrometheusTelemetry
from watchdog.adapters.redis.store import RedisStore
from watchdog.adapters.slack import SlackAnnouncer
from watchdog.adapters.webhooks import SchedulerWebhook
from watchdog.clock import Clock, SystemClock
from watchdog.errors import CheckpointStoreUnavailable, CloudUnavailable, StoreUnavailable
from watchdog.ids import RandomIds
from watchdog.ports import Announcer, Store
from watchdog.runtime.schedule import PeriodicJob, Schedule
from watchdog.runtime.worker import Waker, Worker
from watchdog.services.agents import AgentService
from watchdog.services.announce import AnnounceService
from watchdog.services.decide import DecideService
from watchdog.services.effects import Effects
from watchdog.services.ingest import IngestService
from watchdog.services.jobs import JobService
from watchdog.services.migrate import MigrateService
from watchdog.services.observe import ObserveService
from watchdog.services.readiness import Readiness
from watchdog.services.sweep import SweepService
from watchdog.services.user_data import AgentEnvironment
from watchdog.settings import PREFIX, Settings

log = logging.getLogger(__name__)

_REDIS_SECONDS = 5.0
_EC2_RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class App:
    """The parts that the API and the command line use."""

    settings: Settings
    clock: Clock
    store: Store
    jobs: JobService
    agents: AgentService
    environment: AgentEnvironment
    readiness: Readiness
    telemetry: PrometheusTelemetry
    worker: Worker
    schedule: Schedule

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the worker and the periodic jobs running; at the end let the effects under way be recorded."""
        work = asyncio.create_task(self.worker.run(), name="worker")
        self.schedule.start()
        try:
            yield
        finally:
            self.schedule.stop()
            await self.worker.drain()
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work


@asynccontextmanager
async def bootstrap(settings: Settings) -> AsyncIterator[App]:
    """Put the service together.

    An unreachable Redis, queue or checkpoint store does not stop it: it starts degraded, says why on `/readyz`, and recovers.

    Raises:
        CheckpointStoreUnsuitable: the object store ignores conditional writes, so that nothing would fence two instances of one job.
        SettingsInvalid: a setting that only its adapter can check.
    """
    if not settings.listens_on_loopback:
        log.info("service.listens_beyond_loopback", extra={"host": settings.host})
    clock, ids, waker, telemetry = SystemClock(), RandomIds(), Waker(), PrometheusTelemetry()
    async with AsyncExitStack() as stack:
        aws = await stack.enter_async_context(open_aws(AwsConfig(region=settings.aws_region, endpoint_url=settings.aws_endpoint_url)))
        # One try per call: the loops try again, and say so; a call that hides three tries makes two minutes short.
        redis = Redis.from_url(
            settings.redis_url, socket_timeout=_REDIS_SECONDS, socket_connect_timeout=_REDIS_SECONDS, retry=Retry(NoBackoff(), 0)
        )
        stack.push_async_callback(redis.aclose)
        announcers = _announcers(settings, clock, stack)
        store = RedisStore(redis, deployment=settings.deployment, announcers=[each.name for each in announcers])
        heads = S3HeadRegister(aws, settings.checkpoint_store, settings.deployment)
        network = await _network(aws, settings)
        instance_types = InstanceTypes(aws)
        compute = Ec2Compute(aws, network, settings.deployment)
        market = AwsMarketData(aws, network, instance_types, clock)
        inbox = SqsInbox(aws, settings.queue_url)
        environment = AgentEnvironment(
            deployment=settings.deployment, service_url=settings.public_url, agent_key=_agent_key(settings), heads=heads
        )
        decide = DecideService(store=store, market=market, clock=clock, ids=ids)
        effects = Effects(
            store=store, compute=compute, heads=heads, decide=decide, environment=environment, clock=clock, telemetry=telemetry
        )
        migrate = MigrateService(
            store=store,
            decide=decide,
            effects=effects,
            clock=clock,
            ids=ids,
            telemetry=telemetry,
            deployment=settings.deployment,
            wake=waker.wake,
        )
        ingest = IngestService(
            store=store,
            compute=compute,
            decide=decide,
            migrate=migrate,
            clock=clock,
            telemetry=telemetry,
            deployment=settings.deployment,
        )
        announce = AnnounceService(store=store, announcers=announcers, clock=clock, telemetry=telemetry)
        observe = ObserveService(
            store=store,
            compute=compute,
            market=market,
            quotas=AwsQuotas(aws, instance_types),
            ingest=ingest,
            migrate=migrate,
            clock=clock,
            telemetry=telemetry,
            deployment=settings.deployment,
        )
        sweep = SweepService(store=store, compute=compute, heads=heads, clock=clock, telemetry=telemetry)
        worker = Worker(
            store=store,
            inbox=inbox,
            ingest=ingest,
            migrate=migrate,
            announce=announce,
            clock=clock,
            telemetry=telemetry,
            waker=waker,
        )
        readiness = Readiness(store=store, heads=heads, worker=worker)
        await _check_once(readiness)
        schedule = Schedule(
            (
                PeriodicJob(name="market", every_seconds=settings.market_poll_seconds, run=observe.pools),
                PeriodicJob(name="quotas", every_seconds=settings.quota_poll_seconds, run=observe.quotas),
                PeriodicJob(name="silent_instances", every_seconds=settings.silence_check_seconds, run=observe.silent_instances),
                PeriodicJob(name="stranded_jobs", every_seconds=settings.silence_check_seconds, run=observe.stranded_jobs),
                PeriodicJob(name="sweep", every_seconds=settings.sweep_seconds, run=sweep.sweep),
                PeriodicJob(name="checkpoint_store", every_seconds=5, run=readiness.check_checkpoint_store),
            ),
            telemetry=telemetry,
        )
        yield App(
            settings=settings,
            clock=clock,
            store=store,
            jobs=JobService(
                store=store,
                heads=heads,
                market=market,
                migrate=migrate,
                clock=clock,
                launch_templates=settings.launch_templates,
                ready=readiness.check_checkpoint_store,
            ),
            agents=AgentService(
                store=store, ingest=ingest, migrate=migrate, clock=clock, telemetry=telemetry, deployment=settings.deployment
            ),
            environment=environment,
            readiness=readiness,
            telemetry=telemetry,
            worker=worker,
            schedule=schedule,
        )


async def _check_once(readiness: Readiness) -> None:
    """Refuse an unsuitable checkpoint store now; say what does not answer, and go on."""
    try:
        await readiness.check_checkpoint_store()
    except CheckpointStoreUnavailable as error:
        log.warning("service.degraded", extra={"why": str(error)})
    try:
        await readiness.check_store()
    except StoreUnavailable as error:
        log.warning("service.degraded", extra={"why": f"{error} ({PREFIX}REDIS_URL)"})


async def _network(aws: Aws, settings: Settings) -> Network:
    """Return our subnets, by zone; while EC2 does not answer, wait and say so: without zones there is nothing to serve."""
    while True:
        try:
            return await discover_network(aws, settings.subnets)
        except CloudUnavailable as error:
            log.warning("service.waits", extra={"why": str(error)})
            await asyncio.sleep(_EC2_RETRY_SECONDS)


def _announcers(settings: Settings, clock: Clock, stack: AsyncExitStack) -> list[Announcer]:
    announcers: list[Announcer] = []
    if settings.slack_webhook_url:
        slack = SlackAnnouncer(settings.slack_webhook_url.get_secret_value(), clock)
        stack.push_async_callback(slack.close)
        announcers.append(slack)
    if settings.scheduler_webhook_url and settings.scheduler_webhook_secret:
        scheduler = SchedulerWebhook(settings.scheduler_webhook_url, settings.scheduler_webhook_secret.get_secret_value(), clock)
        stack.push_async_callback(scheduler.close)
        announcers.append(scheduler)
    return announcers


def _agent_key(settings: Settings) -> bytes:
    return hmac.new(settings.api_token.get_secret_value().encode(), b"spot-watchdog agent tokens", hashlib.sha256).digest()
