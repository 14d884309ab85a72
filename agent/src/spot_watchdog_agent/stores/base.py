"""What the agent needs from a place that keeps checkpoints."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from spot_watchdog_agent.errors import ConditionFailed, StoreUnsuitable

Buffer = bytes | bytearray | memoryview
"""What can be written without being copied first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """A small object and the version it was read at."""

    data: bytes
    etag: str


class ObjectStore(Protocol):
    """One job's own prefix of an object store. Whatever a call has written when it returns is durable.

    Every method raises StoreUnavailable if the store does not answer and StoreRefused if it does not allow the call. A write that
    raises StoreUnavailable may have been applied.
    """

    def get(self, key: str) -> StoredObject:
        """Return a small object. Raises ObjectMissing."""

    def create(self, key: str, data: bytes) -> str:
        """Write an object that must not exist yet and return its etag. Raises ConditionFailed."""

    def replace(self, key: str, data: bytes, *, etag: str) -> str:
        """Replace the version of an object that has `etag` and return the new etag. Raises ConditionFailed."""

    def write(self, key: str, data: Buffer) -> None:
        """Write a large object under a key that nobody else ever uses."""

    def read_into(self, key: str, buffer: memoryview) -> int:
        """Fill `buffer` from the start of an object and return the size of the whole object in bytes. Raises ObjectMissing."""

    def delete(self, key: str) -> None:
        """Delete an object; deleting it twice is no error."""


def prove_conditional_writes(store: ObjectStore) -> None:
    """Write a probe object that must be refused twice: a store that takes it cannot tell two owners apart.

    S3-compatible stores exist that ignore `If-None-Match` and `If-Match` without an error.

    Raises StoreUnsuitable.
    """
    key = f"probes/{uuid.uuid4().hex}"
    etag = store.create(key, b"first")
    try:
        _must_be_refused(lambda: store.create(key, b"second"), "If-None-Match: *")
        newer = store.replace(key, b"third", etag=etag)
        if newer == etag:
            raise StoreUnsuitable("The checkpoint store gives different contents the same ETag.")
        _must_be_refused(lambda: store.replace(key, b"fourth", etag=etag), "If-Match")
    finally:
        store.delete(key)


def _must_be_refused(write: Callable[[], str], condition: str) -> None:
    try:
        write()
    except ConditionFailed:
        return
    raise StoreUnsuitable(f"The checkpoint store ignores conditional writes ({condition}), so two instances could both own this job.")
