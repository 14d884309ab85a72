"""The adapters' real boto3 calls against the emulator: client tokens, capacity, quotas, prices, notices."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from policies.model import CapacityPool, Market
from tests.adapters.conftest import REGION, clients
from watchdog.adapters.aws.ec2 import Ec2Compute
from watchdog.adapters.aws.head_register import S3HeadRegister
from watchdog.adapters.aws.instance_types import InstanceTypes
from watchdog.adapters.aws.market import AwsMarketData
from watchdog.adapters.aws.quotas import AwsQuotas
from watchdog.adapters.aws.session import Aws
from watchdog.adapters.aws.sqs import SqsInbox
from watchdog.adapters.aws.zones import Network, discover_network
from watchdog.clock import SystemClock
from watchdog.emulator.account import Account, provision
from watchdog.errors import CheckpointStoreUnsuitable, CloudUnavailable, LaunchRefused, LaunchScope
from watchdog.ids import JobId
from watchdog.notices.eventbridge import parse
from watchdog.notices.model import SpotInterruptionNotice
from watchdog.ports import InstanceState, LaunchRequest, QuotaReading

DEPLOYMENT = "demo"


@dataclass(frozen=True)
class World:
    aws: Aws
    account: Account
    network: Network
    http: httpx2.Client

    def control(self, method: str, path: str, body: Any = None) -> Any:
        return self.http.request(method, f"{self.aws.config.endpoint_url}/_emulator/{path}", json=body).raise_for_status().json()

    @property
    def compute(self) -> Ec2Compute:
        return Ec2Compute(self.aws, self.network, DEPLOYMENT, seconds_until_visible=(0.1, 0.2))

    def request(self, pool: CapacityPool, token: str | None = None) -> LaunchRequest:
        return LaunchRequest(
            pool=pool,
            client_token=token or uuid4().hex,
            launch_template=self.account.launch_template_id,
            user_data="#!/bin/sh\nexec sleep 600\n",
            tags={"spot-watchdog:job-id": "job_1"},
        )


def pool(zone: str = "use1-az4", instance_type: str = "g5.xlarge", market: Market = Market.SPOT) -> CapacityPool:
    return CapacityPool(region=REGION, availability_zone_id=zone, instance_type=instance_type, market=market)


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    run_dir = tmp_path_factory.mktemp("emulator").resolve()
    command = [sys.executable, "-m", "watchdog.emulator", "--run-dir", str(run_dir), "--boot-seconds", "0.1"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(run_dir)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            endpoint = json.loads(process.stdout.readline())["endpoint"]
            account = provision(endpoint, deployment=DEPLOYMENT, region=REGION, zones=None)
            with clients(endpoint) as aws, httpx2.Client(trust_env=False, timeout=30) as http:
                yield World(aws, account, Network(subnets={zone: (subnet,) for zone, subnet in account.subnets.items()}, zone_ids={}), http)
        finally:
            process.terminate()
            process.wait(timeout=30)


@pytest.fixture
def world(emulated: World) -> Iterator[World]:
    yield emulated
    emulated.control("PUT", "faults", {})
    living = [each["instance_id"] for each in emulated.control("GET", "instances")["instances"] if each["state"] in {"pending", "running"}]
    if living:
        emulated.aws.ec2.terminate_instances(InstanceIds=living)


async def test_the_emulators_subnets_are_found(world: World) -> None:
    network = await discover_network(world.aws, list(world.account.subnets.values()))
    assert network.subnets == world.network.subnets


async def test_the_same_token_is_the_same_instance_and_is_found(world: World) -> None:
    request = world.request(pool())
    launched = await world.compute.launch(request)
    again = await world.compute.launch(request)
    found = await world.compute.find(request.client_token)
    assert found is not None
    assert (launched.instance_id, launched.instance_id) == (again.instance_id, found.instance_id)
    assert (launched.pool, launched.client_token) == (pool(), request.client_token)
    assert launched.spot_request_id
    assert [each.instance_id for each in await world.compute.list_owned()] == [launched.instance_id]


async def test_another_request_under_a_used_token_is_our_bug(world: World) -> None:
    request = world.request(pool())
    await world.compute.launch(request)
    with pytest.raises(LaunchRefused) as refused:
        await world.compute.launch(world.request(pool(market=Market.ON_DEMAND), request.client_token))
    assert refused.value.scope is LaunchScope.OURS


async def test_an_empty_pool_is_one_call_and_closes_only_the_pool(world: World) -> None:
    world.control("PUT", "pools/use1-az6/g5.xlarge/spot", {"capacity": 0})
    before = len(world.control("GET", "timeline")["entries"])
    with pytest.raises(LaunchRefused) as refused:
        await world.compute.launch(world.request(pool("use1-az6")))
    assert (refused.value.code, refused.value.scope) == ("InsufficientInstanceCapacity", LaunchScope.POOL)
    calls = [each for each in world.control("GET", "timeline")["entries"][before:] if each["kind"] == "run_instances_call"]
    assert len(calls) == 1


async def test_a_full_quota_closes_the_family_and_is_seen_beforehand(world: World) -> None:
    quotas = AwsQuotas(world.aws, InstanceTypes(world.aws))

    async def spot() -> QuotaReading:
        return next(each for each in await quotas.read() if (each.family, each.market) == ("G", Market.SPOT))

    before = (await spot()).used_vcpus  # other tests' instances may still run
    assert before is not None
    world.control("PUT", "quotas/L-3819A6DF", {"value": before + 4})
    try:
        await world.compute.launch(world.request(pool()))
        full = await spot()
        assert (full.limit_vcpus, full.used_vcpus, full.headroom_vcpus) == (before + 4, before + 4, 0)
        with pytest.raises(LaunchRefused) as refused:
            await world.compute.launch(world.request(pool("use1-az1")))
        assert refused.value.scope is LaunchScope.FAMILY
    finally:
        world.control("PUT", "quotas/L-3819A6DF", {"value": 64})


async def test_prices_are_those_of_the_market(world: World) -> None:
    world.control("PUT", "pools/use1-az2/g5.xlarge/spot", {"price": 0.4321})
    market = AwsMarketData(world.aws, world.network, InstanceTypes(world.aws), SystemClock())
    prices = {each.pool: each.price_per_hour for each in await market.pools(["g5.xlarge"])}
    assert prices[pool("use1-az2")] == 0.4321
    assert prices[pool("use1-az2", market=Market.ON_DEMAND)] is None


async def test_throttling_is_told_apart_from_capacity(world: World) -> None:
    world.control("PUT", "faults", {"throttle_actions": ["RunInstances", "DescribeInstances"]})
    with pytest.raises(LaunchRefused) as refused:
        await world.compute.launch(world.request(pool()))
    assert refused.value.scope is LaunchScope.THROTTLED
    with pytest.raises(CloudUnavailable, match="RequestLimitExceeded"):
        await world.compute.list_owned()


async def test_an_interruption_arrives_on_the_queue_as_a_notice(world: World) -> None:
    launched = await world.compute.launch(world.request(pool()))
    deadline = datetime.now(UTC) + timedelta(seconds=30)
    while (await world.compute.describe([launched.instance_id]))[launched.instance_id].state is not InstanceState.RUNNING:
        assert datetime.now(UTC) < deadline
    world.control("POST", f"instances/{launched.instance_id}/interrupt", {"notice_seconds": 60})
    inbox = SqsInbox(world.aws, world.account.queue_url, wait_seconds=2)
    notices: list[SpotInterruptionNotice] = []
    while not notices:
        assert datetime.now(UTC) < deadline
        for message in await inbox.receive():
            notice = parse(message.body)
            await inbox.delete(message)
            if isinstance(notice, SpotInterruptionNotice):
                notices.append(notice)
    assert notices[0].instance_id == launched.instance_id
    await world.compute.terminate(launched.instance_id)


async def test_a_store_without_conditional_writes_is_found_out(world: World) -> None:
    register = S3HeadRegister(world.aws, f"s3://{world.account.bucket}/team", DEPLOYMENT)
    await register.self_test()
    await register.register(JobId("job_1"), {"name": "digits"})
    assert (await register.read(JobId("job_1")) or {})["fencing_token"] == 0
    world.control("PUT", "faults", {"conditional_writes": False})
    with pytest.raises(CheckpointStoreUnsuitable):
        await register.self_test()
