"""RunInstances as EC2 takes it: templates, checks, and the table of client tokens. moto does the rest."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from moto.core.exceptions import ServiceException
from moto.ec2.exceptions import EC2ClientError

from watchdog.emulator.cloud import Cloud
from watchdog.emulator.market import Catalogue, Refused

_USER_DATA_LIMIT = 16_384
_FROM_TEMPLATE = ("ImageId", "InstanceType", "InstanceMarketOptions", "MetadataOptions", "Placement", "SubnetId", "UserData")
"""What a launch takes from its template; moto itself sees to key, groups, volumes and tags."""
_TAG_KEY_IN_METADATA = re.compile(r"(?!_index$|\.{1,2}$)[A-Za-z0-9+\-=.,_:@]+")


def apply_template(params: MutableMapping[str, Any], ec2_backend: Any) -> None:
    """Fill what the call leaves out from its launch template. Raises EC2ClientError for a template that does not exist."""
    named = params.get("LaunchTemplate")
    if not named:
        return
    template_id = named.get("LaunchTemplateId")
    if template_id is not None and not template_id.startswith("lt-"):
        raise EC2ClientError("InvalidLaunchTemplateId.Malformed", f"The launch template ID '{template_id}' is malformed.")
    if template_id is not None and template_id not in ec2_backend.launch_templates:
        raise EC2ClientError(
            "InvalidLaunchTemplateId.NotFound", f"The specified launch template, with template ID {template_id}, does not exist."
        )
    data = ec2_backend._get_template_from_args(named).data  # noqa: SLF001 - moto's own way from a reference to a version
    for name in _FROM_TEMPLATE:
        if params.get(name) is None and data.get(name) is not None:
            value = data[name]
            params[name] = str(value) if name == "UserData" else value


def place(params: MutableMapping[str, Any], catalogue: Catalogue, ec2_backend: Any) -> None:
    """Write the zone of a launch into its placement, once it is clear. Raises EC2ClientError for zones that do not fit."""
    placement = dict(params.get("Placement") or {})
    zone_id = placement.pop("AvailabilityZoneId", None)
    asked = catalogue.zone_names.get(zone_id) if zone_id else placement.get("AvailabilityZone")
    if (zone_id and asked is None) or (asked and asked not in catalogue.zone_ids):
        raise EC2ClientError("InvalidParameterValue", f"Invalid availability zone: [{zone_id or asked}]")
    subnet_id = params.get("SubnetId") or next((n["SubnetId"] for n in params.get("NetworkInterfaces") or [] if "SubnetId" in n), None)
    if subnet_id:
        zone = ec2_backend.get_subnet(subnet_id).availability_zone
        if asked not in {None, zone}:
            raise EC2ClientError(
                "InvalidParameterValue",
                f"The availability zone of the subnet ({subnet_id}: {zone}) is not the specified availability zone ({asked}).",
            )
    else:
        # EC2 chooses: here, the first zone that has the type at all.
        offering = (name for name, id_ in sorted(catalogue.zone_ids.items()) if catalogue.offers(id_, params.get("InstanceType", "")))
        zone = asked or next(offering, None)
    if zone is not None:
        params["Placement"] = {**placement, "AvailabilityZone": zone}


def check(params: Mapping[str, Any], catalogue: Catalogue, ec2_backend: Any) -> None:
    """Refuse what EC2 refuses before it looks at capacity. Raises EC2ClientError."""
    image_id, instance_type = params.get("ImageId"), params.get("InstanceType")
    if not image_id:
        raise EC2ClientError("MissingParameter", "The request must contain the parameter ImageId")
    if not instance_type or instance_type not in catalogue.types:
        raise EC2ClientError("InvalidParameterValue", f"Invalid value '{instance_type}' for InstanceType.")
    if not params.get("Placement"):
        raise EC2ClientError("Unsupported", f"Your requested instance type ({instance_type}) is not supported in this Region.")
    ec2_backend.describe_images(ami_ids=[image_id])
    if len(base64.b64decode(params.get("UserData") or "")) > _USER_DATA_LIMIT:
        raise EC2ClientError("InvalidUserData.Malformed", f"User data is limited to {_USER_DATA_LIMIT} bytes")
    if (params.get("MetadataOptions") or {}).get("InstanceMetadataTags") == "enabled":
        for specification in params.get("TagSpecifications") or []:
            for tag in specification.get("Tags") or []:
                if specification.get("ResourceType") == "instance" and not _TAG_KEY_IN_METADATA.fullmatch(tag["Key"]):
                    raise EC2ClientError("InvalidParameterValue", f"Tag key '{tag['Key']}' cannot be shown in instance metadata.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launched:
    fingerprint: str
    reservation: Any


class LaunchCalls:
    """RunInstances with client tokens: the same call again returns the same instances."""

    def __init__(self, cloud: Cloud) -> None:
        """Start with an empty table of tokens."""
        self._cloud = cloud
        self._tokens: dict[tuple[str, str | None], _Launched] = {}

    def run(self, params: MutableMapping[str, Any], ec2_backend: Any, launch: Callable[[], Any]) -> Any:
        """Return the reservation of an earlier call with this token, or check the call and return what `launch` makes.

        Raises ServiceException, which is what moto turns into EC2's error answer.
        """
        catalogue = self._cloud.market.catalogue
        fingerprint = json.dumps({name: value for name, value in params.items() if name != "client_token"}, sort_keys=True, default=str)
        try:
            apply_template(params, ec2_backend)
            zoned = bool(params.get("SubnetId") or params.get("Placement") or params.get("NetworkInterfaces"))
            place(params, catalogue, ec2_backend)
            zone = (params.get("Placement") or {}).get("AvailabilityZone")
            # A token is zonal when the call names a zone or subnet, so that the same token elsewhere is another launch; otherwise it
            # is regional (EC2 API reference, "Ensuring idempotency").
            token = (params["ClientToken"], zone if zoned else None) if params.get("ClientToken") else None
            if token is not None and (earlier := self._tokens.get(token)) is not None:
                return self._again(earlier, fingerprint)
            check(params, catalogue, ec2_backend)
            reservation = launch()
        except (Refused, ServiceException) as error:
            if getattr(error, "code", "") != "DryRunOperation":
                self._cloud.timeline.add("launch_refused", code=error.code, message=error.message, client_token=params.get("ClientToken"))
            raise EC2ClientError(error.code, error.message) from error
        if token is not None:
            self._tokens[token] = _Launched(fingerprint=fingerprint, reservation=reservation)
        return reservation

    def _again(self, earlier: _Launched, fingerprint: str) -> Any:
        if earlier.fingerprint != fingerprint:
            raise EC2ClientError(
                "IdempotentParameterMismatch",
                "The client token you have provided is associated with a resource that has different parameters.",
            )
        if not any(self._cloud.instance(instance.id).alive for instance in earlier.reservation.instances):
            raise EC2ClientError(
                "IdempotentInstanceTerminated",
                "The client token you have provided is associated with an instance that has been terminated.",
            )
        return earlier.reservation
