"""Clients and threads."""

import asyncio

import pytest
from botocore.exceptions import ClientError

from tests.adapters.conftest import REGION
from tests.adapters.servers import Receiver, Reply, Request
from watchdog.adapters.aws.session import Aws, AwsConfig, open_aws
from watchdog.adapters.aws.sqs import SqsInbox


async def test_a_long_poll_that_nobody_waits_for_holds_up_nothing(receiver: Receiver) -> None:
    loop = asyncio.get_running_loop()
    polling = asyncio.Event()

    def never(_sent: Request) -> None:
        loop.call_soon_threadsafe(polling.set)

    receiver.answer = never
    async with asyncio.timeout(15):  # the poll itself would last for 20 s and more
        async with open_aws(AwsConfig(region=REGION, endpoint_url=receiver.url)) as aws:
            poll = asyncio.create_task(SqsInbox(aws, f"{receiver.url}/1/queue").receive())
            await polling.wait()
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll


async def test_ordinary_calls_are_tried_again_and_launches_are_not(scripted_aws: Aws, receiver: Receiver) -> None:
    receiver.script(Reply(500, "<Response><Errors><Error><Code>InternalError</Code></Error></Errors></Response>"))
    tries = {}
    for name, client in (("ordinary", scripted_aws.ec2), ("launch", scripted_aws.ec2_launch)):
        receiver.requests = []
        with pytest.raises(ClientError):
            await scripted_aws.call(client.describe_subnets)
        tries[name] = len(receiver.requests)
    assert tries == {"ordinary": 3, "launch": 1}
