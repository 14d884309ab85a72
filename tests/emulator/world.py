"""A running emulator and what tests need to talk to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import boto3
import httpx2
import psutil
from botocore.config import Config
from botocore.exceptions import ClientError

from watchdog.emulator.account import Account, provision

T = TypeVar("T")

REGION = "us-east-1"
BOOT_SECONDS = 0.2
SLEEPS = "#!/bin/sh\nexec sleep 600\n"
_DEADLINE_SECONDS = 30.0


def until(look: Callable[[], T | None], what: str) -> T:
    """Return the first answer that is true; fail if none came."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not (answer := look()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)
    return answer


def error_of(call: Callable[[], Any]) -> tuple[str, int]:
    """Return the code and HTTP status that a call is refused with."""
    try:
        answer = call()
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    raise AssertionError(f"was not refused: {answer}")


def sleepers(home: str) -> list[psutil.Process]:
    """Return the processes that an instance has left, whoever their parent is."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.cwd() == home:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


@contextmanager
def emulator(run_dir: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run an emulator process; yield it and its endpoint."""
    command = [sys.executable, "-m", "watchdog.emulator", "--run-dir", str(run_dir), "--boot-seconds", str(BOOT_SECONDS), *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": str(run_dir)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, "the emulator did not start"
            yield process, json.loads(line)["endpoint"]
        finally:
            process.terminate()
            process.wait(timeout=30)


@dataclass
class World:
    endpoint: str
    run_dir: Path
    account: Account
    http: httpx2.Client
    clients: dict[str, Any] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def over(cls, endpoint: str, run_dir: Path) -> Iterator[World]:
        account = provision(endpoint, deployment="test", region=REGION, zones=None)
        with httpx2.Client(trust_env=False, timeout=30) as http:
            world = cls(endpoint=endpoint, run_dir=run_dir, account=account, http=http)
            yield world
        for client in world.clients.values():
            client.close()

    def client(self, service: str) -> Any:
        if service not in self.clients:
            config = Config(retries={"total_max_attempts": 1, "mode": "standard"}, s3={"addressing_style": "path"})
            self.clients[service] = boto3.client(service, endpoint_url=self.endpoint, region_name=REGION, config=config)  # type: ignore[call-overload]
        return self.clients[service]

    @property
    def ec2(self) -> Any:
        return self.client("ec2")

    def control(self, method: str, path: str, body: Any = None) -> Any:
        return self.http.request(method, f"{self.endpoint}/_emulator/{path}", json=body).raise_for_status().json()

    def request(self, zone: str = "use1-az4", instance_type: str = "g5.xlarge", market: str = "spot", **more: Any) -> dict[str, Any]:
        """Return the parameters of a launch, with a token of its own."""
        return {
            "LaunchTemplate": {"LaunchTemplateId": self.account.launch_template_id},
            "InstanceType": instance_type,
            "SubnetId": self.account.subnets[zone],
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": uuid.uuid4().hex,
            "UserData": SLEEPS,
            **({"InstanceMarketOptions": {"MarketType": "spot"}} if market == "spot" else {}),
            **more,
        }

    def launch(self, *arguments: Any, **more: Any) -> str:
        answer = self.ec2.run_instances(**self.request(*arguments, **more))
        instance_id: str = answer["Instances"][0]["InstanceId"]
        return instance_id

    def booted(self, *arguments: Any, **more: Any) -> dict[str, Any]:
        """Launch an instance and return it, as the control door shows it, once it runs."""
        return self.in_state(self.launch(*arguments, **more), "running")

    def shown(self, instance_id: str) -> dict[str, Any]:
        return next(each for each in self.control("GET", "instances")["instances"] if each["instance_id"] == instance_id)

    def described(self, instance_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
        return answer

    def in_state(self, instance_id: str, state: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            shown = self.shown(instance_id)
            return shown if shown["state"] == state else None

        return until(look, f"{instance_id} is {state}")

    def spot_request(self, instance_id: str) -> dict[str, Any]:
        filters = [{"Name": "instance-id", "Values": [instance_id]}]
        answer: dict[str, Any] = self.ec2.describe_spot_instance_requests(Filters=filters)["SpotInstanceRequests"][0]
        return answer

    def timeline(self, kind: str, instance_id: str | None = None) -> list[dict[str, Any]]:
        entries = self.control("GET", "timeline")["entries"]
        return [each for each in entries if each["kind"] == kind and instance_id in {None, each["instance_id"]}]

    def events(self, instance_id: str, count: int) -> list[dict[str, Any]]:
        """Return the first `count` events about an instance, off the queue."""
        found: list[dict[str, Any]] = []

        def look() -> list[dict[str, Any]] | None:
            sqs = self.client("sqs")
            for message in sqs.receive_message(QueueUrl=self.account.queue_url, MaxNumberOfMessages=10).get("Messages", []):
                sqs.delete_message(QueueUrl=self.account.queue_url, ReceiptHandle=message["ReceiptHandle"])
                event = json.loads(message["Body"])
                if event["detail"]["instance-id"] == instance_id:
                    found.append(event)
            return found if len(found) >= count else None

        return until(look, f"{count} events about {instance_id}")

    def console(self, instance_id: str) -> str:
        return (self.run_dir / "instances" / instance_id / "console.log").read_text()

    def token(self, endpoint: str, ttl: str = "60") -> str:
        answer = self.http.put(f"{endpoint}latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": ttl})
        return answer.raise_for_status().text

    def metadata(self, endpoint: str, path: str) -> httpx2.Response:
        return self.http.get(f"{endpoint}latest/{path}", headers={"X-aws-ec2-metadata-token": self.token(endpoint)})
