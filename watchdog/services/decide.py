"""Ask the policy, and keep what it was asked and what it answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from policies import balanced
from policies.model import CapacityPool, Decision, Launch, Market, MarketView, Migrate, Offer, Park, Reason, Signal
from watchdog.clock import Clock
from watchdog.errors import CloudUnavailable
from watchdog.history.observations import PoolMemory
from watchdog.ids import DecisionId, Ids
from watchdog.migration.model import Job, PlannedTarget
from watchdog.ports import DecisionRecord, MarketData, PoolFacts, QuotaReading, Store

POOLS = "pools"
QUOTAS = "quotas"
QUOTAS_GOOD_FOR = timedelta(minutes=10)
"""An older reading is unknown: a quota that was full once would else park jobs for as long as it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A decision with its record, and its targets as the plan of a migration."""

    decision: Decision
    record: DecisionRecord
    targets: tuple[PlannedTarget, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return the reasons that concern the whole list."""
        return tuple(reason.text for reason in self.decision.reasons)


class DecideService:
    """Builds the view of the market from what was observed, and asks the policy."""

    def __init__(self, *, store: Store, market: MarketData, clock: Clock, ids: Ids) -> None:
        """Use these ports."""
        self._store = store
        self._market = market
        self._clock = clock
        self._ids = ids

    async def decide(self, job: Job, signal: Signal) -> Answer:
        """Return the policy's answer for `job`. A market that nobody can read is parked on, not guessed."""
        now = self._clock.now()
        try:
            view = await self._view(job, now)
        except CloudUnavailable as error:
            view = MarketView(as_of=now, offers=())
            unread = Reason(code="market_unknown", text=f"the market could not be read: {error}")
            decision: Decision = Park(reasons=(unread,))
        else:
            decision = balanced.decide(view, job.snapshot(), signal, now=now)
        record = DecisionRecord(
            decision_id=DecisionId(self._ids.new("dec")),
            job_id=job.job_id,
            at=now,
            policy=f"{balanced.NAME}@{balanced.VERSION}",
            signal=_plain({"kind": type(signal).__name__, **asdict(signal)}),
            view=_plain(asdict(view)),
            job=_plain(asdict(job.snapshot())),
            decision=_plain({"kind": type(decision).__name__, **asdict(decision)}),
        )
        return Answer(decision=decision, record=record, targets=_plan(decision, view))

    async def _view(self, job: Job, now: datetime) -> MarketView:
        pools = await self._pools(job.spec.instance_types, now)
        quotas = await self._quotas(now)
        memory = await self._store.pool_memory()
        offers = tuple(_offer(facts, quotas, memory.get(facts.pool, PoolMemory())) for facts in pools)
        return MarketView(as_of=now, offers=offers)

    async def _pools(self, instance_types: Iterable[str], now: datetime) -> Sequence[PoolFacts]:
        """Return the pools of these types from the last poll, or by asking AWS if that poll did not ask for them.

        Prices and offerings move slowly; an old reading is better than none while AWS does not answer.
        """
        wanted = set(instance_types)
        reading = await self._store.reading(POOLS)
        known = [] if reading is None else [pool_facts_from_data(each) for each in reading[1]["pools"]]
        if reading is not None and wanted <= set(reading[1]["asked"]):
            return [facts for facts in known if facts.pool.instance_type in wanted]
        try:
            fresh = await self._market.pools(wanted)
        except CloudUnavailable:
            usable = [facts for facts in known if facts.pool.instance_type in wanted]
            if not usable:
                raise
            return usable
        if reading is None:
            await self._store.put_reading(POOLS, now, pools_reading(wanted, fresh))
        return fresh

    async def _quotas(self, now: datetime) -> Sequence[QuotaReading]:
        """Return the quotas of the last poll; one that is too old says nothing any more."""
        reading = await self._store.reading(QUOTAS)
        if reading is None or now - reading[0] > QUOTAS_GOOD_FOR:
            return []
        return [quota_from_data(each) for each in reading[1]]


def pools_reading(asked: Iterable[str], pools: Iterable[PoolFacts]) -> dict[str, Any]:
    """Return a poll of the market as plain JSON values: which types were asked for, and what there is."""
    return {"asked": sorted(asked), "pools": [_plain(asdict(facts)) for facts in pools]}


def _offer(facts: PoolFacts, quotas: Sequence[QuotaReading], memory: PoolMemory) -> Offer:
    headroom = next(
        (each.headroom_vcpus for each in quotas if each.family == facts.quota_family and each.market == facts.pool.market), None
    )
    return Offer(
        pool=facts.pool,
        vcpus=facts.vcpus,
        quota_family=facts.quota_family,
        price_per_hour=facts.price_per_hour,
        headroom_vcpus=headroom,
        refused_at=memory.refused_at,
        lost_at=memory.lost_at,
    )


def _plan(decision: Decision, view: MarketView) -> tuple[PlannedTarget, ...]:
    if not isinstance(decision, Launch | Migrate):
        return ()
    families = {offer.pool: offer.quota_family for offer in view.offers}
    return tuple(
        PlannedTarget(pool=each.pool, why=each.because.text, code=each.because.code, quota_family=families.get(each.pool))
        for each in decision.targets
    )


def pool_facts_from_data(data: dict[str, Any]) -> PoolFacts:
    """Return one pool of `pools_reading`."""
    pool = CapacityPool(**{**data["pool"], "market": Market(data["pool"]["market"])})
    return PoolFacts(**{**data, "pool": pool})


def quota_to_data(reading: QuotaReading) -> dict[str, Any]:
    """Return a quota reading as plain JSON values."""
    return dict(_plain(asdict(reading)))


def quota_from_data(data: dict[str, Any]) -> QuotaReading:
    """Return what `quota_to_data` wrote."""
    return QuotaReading(**{**data, "market": Market(data["market"])})


def _plain(value: Any) -> Any:
    """Return `value` as JSON values only: instants as ISO 8601, enums as their text."""
    match value:
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case datetime():
            return value.isoformat()
        case StrEnum():
            return value.value
        case _:
            return value
