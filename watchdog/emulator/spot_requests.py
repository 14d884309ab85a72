"""DescribeSpotInstanceRequests."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from moto.ec2.exceptions import EC2ClientError

from watchdog.emulator.cloud import Cloud
from watchdog.emulator.instance import EmulatedInstance, SpotRequest

Row = dict[str, Any]


def describe(cloud: Cloud, request_ids: Sequence[str], filters: Mapping[str, Any]) -> dict[str, list[Row]]:
    """Return the requests of these ids (all, if none is given) that pass every filter.

    Raises EC2ClientError for an id that does not exist or a filter that EC2 does not know.
    """
    rows = {
        instance.spot_request.request_id: _row(cloud, instance, instance.spot_request)
        for instance in cloud.instances()
        if instance.spot_request is not None
    }
    for request_id in request_ids:
        if request_id not in rows:
            raise EC2ClientError("InvalidSpotInstanceRequestID.NotFound", f"The spot instance request ID '{request_id}' does not exist")
    chosen = [rows[request_id] for request_id in request_ids] if request_ids else list(rows.values())
    return {"SpotInstanceRequests": [row for row in chosen if all(_passes(row, name, wanted) for name, wanted in filters.items())]}


def _row(cloud: Cloud, instance: EmulatedInstance, request: SpotRequest) -> Row:
    return {
        "SpotInstanceRequestId": request.request_id,
        "CreateTime": request.created_at,
        "InstanceId": instance.instance_id,
        "InstanceInterruptionBehavior": "terminate",
        "LaunchSpecification": {
            "ImageId": instance.image_id,
            "InstanceType": instance.pool.instance_type,
            "SubnetId": instance.moto.subnet_id,
            "Placement": {"AvailabilityZone": instance.availability_zone},
        },
        "LaunchedAvailabilityZone": instance.availability_zone,
        "LaunchedAvailabilityZoneId": instance.pool.availability_zone_id,
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": f"{cloud.market.price(instance.pool):.6f}",
        "State": request.state,
        "Status": {"Code": request.code, "Message": request.message, "UpdateTime": request.updated_at},
        "Tags": [{"Key": key, "Value": value} for key, value in request.tags.items()],
        "Type": "one-time",
    }


def _passes(row: Row, name: str, wanted: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(value, pattern) for value in _values(row, name) for pattern in wanted)


def _values(row: Row, name: str) -> list[str]:
    if name.startswith("tag:"):
        return [tag["Value"] for tag in row["Tags"] if tag["Key"] == name.removeprefix("tag:")]
    if name == "tag-key":
        return [tag["Key"] for tag in row["Tags"]]
    fields = {
        "instance-id": row["InstanceId"],
        "launch.instance-type": row["LaunchSpecification"]["InstanceType"],
        "launched-availability-zone": row["LaunchedAvailabilityZone"],
        "launched-availability-zone-id": row["LaunchedAvailabilityZoneId"],
        "spot-instance-request-id": row["SpotInstanceRequestId"],
        "state": row["State"],
        "status-code": row["Status"]["Code"],
        "type": row["Type"],
    }
    if name not in fields:
        raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return [fields[name]]
