"""The AWS clients, and the threads that their blocking calls run in."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_service_quotas import ServiceQuotasClient
    from mypy_boto3_sqs import SQSClient

T = TypeVar("T")

THREADS = 32
"""More threads only make the event loop late: the calls cost processor time, not only waiting."""
LONG_POLL_SECONDS = 20
"""The longest wait that SQS offers."""
_CONNECT_SECONDS = 3.0
_READ_SECONDS = 10.0
_LAUNCH_READ_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsConfig:
    """Which AWS to talk to. Credentials come from the SDK's own chain."""

    region: str
    endpoint_url: str | None = None
    """An emulator, or an S3-compatible store; None is AWS itself."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Aws:
    """Open clients. Ordinary calls are retried by the SDK (throttling, 5xx, lost connections), launches never."""

    config: AwsConfig
    ec2: EC2Client
    ec2_launch: EC2Client
    """One attempt per call: insufficient capacity is an HTTP 500, which the SDK would try again at the same dead pool."""
    sqs: SQSClient
    s3: S3Client
    service_quotas: ServiceQuotasClient
    executor: ThreadPoolExecutor

    async def call(self, function: Callable[..., T], /, **arguments: Any) -> T:
        """Run one blocking call in the thread pool. Cancelling the wait does not stop the call."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, partial(function, **arguments))

    async def pages(self, paginate: Callable[..., Iterable[T]], /, **arguments: Any) -> list[T]:
        """Return every page of a paged answer."""
        return await self.call(lambda: list(paginate(**arguments)))

    async def long_poll(self, function: Callable[..., T], /, **arguments: Any) -> T:
        """Run a call that waits for news in a daemon thread of its own, so that it delays neither other calls nor the end of the process.

        What an abandoned poll still receives returns to the queue when its visibility timeout has passed.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def deliver(settle: Callable[[Any], None], value: object) -> None:
            if not answer.done():
                settle(value)

        def poll() -> None:
            try:
                outcome = partial(deliver, answer.set_result, function(**arguments))
            except Exception as error:  # noqa: BLE001 - handed on to the one who waits
                outcome = partial(deliver, answer.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
                loop.call_soon_threadsafe(outcome)

        threading.Thread(target=poll, name="aws-long-poll", daemon=True).start()
        return await answer


@asynccontextmanager
async def open_aws(config: AwsConfig) -> AsyncIterator[Aws]:
    """Make the clients, and close them and their threads at the end."""
    executor = ThreadPoolExecutor(THREADS, thread_name_prefix="aws")
    loop = asyncio.get_running_loop()
    aws = await loop.run_in_executor(executor, _connect, config, executor)
    try:
        yield aws
    finally:
        await asyncio.to_thread(executor.shutdown, wait=True, cancel_futures=True)
        for client in (aws.ec2, aws.ec2_launch, aws.sqs, aws.s3, aws.service_quotas):
            client.close()


def _connect(config: AwsConfig, executor: ThreadPoolExecutor) -> Aws:
    session = boto3.Session(region_name=config.region)
    # An emulator or another store rarely answers for bucket names as host names.
    s3_settings: dict[str, Any] = {"s3": {"addressing_style": "path"}} if config.endpoint_url else {}
    return Aws(
        config=config,
        ec2=session.client("ec2", endpoint_url=config.endpoint_url, config=_client_config()),
        ec2_launch=session.client("ec2", endpoint_url=config.endpoint_url, config=_client_config(attempts=1, read=_LAUNCH_READ_SECONDS)),
        sqs=session.client("sqs", endpoint_url=config.endpoint_url, config=_client_config(read=LONG_POLL_SECONDS + _READ_SECONDS)),
        s3=session.client("s3", endpoint_url=config.endpoint_url, config=_client_config(**s3_settings)),
        service_quotas=session.client("service-quotas", endpoint_url=config.endpoint_url, config=_client_config()),
        executor=executor,
    )


def _client_config(*, attempts: int = 3, read: float = _READ_SECONDS, **settings: Any) -> Config:
    return Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=read,
        max_pool_connections=THREADS,
        **settings,
    )
