"""The queue that EventBridge writes to."""

from __future__ import annotations

import json
from collections.abc import Sequence

from watchdog.adapters.aws.errors import cloud_errors
from watchdog.adapters.aws.session import LONG_POLL_SECONDS, Aws
from watchdog.errors import CloudUnavailable
from watchdog.ports import InboxMessage

_BATCH = 10
_REASON_CHARACTERS = 256


class SqsInbox:
    """`ports.Inbox` over SQS."""

    def __init__(self, aws: Aws, queue_url: str, *, wait_seconds: int = LONG_POLL_SECONDS) -> None:
        """Read the queue at `queue_url`, waiting for up to `wait_seconds` for a message."""
        self._aws = aws
        self._queue_url = queue_url
        self._wait_seconds = wait_seconds
        self._dead_letter_url: str | None = None

    async def check(self) -> None:
        """Ask for the queue. Raises CloudUnavailable if it does not exist, or not for us."""
        with cloud_errors("GetQueueAttributes"):
            await self._aws.call(self._aws.sqs.get_queue_attributes, QueueUrl=self._queue_url, AttributeNames=["QueueArn"])

    async def receive(self) -> Sequence[InboxMessage]:
        """Wait for messages and return up to ten, with their bodies as they are. Raises CloudUnavailable."""
        with cloud_errors("ReceiveMessage"):
            answer = await self._aws.long_poll(
                self._aws.sqs.receive_message,
                QueueUrl=self._queue_url,
                MaxNumberOfMessages=_BATCH,
                WaitTimeSeconds=self._wait_seconds,
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            )
        return [
            InboxMessage(
                message_id=message["MessageId"],
                receipt=message["ReceiptHandle"],
                body=message.get("Body", ""),
                receive_count=int(message.get("Attributes", {}).get("ApproximateReceiveCount", "1")),
            )
            for message in answer.get("Messages", [])
        ]

    async def delete(self, message: InboxMessage) -> None:
        """Acknowledge one message by its own receipt. Raises CloudUnavailable."""
        with cloud_errors("DeleteMessage"):
            await self._aws.call(self._aws.sqs.delete_message, QueueUrl=self._queue_url, ReceiptHandle=message.receipt)

    async def reject(self, message: InboxMessage, reason: str) -> None:
        """Copy a message into the dead-letter queue with the reason, then delete it: never the other way round.

        Raises CloudUnavailable, also where the queue has no dead-letter queue: the message then stays where it is.
        """
        dead_letter_url = self._dead_letter_url or await self._find_dead_letter_queue()
        self._dead_letter_url = dead_letter_url
        with cloud_errors("SendMessage"):
            await self._aws.call(
                self._aws.sqs.send_message,
                QueueUrl=dead_letter_url,
                MessageBody=message.body,
                MessageAttributes={
                    "Reason": {"DataType": "String", "StringValue": ascii(reason)[1:-1][:_REASON_CHARACTERS] or "unknown"},
                    "SourceMessageId": {"DataType": "String", "StringValue": message.message_id},
                },
            )
        await self.delete(message)

    async def _find_dead_letter_queue(self) -> str:
        with cloud_errors("GetQueueAttributes"):
            answer = await self._aws.call(self._aws.sqs.get_queue_attributes, QueueUrl=self._queue_url, AttributeNames=["RedrivePolicy"])
        policy = json.loads(answer.get("Attributes", {}).get("RedrivePolicy", "{}"))
        if "deadLetterTargetArn" not in policy:
            raise CloudUnavailable("the interruption queue has no dead-letter queue: give it a RedrivePolicy")
        *_, account, name = policy["deadLetterTargetArn"].split(":")
        with cloud_errors("GetQueueUrl"):
            found = await self._aws.call(self._aws.sqs.get_queue_url, QueueName=name, QueueOwnerAWSAccountId=account)
        return found["QueueUrl"]
