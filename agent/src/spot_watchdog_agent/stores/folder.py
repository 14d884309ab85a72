"""Checkpoints in a folder: the stand-alone default, and shared file systems."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spot_watchdog_agent.errors import ConditionFailed, ObjectMissing, StoreRefused, StoreUnavailable
from spot_watchdog_agent.stores.base import Buffer, StoredObject


class FolderStore:
    """A folder that behaves like one prefix of an object store.

    Conditional writes hold a lock of the folder while they look and rename; the kernel drops it when a process dies. An object
    is synced before it gets its name, and its folder after, so that a power cut leaves the old object or the new one.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Use the folder `root`; it is made when something is first written."""
        self._root = Path(root).absolute()

    def __repr__(self) -> str:
        return f"FolderStore({str(self._root)!r})"

    def get(self, key: str) -> StoredObject:
        """Return a small object."""
        with _translated(key):
            data = self._path(key).read_bytes()
        return StoredObject(data=data, etag=_etag(data))

    def create(self, key: str, data: bytes) -> str:
        """Write an object that must not exist yet."""
        with _translated(key), self._locked():
            if self._path(key).exists():
                raise ConditionFailed(f"{key} exists already.")
            self._write_durably(key, data)
        return _etag(data)

    def replace(self, key: str, data: bytes, *, etag: str) -> str:
        """Replace the version of an object that has `etag`."""
        with _translated(key), self._locked():
            path = self._path(key)
            if not path.exists() or _etag(path.read_bytes()) != etag:
                raise ConditionFailed(f"{key} has changed.")
            self._write_durably(key, data)
        return _etag(data)

    def write(self, key: str, data: Buffer) -> None:
        """Write a large object under a key of its own."""
        with _translated(key):
            self._write_durably(key, data)

    def read_into(self, key: str, buffer: memoryview) -> int:
        """Fill `buffer` from an object and return the object's size."""
        with _translated(key), self._path(key).open("rb", buffering=0) as file:
            filled = 0
            while filled < len(buffer):
                count = file.readinto(buffer[filled:])
                if not count:
                    break
                filled += count
            return os.fstat(file.fileno()).st_size

    def delete(self, key: str) -> None:
        """Delete an object and the folders that it leaves empty."""
        path = self._path(key)
        with _translated(key):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            for parent in path.relative_to(self._root).parents:
                (self._root / parent).rmdir()

    def _path(self, key: str) -> Path:
        return self._root / key

    @contextmanager
    def _locked(self) -> Iterator[None]:
        _make_durable_folder(self._root)
        descriptor = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _write_durably(self, key: str, data: Buffer) -> None:
        path = self._path(key)
        _make_durable_folder(path.parent)
        # A fixed name: what a killed process leaves behind is written over by the next one, and never piles up.
        partial = path.with_name(f"{path.name}.partial")
        with partial.open("wb", buffering=0) as file:
            view = memoryview(data).cast("B")
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)


def _etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _make_durable_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_durable_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated(key: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectMissing(f"There is no {key}.") from error
    except PermissionError as error:
        raise StoreRefused(f"{key}: {error}") from error
    except OSError as error:
        raise StoreUnavailable(f"{key}: {error}") from error
