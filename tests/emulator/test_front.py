"""The WSGI front by itself, over an application that can be held inside a call."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from watchdog.clock import SystemClock
from watchdog.emulator.cloud import Cloud, CloudOptions
from watchdog.emulator.front import Front
from watchdog.emulator.market import Catalogue, SpotMarket

NOTHING = Catalogue(region="us-east-1", zone_ids={}, types={}, offered={})
_ROOM_SECONDS = 0.3


class Store:
    """Counts how many writes are inside it at once; each leaves room for others to come in."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.company = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.inside > 1:
                self.company.set()
        self.company.wait(_ROOM_SECONDS)
        with self._lock:
            self.inside -= 1
        start_response("200 OK", [])
        return [environ["wsgi.input"].read()]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    clock = SystemClock()
    options = CloudOptions(run_dir=tmp_path, boot_seconds=0, instance_path="")
    cloud = Cloud(options, SpotMarket(NOTHING, clock, seed=1), lambda _: [], clock)
    yield cloud
    cloud.close()


def most_at_once(cloud: Cloud, **conditions: str) -> int:
    store = Store()
    front = Front(store, store, cloud)

    def write() -> None:
        body = b"state"
        environ = {"REQUEST_METHOD": "PUT", "PATH_INFO": "/bucket/key", "CONTENT_LENGTH": "5", "wsgi.input": io.BytesIO(body), **conditions}
        assert [body] == list(front(environ, lambda *_: None))

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return store.most


@pytest.mark.parametrize("condition", ["HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"])
def test_conditional_writes_are_done_one_after_the_other(cloud: Cloud, condition: str) -> None:
    # moto compares first and writes later: two at once could both find their condition true.
    assert most_at_once(cloud, **{condition: "*"}) == 1


def test_other_writes_do_not_wait_for_each_other(cloud: Cloud) -> None:
    assert most_at_once(cloud) == 2
