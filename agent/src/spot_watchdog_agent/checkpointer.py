"""The one object that a training script talks to."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, NoReturn

from spot_watchdog_agent.checkpoint import Snapshot
from spot_watchdog_agent.client import ServiceClient
from spot_watchdog_agent.errors import (
    EXIT_NO_USABLE_CHECKPOINT,
    EXIT_STORE_UNSUITABLE,
    EXIT_SUPERSEDED,
    EXIT_TAKE_OVER_REFUSED,
    AgentError,
    AgentExit,
    CheckpointDamaged,
    HeadMissing,
    SaveFailed,
    ServiceRefused,
    SettingsInvalid,
    StoreUnsuitable,
    Superseded,
    TakeOverRefused,
)
from spot_watchdog_agent.fence import Register
from spot_watchdog_agent.imds import InstanceIdentity, InstanceMetadata
from spot_watchdog_agent.reporter import Reporter
from spot_watchdog_agent.resume import Prefetch, find_checkpoint, patiently
from spot_watchdog_agent.saver import Saver
from spot_watchdog_agent.settings import AgentSettings
from spot_watchdog_agent.signals import TerminationSignal
from spot_watchdog_agent.stores import open_store, prove_conditional_writes
from spot_watchdog_agent.training import TrainingState
from spot_watchdog_agent.watcher import NoticeWatcher
from spot_watchdog_agent.wire import CheckpointReport, Desired, Directive, MetadataState, Notice, NoticeKind, Phase, SaveReason

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
"""Between two tries of a save that somebody waits for."""
_RETRY_PERIODIC_SECONDS = 30.0
_FINAL_TRIES = 5
_TRIES_AFTER_SIGTERM = 3
"""Whoever sends SIGTERM wants the process to end even if the store is down."""
_LAST_REPORT_SECONDS = 2.0
_FINISHED_REPORT_SECONDS = 10.0
_LAST_SAVE_SECONDS = 30.0
_WAIT_SECONDS = 0.5
_SAME_TIME_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What is done once a snapshot is durable."""

    generation: int
    stop: bool


class Checkpointer:
    """Saves the state of a training job, resumes it bit for bit, and ends the loop in time when the instance is taken back.

    ```python
    with Checkpointer(state={"model": model, "optimizer": optimizer, "loader": loader}, store="checkpoints/") as checkpointer:
        for step in checkpointer.steps(total_steps):
            train_one_step()
    ```

    Nothing that goes wrong here breaks a training step: it is logged and reported, and training goes on. On purpose the process
    ends by `AgentExit` (a SystemExit, in the main thread) with the codes 75 superseded, 76 take-over refused, 77 no usable
    checkpoint, 78 store unsuitable.
    """

    def __init__(
        self, state: Mapping[str, Any], *, store: str | os.PathLike[str] = "checkpoints", checkpoint_seconds: float | None = None
    ) -> None:
        """Remember what to save. Nothing starts before `restore` or `steps`.

        Args:
            state: the objects to save by name: whatever has state_dict() and load_state_dict(), and torch generators.
            store: where checkpoints go unless SPOT_WATCHDOG_STORE_URL says so: a folder, `file:///folder` or `s3://bucket/prefix`.
            checkpoint_seconds: between periodic checkpoints, unless SPOT_WATCHDOG_CHECKPOINT_SECONDS says so; default 600.

        Raises SettingsInvalid.
        """
        self._state = TrainingState(state)
        self._settings = AgentSettings.from_environment(store=store, checkpoint_seconds=checkpoint_seconds)
        metadata = InstanceMetadata.from_environment()
        self._watcher = NoticeWatcher(
            metadata,
            self,
            expected=self._settings.service_url is not None or bool(os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")),
        )
        self._reporter = Reporter(
            ServiceClient(self._settings) if self._settings.service_url else None,
            hold=self._watcher.settled,
            on_directive=self._directed,
            on_refusal=self._refused,
        )
        self._signal = TerminationSignal()
        self._register: Register | None = None
        self._saver: Saver | None = None
        self._step = 0
        self._resumed_from: int | None = None
        self._directive: Directive | None = None
        self._refusal: ServiceRefused | None = None
        self._answered = threading.Event()
        self._rebalance_pending = False
        self._wishes: dict[int, _Wish] = {}
        self._captured_at = 0.0
        self._stop_failures = 0
        self._retry_at = 0.0
        self._stopping = False
        self._finished = False
        self._closed = False

    # ------------------------------------------------------------------ the training script

    @property
    def stopping(self) -> bool:
        """Whether the training loop has been told to end before the job is finished."""
        return self._stopping

    def steps(self, total: int) -> Iterator[int]:
        """Yield the numbers of the steps that are left to do, up to `total`; restore before the first, finish after the last.

        The body of the loop does one whole step. The loop ends early if the instance is taken back: `stopping` tells.
        """
        step = self.restore()
        while step < total and not self._stopping:
            step += 1
            yield step
            if step < total and self.step(step):
                break
        self._step = step
        self.finish()

    def restore(self) -> int:
        """Take the job over, load its newest good checkpoint and return its step; 0 if the job has none yet.

        Call it when model, optimizer, scheduler and loader exist, and before the first iter() of the loader. Random number
        generators are restored too. A replacement waits here until the service lets it take over.

        Raises:
            StateMismatch: the checkpoint does not fit the objects.
            UnsupportedState: an object has state that cannot be saved exactly.
            SettingsInvalid, StoreError: the store cannot be used.
            AgentExit: codes 76 to 78.
        """
        if self._resumed_from is None:
            self._signal.install()
            self._watcher.start()
            self._reporter.start()
            try:
                self._resumed_from = self._restore()
            except TakeOverRefused as error:
                self._leave(EXIT_TAKE_OVER_REFUSED, Phase.SUPERSEDED, error)
            except (HeadMissing, CheckpointDamaged) as error:
                self._leave(EXIT_NO_USABLE_CHECKPOINT, Phase.FAILED, error)
            except StoreUnsuitable as error:
                self._leave(EXIT_STORE_UNSUITABLE, Phase.FAILED, error)
            except BaseException as error:
                if not self._closed:
                    self._reporter.update(phase=Phase.FAILED, message=f"{type(error).__name__}: {error}")
                    self.close()
                raise
        return self._resumed_from

    def step(self, step: int) -> bool:
        """Say that step number `step` is complete, after optimizer and scheduler; return True if the loop must end now.

        Raises only AgentExit (code 75: another instance owns the job).
        """
        try:
            return self._boundary(step)
        except Exception:
            log.exception("The checkpointer failed at step %d; training goes on.", step)
            return self._stopping

    def finish(self) -> bool:
        """Save the final checkpoint and tell the service that the job is finished; return False if the loop was told to stop before.

        Raises:
            SaveFailed: the final checkpoint is not durable, so the job cannot be called finished.
            AgentExit: code 75.
        """
        if self._finished or self._stopping:
            self.close()
            return self._finished
        saver = self._running()
        saver.wait()
        self._leave_if_superseded()
        if saver.committed_step != self._step:
            self._save_final(saver)
        self._finished = True
        self._reporter.update(phase=Phase.FINISHED, step=self._step)
        self._reporter.flush(_FINISHED_REPORT_SECONDS)
        self.close()
        return True

    def close(self) -> None:
        """End the threads and give SIGTERM back. Without `finish` the job counts as not finished."""
        if not self._closed:
            self._closed = True
            if self._saver and not self._stopping:
                self._saver.wait(_LAST_SAVE_SECONDS)
            self._reporter.flush(_LAST_REPORT_SECONDS)
            self._watcher.close()
            self._reporter.close()
            self._signal.restore()

    def __enter__(self) -> Checkpointer:  # noqa: PYI034  # Self needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is not None and not self._closed:
            self._reporter.update(phase=Phase.FAILED, message=f"{type(error).__name__}: {error}")
        elif not (self._finished or self._stopping):
            log.warning("The training loop ended without finish(): the job does not count as finished.")
        self.close()

    # ------------------------------------------------------------------ taking over

    def _restore(self) -> int:
        store = open_store(self._settings.store_url)
        register = self._register = Register(store, self._settings.incarnation)
        waits = self._settings.service_url is not None and self._settings.take_over_from is None
        prefetch = Prefetch(store, register) if waits else None
        if prefetch:
            prefetch.start()
        try:
            self._patiently(lambda: prove_conditional_writes(store))
            if self._settings.service_url is None:
                self._patiently(register.create)
            granted = self._await_grant() if waits else self._settings.take_over_from
            head = self._patiently(lambda: register.take_over(granted))
        finally:
            if prefetch:
                prefetch.finish()
        self._reporter.update(phase=Phase.RESTORING, fencing_token=head.fencing_token)
        found = find_checkpoint(store, register, prefetch, check=self._leave_if_terminated)
        if found.snapshot is None:
            self._state.take()  # what cannot be saved is better known now than at the first notice
        else:
            self._state.put_back(found.snapshot.decoded(), found.snapshot.entries)
            self._step = found.snapshot.step
            log.info("Resumed from the checkpoint of step %d.", self._step)
        self._saver = Saver(
            store,
            register,
            job=self._settings.job_id,
            owner=self._settings.incarnation,
            on_committed=self._committed,
            on_failed=lambda message: self._reporter.update(save_error=message),
        )
        self._captured_at = time.monotonic()
        self._reporter.update(step=self._step, resumed_from_step=self._step, message=" ".join(found.warnings) or None)
        return self._step

    def _await_grant(self) -> int:
        log.info("Waiting until the service lets this instance take job %s over.", self._settings.job_id)
        while True:
            self._leave_if_terminated()
            if self._refusal is not None and self._refusal.status == 409:  # noqa: PLR2004  # Conflict
                raise TakeOverRefused(f"The service refused this instance: {self._refusal}")
            directive = self._directive
            if directive is not None:
                if directive.desired is Desired.STOP:
                    raise TakeOverRefused("The service told this instance to stop before it took the job over.")
                if directive.take_over_from is not None:
                    return directive.take_over_from
            self._answered.wait(_WAIT_SECONDS)
            self._answered.clear()

    def _patiently(self, call: Callable[[], Any]) -> Any:
        return patiently(call, check=self._leave_if_terminated)

    def _leave_if_terminated(self) -> None:
        if self._signal.received:
            log.warning("SIGTERM came before the job was restored.")
            raise SystemExit(128 + signal.SIGTERM)

    # ------------------------------------------------------------------ at a step boundary

    def _boundary(self, step: int) -> bool:
        saver = self._running()
        self._step = step
        self._leave_if_superseded()
        if self._stopping:
            return True
        if self._reporter.report.phase is not Phase.TRAINING:
            self._reporter.update(phase=Phase.TRAINING, step=step)
        else:
            self._reporter.note_step(step)
        directive = self._directive
        if directive is not None and directive.desired is Desired.STOP:
            log.warning("The service told this job to stop without saving.")
            self._stop(message="Stopped by the service.")
            return True
        if (reason := self._reason_to_stop()) is not None:
            return self._save_and_stop(saver, reason)
        if (reason := self._reason_to_save(saver)) is not None and not saver.busy:
            saver.save_beside_training(self._capture(stop=False), reason)
        return False

    def _reason_to_stop(self) -> SaveReason | None:
        if self._signal.received or any(notice.kind is NoticeKind.SPOT_INTERRUPTION for notice in self._reporter.report.notices):
            return SaveReason.NOTICE
        return SaveReason.REQUESTED if self._is_asked_to(Desired.SAVE_AND_STOP) else None

    def _reason_to_save(self, saver: Saver) -> SaveReason | None:
        age = time.monotonic() - self._captured_at
        if age > _RETRY_SECONDS or saver.error is None:
            if self._is_asked_to(Desired.SAVE):
                return SaveReason.REQUESTED
            if self._rebalance_pending:
                return SaveReason.REQUESTED
        seconds = self._settings.checkpoint_seconds
        return SaveReason.PERIODIC if age >= (min(seconds, _RETRY_PERIODIC_SECONDS) if saver.error else seconds) else None

    def _is_asked_to(self, desired: Desired) -> bool:
        directive = self._directive
        return directive is not None and directive.desired is desired and directive.generation > self._reporter.report.handled_generation

    def _capture(self, *, stop: bool) -> Snapshot:
        """Copy the state as it is now: this is the only part of a save that training always waits for."""
        self._captured_at = time.monotonic()
        directive = self._directive
        answers = {Desired.SAVE, Desired.SAVE_AND_STOP} if stop else {Desired.SAVE}
        generation = directive.generation if directive is not None and directive.desired in answers else 0
        snapshot = Snapshot.capture(self._step, self._state.take())
        self._wishes[self._step] = _Wish(generation=generation, stop=stop)
        return snapshot

    def _save_and_stop(self, saver: Saver, reason: SaveReason) -> bool:
        if time.monotonic() < self._retry_at:
            return False
        self._reporter.update(phase=Phase.SAVING, step=self._step)
        try:
            saver.save_now(self._capture(stop=True), reason)
        except Superseded:
            self._leave_if_superseded()
        except Exception as error:
            # The instance has until its reclaim time: the next steps are worth having, and so is the next try.
            self._stop_failures += 1
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            log.exception("The save before stopping failed.")
            self._reporter.update(phase=Phase.TRAINING, save_error=str(error))
            if not (self._signal.received and self._stop_failures >= _TRIES_AFTER_SIGTERM):
                return False
        self._stop()
        return True

    def _stop(self, **report: Any) -> None:
        self._stopping = True
        self._reporter.update(phase=Phase.STOPPED, step=self._step, **report)
        self._reporter.flush(_LAST_REPORT_SECONDS)

    def _save_final(self, saver: Saver) -> None:
        self._reporter.update(phase=Phase.SAVING, step=self._step)
        for attempt in range(1, _FINAL_TRIES + 1):
            try:
                saver.save_now(self._capture(stop=False), SaveReason.FINAL)
            except Superseded:
                self._leave_if_superseded()
            except SaveFailed as error:
                self._reporter.update(save_error=str(error))
                if attempt == _FINAL_TRIES:
                    raise
                log.warning("The final save failed and is tried again. %s", error)
                time.sleep(_RETRY_SECONDS * attempt)
            else:
                return

    def _running(self) -> Saver:
        if self._saver is None:
            raise SettingsInvalid("restore() comes first.")
        return self._saver

    def _leave_if_superseded(self) -> None:
        if self._saver is not None and self._saver.superseded is not None:
            self._leave(EXIT_SUPERSEDED, Phase.SUPERSEDED, self._saver.superseded)

    def _leave(self, code: int, phase: Phase, error: AgentError) -> NoReturn:
        log.critical("This process ends with exit code %d: %s", code, error)
        self._stopping = True
        self._reporter.update(phase=phase, message=str(error))
        self.close()
        raise AgentExit(code, str(error)) from error

    # ------------------------------------------------------------------ told by other threads

    def identified(self, identity: InstanceIdentity) -> None:
        """Take note of which instance this is."""
        self._reporter.update(
            instance_id=identity.instance_id, availability_zone_id=identity.availability_zone_id, address=identity.address
        )

    def watching(self, state: MetadataState, message: str | None) -> None:
        """Take note of whether a notice would be seen."""
        self._reporter.update(metadata=state, message=message)

    def noticed(self, notice: Notice) -> None:
        """Take note of a notice; the next step boundary acts on it."""
        notices = self._reporter.report.notices
        known = next((one for one in notices if one.kind is notice.kind), None)
        if known is None:
            log.warning("AWS says: %s, %s, at %s.", notice.kind.value, notice.action, notice.reclaim_at)
            self._rebalance_pending |= notice.kind is NoticeKind.REBALANCE_RECOMMENDATION
            self._reporter.update(notices=(*notices, notice))
        elif known.reclaim_at and notice.reclaim_at and abs((notice.reclaim_at - known.reclaim_at).total_seconds()) >= _SAME_TIME_SECONDS:
            # The same notice with another time. Milliseconds of difference between two reads mean nothing.
            moved = replace(known, reclaim_at=notice.reclaim_at)
            self._reporter.update(notices=tuple(moved if one is known else one for one in notices))

    def _committed(self, report: CheckpointReport) -> None:
        wish = self._wishes.pop(report.step, None)
        self._rebalance_pending = False
        handled = max(self._reporter.report.handled_generation, wish.generation if wish else 0)
        changes: dict[str, Any] = {"checkpoint": report, "save_error": None, "handled_generation": handled}
        if wish is not None and wish.stop:
            changes["phase"] = Phase.STOPPED
        self._reporter.update(**changes)

    def _directed(self, directive: Directive) -> None:
        self._directive = directive
        if self._stopping and self._reporter.report.phase is Phase.STOPPED and directive.desired in {Desired.SAVE, Desired.SAVE_AND_STOP}:
            self._reporter.update(handled_generation=directive.generation)  # the checkpoint it stopped with is the newest there can be
        self._answered.set()

    def _refused(self, refusal: ServiceRefused) -> None:
        self._refusal = refusal
        if refusal.status == 409 and self._saver is not None and self._register is not None:  # noqa: PLR2004  # Conflict
            # The service may be wrong or late; HEAD is not.
            try:
                head = self._register.peek()
            except AgentError:
                return
            if head is not None and head.owner != self._settings.incarnation:
                self._saver.superseded = Superseded(f"HEAD is at token {head.fencing_token}, owned by {head.owner}.")
        self._answered.set()
