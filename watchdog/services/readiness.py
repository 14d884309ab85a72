"""Whether the service can do its work now, and what stands in the way."""

from __future__ import annotations

from typing import Protocol

from watchdog.errors import CheckpointStoreUnavailable, CheckpointStoreUnsuitable, StoreUnavailable
from watchdog.ports import HeadRegister, Store


class Loops(Protocol):
    """What the worker tells of its loops."""

    @property
    def faults(self) -> dict[str, str]:
        """Return, by loop, why it waits; empty if all go on."""


class Readiness:
    """Knows what the service needs. It is degraded, not dead, while any of it is missing."""

    def __init__(self, *, store: Store, heads: HeadRegister, worker: Loops) -> None:
        """Use these ports."""
        self._store = store
        self._heads = heads
        self._worker = worker
        self._checkpoint_store: str | None = "the checkpoint store was not tested yet"

    async def check_store(self) -> None:
        """Return if Redis answers. Raises StoreUnavailable."""
        await self._store.ping()

    async def check_checkpoint_store(self) -> None:
        """Test, until it has passed once, that the checkpoint store honours conditional writes.

        Raises:
            CheckpointStoreUnsuitable: it does not.
            CheckpointStoreUnavailable: it does not answer.
        """
        if self._checkpoint_store is None:
            return
        try:
            await self._heads.self_test()
        except (CheckpointStoreUnavailable, CheckpointStoreUnsuitable) as error:
            self._checkpoint_store = str(error)
            raise
        self._checkpoint_store = None

    async def faults(self) -> dict[str, str]:
        """Return, by part, why the service is not ready; empty if it is."""
        faults = dict(self._worker.faults)
        try:
            await self.check_store()
        except StoreUnavailable as error:
            faults["redis"] = str(error)
        if self._checkpoint_store is not None:
            faults["checkpoint_store"] = self._checkpoint_store
        return faults
