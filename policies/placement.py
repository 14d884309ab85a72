"""Ranking of capacity pools: where to launch, in which order, and why."""

from __future__ import annotations

from datetime import datetime, timedelta

from policies.model import CapacityPool, JobSnapshot, Market, MarketView, Offer, Reason, Target
from policies.quotas import Room, room

COOL_DOWN = timedelta(minutes=15)
"""How long a refusal or a loss moves a pool back. Flat and soft: it re-orders, it never forbids the last pool (growing ones measured worse)."""

_FAR = float("inf")


def rank(
    view: MarketView, job: JobSnapshot, *, leaving: CapacityPool | None, now: datetime
) -> tuple[tuple[Target, ...], tuple[Reason, ...]]:
    """Return the pools to try, best first, and the reasons that concern the list as a whole.

    Order: Spot before On-Demand; then pools that are quiet before the one being left, those that lost an instance and those that refused
    a launch within the cool-down; then the cheapest, an unknown price last; then the user's favourite type; then another zone than the one
    being left; then the name, so that equal pools always rank alike. Left out: what the job does not allow, and markets whose quota is known to be full.

    Args:
        view: what is known of the market.
        job: what the job allows.
        leaving: the pool that the job is being driven out of, if any.
        now: the moment of the decision.
    """
    allowed = [offer for offer in view.offers if _allows(job, offer)]
    fits = [offer for offer in allowed if room(offer) is not Room.NO]
    ordered = sorted(fits, key=lambda offer: _order(offer, job, leaving=leaving, now=now))
    targets = tuple(
        Target(pool=offer.pool, because=_because(offer, place, ordered, leaving=leaving, now=now)) for place, offer in enumerate(ordered)
    )
    return targets, _quota_reasons(allowed, ordered)


def _allows(job: JobSnapshot, offer: Offer) -> bool:
    pool = offer.pool
    return (
        pool.instance_type in job.instance_types
        and pool.market in job.markets
        and (job.availability_zone_ids is None or pool.availability_zone_id in job.availability_zone_ids)
    )


def _order(offer: Offer, job: JobSnapshot, *, leaving: CapacityPool | None, now: datetime) -> tuple[bool, int, float, int, bool, str]:
    return (
        offer.pool.market is Market.ON_DEMAND,
        _trouble(offer, leaving=leaving, now=now),
        offer.price_per_hour if offer.price_per_hour is not None else _FAR,
        job.instance_types.index(offer.pool.instance_type),
        leaving is not None and offer.pool.availability_zone_id == leaving.availability_zone_id,
        offer.pool.availability_zone_id,
    )


def _trouble(offer: Offer, *, leaving: CapacityPool | None, now: datetime) -> int:
    """Return 0 for a quiet pool, more for a pool that is less likely to have room or to keep what it gives."""
    if offer.pool == leaving:
        return 3
    if _within_cool_down(offer.refused_at, now):
        return 2
    return 1 if _within_cool_down(offer.lost_at, now) else 0


def _within_cool_down(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and now - moment < COOL_DOWN


def _because(offer: Offer, place: int, ordered: list[Offer], *, leaving: CapacityPool | None, now: datetime) -> Reason:
    pool = offer.pool
    price = "price unknown" if offer.price_per_hour is None else f"${offer.price_per_hour:.4f} an hour"
    trouble = _trouble(offer, leaving=leaving, now=now)
    if trouble:
        what = {3: "being reclaimed now", 2: "refused a launch lately", 1: "lost an instance lately"}[trouble]
        return Reason(code="fallback", text=f"{pool.availability_zone_id} comes late: {what}; {price}", pool=pool)
    if pool.market is Market.ON_DEMAND:
        return Reason(
            code="on_demand", text=f"On-Demand in {pool.availability_zone_id}: no Spot pool before it has room; {price}", pool=pool
        )
    if place == 0:
        quiet = sum(1 for other in ordered if other.pool.market is Market.SPOT and not _trouble(other, leaving=leaving, now=now))
        return Reason(code="cheapest", text=f"{pool.availability_zone_id} is the cheapest of {quiet} quiet Spot pools: {price}", pool=pool)
    return Reason(code="next_cheapest", text=f"{pool.availability_zone_id} is next in price: {price}", pool=pool)


def _quota_reasons(allowed: list[Offer], ordered: list[Offer]) -> tuple[Reason, ...]:
    kept = {offer.pool for offer in ordered}
    full = sorted(
        {(offer.quota_family or "?", offer.pool.market, offer.headroom_vcpus, offer.vcpus) for offer in allowed if offer.pool not in kept},
        key=str,
    )
    return tuple(
        Reason(
            code=f"{market}_quota_exhausted",
            text=f"the {'Spot' if market is Market.SPOT else 'On-Demand'} quota of family {family} has {headroom:g} vCPUs left, {vcpus} are needed",
        )
        for family, market, headroom, vcpus in full
        if headroom is not None
    )
