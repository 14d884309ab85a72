"""What several rooms' tests share."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from watchdog.adapters.redis.store import RedisStore
from watchdog.emulator.processes import Supervisor
from watchdog.emulator.valkey import ValkeyServer, start_valkey


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a module's tests in one worker, since they share what its fixtures start; the demos share nothing and are spread."""
    for item in items:
        if "e2e" not in item.path.parts:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


@pytest.fixture(scope="session")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """Start processes that end with the tests, whatever ends those."""
    with Supervisor(tmp_path_factory.mktemp("run")) as running:
        yield running


@pytest.fixture(scope="session")
def valkey(supervisor: Supervisor, tmp_path_factory: pytest.TempPathFactory) -> ValkeyServer:
    """Run one real server for the whole session; each test takes a deployment of its own in it."""
    folder: Path = tmp_path_factory.mktemp("valkey")
    return start_valkey(supervisor, folder, log=folder / "log")


@pytest.fixture
def deployment() -> str:
    """Return a name that no other test uses."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
async def redis(valkey: ValkeyServer) -> AsyncIterator[Redis]:
    """Return an open client."""
    client = Redis.from_url(valkey.url)
    yield client
    await client.aclose()


@pytest.fixture
def store(redis: Redis, deployment: str) -> RedisStore:
    """Return an empty store with two announcers."""
    return RedisStore(redis, deployment=deployment, announcers=("slack", "scheduler"))
