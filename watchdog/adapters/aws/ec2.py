"""Starting, finding and ending instances with EC2."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from policies.model import CapacityPool, Market
from watchdog.adapters.aws import tags
from watchdog.adapters.aws.errors import NO_ANSWER, cloud_errors, code_of, launch_failure
from watchdog.adapters.aws.session import Aws
from watchdog.adapters.aws.zones import Network
from watchdog.errors import LaunchRefused, LaunchScope
from watchdog.ids import InstanceId
from watchdog.ports import Instance, InstanceState, LaunchRequest

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

log = logging.getLogger(__name__)

_USER_DATA_BYTES = 16 * 1024
"""Before encoding. EC2 User Guide, "Run commands when you launch an instance"."""
_FILTER_VALUES = 200
"""The most values of one filter. EC2 User Guide, "Filter your resources"."""
_PAGE = 1000
_ALIVE_OR_ENDING = ["pending", "running", "shutting-down", "stopping", "stopped"]
_SECONDS_UNTIL_VISIBLE = (0.5, 1.5, 3.0)
_REMEMBERED_TOKENS = 1000


class Ec2Compute:
    """`ports.Compute` over EC2."""

    def __init__(
        self, aws: Aws, network: Network, deployment: str, *, seconds_until_visible: Sequence[float] = _SECONDS_UNTIL_VISIBLE
    ) -> None:
        """Launch in the subnets of `network` and mark everything as `deployment`'s.

        `seconds_until_visible` are the waits for an instance that is to be ended and that EC2 does not know yet.
        """
        self._aws = aws
        self._network = network
        self._deployment = deployment
        self._seconds_until_visible = seconds_until_visible
        self._refusing_subnets: dict[str, int] = {}
        """By client token: how many of the zone's subnets have surely refused it, so that a repeat goes to the one that may have taken it."""

    async def launch(self, request: LaunchRequest) -> Instance:
        """Start one instance in the pool's zone; if a subnet has no addresses left, in the zone's next subnet.

        Raises:
            LaunchRefused: EC2 said no, in the last subnet tried. `scope` says what to close.
            LaunchOutcomeUnknown: no answer came.
        """
        size = len(request.user_data.encode())
        if size > _USER_DATA_BYTES:
            message = f"user data has {size} bytes, EC2 takes {_USER_DATA_BYTES}"
            raise LaunchRefused("InvalidUserData.Malformed", message, LaunchScope.CONFIGURATION)
        zone = request.pool.availability_zone_id
        subnets = self._network.subnets.get(zone, ())
        if not subnets:
            raise LaunchRefused("NoSubnet", f"we have no subnet in {zone}", LaunchScope.POOL)
        for number in range(self._refusing_subnets.get(request.client_token, 0), len(subnets) - 1):
            try:
                return await self._run_instance(request, zone, number)
            except LaunchRefused as refused:
                if refused.scope is not LaunchScope.SUBNET:
                    raise
                log.warning("launch.subnet_full", extra={"subnet_id": subnets[number], "pool": str(request.pool)})
                self._remember_refusals(request.client_token, number + 1)
        return await self._run_instance(request, zone, len(subnets) - 1)

    async def find(self, client_token: str) -> Instance | None:
        """Return the instance started with `client_token`, a living one first. Raises CloudUnavailable."""
        fallbacks = [subnet for zone in self._network.subnets.values() for subnet in zone[1:]]
        tokens = [client_token, *(_token_for(client_token, subnet) for subnet in fallbacks)]
        found = await self._describe([{"Name": "client-token", "Values": tokens[:_FILTER_VALUES]}])
        return max(found, key=lambda instance: (instance.state.alive, instance.launched_at), default=None)

    async def describe(self, instance_ids: Iterable[InstanceId]) -> Mapping[InstanceId, Instance]:
        """Return what EC2 says of these instances, by a filter: one id that is unknown would fail a call that names it."""
        ids = sorted(set(instance_ids))
        batches = [ids[start : start + _FILTER_VALUES] for start in range(0, len(ids), _FILTER_VALUES)]
        answers = await asyncio.gather(*(self._describe([{"Name": "instance-id", "Values": list(batch)}]) for batch in batches))
        return {instance.instance_id: instance for answer in answers for instance in answer}

    async def list_owned(self) -> Sequence[Instance]:
        """Return every instance, not yet terminated, that carries this deployment's tag. Raises CloudUnavailable."""
        return await self._describe(
            [
                {"Name": f"tag:{tags.DEPLOYMENT}", "Values": [self._deployment]},
                {"Name": "instance-state-name", "Values": _ALIVE_OR_ENDING},
            ]
        )

    async def terminate(self, instance_id: InstanceId) -> None:
        """End an instance. Raises CloudUnavailable.

        EC2 may not know an instance for a moment after its launch, and forgets it about an hour after its end. After a few tries it is
        taken for gone: an instance that shows up later still carries our tag, and the sweep ends it.
        """
        for wait in (*self._seconds_until_visible, None):
            with cloud_errors("TerminateInstances"):
                try:
                    await self._aws.call(self._aws.ec2.terminate_instances, InstanceIds=[instance_id])
                except ClientError as error:
                    if code_of(error) != "InvalidInstanceID.NotFound":
                        raise
                else:
                    return
            if wait is not None:
                await asyncio.sleep(wait)
        log.warning("instance.not_known", extra={"instance_id": instance_id})

    async def _run_instance(self, request: LaunchRequest, zone: str, number: int) -> Instance:
        subnet = self._network.subnets[zone][number]
        token = request.client_token if number == 0 else _token_for(request.client_token, subnet)
        parameters = _run_parameters(request, subnet=subnet, token=token, deployment=self._deployment)
        try:
            answer = await self._aws.call(self._aws.ec2_launch.run_instances, **parameters)
        except (ClientError, *NO_ANSWER) as error:
            raise launch_failure(error) from error
        return self._instance(answer["Instances"][0])

    def _remember_refusals(self, client_token: str, count: int) -> None:
        self._refusing_subnets[client_token] = count
        if len(self._refusing_subnets) > _REMEMBERED_TOKENS:
            self._refusing_subnets.pop(next(iter(self._refusing_subnets)))

    async def _describe(self, filters: Sequence[FilterTypeDef]) -> list[Instance]:
        with cloud_errors("DescribeInstances"):
            paginate = self._aws.ec2.get_paginator("describe_instances").paginate
            pages = await self._aws.pages(paginate, Filters=filters, PaginationConfig={"PageSize": _PAGE})
        reservations = [reservation for page in pages for reservation in page["Reservations"]]
        return [self._instance(described) for reservation in reservations for described in reservation.get("Instances", [])]

    def _instance(self, described: InstanceTypeDef) -> Instance:
        placement = described.get("Placement", {})
        zone_name = placement.get("AvailabilityZone", "")
        pool = CapacityPool(
            region=self._aws.config.region,
            availability_zone_id=placement.get("AvailabilityZoneId") or self._network.zone_ids.get(zone_name, zone_name),
            instance_type=described["InstanceType"],
            market=Market.SPOT if described.get("InstanceLifecycle") == "spot" else Market.ON_DEMAND,
        )
        return Instance(
            instance_id=InstanceId(described["InstanceId"]),
            pool=pool,
            state=InstanceState(described["State"]["Name"]),
            launched_at=described["LaunchTime"].astimezone(UTC),
            client_token=described.get("ClientToken") or None,
            private_ip=described.get("PrivateIpAddress") or None,
            spot_request_id=described.get("SpotInstanceRequestId") or None,
            state_reason=described.get("StateReason", {}).get("Code") or None,
            tags=tags.as_mapping(described.get("Tags", [])),
        )


def _token_for(client_token: str, subnet: str) -> str:
    """Return another token for another subnet: the same one with other parameters would be refused."""
    return sha256(f"{client_token}/{subnet}".encode()).hexdigest()


def _run_parameters(request: LaunchRequest, *, subnet: str, token: str, deployment: str) -> dict[str, Any]:
    spot = request.pool.market is Market.SPOT
    template = "LaunchTemplateId" if request.launch_template.startswith("lt-") else "LaunchTemplateName"
    tagged = ["instance", "volume", *(["spot-instances-request"] if spot else [])]
    parameters: dict[str, Any] = {
        "LaunchTemplate": {template: request.launch_template},
        "InstanceType": request.pool.instance_type,
        "SubnetId": subnet,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": token,
        "UserData": request.user_data,  # boto3 encodes it
        "TagSpecifications": tags.specifications(tagged, deployment=deployment, tags=request.tags),
    }
    if spot:
        # One-time, since a persistent request would start a second instance by itself; no highest price, which only adds interruptions.
        parameters["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
    return parameters
