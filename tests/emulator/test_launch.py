"""RunInstances, its tokens and refusals, and what the describe calls say of what came of it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.emulator.world import World, error_of, until


def test_a_launch_is_pending_until_the_boot_delay_has_passed_and_then_runs(world: World) -> None:
    instance_id = world.launch()
    assert world.described(instance_id)["State"]["Name"] == "pending"
    shown = world.in_state(instance_id, "running")
    assert world.described(instance_id)["State"]["Name"] == "running"
    assert shown["launched_at"] < shown["booted_at"]
    assert shown["pid"] is not None
    assert world.timeline("launched", instance_id) != []
    assert world.timeline("booted", instance_id) != []


def test_a_launch_takes_what_it_leaves_out_from_its_template(world: World) -> None:
    described = world.described(world.launch(TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "job", "Value": "j1"}]}]))
    template = world.ec2.describe_launch_template_versions(LaunchTemplateId=world.account.launch_template_id, Versions=["$Latest"])
    data = template["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    assert data["ImageId"] == described["ImageId"]
    assert described["MetadataOptions"]["HttpTokens"] == "required"
    assert {tag["Key"]: tag["Value"] for tag in described["Tags"]}["job"] == "j1"


def test_a_template_may_be_named_instead_of_numbered(world: World) -> None:
    assert world.described(world.launch(LaunchTemplate={"LaunchTemplateName": "test-worker"}))["ImageId"].startswith("ami-")


def test_an_instance_says_where_it_is_in_both_languages(world: World) -> None:
    placement = world.described(world.launch("use1-az2"))["Placement"]
    assert (placement["AvailabilityZone"], placement["AvailabilityZoneId"]) == ("us-east-1c", "use1-az2")


# --- tokens -----------------------------------------------------------------------------------------------------------------------------


def test_the_same_token_and_parameters_return_the_same_instance(world: World) -> None:
    request = world.request()
    answers = [world.ec2.run_instances(**request) for _ in range(2)]
    assert answers[0]["ReservationId"] == answers[1]["ReservationId"]
    assert answers[0]["Instances"][0]["InstanceId"] == answers[1]["Instances"][0]["InstanceId"]


def test_one_token_used_by_many_at_once_makes_one_instance(world: World) -> None:
    request = world.request()
    ids: list[str] = []
    world.ec2.describe_instances(MaxResults=5)
    threads = [
        threading.Thread(target=lambda: ids.append(world.ec2.run_instances(**request)["Instances"][0]["InstanceId"])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(ids), len(set(ids))) == (8, 1)


def test_a_token_with_other_parameters_is_a_mismatch(world: World) -> None:
    request = world.request()
    world.ec2.run_instances(**request)
    changed = {**request, "UserData": "#!/bin/sh\n"}
    assert error_of(lambda: world.ec2.run_instances(**changed)) == ("IdempotentParameterMismatch", 400)


def test_a_token_is_zonal(world: World) -> None:
    request = world.request("use1-az4")
    here = world.ec2.run_instances(**request)["Instances"][0]["InstanceId"]
    there = world.ec2.run_instances(**{**request, "SubnetId": world.account.subnets["use1-az6"]})["Instances"][0]["InstanceId"]
    assert here != there


def test_the_token_of_an_ended_instance_is_used_up(world: World) -> None:
    request = world.request()
    instance_id = world.ec2.run_instances(**request)["Instances"][0]["InstanceId"]
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    assert error_of(lambda: world.ec2.run_instances(**request)) == ("IdempotentInstanceTerminated", 400)


def test_the_token_of_a_refused_launch_can_be_used_again(world: World) -> None:
    pool = "pools/use1-az2/g5.2xlarge/spot"
    world.control("PUT", pool, {"capacity": 0})
    request = world.request("use1-az2", "g5.2xlarge")
    assert error_of(lambda: world.ec2.run_instances(**request)) == ("InsufficientInstanceCapacity", 500)
    world.control("PUT", pool, {"capacity": None})
    assert world.ec2.run_instances(**request)["Instances"][0]["State"]["Name"] == "pending"


# --- refusals ---------------------------------------------------------------------------------------------------------------------------


def test_an_empty_pool_is_an_http_500_and_other_pools_are_not_touched(world: World) -> None:
    world.control("PUT", "pools/use1-az1/g5.xlarge/spot", {"capacity": 0})
    assert error_of(lambda: world.launch("use1-az1")) == ("InsufficientInstanceCapacity", 500)
    assert world.shown(world.launch("use1-az1", market="on_demand"))["state"] == "pending"
    refused = world.timeline("launch_refused")[-1]
    assert refused["detail"]["code"] == "InsufficientInstanceCapacity"


@pytest.mark.parametrize(
    ("code", "market", "refusal"),
    [("L-C4BD4855", "spot", "MaxSpotInstanceCountExceeded"), ("L-417A185B", "on_demand", "VcpuLimitExceeded")],
)
def test_a_quota_refuses_what_goes_beyond_it(world: World, code: str, market: str, refusal: str) -> None:
    world.control("PUT", f"quotas/{code}", {"value": 192})
    try:
        world.launch("use1-az4", "p5.48xlarge", market)
        assert (refusal, 400) == error_of(lambda: world.launch("use1-az6", "p5.48xlarge", market))
    finally:
        world.control("PUT", f"quotas/{code}", {"value": 10_000})


def test_a_noticed_instance_counts_against_the_quota_until_it_is_terminated(world: World) -> None:
    world.control("PUT", "quotas/L-7212CCBC", {"value": 96})
    source = world.launch("use1-az4", "p4d.24xlarge")
    world.control("POST", f"instances/{source}/interrupt", {"notice_seconds": 600})
    assert world.spot_request(source)["State"] == "closed"
    assert error_of(lambda: world.launch("use1-az6", "p4d.24xlarge")) == ("MaxSpotInstanceCountExceeded", 400)
    world.ec2.terminate_instances(InstanceIds=[source])
    world.in_state(source, "terminated")
    assert world.shown(world.launch("use1-az6", "p4d.24xlarge"))["state"] == "pending"


def test_what_cannot_be_launched_is_refused_as_ec2_refuses_it(world: World) -> None:
    def refused(**change: Any) -> tuple[str, int]:
        return error_of(lambda: world.ec2.run_instances(**{**world.request(), **change}))

    assert refused(InstanceType="g99.huge") == ("InvalidParameterValue", 400)
    assert refused(SubnetId=world.account.subnets["use1-az3"]) == ("Unsupported", 400)
    assert refused(Placement={"AvailabilityZone": "us-east-1a"}) == ("InvalidParameterValue", 400)
    assert refused(Placement={"AvailabilityZoneId": "use1-az99"}) == ("InvalidParameterValue", 400)
    assert refused(SubnetId="subnet-0123456789abcdef0") == ("InvalidSubnetID.NotFound", 400)
    assert refused(LaunchTemplate={"LaunchTemplateId": "lt-0123456789abcdef0"}) == ("InvalidLaunchTemplateId.NotFound", 400)
    assert refused(LaunchTemplate={"LaunchTemplateId": "nonsense"}) == ("InvalidLaunchTemplateId.Malformed", 400)
    assert refused(LaunchTemplate={"LaunchTemplateName": "nobody"}) == ("InvalidLaunchTemplateName.NotFoundException", 400)
    assert refused(ImageId="ami-0123456789abcdef0") == ("InvalidAMIID.NotFound", 400)
    assert refused(UserData="x" * 16_385) == ("InvalidUserData.Malformed", 400)
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "a/b", "Value": "c"}]}]
    assert refused(TagSpecifications=tags) == ("InvalidParameterValue", 400)
    assert refused(DryRun=True) == ("DryRunOperation", 412)


def test_without_an_image_there_is_no_launch(world: World) -> None:
    request = {name: value for name, value in world.request().items() if name != "LaunchTemplate"}
    assert error_of(lambda: world.ec2.run_instances(**request)) == ("MissingParameter", 400)


def test_calls_that_would_go_round_the_market_are_refused(world: World) -> None:
    assert error_of(lambda: world.ec2.request_spot_instances(InstanceCount=1))[0] == "UnsupportedOperation"
    assert error_of(lambda: world.ec2.stop_instances(InstanceIds=[world.launch()]))[0] == "UnsupportedOperation"


# --- describing -------------------------------------------------------------------------------------------------------------------------


def test_instances_are_found_by_each_filter_that_the_service_uses(world: World) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "deployment", "Value": "only-here"}]}]
    request = world.request(TagSpecifications=tags)
    instance_id = world.ec2.run_instances(**request)["Instances"][0]["InstanceId"]
    request_id = world.spot_request(instance_id)["SpotInstanceRequestId"]
    other = world.launch(market="on_demand")

    def found(name: str, *values: str) -> set[str]:
        answer = world.ec2.describe_instances(Filters=[{"Name": name, "Values": list(values)}])
        return {each["InstanceId"] for reservation in answer["Reservations"] for each in reservation["Instances"]}

    assert {instance_id} == found("tag:deployment", "only-here")
    assert {instance_id} == found("client-token", request["ClientToken"])
    assert {instance_id} == found("spot-instance-request-id", request_id)
    assert {instance_id} == found("instance-id", instance_id)
    assert {instance_id, other} <= found("instance-state-name", "pending", "running")
    assert instance_id in found("instance-lifecycle", "spot")
    assert other not in found("instance-lifecycle", "spot")
    assert {instance_id, other} <= found("availability-zone-id", "use1-az4")


def test_a_filter_that_ec2_does_not_know_is_refused(world: World) -> None:
    filters = [{"Name": "colour", "Values": ["blue"]}]
    assert error_of(lambda: world.ec2.describe_instances(Filters=filters))[0] == "InvalidParameterValue"
    assert error_of(lambda: world.ec2.describe_spot_instance_requests(Filters=filters))[0] == "InvalidParameterValue"


def test_an_instance_that_does_not_exist_is_not_found(world: World) -> None:
    assert error_of(lambda: world.described("i-0123456789abcdef0"))[0] == "InvalidInstanceID.NotFound"


def test_a_spot_launch_has_a_request_and_an_on_demand_one_has_none(world: World) -> None:
    tags = [{"ResourceType": "spot-instances-request", "Tags": [{"Key": "job", "Value": "spot-tagged"}]}]
    spot, on_demand = world.launch(TagSpecifications=tags), world.launch(market="on_demand")
    described = world.described(spot)
    request = world.spot_request(spot)
    assert (request["State"], request["Status"]["Code"], request["Type"]) == ("active", "fulfilled", "one-time")
    assert described["SpotInstanceRequestId"] == request["SpotInstanceRequestId"]
    assert (request["LaunchedAvailabilityZone"], request["LaunchedAvailabilityZoneId"]) == ("us-east-1d", "use1-az4")
    by_tag = world.ec2.describe_spot_instance_requests(Filters=[{"Name": "tag:job", "Values": ["spot-tagged"]}])
    assert [spot] == [each["InstanceId"] for each in by_tag["SpotInstanceRequests"]]
    by_id = world.ec2.describe_spot_instance_requests(SpotInstanceRequestIds=[request["SpotInstanceRequestId"]])
    assert [spot] == [each["InstanceId"] for each in by_id["SpotInstanceRequests"]]
    assert "SpotInstanceRequestId" not in world.described(on_demand)


def test_a_cancelled_request_leaves_its_instance_running(world: World) -> None:
    instance_id = world.launch()
    request_id = world.spot_request(instance_id)["SpotInstanceRequestId"]
    world.ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request_id])
    request = world.spot_request(instance_id)
    assert (request["State"], request["Status"]["Code"]) == ("cancelled", "request-canceled-and-instance-running")
    world.in_state(instance_id, "running")


def test_each_launch_call_is_on_the_timeline_also_a_repeated_one(world: World) -> None:
    request = world.request()
    for _ in range(2):
        world.ec2.run_instances(**request)
    calls = [each for each in world.timeline("run_instances_call") if each["detail"]["client_token"] == request["ClientToken"]]
    assert len(calls) == 2
    assert len([each for each in world.timeline("launched") if each["detail"]["client_token"] == request["ClientToken"]]) == 1


def test_the_user_data_may_be_no_script_at_all(world: World) -> None:
    instance_id = world.booted(UserData="just text")["instance_id"]
    assert "no script" in until(lambda: world.console(instance_id), "a remark on the console")
