"""How the emulator gets into moto's EC2: methods added to or wrapped on its classes, each of them pinned by a contract test."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import Instance, InstanceBackend
from moto.ec2.responses.fleets import Fleets
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.spot_fleets import SpotFleets
from moto.ec2.responses.spot_instances import SpotInstances
from moto.ec2.utils import filter_dict_attribute_mapping, is_tag_filter

from policies.model import Market
from watchdog.emulator import price_history, spot_requests
from watchdog.emulator.cloud import Cloud
from watchdog.emulator.launch_call import LaunchCalls
from watchdog.emulator.market import Catalogue, InstanceType
from watchdog.errors import NotFound

_FILTERS = {
    "availability-zone-id": "placement.availability_zone_id",
    "client-token": "client_token",
    "instance-lifecycle": "lifecycle",
    "reservation-id": "reservation_id",
    "spot-instance-request-id": "spot_instance_request_id",
}
"""Filters of DescribeInstances that moto answers with HTTP 500."""

_NOT_EMULATED = (
    (Fleets, "create_fleet"),
    (SpotFleets, "request_spot_fleet"),
    (SpotInstances, "request_spot_instances"),
    (InstanceResponse, "start_instances"),
    (InstanceResponse, "stop_instances"),
    (InstanceResponse, "reboot_instances"),
)
"""moto would answer these without any regard to the market or to the processes; an honest refusal is better."""


def catalogue_of(region: str) -> Catalogue:
    """Return what moto knows of a Region: zones, types, and which zone has which type."""
    offered: dict[str, set[str]] = {}
    for offering in INSTANCE_TYPE_OFFERINGS["availability-zone-id"][region]:
        offered.setdefault(offering["Location"], set()).add(offering["InstanceType"])
    return Catalogue(
        region=region,
        zone_ids={zone.name: zone.zone_id for zone in RegionsAndZonesBackend.zones[region]},
        types={
            name: InstanceType(
                vcpus=data["VCpuInfo"]["DefaultVCpus"],
                gpus=sum(gpu.get("Count", 0) for gpu in data.get("GpuInfo", {}).get("Gpus", [])),
            )
            for name, data in INSTANCE_TYPES.items()
        },
        offered={zone_id: frozenset(types) for zone_id, types in offered.items()},
    )


def install(cloud: Cloud) -> None:
    """Put the market, the tokens and the processes behind moto's EC2. Once per process: there is no way back."""
    _install_launch(cloud)
    _install_terminate(cloud)
    _install_describe_instances()
    _install_spot(cloud)
    for owner, name in _NOT_EMULATED:
        setattr(owner, name, _refusal(name))


def _install_launch(cloud: Cloud) -> None:
    calls = LaunchCalls(cloud)
    region = cloud.market.catalogue.region
    answer: Callable[[InstanceResponse], ActionResult] = InstanceResponse.run_instances
    make: Callable[..., Any] = InstanceBackend.run_instances
    release: Callable[[Instance], object] = Instance.terminate

    def run_instances(self: InstanceResponse) -> ActionResult:
        if self.region != region:
            raise EC2ClientError("OptInRequired", f"The emulator has one Region, {region}; you are not subscribed to {self.region}.")
        return ActionResult(calls.run(self.params, self.ec2_backend, lambda: answer(self).result))

    def make_instances(
        self: InstanceBackend, image_id: str, count: int, user_data: Any, security_group_names: list[str], **kwargs: Any
    ) -> Any:
        market = Market.SPOT if kwargs.get("instance_market_options") == "spot" else Market.ON_DEMAND
        pool = cloud.market.pool(cloud.market.catalogue.zone_ids[kwargs["placement"]], kwargs["instance_type"], market)
        cloud.market.admit(pool, count, cloud.living_pools())
        tags: Mapping[str, dict[str, str]] = kwargs.get("tags", {})
        reservation = make(self, image_id, count, user_data, security_group_names, **kwargs)
        for instance in reservation.instances:
            instance.reservation_id = reservation.id
            cloud.adopt(
                instance,
                pool,
                user_data=base64.b64decode(str(user_data)) if user_data else b"",
                request_tags=tags.get("spot-instances-request", {}),
                release=partial(release, instance),
            )
        return reservation

    setattr(InstanceResponse, "run_instances", run_instances)  # noqa: B010 - an assignment would be a type error
    setattr(InstanceBackend, "run_instances", make_instances)  # noqa: B010


def _install_terminate(cloud: Cloud) -> None:
    def terminate(self: Instance) -> Any:
        previous = copy.copy(self._state)
        cloud.terminate(cloud.instance(self.id))
        return previous

    setattr(Instance, "terminate", terminate)  # noqa: B010


def _install_describe_instances() -> None:
    filter_dict_attribute_mapping.update(_FILTERS)
    describe: Callable[[InstanceResponse], ActionResult] = InstanceResponse.describe_instances

    def describe_instances(self: InstanceResponse) -> ActionResult:
        for name in self._filters_from_querystring():
            if name not in filter_dict_attribute_mapping and not is_tag_filter(name):
                raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid")
        return describe(self)

    setattr(InstanceResponse, "describe_instances", describe_instances)  # noqa: B010


def _install_spot(cloud: Cloud) -> None:
    def describe_spot_instance_requests(self: SpotInstances) -> ActionResult:
        wanted = self._get_param("SpotInstanceRequestIds", [])
        return ActionResult(spot_requests.describe(cloud, wanted, self._filters_from_querystring()))

    def cancel_spot_instance_requests(self: SpotInstances) -> ActionResult:
        try:
            cancelled = [cloud.cancel_request(request_id) for request_id in self._get_param("SpotInstanceRequestIds", [])]
        except NotFound as error:
            raise EC2ClientError("InvalidSpotInstanceRequestID.NotFound", str(error)) from error
        return ActionResult(
            {"CancelledSpotInstanceRequests": [{"SpotInstanceRequestId": each.request_id, "State": each.state} for each in cancelled]}
        )

    def describe_spot_price_history(self: SpotInstances) -> ActionResult:
        return ActionResult(price_history.describe(cloud.market, self.params, self._filters_from_querystring()))

    setattr(SpotInstances, "describe_spot_instance_requests", describe_spot_instance_requests)  # noqa: B010
    setattr(SpotInstances, "cancel_spot_instance_requests", cancel_spot_instance_requests)  # noqa: B010
    setattr(SpotInstances, "describe_spot_price_history", describe_spot_price_history)  # noqa: B010


def _refusal(name: str) -> Callable[[Any], ActionResult]:
    def refuse(_: Any) -> ActionResult:
        raise EC2ClientError("UnsupportedOperation", f"{name} is not emulated")

    return refuse
