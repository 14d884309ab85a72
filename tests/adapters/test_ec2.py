"""Launching, finding and ending instances, through boto3, against moto and against a server with EC2's own answers."""

import asyncio
from collections.abc import Mapping
from urllib.parse import parse_qs

import pytest

from policies.model import CapacityPool, Market
from tests.adapters.conftest import REGION
from tests.adapters.servers import Receiver, Reply, Request
from watchdog.adapters.aws.ec2 import Ec2Compute
from watchdog.adapters.aws.session import Aws
from watchdog.adapters.aws.zones import Network, discover_network
from watchdog.errors import CloudUnavailable, LaunchOutcomeUnknown, LaunchRefused, LaunchScope, SettingsInvalid
from watchdog.ids import InstanceId
from watchdog.ports import InstanceState, LaunchRequest

ZONE = "use1-az6"
TOKEN = "token-1"
TWO_SUBNETS = Network(subnets={ZONE: ("subnet-a", "subnet-b")}, zone_ids={"us-east-1a": ZONE})


def request(
    *,
    zone: str = ZONE,
    market: Market = Market.SPOT,
    client_token: str = TOKEN,
    template: str = "gpu-worker",
    user_data: str = "#!/bin/sh\n",
) -> LaunchRequest:
    return LaunchRequest(
        pool=CapacityPool(region=REGION, availability_zone_id=zone, instance_type="g5.xlarge", market=market),
        client_token=client_token,
        launch_template=template,
        user_data=user_data,
        tags={"spot-watchdog:job-id": "job_1"},
    )


@pytest.fixture
async def network(aws: Aws) -> Network:
    return await discover_network(aws)


@pytest.fixture
async def template(aws: Aws, unique: str) -> str:
    answer = await aws.call(aws.ec2.create_launch_template, LaunchTemplateName=unique, LaunchTemplateData={"ImageId": "ami-12c6146b"})
    return answer["LaunchTemplate"]["LaunchTemplateId"]


@pytest.fixture
def compute(aws: Aws, network: Network, unique: str) -> Ec2Compute:
    return Ec2Compute(aws, network, unique, seconds_until_visible=(0.01, 0.01))


async def test_the_default_subnets_are_found_by_zone_id(network: Network) -> None:
    assert len(network.subnets) == 6
    assert all(zone.startswith("use1-az") and len(subnets) == 1 for zone, subnets in network.subnets.items())
    assert set(network.zone_ids.values()) == set(network.subnets)


async def test_only_the_configured_subnets_are_used_in_their_order(aws: Aws, network: Network) -> None:
    chosen = [network.subnets["use1-az2"][0], network.subnets["use1-az1"][0]]
    limited = await discover_network(aws, chosen)
    assert limited.subnets == {"use1-az2": (chosen[0],), "use1-az1": (chosen[1],)}


async def test_a_subnet_that_does_not_exist_is_named(aws: Aws, network: Network) -> None:
    with pytest.raises(SettingsInvalid, match="subnet-0123"):
        await discover_network(aws, [network.subnets["use1-az2"][0], "subnet-0123"])


@pytest.mark.parametrize("market", Market)
async def test_an_instance_is_launched_in_the_pool_that_was_asked_for(
    compute: Ec2Compute, template: str, aws: Aws, unique: str, market: Market
) -> None:
    launched = await compute.launch(request(market=market, template=template))
    assert launched.pool == request(market=market).pool
    assert launched.state is InstanceState.PENDING
    assert launched.launched_at.tzinfo is not None
    assert launched.private_ip
    described = await compute.describe([launched.instance_id])
    tags = {key: value for key, value in described[launched.instance_id].tags.items() if not key.startswith("aws:")}
    assert tags == {"spot-watchdog:job-id": "job_1", "spot-watchdog:deployment": unique, "managed-by": "spot-watchdog"}
    read = await aws.call(aws.ec2.describe_instance_attribute, InstanceId=launched.instance_id, Attribute="userData")
    assert read["UserData"]["Value"] == "IyEvYmluL3NoCg=="  # encoded once


async def test_a_launch_template_may_be_named(compute: Ec2Compute, template: str, unique: str) -> None:
    assert (await compute.launch(request(template=unique))).pool == request().pool


async def test_only_living_instances_of_this_deployment_are_owned(compute: Ec2Compute, template: str, aws: Aws, network: Network) -> None:
    ours = await compute.launch(request(template=template))
    ended = await compute.launch(request(template=template, client_token="token-2"))
    await Ec2Compute(aws, network, "other").launch(request(template=template, client_token="token-3"))
    await compute.terminate(ended.instance_id)
    assert [each.instance_id for each in await compute.list_owned()] == [ours.instance_id]


async def test_one_unknown_id_does_not_hide_the_others(compute: Ec2Compute, template: str) -> None:
    launched = await compute.launch(request(template=template))
    unknown = InstanceId("i-0123456789abcdef0")
    assert set(await compute.describe([unknown, launched.instance_id])) == {launched.instance_id}
    assert await compute.describe([]) == {}


async def test_ending_twice_or_ending_the_unknown_is_no_error(compute: Ec2Compute, template: str) -> None:
    launched = await compute.launch(request(template=template))
    await compute.terminate(launched.instance_id)
    await compute.terminate(launched.instance_id)
    await compute.terminate(InstanceId("i-0123456789abcdef0"))
    described = await compute.describe([launched.instance_id])
    assert described[launched.instance_id].state is InstanceState.TERMINATED
    assert described[launched.instance_id].state_reason == "Client.UserInitiatedShutdown"


def error_xml(code: str, message: str = "(made-up text)") -> str:
    return f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>r-1</RequestID></Response>"


def instance_xml(parameters: Mapping[str, str]) -> str:
    return f"""<RunInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><instancesSet><item>
        <instanceId>i-0aaa</instanceId><instanceType>{parameters["InstanceType"]}</instanceType><subnetId>{parameters["SubnetId"]}</subnetId>
        <instanceState><code>0</code><name>pending</name></instanceState><launchTime>2026-03-04T08:01:12.000Z</launchTime>
        <clientToken>{parameters["ClientToken"]}</clientToken><instanceLifecycle>spot</instanceLifecycle>
        <placement><availabilityZone>us-east-1a</availabilityZone></placement><spotInstanceRequestId>sir-1</spotInstanceRequestId>
        </item></instancesSet></RunInstancesResponse>"""


def asked(sent: Request) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(sent.body.decode()).items()}


@pytest.fixture
def scripted(scripted_aws: Aws) -> Ec2Compute:
    return Ec2Compute(scripted_aws, TWO_SUBNETS, "demo", seconds_until_visible=(0.01, 0.01))


@pytest.mark.parametrize(
    ("code", "status", "scope"),
    [
        ("InsufficientInstanceCapacity", 500, LaunchScope.POOL),
        ("MaxSpotInstanceCountExceeded", 400, LaunchScope.FAMILY),
        ("RequestLimitExceeded", 503, LaunchScope.THROTTLED),
        ("InternalError", 500, LaunchScope.TRANSIENT),
        ("UnauthorizedOperation", 403, LaunchScope.CONFIGURATION),
        ("IdempotentInstanceTerminated", 400, LaunchScope.ATTEMPT),
    ],
)
async def test_a_refused_launch_is_one_call_and_says_what_to_close(
    scripted: Ec2Compute, receiver: Receiver, code: str, status: int, scope: LaunchScope
) -> None:
    receiver.script(Reply(status, error_xml(code)))
    with pytest.raises(LaunchRefused) as refused:
        await scripted.launch(request())
    assert (refused.value.code, refused.value.scope) == (code, scope)
    assert len(receiver.requests) == 1


async def test_a_spot_launch_is_one_time_without_a_highest_price(scripted: Ec2Compute, receiver: Receiver) -> None:
    receiver.answer = lambda sent: Reply(body=instance_xml(asked(sent)))
    launched = await scripted.launch(request(template="lt-0123"))
    sent = asked(receiver.requests[0])
    assert sent["InstanceMarketOptions.MarketType"] == "spot"
    assert sent["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    assert sent["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    assert "InstanceMarketOptions.SpotOptions.MaxPrice" not in sent
    assert (sent["ClientToken"], sent["SubnetId"], sent["MinCount"], sent["MaxCount"]) == ("token-1", "subnet-a", "1", "1")
    assert (sent["LaunchTemplate.LaunchTemplateId"], launched.pool, launched.client_token) == ("lt-0123", request().pool, "token-1")
    tagged = {sent[f"TagSpecification.{number}.ResourceType"] for number in (1, 2, 3)}
    assert tagged == {"instance", "volume", "spot-instances-request"}


async def test_an_on_demand_launch_tags_no_spot_request(scripted: Ec2Compute, receiver: Receiver) -> None:
    receiver.answer = lambda sent: Reply(body=instance_xml(asked(sent)))
    await scripted.launch(request(market=Market.ON_DEMAND))
    sent = asked(receiver.requests[0])
    assert not [name for name in sent if name.startswith(("InstanceMarketOptions", "TagSpecification.3"))]


async def test_a_full_subnet_is_followed_by_the_zones_other_one_e30(scripted: Ec2Compute, receiver: Receiver) -> None:
    receiver.answer = lambda sent: (
        Reply(400, error_xml("InsufficientFreeAddressesInSubnet"))
        if asked(sent)["SubnetId"] == "subnet-a"
        else Reply(body=instance_xml(asked(sent)))
    )
    await scripted.launch(request())
    first, second = (asked(sent) for sent in receiver.requests)
    assert (first["SubnetId"], second["SubnetId"]) == ("subnet-a", "subnet-b")
    assert first["ClientToken"] != second["ClientToken"]
    assert len(second["ClientToken"]) <= 64


async def test_a_repeat_goes_to_the_subnet_that_may_have_taken_the_launch(scripted: Ec2Compute, receiver: Receiver) -> None:
    """The second subnet took it and the answer was lost; meanwhile the first has room again: it must not start another one."""
    replies = [Reply(400, error_xml("InsufficientFreeAddressesInSubnet")), Reply(502, "")]
    receiver.answer = lambda sent: replies.pop(0) if replies else Reply(body=instance_xml(asked(sent)))
    with pytest.raises(LaunchOutcomeUnknown):
        await scripted.launch(request())
    await scripted.launch(request())
    sent = [asked(each) for each in receiver.requests]
    assert [each["SubnetId"] for each in sent] == ["subnet-a", "subnet-b", "subnet-b"]
    assert sent[1]["ClientToken"] == sent[2]["ClientToken"]


async def test_every_subnet_full_closes_no_more_than_the_subnets(scripted: Ec2Compute, receiver: Receiver) -> None:
    receiver.script(Reply(400, error_xml("InsufficientFreeAddressesInSubnet")))
    with pytest.raises(LaunchRefused) as refused:
        await scripted.launch(request())
    assert refused.value.scope is LaunchScope.SUBNET
    assert len(receiver.requests) == 2


async def test_the_fallbacks_token_is_looked_for_too(scripted: Ec2Compute, receiver: Receiver) -> None:
    receiver.script(
        Reply(400, error_xml("InsufficientFreeAddressesInSubnet")),
        Reply(500, error_xml("InternalError")),
        Reply(body="<r><reservationSet/></r>"),
    )
    with pytest.raises(LaunchRefused):
        await scripted.launch(request())
    assert await scripted.find("token-1") is None
    looked = asked(receiver.requests[-1])
    tokens = {asked(each)["ClientToken"] for each in receiver.requests[:2]}
    assert {looked["Filter.1.Value.1"], looked["Filter.1.Value.2"]} == tokens


async def test_a_zone_without_a_subnet_closes_only_its_pool(scripted: Ec2Compute, receiver: Receiver) -> None:
    with pytest.raises(LaunchRefused) as refused:
        await scripted.launch(request(zone="use1-az3"))
    assert (refused.value.scope, receiver.requests) == (LaunchScope.POOL, [])


async def test_user_data_that_ec2_would_not_take_is_not_sent(scripted: Ec2Compute, receiver: Receiver) -> None:
    with pytest.raises(LaunchRefused) as refused:
        await scripted.launch(request(user_data="ä" * 8193))
    assert (refused.value.scope, receiver.requests) == (LaunchScope.CONFIGURATION, [])


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"", {"Content-Length": "100"}),
        Reply(200, "<RunInstancesResponse><instancesSet><item>"),
        Reply(502, "<html>Bad Gateway"),
    ],
    ids=["cut off", "half an answer", "a gateway's page"],
)
async def test_a_launch_that_is_not_answered_may_have_happened(scripted: Ec2Compute, receiver: Receiver, reply: Reply) -> None:
    receiver.script(reply)
    with pytest.raises(LaunchOutcomeUnknown):
        await scripted.launch(request())
    assert len(receiver.requests) == 1


async def test_an_instance_just_launched_is_ended_once_ec2_knows_it_e27(scripted: Ec2Compute, receiver: Receiver) -> None:
    ended = "<TerminateInstancesResponse><instancesSet/></TerminateInstancesResponse>"
    receiver.script(
        Reply(400, error_xml("InvalidInstanceID.NotFound")), Reply(400, error_xml("InvalidInstanceID.NotFound")), Reply(body=ended)
    )
    await scripted.terminate(InstanceId("i-0aaa"))
    assert len(receiver.requests) == 3


async def test_an_instance_that_cannot_be_ended_is_not_taken_for_ended_e15(scripted: Ec2Compute, receiver: Receiver) -> None:
    receiver.script(Reply(403, error_xml("UnauthorizedOperation")))
    with pytest.raises(CloudUnavailable, match="TerminateInstances: UnauthorizedOperation"):
        await scripted.terminate(InstanceId("i-0aaa"))


async def test_many_ids_are_asked_for_in_batches(scripted: Ec2Compute, receiver: Receiver) -> None:
    receiver.script(Reply(body="<r><reservationSet/></r>"))
    await scripted.describe(InstanceId(f"i-{number:08x}") for number in range(450))
    sizes = sorted(sum(name.startswith("Filter.1.Value") for name in asked(each)) for each in receiver.requests)
    assert sizes == [50, 200, 200]


async def test_blocking_calls_do_not_block_the_event_loop(scripted: Ec2Compute, receiver: Receiver) -> None:
    both_are_here = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answer(_sent: Request) -> Reply:
        if len(receiver.requests) == 2:
            loop.call_soon_threadsafe(both_are_here.set)
        asyncio.run_coroutine_threadsafe(both_are_here.wait(), loop).result(timeout=30)
        return Reply(body="<r><reservationSet/></r>")

    receiver.answer = answer
    for owned in await asyncio.gather(scripted.list_owned(), scripted.list_owned()):
        assert owned == []
