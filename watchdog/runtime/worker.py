"""The loops that never end: the queue, the due migrations, the outbox. A fault in one message or migration stops neither loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from watchdog.clock import Clock
from watchdog.errors import CloudUnavailable, StoreUnavailable
from watchdog.ids import MigrationId
from watchdog.notices import eventbridge
from watchdog.notices.model import MalformedMessage
from watchdog.ports import Inbox, InboxMessage, Store, Telemetry
from watchdog.services.announce import AnnounceService
from watchdog.services.ingest import IngestService
from watchdog.services.migrate import MigrateService

log = logging.getLogger(__name__)

_LONGEST_REST = timedelta(seconds=1)
"""Another replica may make something due; nobody tells this one, so it looks."""
_AFTER_FAULT = 1.0


class Waker:
    """Lets anybody tell the worker that something is due now."""

    def __init__(self) -> None:
        """Start asleep."""
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Make the worker look at once."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Return when woken, or after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()


class Worker:
    """Runs the loops."""

    def __init__(
        self,
        *,
        store: Store,
        inbox: Inbox,
        ingest: IngestService,
        migrate: MigrateService,
        announce: AnnounceService,
        clock: Clock,
        telemetry: Telemetry,
        waker: Waker,
    ) -> None:
        """Use these services."""
        self._store = store
        self._inbox = inbox
        self._ingest = ingest
        self._migrate = migrate
        self._announce = announce
        self._clock = clock
        self._telemetry = telemetry
        self._waker = waker
        self._outbox = Waker()
        self.faults: dict[str, str] = {}
        """By loop, why it waits; empty if all go on."""
        self._driving: dict[MigrationId, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forever("queue", self._receive), name="queue")
            group.create_task(self._forever("migrations", self._look), name="migrations")
            group.create_task(self._forever("outbox", self._deliver), name="outbox")

    async def _forever(self, loop: str, turn: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await turn()
            except (CloudUnavailable, StoreUnavailable) as error:
                self._telemetry.count("spot_watchdog_loop_faults_total", loop=loop, fault=type(error).__name__)
                if loop not in self.faults:  # once per outage, not once per second
                    log.warning("loop.waits", extra={"loop": loop, "why": str(error)})
                self.faults[loop] = str(error)
                await asyncio.sleep(_AFTER_FAULT)
            except Exception as error:
                self._telemetry.count("spot_watchdog_loop_faults_total", loop=loop, fault=type(error).__name__)
                log.exception("loop.fault", extra={"loop": loop})
                await asyncio.sleep(_AFTER_FAULT)
            else:
                if self.faults.pop(loop, None):
                    log.info("loop.goes_on", extra={"loop": loop})

    async def _receive(self) -> None:
        # A message that is received and cannot be recorded comes nearer to the dead-letter queue each time: better not to receive it.
        await self._store.ping()
        messages = await self._inbox.receive()
        results = await asyncio.gather(*(self._take(message) for message in messages), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result  # not deleted: the queue shows it again after its visibility timeout

    async def _take(self, message: InboxMessage) -> None:
        """Take one message: durable intent first, then delete. Its neighbours do not depend on it."""
        try:
            notice = eventbridge.parse(message.body)
        except MalformedMessage as error:
            self._telemetry.count("spot_watchdog_notices_total", kind="malformed", outcome="rejected")
            log.warning("message.rejected", extra={"message_id": message.message_id, "why": str(error)})
            await self._inbox.reject(message, str(error))
            return
        await self._ingest.handle(notice)
        await self._inbox.delete(message)

    async def _look(self) -> None:
        now = self._clock.now()
        for migration_id in await self._store.due(now):
            self._drive(migration_id)
        self._outbox.wake()
        upcoming = await self._store.next_due()
        rest = _LONGEST_REST if upcoming is None else min(max(upcoming - now, timedelta(0)), _LONGEST_REST)
        if rest <= timedelta(0) and self._driving:
            rest = _LONGEST_REST  # what is due is being driven; its end wakes us
        await self._waker.wait(max(rest.total_seconds(), 0.01))

    def _drive(self, migration_id: MigrationId) -> None:
        if migration_id in self._driving:
            return  # its end wakes the loop, and the due set says whether there is more
        task = asyncio.create_task(self._driven(migration_id), name=f"drive {migration_id}")
        self._driving[migration_id] = task

    async def _driven(self, migration_id: MigrationId) -> None:
        try:
            await self._migrate.drive(migration_id)
        except (CloudUnavailable, StoreUnavailable) as error:
            log.warning("migration.waits", extra={"migration_id": migration_id, "why": str(error)})
            await asyncio.sleep(_AFTER_FAULT)
        except Exception:
            self._telemetry.count("spot_watchdog_loop_faults_total", loop="migrations", fault="drive")
            log.exception("migration.fault", extra={"migration_id": migration_id})
            await asyncio.sleep(_AFTER_FAULT)
        finally:
            del self._driving[migration_id]
            self._waker.wake()

    async def _deliver(self) -> None:
        if await self._announce.deliver() == 0:
            await self._outbox.wait(_LONGEST_REST.total_seconds())

    async def drain(self) -> None:
        """Let the effects that are under way end, so that none is left half recorded."""
        if self._driving:
            await asyncio.wait(self._driving.values(), timeout=10)
