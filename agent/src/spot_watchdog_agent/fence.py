"""The register of a job: `HEAD`, which says who owns the job and which checkpoint is its newest.

Every change is a conditional write of a whole new HEAD. A write whose answer is lost is read back: the nonce in HEAD tells whether
it was applied, whatever the answer was.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from spot_watchdog_agent.checkpoint import FORMAT, CheckpointReference
from spot_watchdog_agent.errors import (
    CheckpointDamaged,
    ConditionFailed,
    HeadMissing,
    ObjectMissing,
    StoreUnavailable,
    Superseded,
    TakeOverRefused,
)
from spot_watchdog_agent.stores import ObjectStore
from spot_watchdog_agent.torch_state import canonical_json

HEAD_KEY = "HEAD"
_KEPT_BEFORE = 3
_TRIES = 5
_FIRST_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One version of HEAD."""

    fencing_token: int
    owner: str | None
    checkpoint: CheckpointReference | None = None
    previous: tuple[CheckpointReference, ...] = ()
    nonce: str = ""
    """Fresh in every write: two versions never have equal contents, so an ETag never comes back."""

    @property
    def checkpoints(self) -> tuple[CheckpointReference, ...]:
        """All checkpoints that can be resumed from, newest first."""
        return (*((self.checkpoint,) if self.checkpoint else ()), *self.previous)

    def with_checkpoint(self, checkpoint: CheckpointReference) -> Head:
        """Return HEAD with a newer checkpoint; the oldest falls off the list."""
        return replace(self, checkpoint=checkpoint, previous=self.checkpoints[:_KEPT_BEFORE])

    def to_bytes(self) -> bytes:
        """Return the object's contents."""
        return canonical_json({"format": FORMAT, **asdict(self)}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Head:
        """Read the object's contents. Raises CheckpointDamaged."""
        try:
            value = json.loads(data)
            if value["format"] != FORMAT:
                raise CheckpointDamaged(f"HEAD has format {value['format']!r}; this agent knows {FORMAT}.")
            return cls(
                fencing_token=value["fencing_token"],
                owner=value["owner"],
                nonce=value["nonce"],
                checkpoint=_reference(value["checkpoint"]) if value["checkpoint"] else None,
                previous=tuple(_reference(item) for item in value["previous"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointDamaged(f"HEAD cannot be read: {error!r}.") from error


class Register:
    """The hold of one incarnation on HEAD. One thread at a time, but for `peek`."""

    def __init__(self, store: ObjectStore, incarnation: str) -> None:
        """Look at nothing yet."""
        self._store = store
        self._incarnation = incarnation
        self._head: Head | None = None
        self._etag = ""
        self._damaged: frozenset[str] = frozenset()

    @property
    def head(self) -> Head:
        """HEAD as this incarnation last wrote or read it, without the checkpoints that were found damaged."""
        if self._head is None:
            raise HeadMissing("HEAD has not been read yet.")
        good = tuple(reference for reference in self._head.checkpoints if reference.manifest_key not in self._damaged)
        return replace(self._head, checkpoint=good[0] if good else None, previous=good[1:])

    def peek(self) -> Head | None:
        """Return what HEAD is now, or None if there is none, and remember nothing. Raises StoreError, CheckpointDamaged."""
        try:
            return Head.from_bytes(self._store.get(HEAD_KEY).data)
        except ObjectMissing:
            return None

    def create(self) -> None:
        """Create HEAD at token 0, as a stand-alone job does for itself; it is no error if it exists. Raises StoreError."""
        if self.peek() is None:
            with suppress(ConditionFailed):
                self._store.create(HEAD_KEY, Head(fencing_token=0, owner=None, nonce=_nonce()).to_bytes())

    def take_over(self, granted_from: int | None) -> Head:
        """Write the next token and this incarnation into HEAD; with `granted_from` None, whatever token stands there is followed.

        Raises:
            HeadMissing: there is no HEAD.
            TakeOverRefused: HEAD is not at `granted_from`, or somebody else was faster.
            StoreError, CheckpointDamaged: HEAD cannot be read or written.
        """
        head = self._read()
        if head.owner == self._incarnation:
            return head
        if granted_from is not None and head.fencing_token != granted_from:
            raise TakeOverRefused(f"HEAD is at token {head.fencing_token}; the take-over was granted from {granted_from}.")
        try:
            self._swap(lambda seen: replace(seen, fencing_token=head.fencing_token + 1, owner=self._incarnation))
        except Superseded as error:
            raise TakeOverRefused(f"Another instance took the job over first: {error}") from error
        return self.head

    def publish(self, checkpoint: CheckpointReference) -> tuple[CheckpointReference, ...]:
        """Make `checkpoint` the newest and return those that fell off the list.

        Raises:
            Superseded: HEAD belongs to another incarnation now.
            StoreError: nobody knows whether it was published.
        """
        before = self.head
        self._swap(lambda seen: seen.with_checkpoint(checkpoint))
        kept = {reference.manifest_key for reference in self.head.checkpoints}
        return tuple(reference for reference in before.checkpoints if reference.manifest_key not in kept)

    def leave_out(self, damaged: CheckpointReference) -> None:
        """Leave a damaged checkpoint out of every HEAD written from now on. Its objects stay, for whoever looks into it."""
        self._damaged |= {damaged.manifest_key}

    def _swap(self, change: Callable[[Head], Head]) -> None:
        """Write `change(head)` with `If-Match`, until it is certain whether it was applied.

        Raises:
            Superseded: HEAD has another token or owner than it had before.
            StoreError: it is not known whether it was applied.
        """
        before = (self.head.fencing_token, self.head.owner)
        nonces: set[str] = set()
        pause = _FIRST_PAUSE_SECONDS
        for _ in range(_TRIES):
            proposal = replace(change(self.head), nonce=_nonce())
            nonces.add(proposal.nonce)
            try:
                self._etag = self._store.replace(HEAD_KEY, proposal.to_bytes(), etag=self._etag)
            except (ConditionFailed, StoreUnavailable) as error:
                refused = error
            else:
                self._head = proposal
                return
            with suppress(StoreUnavailable):
                seen = self._read()
                if seen.nonce in nonces:
                    return  # a write of ours was applied, and only the answer was lost
                if (seen.fencing_token, seen.owner) != before:
                    raise Superseded(f"HEAD is at token {seen.fencing_token}, owned by {seen.owner}.") from refused
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause *= 2
        raise StoreUnavailable("HEAD could not be written, and it is not known whether it was.") from refused

    def _read(self) -> Head:
        try:
            stored = self._store.get(HEAD_KEY)
        except ObjectMissing as error:
            raise HeadMissing("The job has no HEAD in the checkpoint store.") from error
        self._head, self._etag = Head.from_bytes(stored.data), stored.etag
        return self._head


def _reference(value: Any) -> CheckpointReference:
    return CheckpointReference(**{name: value[name] for name in CheckpointReference.__slots__})


def _nonce() -> str:
    return str(uuid.uuid4())
