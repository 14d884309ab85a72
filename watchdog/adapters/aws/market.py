"""Where instance types are offered, and what they cost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from policies.model import CapacityPool, Market
from watchdog.adapters.aws.errors import cloud_errors
from watchdog.adapters.aws.families import quota_family
from watchdog.adapters.aws.instance_types import InstanceTypes
from watchdog.adapters.aws.session import Aws
from watchdog.adapters.aws.zones import Network
from watchdog.clock import Clock
from watchdog.errors import CloudUnavailable
from watchdog.ports import PoolFacts

log = logging.getLogger(__name__)

_PRODUCT = "Linux/UNIX"
_Place = tuple[str, str]
"""An instance type and a zone id."""


class AwsMarketData:
    """`ports.MarketData` over EC2."""

    def __init__(self, aws: Aws, network: Network, instance_types: InstanceTypes, clock: Clock) -> None:
        """Look at the zones of `network`."""
        self._aws = aws
        self._network = network
        self._instance_types = instance_types
        self._clock = clock

    async def known_instance_types(self, instance_types: Iterable[str]) -> frozenset[str]:
        """Return those of `instance_types` that EC2 knows in this Region. Raises CloudUnavailable."""
        return frozenset(await self._instance_types.vcpus(instance_types))

    async def pools(self, instance_types: Iterable[str]) -> Sequence[PoolFacts]:
        """Return the pools, of both markets, where these types are offered and we have a subnet. Raises CloudUnavailable.

        A price that cannot be read is unknown and does not hold back the pools. On-Demand prices are another service's and unknown.
        """
        asked = sorted(set(instance_types))
        vcpus, places, prices = await asyncio.gather(
            self._instance_types.vcpus(asked), self._offered(asked), self._spot_prices_if_readable(asked)
        )
        return [
            PoolFacts(
                pool=CapacityPool(region=self._aws.config.region, availability_zone_id=zone, instance_type=name, market=market),
                vcpus=vcpus[name],
                quota_family=quota_family(name, market),
                price_per_hour=prices.get((name, zone)) if market is Market.SPOT else None,
            )
            for name, zone in sorted(places)
            if name in vcpus
            for market in Market
        ]

    async def _offered(self, instance_types: Sequence[str]) -> set[_Place]:
        if not instance_types:
            return set()
        with cloud_errors("DescribeInstanceTypeOfferings"):
            pages = await self._aws.pages(
                self._aws.ec2.get_paginator("describe_instance_type_offerings").paginate,
                LocationType="availability-zone-id",
                Filters=[{"Name": "instance-type", "Values": list(instance_types)}],
            )
        places = {(each["InstanceType"], each["Location"]) for page in pages for each in page["InstanceTypeOfferings"]}
        return {(name, zone) for name, zone in places if zone in self._network.subnets}

    async def _spot_prices_if_readable(self, instance_types: Sequence[str]) -> Mapping[_Place, float]:
        try:
            return await self._spot_prices(instance_types)
        except CloudUnavailable as error:
            log.warning("prices.unreadable", extra={"why": str(error)})
            return {}

    async def _spot_prices(self, instance_types: Sequence[str]) -> Mapping[_Place, float]:
        """Return the current Spot prices in USD per hour: the history is of changes, and starts with the one before its start."""
        if not instance_types:
            return {}
        with cloud_errors("DescribeSpotPriceHistory"):
            pages = await self._aws.pages(
                self._aws.ec2.get_paginator("describe_spot_price_history").paginate,
                InstanceTypes=list(instance_types),
                ProductDescriptions=[_PRODUCT],
                StartTime=self._clock.now(),
            )
        latest: dict[_Place, tuple[datetime, float]] = {}
        for entry in (each for page in pages for each in page["SpotPriceHistory"]):
            zone_name = entry.get("AvailabilityZone", "")
            zone = entry.get("AvailabilityZoneId") or self._network.zone_ids.get(zone_name, zone_name)
            place = (entry["InstanceType"], zone)
            change = (entry["Timestamp"], float(entry["SpotPrice"]))
            latest[place] = max(change, latest.get(place, change))
        return {place: price for place, (_, price) in latest.items()}
