"""A real service on the emulated AWS, without any training: for bad input and bad weather."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import httpx2
import pytest
from mypy_boto3_sqs import SQSClient

from watchdog.cli.demo.world import World, open_world


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world(say=lambda _: None, boot_seconds=0.1) as opened:
        yield opened


@pytest.fixture(scope="module")
def api(world: World) -> Iterator[httpx2.Client]:
    """Return a client that holds the API token."""
    with httpx2.Client(base_url=world.service.url, headers={"Authorization": f"Bearer {world.token}"}, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def sqs(world: World) -> Iterator[SQSClient]:
    client = boto3.client(
        "sqs",
        region_name="us-east-1",
        endpoint_url=world.emulator.url,
        aws_access_key_id="emulated",
        aws_secret_access_key="emulated",
    )
    yield client
    client.close()
