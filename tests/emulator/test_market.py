"""The market by itself: a pure state machine under a clock that stands still."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from policies.model import CapacityPool, Market
from watchdog.clock import ManualClock
from watchdog.emulator.market import Catalogue, InstanceType, Refused, SpotMarket
from watchdog.emulator.vcpu_quotas import family_of, quota_of

START = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
CATALOGUE = Catalogue(
    region="us-east-1",
    zone_ids={"us-east-1a": "use1-az6", "us-east-1b": "use1-az1"},
    types={
        "g5.xlarge": InstanceType(vcpus=4, gpus=1),
        "g4dn.2xlarge": InstanceType(vcpus=8, gpus=1),
        "p5.48xlarge": InstanceType(vcpus=192, gpus=8),
    },
    offered={"use1-az6": frozenset({"g5.xlarge", "g4dn.2xlarge", "p5.48xlarge"}), "use1-az1": frozenset({"g5.xlarge"})},
)
G_SPOT, G_ON_DEMAND = "L-3819A6DF", "L-DB2E81BA"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def market(clock: ManualClock) -> SpotMarket:
    return SpotMarket(CATALOGUE, clock, seed=1)


@pytest.fixture
def pool(market: SpotMarket) -> CapacityPool:
    return market.pool("use1-az6", "g5.xlarge", Market.SPOT)


def refusal(market: SpotMarket, pool: CapacityPool, living: list[CapacityPool], count: int = 1) -> str | None:
    try:
        market.admit(pool, count, living)
    except Refused as error:
        return error.code
    return None


def test_a_pool_without_a_limit_takes_any_number(market: SpotMarket, pool: CapacityPool) -> None:
    assert refusal(market, pool, [pool] * 500) is None


def test_a_full_pool_refuses_for_lack_of_capacity(market: SpotMarket, pool: CapacityPool) -> None:
    market.set_capacity(pool, 1)
    assert refusal(market, pool, []) is None
    assert refusal(market, pool, [pool]) == "InsufficientInstanceCapacity"


def test_a_limit_can_be_lifted(market: SpotMarket, pool: CapacityPool) -> None:
    market.set_capacity(pool, 0)
    market.set_capacity(pool, None)
    assert refusal(market, pool, []) is None


def test_all_of_a_launch_or_nothing(market: SpotMarket, pool: CapacityPool) -> None:
    market.set_capacity(pool, 2)
    assert refusal(market, pool, [], count=3) == "InsufficientInstanceCapacity"


def test_an_empty_pool_says_nothing_about_the_other_market(market: SpotMarket, pool: CapacityPool) -> None:
    market.set_capacity(pool, 0)
    assert refusal(market, market.pool("use1-az6", "g5.xlarge", Market.ON_DEMAND), []) is None


def test_a_spot_quota_counts_every_type_of_its_family_in_every_zone(market: SpotMarket, pool: CapacityPool) -> None:
    market.set_quota(G_SPOT, 12)
    other_type = market.pool("use1-az6", "g4dn.2xlarge", Market.SPOT)
    assert refusal(market, market.pool("use1-az1", "g5.xlarge", Market.SPOT), [other_type]) is None
    assert refusal(market, market.pool("use1-az1", "g5.xlarge", Market.SPOT), [other_type, pool]) == "MaxSpotInstanceCountExceeded"


def test_on_demand_has_a_quota_and_a_code_of_its_own(market: SpotMarket, pool: CapacityPool) -> None:
    market.set_quota(G_ON_DEMAND, 4)
    on_demand = market.pool("use1-az6", "g5.xlarge", Market.ON_DEMAND)
    assert refusal(market, on_demand, [pool, pool]) is None
    assert refusal(market, on_demand, [on_demand]) == "VcpuLimitExceeded"


def test_the_quota_is_looked_at_before_the_pool(market: SpotMarket, pool: CapacityPool) -> None:
    market.set_quota(G_SPOT, 0)
    market.set_capacity(pool, 0)
    assert refusal(market, pool, []) == "MaxSpotInstanceCountExceeded"


def test_a_type_that_a_zone_does_not_have_is_unsupported(market: SpotMarket) -> None:
    with pytest.raises(Refused, match="Unsupported") as refused:
        market.pool("use1-az1", "p5.48xlarge", Market.SPOT)
    assert "us-east-1b" in refused.value.message


def test_the_same_seed_gives_the_same_prices_in_whatever_order_one_asks(clock: ManualClock) -> None:
    one, other = SpotMarket(CATALOGUE, clock, seed=7), SpotMarket(CATALOGUE, clock, seed=7)
    pools = [one.pool(zone, "g5.xlarge", Market.SPOT) for zone in ("use1-az6", "use1-az1")]
    assert [one.price(pool) for pool in pools] == [other.price(pool) for pool in reversed(pools)][::-1]
    assert one.price(pools[0]) != one.price(pools[1])


def test_spot_is_cheaper_than_on_demand(market: SpotMarket, pool: CapacityPool) -> None:
    assert market.price(pool) < market.price(market.pool("use1-az6", "g5.xlarge", Market.ON_DEMAND))


def test_a_price_changes_from_now_on_and_the_past_stays(market: SpotMarket, pool: CapacityPool, clock: ManualClock) -> None:
    before = market.price(pool)
    clock.advance(60)
    market.set_price(pool, 9.5)
    first, second = market.price_history(pool)
    assert (before, 9.5) == (first.usd_per_hour, second.usd_per_hour)
    assert first.at < START
    assert clock.now() == second.at


@pytest.mark.parametrize(
    ("instance_type", "family"),
    [
        ("g5.xlarge", "G"),
        ("gr6.4xlarge", "G"),
        ("vt1.3xlarge", "G"),
        ("p4d.24xlarge", "P"),
        ("p5en.48xlarge", "P5"),
        ("p6-b200.48xlarge", "P5"),
        ("m7i.large", "Standard"),
        ("dl1.24xlarge", "DL"),
        ("trn1n.32xlarge", "Trn"),
        ("mac2.metal", None),
        ("nonsense", None),
    ],
)
def test_a_type_belongs_to_the_family_that_its_quota_names(instance_type: str, family: str | None) -> None:
    assert family == family_of(instance_type)


def test_p5_has_a_spot_quota_of_its_own_but_shares_the_on_demand_one() -> None:
    codes = {
        (kind, market): quota.code
        for kind in ("p4d.24xlarge", "p5.48xlarge")
        for market in Market
        if (quota := quota_of(kind, market)) is not None
    }
    assert codes["p4d.24xlarge", Market.SPOT] == "L-7212CCBC"
    assert codes["p5.48xlarge", Market.SPOT] == "L-C4BD4855"
    assert codes["p4d.24xlarge", Market.ON_DEMAND] == codes["p5.48xlarge", Market.ON_DEMAND] == "L-417A185B"
