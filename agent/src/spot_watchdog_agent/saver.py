"""Makes snapshots durable and publishes them, beside training or before it goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from spot_watchdog_agent import checkpoint
from spot_watchdog_agent.checkpoint import CheckpointReference, Snapshot
from spot_watchdog_agent.errors import HeadMissing, SaveFailed, StoreError, Superseded
from spot_watchdog_agent.fence import Register
from spot_watchdog_agent.stores import ObjectStore
from spot_watchdog_agent.wire import CheckpointReport, SaveReason, now

log = logging.getLogger(__name__)


class Saver:
    """Writes one snapshot at a time in the background; an urgent one overtakes it.

    What decides between two saves under way is the order of publishing: a snapshot never replaces a newer one.
    """

    def __init__(
        self,
        store: ObjectStore,
        register: Register,
        *,
        job: str,
        owner: str,
        on_committed: Callable[[CheckpointReport], None],
        on_failed: Callable[[str], None],
    ) -> None:
        """Publish through `register`, which this incarnation has taken over. The callbacks are called where the save runs."""
        self._store = store
        self._register = register
        self._job = job
        self._owner = owner
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._publishing = threading.Lock()
        self._thread: threading.Thread | None = None
        self.error: str | None = None
        """Why the last background save failed; None once one succeeded."""
        self.superseded: Superseded | None = None
        """Set when another instance turned out to own the job."""

    @property
    def busy(self) -> bool:
        """Whether a background save is under way."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def committed_step(self) -> int | None:
        """The step of the newest published checkpoint."""
        newest = self._register.head.checkpoint
        return newest.step if newest else None

    def save_beside_training(self, snapshot: Snapshot, reason: SaveReason) -> None:
        """Save in the background. Nothing is raised: `error` and `superseded` tell."""
        self._thread = threading.Thread(target=self._run, args=(snapshot, reason), name="spot-watchdog-saver", daemon=True)
        self._thread.start()

    def save_now(self, snapshot: Snapshot, reason: SaveReason) -> None:
        """Save, and return when the checkpoint is durable and published.

        Raises:
            SaveFailed: it is not.
            Superseded: another instance owns the job.
        """
        started_at = now()
        try:
            reference = checkpoint.write(
                self._store, snapshot, job=self._job, fencing_token=self._register.head.fencing_token, owner=self._owner
            )
            with self._publishing:
                fallen = self._publish(reference)
        except Superseded as error:
            self.superseded = error
            raise
        except HeadMissing as error:
            raise SaveFailed(f"{error} It was there before: somebody deleted it.") from error
        except Exception as error:
            raise SaveFailed(f"The checkpoint of step {snapshot.step} is not durable: {error}") from error
        if fallen is None:
            return
        log.info("The checkpoint of step %d is durable (%s, %d bytes).", snapshot.step, reason.value, reference.bytes)
        self.error = None
        self._on_committed(
            CheckpointReport(
                step=reference.step,
                fencing_token=reference.fencing_token,
                manifest_key=reference.manifest_key,
                manifest_sha256=reference.manifest_sha256,
                bytes=reference.bytes,
                reason=reason,
                started_at=started_at,
                committed_at=now(),
            )
        )
        self._clean_up(fallen)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the background save, for `seconds` at most."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self, snapshot: Snapshot, reason: SaveReason) -> None:
        try:
            self.save_now(snapshot, reason)
        except Superseded:
            return  # the training loop sees it at its next step
        except SaveFailed as error:
            self.error = str(error)
            self._on_failed(self.error)
            log.warning("%s Training goes on.", error)

    def _publish(self, reference: CheckpointReference) -> tuple[CheckpointReference, ...] | None:
        """Publish, or return None if a newer checkpoint is published already."""
        committed = self.committed_step
        if committed is not None and committed >= reference.step:
            self._clean_up((reference,))
            return None
        return self._register.publish(reference)

    def _clean_up(self, references: tuple[CheckpointReference, ...]) -> None:
        for reference in references:
            try:
                checkpoint.delete(self._store, reference)
            except StoreError as error:
                log.info("An old checkpoint could not be deleted and stays as litter: %s", error)
