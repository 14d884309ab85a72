"""The instance metadata service, and the environment of an instance's processes."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import pytest

from tests.emulator.world import World, until

TTL = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "X-aws-ec2-metadata-token"


@pytest.fixture
def shown(world: World) -> dict[str, Any]:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "job:id", "Value": "job_1"}]}]
    return world.booted(TagSpecifications=tags)


@pytest.mark.parametrize("ttl", ["1", "21600"])
def test_a_token_may_live_from_a_second_to_six_hours(world: World, shown: dict[str, Any], ttl: str) -> None:
    assert world.http.put(f"{shown['metadata_endpoint']}latest/api/token", headers={TTL: ttl}).status_code == 200


@pytest.mark.parametrize("headers", [{}, {TTL: "0"}, {TTL: "21601"}, {TTL: "-1"}, {TTL: "soon"}])
def test_a_token_without_a_good_lifetime_is_refused(world: World, shown: dict[str, Any], headers: dict[str, str]) -> None:
    assert world.http.put(f"{shown['metadata_endpoint']}latest/api/token", headers=headers).status_code == 400


def test_a_forwarded_or_dated_token_request_is_forbidden(world: World, shown: dict[str, Any]) -> None:
    endpoint = shown["metadata_endpoint"]
    assert world.http.put(f"{endpoint}latest/api/token", headers={TTL: "60", "X-Forwarded-For": "10.0.0.1"}).status_code == 403
    assert world.http.put(f"{endpoint}2021-01-01/api/token", headers={TTL: "60"}).status_code == 403


def test_nothing_is_told_without_a_good_token(world: World, shown: dict[str, Any]) -> None:
    url = f"{shown['metadata_endpoint']}latest/meta-data/instance-id"
    assert world.http.get(url).status_code == 401
    assert world.http.get(url, headers={TOKEN: "guessed"}).status_code == 401


def test_an_expired_token_is_no_token(world: World, shown: dict[str, Any]) -> None:
    token = world.token(shown["metadata_endpoint"], ttl="1")
    url = f"{shown['metadata_endpoint']}latest/meta-data/instance-id"
    until(lambda: world.http.get(url, headers={TOKEN: token}).status_code == 401, "the end of a token's life")


def test_a_token_is_good_on_its_own_instance_only(world: World, shown: dict[str, Any]) -> None:
    other = world.booted()
    token = world.token(other["metadata_endpoint"])
    assert world.http.get(f"{shown['metadata_endpoint']}latest/meta-data/instance-id", headers={TOKEN: token}).status_code == 401


def test_an_answer_is_plain_text_and_says_how_long_the_token_lasts(world: World, shown: dict[str, Any]) -> None:
    answer = world.metadata(shown["metadata_endpoint"], "meta-data/instance-id")
    assert answer.headers["Content-Type"] == "text/plain"
    assert 0 < int(answer.headers[TTL]) <= 60


def test_an_instance_knows_what_and_where_it_is(world: World, shown: dict[str, Any]) -> None:
    described = world.described(shown["instance_id"])
    expected = {
        "instance-id": shown["instance_id"],
        "instance-type": "g5.xlarge",
        "instance-life-cycle": "spot",
        "local-ipv4": described["PrivateIpAddress"],
        "placement/availability-zone": "us-east-1d",
        "placement/availability-zone-id": "use1-az4",
        "placement/region": "us-east-1",
        "events/maintenance/scheduled": "[]",
        "tags/instance": "job:id",
        "tags/instance/job:id": "job_1",
    }
    assert expected == {path: world.metadata(shown["metadata_endpoint"], f"meta-data/{path}").text for path in expected}


def test_on_demand_is_another_life_cycle(world: World) -> None:
    endpoint = world.booted(market="on_demand")["metadata_endpoint"]
    assert world.metadata(endpoint, "meta-data/instance-life-cycle").text == "on-demand"


def test_tags_are_shown_as_they_are_now(world: World, shown: dict[str, Any]) -> None:
    world.ec2.create_tags(Resources=[shown["instance_id"]], Tags=[{"Key": "late", "Value": "yes"}])
    assert world.metadata(shown["metadata_endpoint"], "meta-data/tags/instance/late").text == "yes"


def test_tags_are_not_shown_where_they_are_not_enabled(world: World) -> None:
    shown = world.booted(MetadataOptions={"HttpTokens": "required", "InstanceMetadataTags": "disabled"})
    assert world.metadata(shown["metadata_endpoint"], "meta-data/tags/instance").status_code == 404


@pytest.mark.parametrize("path", ["meta-data/spot/instance-action", "meta-data/nothing", "meta-data/tags/instance/none", "nothing"])
def test_what_is_not_there_is_not_found(world: World, shown: dict[str, Any], path: str) -> None:
    assert world.metadata(shown["metadata_endpoint"], path).status_code == 404


def test_the_identity_document_agrees_with_ec2(world: World, shown: dict[str, Any]) -> None:
    document = world.metadata(shown["metadata_endpoint"], "dynamic/instance-identity/document").json()
    described = world.described(shown["instance_id"])
    assert (shown["instance_id"], described["ImageId"]) == (document["instanceId"], document["imageId"])
    assert (document["region"], document["availabilityZone"], document["accountId"]) == ("us-east-1", "us-east-1d", "123456789012")


def test_the_roles_credentials_are_good_for_calls_to_aws(world: World) -> None:
    # A real SDK, inside an instance, with nothing but what an instance has.
    script = (
        f"#!{sys.executable}\nimport boto3\n"
        "print(boto3.client('sts', region_name='us-east-1').get_caller_identity()['Account'])\n"
        "print(boto3.Session().get_credentials().method)\n"
    )
    instance_id = world.booted(UserData=script)["instance_id"]
    console = until(lambda: text if (text := world.console(instance_id)).count("\n") >= 2 else None, "two lines on the console")
    assert console == "123456789012\niam-role\n"


def test_user_data_comes_back_byte_for_byte(world: World) -> None:
    data = b"#!/bin/sh\n: \xc3\xa4\n"
    shown = world.booted(UserData=data.decode())
    assert data == world.metadata(shown["metadata_endpoint"], "user-data").content
    attribute = world.ec2.describe_instance_attribute(InstanceId=shown["instance_id"], Attribute="userData")
    assert data == base64.b64decode(attribute["UserData"]["Value"])


def test_an_instance_has_four_environment_variables_and_its_own_home(world: World) -> None:
    script = f"#!{sys.executable}\nimport json, os\nprint(json.dumps([dict(os.environ), os.getcwd(), os.getsid(0) == os.getpid()]))\n"
    shown = world.booted(UserData=script)
    line = until(lambda: world.console(shown["instance_id"]).strip(), "a line on the console")
    environment, folder, leads_a_session = json.loads(line)
    environment.pop("LC_CTYPE", None)  # Python's own doing (PEP 538)
    expected = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": shown["home"],
        "AWS_ENDPOINT_URL": world.endpoint,
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": shown["metadata_endpoint"],
    }
    assert expected == environment
    assert shown["home"] == folder
    assert leads_a_session
