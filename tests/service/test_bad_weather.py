"""The service starts, says what it lacks, and recovers; or it does not start, and says why."""

from __future__ import annotations

import sys

import httpx2

from tests.waiting import eventually
from watchdog.cli.demo.world import World
from watchdog.emulator.processes import tail
from watchdog.emulator.valkey import free_port, server_binary

SERVE = ["-m", "watchdog.cli", "serve"]


def start(world: World, name: str, **changed: str) -> str:
    """Start one more service with changed settings; return its URL."""
    port = free_port()
    environment = {**world.service_environment, "SPOT_WATCHDOG_PORT": str(port)}
    environment |= {f"SPOT_WATCHDOG_{setting}": value for setting, value in changed.items()}
    world.supervisor.start(name, [sys.executable, *SERVE], env=environment, log=world.log_path(name))
    return f"http://127.0.0.1:{port}"


def get(url: str) -> httpx2.Response | None:
    try:
        return httpx2.get(url, trust_env=False, timeout=10)
    except httpx2.HTTPError:
        return None


def test_an_unreachable_redis_degrades_the_service_until_it_answers(world: World) -> None:
    redis_port = free_port()
    url = start(world, "degraded", REDIS_URL=f"redis://127.0.0.1:{redis_port}/0", DEPLOYMENT="degraded")
    answer = eventually(lambda: get(f"{url}/readyz"), "the service answers")
    assert answer is not None
    assert answer.status_code == 503
    assert "redis" in [fault["pointer"] for fault in answer.json()["errors"]]
    assert get(f"{url}/healthz") is not None
    refused = httpx2.get(f"{url}/v1/jobs", headers={"Authorization": f"Bearer {world.token}"}, trust_env=False)
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:spot-watchdog:problem:store-unavailable")
    assert refused.headers["retry-after"] == "1"
    world.supervisor.start(
        "late-valkey",
        [str(server_binary()), "--port", str(redis_port), "--bind", "127.0.0.1", "--dir", str(world.run_dir / "tmp"), "--save", ""],
        env={"PATH": "/usr/bin:/bin"},
        log=world.log_path("late-valkey"),
    )

    def ready() -> bool:
        found = get(f"{url}/readyz")
        return found is not None and found.status_code == 200

    eventually(ready, "the same process becomes ready")
    assert world.supervisor.stop("degraded") == 0
    world.supervisor.stop("late-valkey")


def test_a_checkpoint_store_without_conditional_writes_is_refused_at_start(world: World) -> None:
    try:
        httpx2.put(f"{world.emulator.url}/_emulator/faults", json={"conditional_writes": False}, trust_env=False).raise_for_status()
        start(world, "unsuitable", DEPLOYMENT="unsuitable")
        eventually(lambda: world.supervisor.exit_code("unsuitable") is not None, "the service ends")
    finally:
        httpx2.put(f"{world.emulator.url}/_emulator/faults", json={}, trust_env=False).raise_for_status()
    assert world.supervisor.exit_code("unsuitable") == 78
    said = tail(world.log_path("unsuitable"))
    assert "SPOT_WATCHDOG_CHECKPOINT_STORE" in said
    assert "If-None-Match" in said


def test_settings_that_cannot_be_used_end_the_start_with_all_their_names(world: World) -> None:
    start(world, "misconfigured", MARKET_POLL_SECONDS="often", AWS_REGION="", QUEUE_URL="queue", API_TOKEN="short")
    eventually(lambda: world.supervisor.exit_code("misconfigured") is not None, "the service ends")
    assert world.supervisor.exit_code("misconfigured") == 78
    said = tail(world.log_path("misconfigured"))
    for name in ("MARKET_POLL_SECONDS", "AWS_REGION", "QUEUE_URL", "API_TOKEN"):
        assert f"SPOT_WATCHDOG_{name}" in said
    assert "Traceback" not in said
