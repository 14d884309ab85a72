"""What people and queues get wrong is refused with what to do about it, and nothing else suffers."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from mypy_boto3_sqs import SQSClient

from tests.waiting import eventually
from watchdog.cli.demo.world import World

IDLE = ["sleep", "1000"]


def body(world: World, **changed: Any) -> dict[str, Any]:
    return {
        "name": "idle",
        "instance_types": ["g5.xlarge"],
        "launch_template": world.account.launch_template_id,
        "command": IDLE,
        **changed,
    }


def post(api: httpx2.Client, content: Any, *, key: str | None = None) -> httpx2.Response:
    return api.post("/v1/jobs", json=content, headers={"Idempotency-Key": key or str(uuid.uuid4())})


def warning(instance_id: str, *, age_seconds: float = 0) -> str:
    sent_at = datetime.now(UTC) - timedelta(seconds=age_seconds)
    return json.dumps(
        {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "source": "aws.ec2",
            "account": "123456789012",
            "time": sent_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": "us-east-1",
            "resources": [f"arn:aws:ec2:us-east-1b:instance/{instance_id}"],
            "detail": {"instance-id": instance_id, "instance-action": "terminate"},
        }
    )


def count(api: httpx2.Client, name: str, **labels: str) -> float:
    """Return a counter of /metrics."""
    total = 0.0
    for line in api.get("/metrics").text.splitlines():
        if line.startswith(f"{name}{{") and all(f'{label}="{value}"' in line for label, value in labels.items()):
            total += float(line.rsplit(" ", 1)[1])
    return total


def problem(answer: httpx2.Response, status: int, kind: str) -> dict[str, Any]:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    content: dict[str, Any] = answer.json()
    assert content["type"] == f"urn:spot-watchdog:problem:{kind}"
    assert content["status"] == status
    return content


def test_an_unknown_instance_type_is_refused_with_its_place(world: World, api: httpx2.Client) -> None:
    refused = problem(post(api, body(world, instance_types=["g5.xlarge", "p99.48xlarge"])), 422, "job-rejected")
    assert refused["errors"] == [{"pointer": "/instance_types/1", "detail": "EC2 knows no instance type 'p99.48xlarge' in this Region"}]


def test_a_launch_template_that_is_not_on_the_allow_list_is_refused(world: World, api: httpx2.Client) -> None:
    refused = problem(post(api, body(world, launch_template="lt-0123456789abcdef0")), 422, "job-rejected")
    assert "SPOT_WATCHDOG_LAUNCH_TEMPLATES" in refused["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"instance_types": []}, "/instance_types"),
        ({"markets": ["barter"]}, "/markets/0"),
        ({"checkpoint_seconds": -1}, "/checkpoint_seconds"),
        ({"checkpoint_seconds": 1e12}, "/checkpoint_seconds"),
        ({"availability_zone_ids": ["us-east-1a"]}, "/availability_zone_ids/0"),
        ({"name": ""}, "/name"),
        ({"user_data": "#!/bin/sh"}, "/user_data"),
    ],
)
def test_f12_every_field_is_checked_and_named(world: World, api: httpx2.Client, changed: dict[str, Any], pointer: str) -> None:
    refused = problem(post(api, body(world, **changed)), 422, "validation-failed")
    assert [pointer] == [fault["pointer"] for fault in refused["errors"]]


def test_a_request_without_an_idempotency_key_is_refused_with_what_to_do(world: World, api: httpx2.Client) -> None:
    assert "Idempotency-Key" in problem(api.post("/v1/jobs", json=body(world)), 400, "idempotency-key-missing")["detail"]


def test_a_job_registered_twice_with_one_key_is_one_job(world: World, api: httpx2.Client) -> None:
    key = str(uuid.uuid4())
    first, again = post(api, body(world), key=key), post(api, body(world), key=f'"{key}"')
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["job_id"] == again.json()["job_id"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert first.headers["Location"] == f"/v1/jobs/{first.json()['job_id']}"
    problem(post(api, body(world, name="another"), key=key), 422, "idempotency-key-reused")
    launched = eventually(lambda: world.instances_of(first.json()["job_id"]), "the job's instance is launched")
    assert len(launched) == 1
    world.service.cancel(first.json()["job_id"])


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/migrations", "/v1/notices", "/v1/decisions"])
@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic d3Jvbmc="}])
def test_nobody_reads_without_the_token(world: World, path: str, header: dict[str, str]) -> None:
    problem(httpx2.get(f"{world.service.url}{path}", headers=header, trust_env=False), 401, "unauthenticated")


def test_the_api_token_opens_no_agents_door(api: httpx2.Client) -> None:
    report = {"protocol": 1, "phase": "starting", "sent_at": "2026-03-04T10:00:00Z"}
    problem(api.put("/agent/v1/jobs/job_1/agents/inc_1", json=report), 401, "unauthenticated")


def test_what_is_not_there_is_a_problem_too(api: httpx2.Client) -> None:
    problem(api.get("/v1/jobs/job_nowhere"), 404, "not-found")
    for answer in (api.get("/nowhere"), api.delete("/v1/jobs")):
        assert answer.headers["content-type"] == "application/problem+json"


POISON = [
    "abcd",
    "{}",
    "[]",
    "null",
    '{"source":""}',
    '{"source": "aws.ec2"}',
    "☃" * 1000,
    "[" * 5000,
    warning("i-1").replace('"i-1"', "7"),
]


def test_b05_poison_goes_to_the_dead_letter_queue_and_holds_up_nobody(world: World, api: httpx2.Client, sqs: SQSClient) -> None:
    rejected = count(api, "spot_watchdog_notices_total", outcome="rejected")
    for poison in POISON:
        sqs.send_message(QueueUrl=world.account.queue_url, MessageBody=poison)
    job = post(api, body(world)).json()
    (instance,) = eventually(lambda: world.instances_of(job["job_id"]), "the job's instance is launched")
    sqs.send_message(QueueUrl=world.account.queue_url, MessageBody=warning(instance["instance_id"]))

    def attempts() -> list[str]:
        (migration,) = world.service.migrations(job["job_id"])
        return [attempt["state"] for attempt in migration["replacements"]]

    eventually(lambda: attempts() == ["lost", "launched"], "the warning behind the poison is acted upon")
    eventually(
        lambda: count(api, "spot_watchdog_notices_total", outcome="rejected") == rejected + len(POISON), "every poison message is rejected"
    )
    attributes = sqs.get_queue_attributes(QueueUrl=world.account.dead_letter_queue_url, AttributeNames=["ApproximateNumberOfMessages"])
    assert int(attributes["Attributes"]["ApproximateNumberOfMessages"]) >= len(POISON)
    world.service.cancel(job["job_id"])


def test_foreign_unknown_late_and_repeated_messages_are_counted_and_gone(world: World, api: httpx2.Client, sqs: SQSClient) -> None:
    foreign = count(api, "spot_watchdog_notices_total", outcome="foreign")
    unknown = count(api, "spot_watchdog_notices_total", outcome="unrecognised")
    test_notification = json.dumps({"AutoScalingGroupName": "asg", "Service": "AWS Auto Scaling", "Event": "autoscaling:TEST_NOTIFICATION"})
    for message in [warning("i-0aaaaaaaaaaaaaaaa")] * 3 + [warning("i-0bbbbbbbbbbbbbbbb", age_seconds=3600), test_notification]:
        sqs.send_message(QueueUrl=world.account.queue_url, MessageBody=message)
    eventually(lambda: count(api, "spot_watchdog_notices_total", outcome="foreign") == foreign + 4, "foreign messages are counted")
    eventually(lambda: count(api, "spot_watchdog_notices_total", outcome="unrecognised") == unknown + 1, "unknown ones are too")

    def left() -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = sqs.get_queue_attributes(QueueUrl=world.account.queue_url, AttributeNames=names)["Attributes"]  # type: ignore[arg-type]
        return sum(int(value) for value in found.values())

    eventually(lambda: left() == 0, "the queue is empty")
