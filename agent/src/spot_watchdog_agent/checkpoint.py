"""The format of a checkpoint: one data object, one manifest that proves every byte of it, both written once."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import asdict, dataclass, replace
from typing import Any

from spot_watchdog_agent.errors import CheckpointDamaged, ConditionFailed, ObjectMissing
from spot_watchdog_agent.stores import ObjectStore
from spot_watchdog_agent.torch_state import Encoded, TensorEntry, canonical_json, decode, fingerprint
from spot_watchdog_agent.wire import format_instant, now

FORMAT = 1
RANK = 0
"""A job has one process so far; the format has room for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReference:
    """What HEAD says of a checkpoint."""

    step: int
    fencing_token: int
    manifest_key: str
    manifest_sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state at one step boundary, by value: nothing that training does later changes it."""

    step: int
    tree: Any
    entries: tuple[TensorEntry, ...]
    data: bytearray

    @classmethod
    def capture(cls, step: int, encoded: Encoded) -> Snapshot:
        """Copy a state out of the live tensors."""
        data = bytearray(encoded.size)
        encoded.copy_into(data)
        return cls(step=step, tree=encoded.tree, entries=encoded.entries, data=data)

    def decoded(self) -> Any:
        """Return the state as objects understand it. Raises CheckpointDamaged."""
        return decode(self.tree, self.entries, self.data)


def write(store: ObjectStore, snapshot: Snapshot, *, job: str, fencing_token: int, owner: str) -> CheckpointReference:
    """Write a checkpoint under a fresh attempt id and return what HEAD needs to know of it. It counts only once HEAD names it.

    Raises StoreError.
    """
    attempt = uuid.uuid4().hex
    data_key = _data_key(fencing_token, attempt)
    view = memoryview(snapshot.data)
    store.write(data_key, snapshot.data)
    entries = [replace(entry, sha256=_digest(view[entry.offset : entry.offset + entry.bytes])) for entry in snapshot.entries]
    manifest = {
        "format": FORMAT,
        "job": job,
        "step": snapshot.step,
        "fencing_token": fencing_token,
        "owner": owner,
        "created_at": format_instant(now()),
        "structure": fingerprint(snapshot.entries),
        "state": snapshot.tree,
        "ranks": [
            {
                "rank": RANK,
                "key": data_key,
                "bytes": len(snapshot.data),
                "sha256": _digest(view),
                "tensors": [asdict(entry) for entry in entries],
            }
        ],
    }
    text = canonical_json(manifest).encode()
    key = f"manifests/{fencing_token:08d}/{snapshot.step:012d}-{attempt}.json"
    try:
        store.create(key, text)
    except ConditionFailed:
        # The key is ours alone: a lost answer made a lower layer send the write again.
        if store.get(key).data != text:
            raise
    return CheckpointReference(
        step=snapshot.step,
        fencing_token=fencing_token,
        manifest_key=key,
        manifest_sha256=_digest(text),
        bytes=len(snapshot.data) + len(text),
    )


def read(store: ObjectStore, reference: CheckpointReference) -> Snapshot:
    """Read a checkpoint and prove it against the digest in HEAD.

    Raises:
        CheckpointDamaged: an object is missing or is not what it was; the message names the tensor.
        StoreUnavailable: the store does not answer, which says nothing about the checkpoint.
    """
    try:
        text = store.get(reference.manifest_key).data
    except ObjectMissing as error:
        raise CheckpointDamaged(str(error)) from error
    if _digest(text) != reference.manifest_sha256:
        raise CheckpointDamaged(f"{reference.manifest_key} is not the manifest that was published.")
    try:
        manifest = json.loads(text)
        if manifest["format"] != FORMAT or manifest["step"] != reference.step:
            raise CheckpointDamaged(f"{reference.manifest_key} has format {manifest['format']!r} and step {manifest['step']!r}.")
        (rank,) = manifest["ranks"]
        entries = tuple(TensorEntry(**{**entry, "shape": tuple(entry["shape"])}) for entry in rank["tensors"])
        data = bytearray(rank["bytes"])
        tree, key, digest = manifest["state"], rank["key"], rank["sha256"]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointDamaged(f"{reference.manifest_key} cannot be read: {error!r}.") from error
    _read_data(store, key, data, digest, entries)
    return Snapshot(step=reference.step, tree=tree, entries=entries, data=data)


def delete(store: ObjectStore, reference: CheckpointReference) -> None:
    """Delete a checkpoint that HEAD no longer names: the manifest first, so that no manifest ever names data that is gone.

    Raises StoreError.
    """
    store.delete(reference.manifest_key)
    attempt = reference.manifest_key.rpartition("-")[2].removesuffix(".json")
    store.delete(_data_key(reference.fencing_token, attempt))


def _read_data(store: ObjectStore, key: str, data: bytearray, digest: str, entries: tuple[TensorEntry, ...]) -> None:
    view = memoryview(data)
    try:
        size = store.read_into(key, view)
    except ObjectMissing as error:
        raise CheckpointDamaged(str(error)) from error
    if size != len(data):
        raise CheckpointDamaged(f"{key} has {size} bytes instead of {len(data)}.")
    if _digest(view) != digest:
        for entry in entries:
            if _digest(view[entry.offset : entry.offset + entry.bytes]) != entry.sha256:
                raise CheckpointDamaged(f"{key} is damaged in {entry.name}.")
        raise CheckpointDamaged(f"{key} is damaged between tensors.")


def _data_key(fencing_token: int, attempt: str) -> str:
    return f"data/{fencing_token:08d}/{attempt}/r{RANK}.bin"


def _digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()
