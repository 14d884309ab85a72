"""What an operator sets up in an AWS account before the service can run, set up in the emulator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from watchdog.emulator.event_bus import INTERRUPTION, REBALANCE, STATE_CHANGE

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_sqs.client import SQSClient

_RULES = {"interruption": INTERRUPTION, "rebalance": REBALANCE, "state-change": STATE_CHANGE}
_IMAGE_NAME = "al2023-ami-*-kernel-6.1-x86_64"
_MAX_RECEIVES = 5
_VISIBILITY_SECONDS = 30
"""Short, so that a message that a crashed replica held returns within the two minutes of a notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the service's settings name."""

    region: str
    queue_url: str
    dead_letter_queue_url: str
    bucket: str
    launch_template_id: str
    subnets: Mapping[str, str]
    """Zone id to subnet id."""


def provision(endpoint: str, *, deployment: str, region: str, zones: Sequence[str] | None = None) -> Account:
    """Set up one deployment and return what it consists of.

    Args:
        endpoint: the emulator's.
        deployment: its name is part of every resource's name.
        region: the emulator's Region.
        zones: zone ids to use; None takes every zone.

    Raises:
        ValueError: a zone has no default subnet.
        botocore.exceptions.ClientError: the emulator refused a call.
    """

    def client(service: str) -> Any:
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=endpoint,
            region_name=region,
            aws_access_key_id="AKIAEMULATEDOPERATOR",  # any will do: the emulator checks none
            aws_secret_access_key="emulated",  # noqa: S106
            config=Config(s3={"addressing_style": "path"}),
        )

    ec2: EC2Client = client("ec2")
    dead_letter_queue_url, queue_url, queue_arn = _queues(client("sqs"), deployment)
    _rules(client("events"), deployment, queue_arn)
    bucket = f"{deployment}-checkpoints"
    client("s3").create_bucket(Bucket=bucket)
    return Account(
        region=region,
        queue_url=queue_url,
        dead_letter_queue_url=dead_letter_queue_url,
        bucket=bucket,
        launch_template_id=_launch_template(ec2, deployment),
        subnets=_subnets(ec2, zones),
    )


def _queues(sqs: SQSClient, deployment: str) -> tuple[str, str, str]:
    dead_url = sqs.create_queue(QueueName=f"{deployment}-notices-dead")["QueueUrl"]
    dead_arn = sqs.get_queue_attributes(QueueUrl=dead_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    url = sqs.create_queue(
        QueueName=f"{deployment}-notices",
        Attributes={
            "VisibilityTimeout": str(_VISIBILITY_SECONDS),
            "RedrivePolicy": json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": str(_MAX_RECEIVES)}),
        },
    )["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return dead_url, url, arn


def _rules(events: Any, deployment: str, queue_arn: str) -> None:
    for name, detail_type in _RULES.items():
        rule = f"{deployment}-{name}"
        events.put_rule(Name=rule, EventPattern=json.dumps({"source": ["aws.ec2"], "detail-type": [detail_type]}))
        events.put_targets(Rule=rule, Targets=[{"Id": "queue", "Arn": queue_arn}])


def _launch_template(ec2: EC2Client, deployment: str) -> str:
    images = ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "name", "Values": [_IMAGE_NAME]}])["Images"]
    template = ec2.create_launch_template(
        LaunchTemplateName=f"{deployment}-worker",
        LaunchTemplateData={
            "ImageId": images[0]["ImageId"],
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2, "InstanceMetadataTags": "enabled"},
        },
    )
    return template["LaunchTemplate"]["LaunchTemplateId"]


def _subnets(ec2: EC2Client, zones: Sequence[str] | None) -> dict[str, str]:
    found = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    subnets = {subnet["AvailabilityZoneId"]: subnet["SubnetId"] for subnet in found}
    if zones is None:
        return subnets
    if missing := [zone for zone in zones if zone not in subnets]:
        raise ValueError(f"no default subnet in {', '.join(missing)}; there are {', '.join(sorted(subnets))}")
    return {zone: subnets[zone] for zone in zones}
