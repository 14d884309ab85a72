"""Where a job goes, and the reasons given."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import balanced
from policies.model import (
    CapacityPool,
    FirstLaunch,
    InterruptionNoticed,
    JobSnapshot,
    Launch,
    Market,
    MarketView,
    Migrate,
    MoveRequested,
    Offer,
    Park,
    RebalanceRecommended,
    SaveOnly,
)

NOW = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)


def pool(zone: int, market: Market = Market.SPOT, instance_type: str = "g5.xlarge") -> CapacityPool:
    return CapacityPool(region="us-east-1", availability_zone_id=f"use1-az{zone}", instance_type=instance_type, market=market)


def offer(zone: int, price: float | None, *, market: Market = Market.SPOT, **known: object) -> Offer:
    return Offer(pool=pool(zone, market), vcpus=4, quota_family="G", price_per_hour=price, **known)  # type: ignore[arg-type]


def job(
    *, at: CapacityPool | None = None, markets: tuple[Market, ...] = (Market.SPOT,), zones: tuple[str, ...] | None = None
) -> JobSnapshot:
    return JobSnapshot(job_id="job_1", instance_types=("g5.xlarge",), markets=markets, availability_zone_ids=zones, pool=at)


def view(*offers: Offer) -> MarketView:
    return MarketView(as_of=NOW, offers=offers)


NOTICE = InterruptionNoticed(reclaim_at=NOW + timedelta(minutes=2))


def zones(decision: object) -> list[str]:
    assert isinstance(decision, Launch | Migrate)
    return [target.pool.availability_zone_id for target in decision.targets]


def test_the_cheapest_quiet_pool_comes_first() -> None:
    decision = balanced.decide(view(offer(1, 0.5), offer(2, 0.4), offer(4, 0.45)), job(), FirstLaunch(), now=NOW)
    assert zones(decision) == ["use1-az2", "use1-az4", "use1-az1"]
    assert isinstance(decision, Launch)
    assert decision.targets[0].because.code == "cheapest"
    assert "$0.4000" in decision.targets[0].because.text


def test_c03_the_pool_being_reclaimed_comes_last_even_if_it_is_the_cheapest() -> None:
    decision = balanced.decide(view(offer(1, 0.1), offer(2, 0.9)), job(at=pool(1)), NOTICE, now=NOW)
    assert zones(decision) == ["use1-az2", "use1-az1"]


def test_c10_an_unknown_price_is_neither_zero_nor_the_best() -> None:
    assert zones(balanced.decide(view(offer(1, None), offer(2, 9.0)), job(), FirstLaunch(), now=NOW)) == ["use1-az2", "use1-az1"]


def test_a_refusal_moves_a_pool_back_for_fifteen_minutes_and_never_forbids_it() -> None:
    refused = offer(1, 0.1, refused_at=NOW - timedelta(minutes=14))
    assert zones(balanced.decide(view(refused, offer(2, 0.9)), job(), FirstLaunch(), now=NOW)) == ["use1-az2", "use1-az1"]
    assert zones(balanced.decide(view(refused), job(), FirstLaunch(), now=NOW)) == ["use1-az1"]
    later = NOW + timedelta(minutes=2)
    assert zones(balanced.decide(view(refused, offer(2, 0.9)), job(), FirstLaunch(), now=later)) == ["use1-az1", "use1-az2"]


def test_a_full_spot_quota_leads_to_on_demand_and_says_so() -> None:
    offers = (offer(1, 0.4, headroom_vcpus=0), offer(2, 0.5, headroom_vcpus=3), offer(1, None, market=Market.ON_DEMAND, headroom_vcpus=64))
    decision = balanced.decide(view(*offers), job(at=pool(1), markets=(Market.SPOT, Market.ON_DEMAND)), NOTICE, now=NOW)
    assert isinstance(decision, Migrate)
    assert [target.pool.market for target in decision.targets] == [Market.ON_DEMAND]
    assert {"spot_quota_exhausted"} == {reason.code for reason in decision.reasons}
    assert "0 vCPUs left, 4 are needed" in " ".join(reason.text for reason in decision.reasons)


def test_d03_an_unknown_quota_rules_out_nothing() -> None:
    assert zones(balanced.decide(view(offer(1, 0.4, headroom_vcpus=None)), job(), FirstLaunch(), now=NOW)) == ["use1-az1"]


def test_on_demand_is_used_only_if_the_job_allows_it_and_after_every_spot_pool() -> None:
    offers = (offer(1, 0.1, market=Market.ON_DEMAND), offer(2, 5.0))
    assert zones(balanced.decide(view(*offers), job(), FirstLaunch(), now=NOW)) == ["use1-az2"]
    both = balanced.decide(view(*offers), job(markets=(Market.SPOT, Market.ON_DEMAND)), FirstLaunch(), now=NOW)
    assert zones(both) == ["use1-az2", "use1-az1"]


def test_of_equal_pools_the_one_in_another_zone_comes_first() -> None:
    both = (Market.SPOT, Market.ON_DEMAND)
    offers = (offer(1, None, market=Market.ON_DEMAND), offer(2, None, market=Market.ON_DEMAND))
    assert zones(balanced.decide(view(*offers), job(at=pool(1), markets=both), NOTICE, now=NOW)) == ["use1-az2", "use1-az1"]


def test_nowhere_to_go_parks_with_the_reason() -> None:
    decision = balanced.decide(view(offer(1, 0.4, headroom_vcpus=0)), job(), FirstLaunch(), now=NOW)
    assert isinstance(decision, Park)
    assert [reason.code for reason in decision.reasons] == ["spot_quota_exhausted", "no_pool"]


def test_c01_a_rebalance_recommendation_saves_and_stays() -> None:
    decision = balanced.decide(view(offer(1, 0.4), offer(2, 0.5)), job(at=pool(1)), RebalanceRecommended(), now=NOW)
    assert isinstance(decision, SaveOnly)


def test_a_requested_move_never_goes_to_where_the_job_is() -> None:
    assert zones(balanced.decide(view(offer(1, 0.1), offer(2, 0.9)), job(at=pool(1)), MoveRequested(), now=NOW)) == ["use1-az2"]


@pytest.mark.parametrize("allowed", [("use1-az2",), ("use1-az2", "use1-az4")])
def test_only_allowed_zones_are_used(allowed: tuple[str, ...]) -> None:
    decision = balanced.decide(view(offer(1, 0.1), offer(2, 0.2), offer(4, 0.3)), job(zones=allowed), FirstLaunch(), now=NOW)
    assert zones(decision) == list(allowed)


@given(st.permutations([offer(1, 0.4), offer(2, 0.4), offer(3, None), offer(4, 0.2, refused_at=NOW), offer(5, 0.9, lost_at=NOW)]))
def test_the_order_in_which_offers_were_read_changes_nothing(offers: list[Offer]) -> None:
    assert zones(balanced.decide(view(*offers), job(), FirstLaunch(), now=NOW)) == [
        "use1-az1",
        "use1-az2",
        "use1-az3",
        "use1-az5",
        "use1-az4",
    ]
