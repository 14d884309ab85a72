"""Limits and usage of vCPU quotas: what cannot be read is None, never 0."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from policies.model import Market
from tests.adapters.servers import Receiver, Reply, Request
from watchdog.adapters.aws.instance_types import InstanceTypes
from watchdog.adapters.aws.quotas import AwsQuotas
from watchdog.adapters.aws.session import Aws
from watchdog.errors import CloudUnavailable
from watchdog.ports import QuotaReading

VCPUS = {"g5.12xlarge": 48, "p5.48xlarge": 192, "m7i.large": 2}


class Account:
    """Service Quotas and EC2 of one account, in their own formats."""

    def __init__(self) -> None:
        self.pages: list[list[dict[str, Any]]] = [[]]
        self.instances: list[tuple[str, str | None]] = []
        self.refusing: set[str] = set()

    def answer(self, sent: Request) -> Reply:
        if "x-amz-target" in sent.headers:
            if "quotas" in self.refusing:
                return Reply(400, json.dumps({"__type": "TooManyRequestsException", "Message": "(made-up text)"}))
            asked = json.loads(sent.body)
            assert asked["ServiceCode"] == "ec2"
            page = int(asked.get("NextToken", "0"))
            more = {"NextToken": str(page + 1)} if page + 1 < len(self.pages) else {}
            return Reply(body=json.dumps({"Quotas": self.pages[page], **more}))
        if b"DescribeInstanceTypes" in sent.body:
            known = [name for name in VCPUS if name.encode() in sent.body]
            items = "".join(
                f"<item><instanceType>{n}</instanceType><vCpuInfo><defaultVCpus>{VCPUS[n]}</defaultVCpus></vCpuInfo></item>" for n in known
            )
            return Reply(body=f"<r><instanceTypeSet>{items}</instanceTypeSet></r>")
        if "instances" in self.refusing:
            return Reply(403, "<Response><Errors><Error><Code>UnauthorizedOperation</Code></Error></Errors></Response>")
        items = "".join(self._instance(name, lifecycle) for name, lifecycle in self.instances)
        return Reply(body=f"<r><reservationSet><item><instancesSet>{items}</instancesSet></item></reservationSet></r>")

    def _instance(self, name: str, lifecycle: str | None) -> str:
        how = f"<instanceLifecycle>{lifecycle}</instanceLifecycle>" if lifecycle else ""
        return f"<item><instanceId>i-0</instanceId><instanceType>{name}</instanceType>{how}</item>"


def row(code: str, value: float, **more: Any) -> dict[str, Any]:
    return {"ServiceCode": "ec2", "QuotaCode": code, "QuotaName": "x", "Value": value, **more}


@pytest.fixture
def account(receiver: Receiver) -> Account:
    made = Account()
    receiver.answer = made.answer
    return made


@pytest.fixture
def quotas(scripted_aws: Aws) -> AwsQuotas:
    return AwsQuotas(scripted_aws, InstanceTypes(scripted_aws))


def of(readings: Sequence[QuotaReading], family: str, market: Market) -> QuotaReading:
    [reading] = [each for each in readings if (each.family, each.market) == (family, market)]
    return reading


async def test_every_page_of_limits_is_read(account: Account, quotas: AwsQuotas) -> None:
    account.pages = [[row("L-3819A6DF", 192.0)], [row("L-0000AAAA", 7.0)], [row("L-7212CCBC", 0.0)]]
    readings = await quotas.read()
    assert of(readings, "G", Market.SPOT).limit_vcpus == 192.0
    assert of(readings, "P", Market.SPOT).limit_vcpus == 0.0


async def test_a_limit_that_was_not_listed_or_not_readable_is_unknown(account: Account, quotas: AwsQuotas) -> None:
    broken = row("L-C4BD4855", 0.0, ErrorReason={"ErrorCode": "DEPENDENCY_THROTTLING_ERROR", "ErrorMessage": "x"})
    account.pages = [[row("L-3819A6DF", 192.0), broken]]
    readings = await quotas.read()
    for family, market in (("P5", Market.SPOT), ("G", Market.ON_DEMAND)):
        assert of(readings, family, market).limit_vcpus is None
        assert of(readings, family, market).headroom_vcpus is None


async def test_spot_and_on_demand_are_counted_apart_in_vcpus_d04(account: Account, quotas: AwsQuotas) -> None:
    account.pages = [[row("L-3819A6DF", 192.0), row("L-DB2E81BA", 0.0)]]
    account.instances = [
        ("g5.12xlarge", "spot"),
        ("g5.12xlarge", "spot"),
        ("g5.12xlarge", None),
        ("m7i.large", None),
        ("p5.48xlarge", "spot"),
    ]
    account.instances.append(("p5.48xlarge", "capacity-block"))
    readings = await quotas.read()
    assert of(readings, "G", Market.SPOT).headroom_vcpus == 192 - 96
    assert (of(readings, "G", Market.ON_DEMAND).used_vcpus, of(readings, "G", Market.ON_DEMAND).headroom_vcpus) == (48, 0)
    assert of(readings, "Standard", Market.ON_DEMAND).used_vcpus == 2
    assert of(readings, "P5", Market.SPOT).used_vcpus == 192
    assert of(readings, "P", Market.ON_DEMAND).used_vcpus == 0


async def test_a_running_type_of_unknown_size_makes_its_family_unknown(account: Account, quotas: AwsQuotas) -> None:
    account.instances = [("g5.12xlarge", "spot"), ("g99.xlarge", "spot"), ("g5.12xlarge", None)]
    readings = await quotas.read()
    assert of(readings, "G", Market.SPOT).used_vcpus is None
    assert of(readings, "G", Market.ON_DEMAND).used_vcpus == 48


async def test_usage_that_cannot_be_read_is_unknown_and_not_zero(account: Account, quotas: AwsQuotas) -> None:
    account.pages = [[row("L-3819A6DF", 192.0)]]
    account.refusing = {"instances"}
    readings = await quotas.read()
    assert {each.used_vcpus for each in readings} == {None}
    assert of(readings, "G", Market.SPOT).limit_vcpus == 192.0


async def test_throttled_limits_are_an_error_and_not_absent_d03(account: Account, quotas: AwsQuotas) -> None:
    account.refusing = {"quotas"}
    with pytest.raises(CloudUnavailable, match="TooManyRequestsException"):
        await quotas.read()
