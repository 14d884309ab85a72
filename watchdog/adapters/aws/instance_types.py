"""What EC2 says of instance types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from watchdog.adapters.aws.errors import cloud_errors
from watchdog.adapters.aws.session import Aws

_FILTER_VALUES = 100


class InstanceTypes:
    """The vCPUs of instance types, each asked for once: a type never changes."""

    def __init__(self, aws: Aws) -> None:
        """Ask this AWS."""
        self._aws = aws
        self._vcpus: dict[str, int] = {}

    async def vcpus(self, instance_types: Iterable[str]) -> Mapping[str, int]:
        """Return the default vCPUs of those types that EC2 knows in this Region. Raises CloudUnavailable.

        Types are asked for by a filter, since one unknown name would fail a call that names it. A filter takes wildcards and a name
        may hold one, which is why the answer is cut down to what was asked for.
        """
        asked = set(instance_types)
        unread = sorted(asked - self._vcpus.keys())
        for start in range(0, len(unread), _FILTER_VALUES):
            batch = unread[start : start + _FILTER_VALUES]
            with cloud_errors("DescribeInstanceTypes"):
                paginate = self._aws.ec2.get_paginator("describe_instance_types").paginate
                pages = await self._aws.pages(paginate, Filters=[{"Name": "instance-type", "Values": batch}])
            for described in (each for page in pages for each in page["InstanceTypes"]):
                self._vcpus[described["InstanceType"]] = described["VCpuInfo"]["DefaultVCpus"]
        return {name: self._vcpus[name] for name in asked if name in self._vcpus}
