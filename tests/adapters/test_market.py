"""Offerings, prices and quota families."""

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from policies.model import Market
from tests.adapters.servers import Receiver, Reply, Request
from watchdog.adapters.aws.families import QUOTAS, quota_family
from watchdog.adapters.aws.instance_types import InstanceTypes
from watchdog.adapters.aws.market import AwsMarketData
from watchdog.adapters.aws.session import Aws
from watchdog.adapters.aws.zones import Network, discover_network
from watchdog.clock import ManualClock

NOW = datetime(2026, 3, 4, 10, 15, tzinfo=UTC)
SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
async def market(aws: Aws) -> AwsMarketData:
    return AwsMarketData(aws, await discover_network(aws), InstanceTypes(aws), ManualClock(NOW))


async def test_one_unknown_type_does_not_hide_the_others_c13(market: AwsMarketData) -> None:
    asked = ["g5.xlarge", "p99.48xlarge", "p5.48xlarge", "g4dn.*"]
    assert await market.known_instance_types(asked) == {"g5.xlarge", "p5.48xlarge"}
    assert await market.known_instance_types([]) == frozenset()


async def test_pools_are_where_a_type_is_offered_and_we_have_a_subnet(market: AwsMarketData) -> None:
    pools = await market.pools(["g5.xlarge", "p4d.24xlarge", "p99.48xlarge"])
    zones = {(each.pool.instance_type, each.pool.market): set[str]() for each in pools}
    for each in pools:
        zones[each.pool.instance_type, each.pool.market].add(each.pool.availability_zone_id)
    assert set(zones) == {(name, where) for name in ("g5.xlarge", "p4d.24xlarge") for where in Market}
    assert len(zones["g5.xlarge", Market.SPOT]) == 5  # not in use1-az3
    assert zones["p4d.24xlarge", Market.SPOT] == zones["p4d.24xlarge", Market.ON_DEMAND]
    assert {each.pool.instance_type: each.vcpus for each in pools} == {"g5.xlarge": 4, "p4d.24xlarge": 96}
    assert {each.quota_family for each in pools} == {"G", "P"}


async def test_an_on_demand_price_is_unknown_and_not_zero(market: AwsMarketData) -> None:
    pools = await market.pools(["g5.xlarge"])
    assert {each.price_per_hour for each in pools if each.pool.market is Market.ON_DEMAND} == {None}
    assert all(each.price_per_hour for each in pools if each.pool.market is Market.SPOT)


def offerings(*places: tuple[str, str]) -> Reply:
    items = "".join(f"<item><instanceType>{name}</instanceType><location>{zone}</location></item>" for name, zone in places)
    return Reply(body=f"<r><instanceTypeOfferingSet>{items}</instanceTypeOfferingSet></r>")


def types() -> Reply:
    item = "<item><instanceType>g5.12xlarge</instanceType><vCpuInfo><defaultVCpus>48</defaultVCpus></vCpuInfo></item>"
    return Reply(body=f"<r><instanceTypeSet>{item}</instanceTypeSet></r>")


def prices(*entries: tuple[str, str, str], token: str) -> Reply:
    items = "".join(
        f"<item><instanceType>g5.12xlarge</instanceType><productDescription>Linux/UNIX</productDescription>"
        f"<availabilityZone>{zone}</availabilityZone><spotPrice>{price}</spotPrice><timestamp>{at}</timestamp></item>"
        for zone, price, at in entries
    )
    return Reply(body=f"<r><spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{token}</nextToken></r>")


NETWORK = Network(
    subnets={"use1-az2": ("subnet-a",), "use1-az4": ("subnet-b",)}, zone_ids={"us-east-1b": "use1-az2", "us-east-1c": "use1-az4"}
)


def scripted(aws: Aws) -> AwsMarketData:
    return AwsMarketData(aws, NETWORK, InstanceTypes(aws), ManualClock(NOW))


async def test_every_page_of_prices_is_read_and_the_last_change_counts_c12(scripted_aws: Aws, receiver: Receiver) -> None:
    def answer(sent: Request) -> Reply:
        asked = {name: values[0] for name, values in parse_qs(sent.body.decode()).items()}
        if asked["Action"] == "DescribeSpotPriceHistory":
            assert (asked["StartTime"], asked["ProductDescription.1"]) == ("2026-03-04T10:15:00Z", "Linux/UNIX")
            if "NextToken" not in asked:
                return prices(("us-east-1b", "2.70", "2026-03-04T07:16:40Z"), ("us-east-1c", "3.10", "2026-03-03T22:47:02Z"), token="more")
            return prices(("us-east-1b", "2.90", "2026-03-04T09:00:00Z"), ("us-east-1b", "2.50", "2026-03-04T01:00:00Z"), token="")
        if asked["Action"] == "DescribeInstanceTypeOfferings":
            return offerings(("g5.12xlarge", "use1-az2"), ("g5.12xlarge", "use1-az4"), ("g5.12xlarge", "use1-az6"))
        return types()

    receiver.answer = answer
    pools = await scripted(scripted_aws).pools(["g5.12xlarge"])
    spot = {each.pool.availability_zone_id: each.price_per_hour for each in pools if each.pool.market is Market.SPOT}
    assert spot == {"use1-az2": 2.90, "use1-az4": 3.10}


async def test_a_zone_without_a_price_history_has_an_unknown_price_c10(scripted_aws: Aws, receiver: Receiver) -> None:
    def answer(sent: Request) -> Reply:
        if b"DescribeSpotPriceHistory" in sent.body:
            return Reply(403, "<Response><Errors><Error><Code>UnauthorizedOperation</Code></Error></Errors></Response>")
        if b"DescribeInstanceTypeOfferings" in sent.body:
            return offerings(("g5.12xlarge", "use1-az2"))
        return types()

    receiver.answer = answer
    pools = await scripted(scripted_aws).pools(["g5.12xlarge"])
    assert [(each.pool.market, each.price_per_hour) for each in pools] == [(Market.SPOT, None), (Market.ON_DEMAND, None)]


async def test_a_type_is_asked_for_once(scripted_aws: Aws, receiver: Receiver) -> None:
    receiver.script(types())
    instance_types = InstanceTypes(scripted_aws)
    for _ in range(2):
        assert await instance_types.vcpus(["g5.12xlarge"]) == {"g5.12xlarge": 48}
    assert len(receiver.requests) == 1


CODES = {(quota.family, quota.market): quota.code for quota in QUOTAS}


def code(instance_type: str, market: Market) -> str | None:
    family = quota_family(instance_type, market)
    return None if family is None else CODES[family, market]


def test_every_family_leads_to_the_recorded_codes_d01() -> None:
    recorded = list(csv.DictReader((SAMPLES / "gpu-instances.csv").read_text().splitlines()))
    assert len(recorded) > 50
    for row in recorded:
        name = row["instance_type"]
        assert code(name, Market.ON_DEMAND) == (row["on_demand_quota"] or None), name
        if not name.startswith("p6"):  # whether Spot P6 has a quota of its own is documented nowhere
            assert code(name, Market.SPOT) == (row["spot_quota"] or None), name


@pytest.mark.parametrize(
    ("instance_type", "spot", "on_demand"),
    [
        ("p4d.24xlarge", "P", "P"),
        ("p5en.48xlarge", "P5", "P"),
        ("p6-b200.48xlarge", None, "P"),
        ("vt1.3xlarge", "G", "G"),
        ("gr6.4xlarge", "G", "G"),
        ("m7i.large", "Standard", "Standard"),
        ("x2idn.16xlarge", "X", "X"),
        ("u-6tb1.metal", None, None),
        ("hpc7a.12xlarge", None, None),
        ("mac2.metal", None, None),
        ("", None, None),
        ("nonsense", None, None),
    ],
)
def test_a_family_that_aws_does_not_name_is_unknown(instance_type: str, spot: str | None, on_demand: str | None) -> None:
    assert (quota_family(instance_type, Market.SPOT), quota_family(instance_type, Market.ON_DEMAND)) == (spot, on_demand)


def test_no_gpu_is_checked_against_the_standard_quota() -> None:
    rows = json.loads((SAMPLES / "servicequotas-list-service-quotas.json").read_text())["Quotas"]
    assert {row["QuotaCode"] for row in rows} <= set(CODES.values())
    assert CODES["Standard", Market.ON_DEMAND] == "L-1216C47A"
    assert code("g5.xlarge", Market.ON_DEMAND) == "L-DB2E81BA"
