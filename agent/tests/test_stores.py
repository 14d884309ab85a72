"""What every store promises; S3 is a local server that speaks its protocol."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest

from spot_watchdog_agent.errors import ConditionFailed, MetadataUnavailable, ObjectMissing, SettingsInvalid, StoreUnsuitable
from spot_watchdog_agent.stores import open_store, prove_conditional_writes
from spot_watchdog_agent.stores.folder import FolderStore
from spot_watchdog_agent.stores.s3 import InstanceRoleCredentials


def read(store, key, size):
    buffer = bytearray(size)
    return store.read_into(key, memoryview(buffer)), bytes(buffer)


def test_an_object_comes_back_with_its_etag(store):
    etag = store.create("a/b", b"contents")
    assert (store.get("a/b").data, store.get("a/b").etag) == (b"contents", etag)


def test_a_second_create_is_refused_and_changes_nothing(store):
    store.create("HEAD", b"first")
    with pytest.raises(ConditionFailed):
        store.create("HEAD", b"second")
    assert store.get("HEAD").data == b"first"


def test_only_the_current_version_can_be_replaced(store):
    first = store.create("HEAD", b"first")
    second = store.replace("HEAD", b"second", etag=first)
    with pytest.raises(ConditionFailed):
        store.replace("HEAD", b"third", etag=first)
    store.replace("HEAD", b"fourth", etag=second)
    assert store.get("HEAD").data == b"fourth"


def test_what_is_not_there_can_be_neither_read_nor_replaced(store):
    with pytest.raises(ObjectMissing):
        store.get("HEAD")
    with pytest.raises(ObjectMissing):
        read(store, "data", 4)
    with pytest.raises(ConditionFailed):
        store.replace("HEAD", b"x", etag='"nothing"')


def test_one_of_many_concurrent_writers_wins(store):
    etag = store.create("HEAD", b"start")
    start = threading.Barrier(8)

    def attempt(number: int) -> int:
        start.wait()
        try:
            store.replace("HEAD", f"writer {number}".encode(), etag=etag)
        except ConditionFailed:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1


@pytest.mark.parametrize("size", [0, 1, 100_000, 40_000_000])
def test_large_objects_come_back_whole(store, size):
    data = bytearray(i & 0xFF for i in range(min(size, 256))) * (size // 256 + 1)
    data = data[:size]
    store.write("data/r0.bin", data)
    assert read(store, "data/r0.bin", size) == (size, bytes(data))


def test_a_size_that_differs_is_told(store):
    store.write("data", b"12345")
    assert read(store, "data", 3) == (5, b"123")
    assert read(store, "data", 7)[0] == 5


def test_deleting_twice_is_no_error(store):
    store.write("a/b/c", b"x")
    store.delete("a/b/c")
    store.delete("a/b/c")
    with pytest.raises(ObjectMissing):
        store.get("a/b/c")


def test_a_store_with_conditional_writes_proves_it_and_is_left_clean(store):
    prove_conditional_writes(store)
    store.create("HEAD", b"x")


class Careless(FolderStore):
    """A store that ignores one condition, as some S3-compatible ones do."""

    def __init__(self, root, ignores) -> None:
        super().__init__(root)
        self.ignores = ignores

    def create(self, key, data):
        if self.ignores == "If-None-Match":
            self.delete(key)
        return super().create(key, data)

    def replace(self, key, data, *, etag):
        return super().replace(key, data, etag=self.get(key).etag if self.ignores == "If-Match" else etag)


@pytest.mark.parametrize("condition", ["If-None-Match", "If-Match"])
def test_a_store_that_ignores_a_condition_is_found_out(tmp_path, condition):
    with pytest.raises(StoreUnsuitable, match=condition):
        prove_conditional_writes(Careless(tmp_path, condition))


def test_an_interrupted_write_leaves_the_old_object(tmp_path):
    store = FolderStore(tmp_path)
    store.create("HEAD", b"whole")
    (tmp_path / "HEAD.partial").write_bytes(b"torn")
    etag = store.get("HEAD").etag
    store.replace("HEAD", b"next", etag=etag)
    assert store.get("HEAD").data == b"next"
    assert not (tmp_path / "HEAD.partial").exists()


def test_urls_and_paths_name_stores(tmp_path):
    assert repr(open_store(tmp_path)) == repr(open_store(f"file://{tmp_path}"))
    with pytest.raises(SettingsInvalid):
        open_store("ftp://host/x")
    with pytest.raises(SettingsInvalid):
        open_store("s3://bucket/x")  # no region, no credentials, no metadata


class Role:
    def __init__(self, lives: timedelta) -> None:
        self.lives = lives
        self.asked = 0
        self.down = False

    def role_credentials(self):
        self.asked += 1
        if self.down:
            raise MetadataUnavailable("down")
        expires_at = datetime.now(timezone.utc) + self.lives
        return {"access_key_id": "a", "secret_access_key": "b", "token": "c", "expires_at": expires_at}


def test_role_credentials_are_kept_until_near_their_end():
    role = Role(timedelta(hours=6))
    credentials = InstanceRoleCredentials(role)
    assert credentials() == credentials()
    assert role.asked == 1


def test_credentials_that_still_live_survive_a_silent_metadata_service():
    role = Role(timedelta(minutes=5))
    credentials = InstanceRoleCredentials(role)
    first = credentials()
    role.down = True
    assert credentials() == first
    assert role.asked == 2
