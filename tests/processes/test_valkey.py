import os
import signal
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.waiting import eventually
from watchdog.emulator.processes import Supervisor
from watchdog.emulator.valkey import start_valkey


def test_it_answers_at_once_and_keeps_records_as_a_production_store_does(supervisor: Supervisor, run_dir: Path) -> None:
    server = start_valkey(supervisor, run_dir / "valkey", log=run_dir / "valkey.log")
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        settings = client.config_get("appendonly", "appendfsync", "maxmemory-policy", "bind")
        assert settings == {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "bind": "127.0.0.1"}


def test_it_refuses_those_who_do_not_know_the_password(supervisor: Supervisor, run_dir: Path) -> None:
    server = start_valkey(supervisor, run_dir / "valkey", log=run_dir / "valkey.log")
    with redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    assert (server.directory / "valkey.conf").stat().st_mode & 0o077 == 0


def test_synced_records_survive_a_kill(supervisor: Supervisor, run_dir: Path) -> None:
    server = start_valkey(supervisor, run_dir / "valkey", log=run_dir / "valkey.log")
    with redis.Redis.from_url(server.url) as client:
        client.set("kept", "1")
        assert client.execute_command("WAITAOF", 1, 0, 5000)[0] == 1
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: not supervisor.alive("valkey"), "the server ends")
    again = start_valkey(supervisor, run_dir / "valkey", log=run_dir / "valkey.log")
    with redis.Redis.from_url(again.url) as client:
        assert client.get("kept") == b"1"


def test_two_servers_do_not_meet(supervisor: Supervisor, run_dir: Path) -> None:
    one, two = (start_valkey(supervisor, run_dir / name, log=run_dir / f"{name}.log", name=name) for name in ("one", "two"))
    with redis.Redis.from_url(one.url) as first, redis.Redis.from_url(two.url) as second:
        first.set("key", "1")
        assert second.get("key") is None
