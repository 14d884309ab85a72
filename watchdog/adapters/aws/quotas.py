"""The vCPU quotas of EC2, and how much of them is used."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from policies.model import Market
from watchdog.adapters.aws.errors import cloud_errors
from watchdog.adapters.aws.families import QUOTAS, quota_family
from watchdog.adapters.aws.instance_types import InstanceTypes
from watchdog.adapters.aws.session import Aws
from watchdog.errors import CloudUnavailable
from watchdog.ports import QuotaReading

log = logging.getLogger(__name__)

_Counted = tuple[str, Market]
"""A family and a market."""
_PAGE = 1000
_MARKETS: Mapping[str, Market] = {"": Market.ON_DEMAND, "spot": Market.SPOT}
"""By `InstanceLifecycle`, which an On-Demand instance lacks; others (`capacity-block`) count against neither."""


class AwsQuotas:
    """`ports.Quotas` over Service Quotas and EC2."""

    def __init__(self, aws: Aws, instance_types: InstanceTypes) -> None:
        """Ask this AWS."""
        self._aws = aws
        self._instance_types = instance_types

    async def read(self) -> Sequence[QuotaReading]:
        """Return every vCPU quota we know the meaning of; a limit or usage that cannot be read is None. Raises CloudUnavailable."""
        limits, used = await asyncio.gather(self._limits(), self._used_if_readable())
        return [
            QuotaReading(
                family=quota.family,
                market=quota.market,
                code=quota.code,
                limit_vcpus=limits.get(quota.code),
                used_vcpus=None if used is None else used.get((quota.family, quota.market), 0.0),
            )
            for quota in QUOTAS
        ]

    async def _limits(self) -> Mapping[str, float]:
        with cloud_errors("ListServiceQuotas"):
            paginate = self._aws.service_quotas.get_paginator("list_service_quotas").paginate
            pages = await self._aws.pages(paginate, ServiceCode="ec2")
        rows = [row for page in pages for row in page["Quotas"]]
        # A row with an ErrorReason carries no value that could be trusted.
        return {row["QuotaCode"]: row["Value"] for row in rows if "QuotaCode" in row and "Value" in row and not row.get("ErrorReason")}

    async def _used_if_readable(self) -> Mapping[_Counted, float | None] | None:
        try:
            return await self._used()
        except CloudUnavailable as error:
            log.warning("quota_usage.unreadable", extra={"why": str(error)})
            return None

    async def _used(self) -> Mapping[_Counted, float | None]:
        """Count the vCPUs of instances that run, those under notice among them: they count until EC2 closes their Spot request."""
        with cloud_errors("DescribeInstances"):
            pages = await self._aws.pages(
                self._aws.ec2.get_paginator("describe_instances").paginate,
                Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}],
                PaginationConfig={"PageSize": _PAGE},
            )
        running: Counter[tuple[str, Market]] = Counter()
        for reservation in (each for page in pages for each in page["Reservations"]):
            for instance in reservation.get("Instances", []):
                market = _MARKETS.get(instance.get("InstanceLifecycle", ""))
                if market is not None:
                    running[instance["InstanceType"], market] += 1
        vcpus = await self._instance_types.vcpus({name for name, _ in running})
        used: dict[_Counted, float | None] = {}
        for (name, market), count in running.items():
            family = quota_family(name, market)
            if family is None:
                continue
            before = used.get((family, market), 0.0)
            used[family, market] = None if before is None or name not in vcpus else before + count * vcpus[name]
        return used
