"""How an instance ends: noticed, vanished, or by its owner."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import psutil

from tests.emulator.world import World, sleepers, until

FAMILY = """#!/bin/sh
sleep 601 &
setsid sleep 602 &
(setsid sh -c 'sleep 603 & sleep 604' &)
setsid env -i sleep 605 &
echo ready
wait
"""
ACTION = "meta-data/spot/instance-action"


def seconds(instant: str) -> datetime:
    return datetime.fromisoformat(instant).replace(microsecond=0)


def family(world: World) -> dict[str, Any]:
    shown = world.booted(UserData=FAMILY)
    until(lambda: "ready" in world.console(shown["instance_id"]) and len(sleepers(shown["home"])) >= 6, "all processes of the instance")
    return shown


def test_a_notice_shows_on_all_channels_while_the_instance_still_runs(world: World) -> None:
    shown = world.booted()
    instance_id, endpoint = shown["instance_id"], shown["metadata_endpoint"]
    assert world.metadata(endpoint, ACTION).status_code == 404
    noticed = world.control("POST", f"instances/{instance_id}/interrupt", {"notice_seconds": 600})

    action = world.metadata(endpoint, ACTION).json()
    assert action["action"] == "terminate"
    assert seconds(noticed["reclaim_at"]) == datetime.fromisoformat(action["time"])
    assert action["time"] == world.metadata(endpoint, "meta-data/spot/termination-time").text

    request = world.spot_request(instance_id)
    assert (request["State"], request["Status"]["Code"]) == ("closed", "instance-terminated-no-capacity")

    warning = world.events(instance_id, 3)[2]
    assert warning["detail-type"] == "EC2 Spot Instance Interruption Warning"
    assert {"instance-id": instance_id, "instance-action": "terminate"} == warning["detail"]
    # The zone stands where the Region should, and there is no account: AWS sends it so.
    assert [f"arn:aws:ec2:us-east-1d:instance/{instance_id}"] == warning["resources"]
    assert {"version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail"} == set(warning)
    assert (warning["version"], warning["source"], warning["region"]) == ("0", "aws.ec2", "us-east-1")
    assert seconds(noticed["noticed_at"]) == datetime.fromisoformat(warning["time"])

    assert world.described(instance_id)["State"]["Name"] == "running"
    assert len(world.timeline("notice_shown", instance_id)) == 1


def test_at_the_reclaim_time_everything_of_the_instance_is_killed(world: World) -> None:
    shown = family(world)
    noticed = world.control("POST", f"instances/{shown['instance_id']}/interrupt", {"notice_seconds": 0.3})
    ended = world.in_state(shown["instance_id"], "terminated")
    assert sleepers(shown["home"]) == []
    (killed,) = world.timeline("killed", shown["instance_id"])
    assert noticed["reclaim_at"] <= killed["at"]
    assert ended["state_reason"] == "Server.SpotInstanceTermination"
    described = world.described(shown["instance_id"])
    assert (described["State"]["Name"], described["StateReason"]["Code"]) == ("terminated", "Server.SpotInstanceTermination")
    assert described["StateTransitionReason"].startswith("Server.SpotInstanceTermination (")


def test_a_life_is_told_in_state_changes(world: World) -> None:
    instance_id = world.booted()["instance_id"]
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    events = world.events(instance_id, 4)
    assert [event["detail"]["state"] for event in events] == ["pending", "running", "shutting-down", "terminated"]
    assert {"EC2 Instance State-change Notification"} == {event["detail-type"] for event in events}
    assert {f"arn:aws:ec2:us-east-1:123456789012:instance/{instance_id}"} == {event["resources"][0] for event in events}


def test_a_terminated_instance_takes_all_its_processes_with_it(world: World) -> None:
    shown = family(world)
    answer = world.ec2.terminate_instances(InstanceIds=[shown["instance_id"]])["TerminatingInstances"][0]
    assert (answer["PreviousState"]["Name"], answer["CurrentState"]["Name"]) == ("running", "shutting-down")
    world.in_state(shown["instance_id"], "terminated")
    assert sleepers(shown["home"]) == []
    assert world.described(shown["instance_id"])["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    request = world.spot_request(shown["instance_id"])
    assert (request["State"], request["Status"]["Code"]) == ("closed", "instance-terminated-by-user")


def test_terminating_twice_is_no_error_and_changes_nothing(world: World) -> None:
    instance_id = world.launch()
    world.control("POST", f"instances/{instance_id}/vanish", {})
    world.in_state(instance_id, "terminated")
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    assert world.described(instance_id)["StateReason"]["Code"] == "Server.SpotInstanceTermination"


def test_an_instance_that_was_terminated_before_it_booted_never_runs(world: World) -> None:
    instance_id = world.launch()
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    world.in_state(instance_id, "terminated")
    later = world.booted()
    assert later["booted_at"] is not None
    assert world.shown(instance_id)["booted_at"] is None


def test_an_instance_goes_on_running_when_its_user_data_has_ended(world: World) -> None:
    shown = world.booted(UserData="#!/bin/sh\necho done\n")
    until(lambda: "done" in world.console(shown["instance_id"]), "the end of the user data")
    assert world.shown(shown["instance_id"])["state"] == "running"
    assert world.metadata(shown["metadata_endpoint"], "meta-data/instance-id").status_code == 200


def test_a_vanished_instance_gave_no_notice(world: World) -> None:
    shown = world.booted()
    instance_id = shown["instance_id"]
    assert world.control("POST", f"instances/{instance_id}/vanish", {})["state"] in {"shutting-down", "terminated"}
    ended = world.in_state(instance_id, "terminated")
    assert ended["noticed_at"] is None
    assert sleepers(shown["home"]) == []
    kinds = [event["detail"].get("state", event["detail-type"]) for event in world.events(instance_id, 4)]
    assert kinds == ["pending", "running", "shutting-down", "terminated"]


def test_a_vanished_instance_can_take_its_events_along(world: World) -> None:
    instance_id = world.booted()["instance_id"]
    world.control("POST", f"instances/{instance_id}/vanish", {"events": False})
    world.in_state(instance_id, "terminated")
    sent = [each["detail"]["state"] for each in world.timeline("message_sent", instance_id) if "test-notices" in each["detail"]["target"]]
    assert sent == ["pending", "running"]


def test_a_rebalance_recommendation_shows_on_both_channels_and_nothing_follows(world: World) -> None:
    shown = world.booted()
    instance_id, endpoint, path = shown["instance_id"], shown["metadata_endpoint"], "meta-data/events/recommendations/rebalance"
    assert world.metadata(endpoint, path).status_code == 404
    world.control("POST", f"instances/{instance_id}/rebalance")
    assert list(world.metadata(endpoint, path).json()) == ["noticeTime"]
    event = world.events(instance_id, 3)[2]
    assert event["detail-type"] == "EC2 Instance Rebalance Recommendation"
    assert {"instance-id": instance_id} == event["detail"]
    assert [f"arn:aws:ec2:us-east-1:123456789012:instance/{instance_id}"] == event["resources"]
    assert world.spot_request(instance_id)["Status"]["Code"] == "fulfilled"
    assert world.metadata(endpoint, ACTION).status_code == 404


def test_what_aws_does_not_do_is_refused(world: World) -> None:
    def status(path: str) -> int:
        return world.http.post(f"{world.endpoint}/_emulator/instances/{path}", json={}).status_code

    on_demand, noticed = world.launch(market="on_demand"), world.launch()
    world.control("POST", f"instances/{noticed}/interrupt", {"notice_seconds": 600})
    assert status(f"{on_demand}/interrupt") == 409
    assert status(f"{on_demand}/rebalance") == 409
    assert status(f"{noticed}/interrupt") == 409
    assert status("i-0123456789abcdef0/interrupt") == 404


def test_the_user_data_is_reaped_only_when_the_instance_ends(world: World) -> None:
    # Its process id, and that of its group, must not be given to somebody else while the emulator may still kill it.
    shown = world.booted(UserData="#!/bin/sh\nexit 3\n")
    until(lambda: psutil.Process(shown["pid"]).status() == psutil.STATUS_ZOMBIE, "the end of the user data")
    world.ec2.terminate_instances(InstanceIds=[shown["instance_id"]])
    world.in_state(shown["instance_id"], "terminated")
    assert not psutil.pid_exists(shown["pid"])
