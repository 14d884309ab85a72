"""The interruption queue, against moto."""

import json
from dataclasses import dataclass

import pytest

from watchdog.adapters.aws.session import Aws
from watchdog.adapters.aws.sqs import SqsInbox
from watchdog.errors import CloudUnavailable
from watchdog.ports import InboxMessage


@dataclass(frozen=True)
class Queues:
    inbox: SqsInbox
    url: str
    dead_letter_url: str


@pytest.fixture
async def queues(aws: Aws, unique: str) -> Queues:
    dead = (await aws.call(aws.sqs.create_queue, QueueName=f"dead-{unique}"))["QueueUrl"]
    attributes = await aws.call(aws.sqs.get_queue_attributes, QueueUrl=dead, AttributeNames=["QueueArn"])
    policy = json.dumps({"deadLetterTargetArn": attributes["Attributes"]["QueueArn"], "maxReceiveCount": 5})
    made = await aws.call(aws.sqs.create_queue, QueueName=f"live-{unique}", Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"})
    return Queues(SqsInbox(aws, made["QueueUrl"], wait_seconds=1), made["QueueUrl"], dead)


async def put(aws: Aws, url: str, *bodies: str) -> None:
    for body in bodies:
        await aws.call(aws.sqs.send_message, QueueUrl=url, MessageBody=body)


async def everything(inbox: SqsInbox) -> list[InboxMessage]:
    return list(await inbox.receive())


async def test_bodies_arrive_as_they_are_whatever_they_hold(aws: Aws, queues: Queues) -> None:
    bodies = ["abcd", '{"a": 1}', "<&>ä🙂", " "]
    await put(aws, queues.url, *bodies)
    received = await everything(queues.inbox)
    assert sorted(each.body for each in received) == sorted(bodies)
    assert {each.receive_count for each in received} == {1}


async def test_each_message_is_deleted_by_itself_b08(aws: Aws, queues: Queues) -> None:
    await put(aws, queues.url, "one", "two")
    first, second = await everything(queues.inbox)
    await queues.inbox.delete(first)
    [left] = await everything(queues.inbox)
    assert (left.body, left.receive_count) == (second.body, 2)


async def test_a_rejected_message_moves_to_the_dead_letter_queue_with_the_reason_b05(aws: Aws, queues: Queues) -> None:
    await put(aws, queues.url, "abcd")
    [message] = await everything(queues.inbox)
    await queues.inbox.reject(message, "not JSON: \x00 ä " + "x" * 1000)
    assert await everything(queues.inbox) == []
    dead = await aws.call(aws.sqs.receive_message, QueueUrl=queues.dead_letter_url, MessageAttributeNames=["All"])
    [moved] = dead["Messages"]
    assert moved["Body"] == "abcd"
    assert moved["MessageAttributes"]["Reason"]["StringValue"].startswith("not JSON: ")
    assert moved["MessageAttributes"]["SourceMessageId"]["StringValue"] == message.message_id


async def test_without_a_dead_letter_queue_a_message_stays(aws: Aws) -> None:
    url = (await aws.call(aws.sqs.create_queue, QueueName="alone", Attributes={"VisibilityTimeout": "0"}))["QueueUrl"]
    await put(aws, url, "abcd")
    inbox = SqsInbox(aws, url, wait_seconds=1)
    [message] = await everything(inbox)
    with pytest.raises(CloudUnavailable, match="dead-letter"):
        await inbox.reject(message, "why")
    assert [each.body for each in await everything(inbox)] == ["abcd"]


async def test_a_queue_that_does_not_exist_is_an_answer_and_not_a_crash_b25(aws: Aws) -> None:
    inbox = SqsInbox(aws, f"{aws.config.endpoint_url}/123456789012/nowhere", wait_seconds=1)
    for call in (inbox.receive, inbox.check):
        with pytest.raises(CloudUnavailable, match="NonExistentQueue"):
            await call()


async def test_the_queue_can_be_checked(queues: Queues) -> None:
    await queues.inbox.check()
