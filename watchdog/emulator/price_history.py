"""DescribeSpotPriceHistory: step changes per pool, newest first, and the last one before the start of the window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from moto.ec2.exceptions import EC2ClientError

from policies.model import CapacityPool, Market
from watchdog.emulator.market import PriceStep, SpotMarket

_PRODUCT = "Linux/UNIX"
_LARGEST_PAGE = 1000
_FILTERS = {"availability-zone", "availability-zone-id", "instance-type", "product-description"}


def describe(market: SpotMarket, params: Mapping[str, Any], filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of the history that the call asks for. Raises EC2ClientError for a filter that is not known."""
    for name in filters:
        if name not in _FILTERS:
            raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid")
    products = [*(params.get("ProductDescriptions") or []), *filters.get("product-description", [])]
    rows = [] if products and _PRODUCT not in products else list(_rows(market, params, filters))
    rows.sort(key=lambda row: (row["Timestamp"], row["AvailabilityZone"], row["InstanceType"]), reverse=True)
    start = int(params.get("NextToken") or 0)
    end = start + min(int(params.get("MaxResults") or _LARGEST_PAGE), _LARGEST_PAGE)
    # EC2 answers "" where there is no next page.
    return {"SpotPriceHistory": rows[start:end], "NextToken": str(end) if end < len(rows) else ""}


def _rows(market: SpotMarket, params: Mapping[str, Any], filters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    since, until = _instant(params.get("StartTime")), _instant(params.get("EndTime"))
    for pool in _pools(market, params, filters):
        for step in _window(market.price_history(pool), since, until):
            yield {
                "AvailabilityZone": market.catalogue.zone_names[pool.availability_zone_id],
                "AvailabilityZoneId": pool.availability_zone_id,
                "InstanceType": pool.instance_type,
                "ProductDescription": _PRODUCT,
                "SpotPrice": f"{step.usd_per_hour:.6f}",
                "Timestamp": step.at,
            }


def _pools(market: SpotMarket, params: Mapping[str, Any], filters: Mapping[str, Any]) -> Iterator[CapacityPool]:
    types = {*(params.get("InstanceTypes") or []), *filters.get("instance-type", [])}
    names = {*filter(None, [params.get("AvailabilityZone")]), *filters.get("availability-zone", [])}
    ids = {*filter(None, [params.get("AvailabilityZoneId")]), *filters.get("availability-zone-id", [])}
    for name, zone_id in market.catalogue.zone_ids.items():
        if (names and name not in names) or (ids and zone_id not in ids):
            continue
        for instance_type in sorted(types or market.catalogue.offered[zone_id]):
            if market.catalogue.offers(zone_id, instance_type):
                yield market.pool(zone_id, instance_type, Market.SPOT)


def _window(steps: list[PriceStep], since: datetime | None, until: datetime | None) -> list[PriceStep]:
    known = [step for step in steps if until is None or step.at <= until]
    if since is None:
        return known
    before = [step for step in known if step.at < since]
    return [*before[-1:], *(step for step in known if step.at >= since)]


def _instant(value: Any) -> datetime | None:
    if value is None:
        return None
    instant = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
