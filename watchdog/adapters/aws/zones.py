"""Which zones we can launch in: our subnets, by Availability Zone id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from watchdog.adapters.aws.errors import cloud_errors
from watchdog.adapters.aws.session import Aws
from watchdog.errors import SettingsInvalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Our subnets and their zones."""

    subnets: Mapping[str, tuple[str, ...]]
    """Subnet ids by zone id, in the order to try."""
    zone_ids: Mapping[str, str]
    """Zone ids by zone name, in this account: names differ between accounts, ids do not."""


async def discover_network(aws: Aws, subnet_ids: Sequence[str] | None = None) -> Network:
    """Return the zones of the given subnets; without any, those of the default VPC.

    Raises:
        SettingsInvalid: a subnet does not exist, or there is none at all.
        CloudUnavailable: EC2 does not answer.
    """
    # Filters rather than ids: an unknown id would fail the whole call without saying which.
    chosen = {"Name": "subnet-id", "Values": list(subnet_ids)} if subnet_ids else {"Name": "default-for-az", "Values": ["true"]}
    with cloud_errors("DescribeSubnets"):
        pages = await aws.pages(aws.ec2.get_paginator("describe_subnets").paginate, Filters=[chosen])
    described = [subnet for page in pages for subnet in page["Subnets"]]
    zone_of = {subnet["SubnetId"]: subnet["AvailabilityZoneId"] for subnet in described}
    missing = [subnet for subnet in subnet_ids or () if subnet not in zone_of]
    if missing:
        raise SettingsInvalid(f"SPOT_WATCHDOG_SUBNETS: {aws.config.region} has no subnet {', '.join(missing)}")
    if not zone_of:
        raise SettingsInvalid(f"SPOT_WATCHDOG_SUBNETS: {aws.config.region} has no default subnets: name the subnets to launch in")
    subnets: dict[str, tuple[str, ...]] = {}
    for subnet in subnet_ids or sorted(zone_of):
        zone = zone_of[subnet]
        subnets[zone] = (*subnets.get(zone, ()), subnet)
    return Network(subnets=subnets, zone_ids={subnet["AvailabilityZone"]: subnet["AvailabilityZoneId"] for subnet in described})
