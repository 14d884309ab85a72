"""The spot market: what each pool has room for, what it costs, and what the account's quotas allow.

Nothing here happens by itself: capacity and prices move when somebody moves them, and the same seed gives the same prices.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from policies.model import CapacityPool, Market
from watchdog.clock import Clock
from watchdog.emulator import vcpu_quotas
from watchdog.errors import WatchdogError

LARGE_QUOTA_VCPUS = 10_000.0
"""An account whose increases have all been granted: a test that is not about quotas should not meet one."""

_PRICE_PER_VCPU = 0.05
_PRICE_PER_GPU = 0.60
_SPOT_SHARE = (0.30, 0.65)
"""Spot costs between these shares of the On-Demand price, by pool."""
_OLDEST_FIRST_PRICE = timedelta(hours=48)


class Refused(WatchdogError):
    """EC2 says no to a launch."""

    def __init__(self, code: str, message: str) -> None:
        """Keep EC2's error code and message."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """What the market needs to know of one instance type."""

    vcpus: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What a Region offers."""

    region: str
    zone_ids: Mapping[str, str]
    """Zone name to zone id."""
    types: Mapping[str, InstanceType]
    offered: Mapping[str, frozenset[str]]
    """Zone id to the types that exist there."""

    @property
    def zone_names(self) -> Mapping[str, str]:
        """Zone id to zone name."""
        return {zone_id: name for name, zone_id in self.zone_ids.items()}

    def offers(self, availability_zone_id: str, instance_type: str) -> bool:
        """Return whether the zone has this type at all."""
        return instance_type in self.offered.get(availability_zone_id, frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceStep:
    """From `at` on, one instance costs `usd_per_hour`."""

    at: datetime
    usd_per_hour: float


class SpotMarket:
    """Capacity, prices and quotas of one account in one Region."""

    def __init__(self, catalogue: Catalogue, clock: Clock, *, seed: int) -> None:
        """Start with endless capacity, large quotas and prices drawn from `seed`."""
        self.catalogue = catalogue
        self._clock = clock
        self._seed = seed
        self._opened_at = clock.now()
        self._capacity: dict[CapacityPool, int] = {}
        self._prices: dict[CapacityPool, list[PriceStep]] = {}
        self._quotas = {quota.code: LARGE_QUOTA_VCPUS for quota in vcpu_quotas.QUOTAS}

    def pool(self, availability_zone_id: str, instance_type: str, market: Market) -> CapacityPool:
        """Return the pool of that name. Raises Refused (`Unsupported`) if the zone has no such type."""
        if not self.catalogue.offers(availability_zone_id, instance_type):
            zone = self.catalogue.zone_names.get(availability_zone_id, availability_zone_id)
            raise Refused(
                "Unsupported",
                f"Your requested instance type ({instance_type}) is not supported in your requested Availability Zone ({zone}).",
            )
        return CapacityPool(
            region=self.catalogue.region, availability_zone_id=availability_zone_id, instance_type=instance_type, market=market
        )

    def set_capacity(self, pool: CapacityPool, instances: int | None) -> None:
        """Let the pool hold at most that many of our instances at once; None lifts the limit. Those that run stay."""
        if instances is None:
            self._capacity.pop(pool, None)
        else:
            self._capacity[pool] = instances

    def capacity(self, pool: CapacityPool) -> int | None:
        """Return how many of our instances the pool can hold at once; None is no limit."""
        return self._capacity.get(pool)

    def set_price(self, pool: CapacityPool, usd_per_hour: float) -> None:
        """Change a pool's price from now on."""
        self.price_history(pool).append(PriceStep(at=self._clock.now(), usd_per_hour=usd_per_hour))

    def price(self, pool: CapacityPool) -> float:
        """Return what one instance costs now, in USD per hour."""
        return self.price_history(pool)[-1].usd_per_hour

    def price_history(self, pool: CapacityPool) -> list[PriceStep]:
        """Return every change of a pool's price, oldest first; the first lies before the market opened."""
        if pool not in self._prices:
            # Seeded by name and not drawn in turn: the order of questions must not change the answers.
            dice = random.Random(f"{self._seed}/{pool}")
            kind = self.catalogue.types[pool.instance_type]
            price = kind.vcpus * _PRICE_PER_VCPU + kind.gpus * _PRICE_PER_GPU
            if pool.market is Market.SPOT:
                price *= dice.uniform(*_SPOT_SHARE)
            since = self._opened_at - _OLDEST_FIRST_PRICE * dice.random()
            self._prices[pool] = [PriceStep(at=since, usd_per_hour=round(price, 6))]
        return self._prices[pool]

    def set_quota(self, code: str, vcpus: float) -> None:
        """Set what the account may run. Raises KeyError for a code that is not a vCPU quota of EC2."""
        if code not in self._quotas:
            raise KeyError(code)
        self._quotas[code] = vcpus

    def quota(self, code: str) -> float:
        """Return what the account may run, in vCPUs. Raises KeyError for a code that is not a vCPU quota of EC2."""
        return self._quotas[code]

    def admit(self, pool: CapacityPool, count: int, living: Iterable[CapacityPool]) -> None:
        """Check a launch of `count` instances against the quota, then against the pool.

        `living` names the pool of each instance that is not terminated: a noticed one, and one that shuts down, still counts.

        Raises:
            Refused: `MaxSpotInstanceCountExceeded`, `VcpuLimitExceeded` or `InsufficientInstanceCapacity`.
        """
        instances = Counter(living)
        self._check_quota(pool, count, instances)
        capacity = self._capacity.get(pool)
        if capacity is not None and instances[pool] + count > capacity:
            zone = self.catalogue.zone_names[pool.availability_zone_id]
            if pool.market is Market.SPOT:
                raise Refused("InsufficientInstanceCapacity", "There is no Spot capacity available that matches your request.")
            raise Refused(
                "InsufficientInstanceCapacity",
                f"We currently do not have sufficient {pool.instance_type} capacity in the Availability Zone you requested ({zone}).",
            )

    def _check_quota(self, pool: CapacityPool, count: int, instances: Counter[CapacityPool]) -> None:
        quota = vcpu_quotas.quota_of(pool.instance_type, pool.market)
        if quota is None:
            return
        # The user guide exempts pending On-Demand instances; counting them from the launch call on is the stricter reading,
        # under which two launches at once cannot both slip through.
        used = sum(
            self.catalogue.types[other.instance_type].vcpus * number
            for other, number in instances.items()
            if vcpu_quotas.quota_of(other.instance_type, other.market) is quota
        )
        needed = self.catalogue.types[pool.instance_type].vcpus * count
        limit = self._quotas[quota.code]
        if used + needed <= limit:
            return
        if pool.market is Market.SPOT:
            raise Refused("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        raise Refused(
            "VcpuLimitExceeded",
            f"You have requested more vCPU capacity than your current vCPU limit of {limit:g} allows for the instance bucket "
            "that the specified instance type belongs to.",
        )
