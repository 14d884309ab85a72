"""The life of every instance: launch, boot, notice, end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from policies.model import CapacityPool
from watchdog.clock import Clock
from watchdog.emulator import event_bus
from watchdog.emulator.alarms import Alarms
from watchdog.emulator.instance import EmulatedInstance, SpotRequest, new_spot_request
from watchdog.emulator.machine import Machine
from watchdog.emulator.market import SpotMarket
from watchdog.emulator.metadata import MetadataService
from watchdog.emulator.timeline import Timeline
from watchdog.errors import NotFound, WatchdogError


class WrongState(WatchdogError):
    """The instance is not in a state in which this can happen to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudOptions:
    """What the person who starts the emulator decides."""

    run_dir: Path
    boot_seconds: float
    instance_path: str
    """PATH of every instance."""


class Cloud:
    """Every instance of the account, and the only place that changes them.

    `lock` is held for every EC2 call (moto's backend is not safe for threads) and for every change of an instance.
    """

    def __init__(self, options: CloudOptions, market: SpotMarket, publish: event_bus.Publish, clock: Clock) -> None:
        """Start without instances."""
        self.lock = threading.RLock()
        self.market = market
        self.timeline = Timeline(clock)
        self.endpoint = ""
        """Where instances find AWS; known once the server is bound."""
        self._options = options
        self._publish = publish
        self._clock = clock
        self._alarms = Alarms(clock)
        self._instances: dict[str, EmulatedInstance] = {}
        self._metadata: dict[str, MetadataService] = {}

    def instances(self) -> list[EmulatedInstance]:
        """Return every instance ever launched, in order."""
        with self.lock:
            return list(self._instances.values())

    def instance(self, instance_id: str) -> EmulatedInstance:
        """Return one instance. Raises NotFound."""
        with self.lock:
            if instance_id not in self._instances:
                raise NotFound(f"no instance {instance_id}")
            return self._instances[instance_id]

    def living_pools(self) -> list[CapacityPool]:
        """Return the pool of every instance that is not terminated."""
        return [instance.pool for instance in self.instances() if instance.state != "terminated"]

    # --- launch -------------------------------------------------------------------------------------------------------------------------

    def adopt(
        self,
        moto_instance: Any,
        pool: CapacityPool,
        *,
        user_data: bytes,
        request_tags: Mapping[str, str],
        release: Callable[[], object],
    ) -> EmulatedInstance:
        """Take over an instance that moto has just made: it is pending, and boots after the boot delay."""
        now = self._clock.now()
        instance = EmulatedInstance(
            instance_id=moto_instance.id,
            pool=pool,
            availability_zone=moto_instance.placement.zone,
            image_id=moto_instance.image_id,
            private_ip=moto_instance.private_ip,
            launched_at=now,
            client_token=moto_instance.client_token,
            user_data=user_data,
            home=self._options.run_dir / "instances" / moto_instance.id,
            moto=moto_instance,
            release=release,
            tags_in_metadata=moto_instance.metadata_options.instance_metadata_tags == "enabled",
            spot_request=None,
        )
        moto_instance.placement.availability_zone_id = pool.availability_zone_id
        if instance.spot:
            instance.spot_request = new_spot_request(request_tags, now)
            moto_instance.lifecycle = "spot"
            moto_instance.spot_instance_request_id = instance.spot_request.request_id
        with self.lock:
            self._instances[instance.instance_id] = instance
            instance.enter("pending")
            self.timeline.add("launched", instance.instance_id, pool=str(pool), client_token=instance.client_token)
            self._tell(event_bus.state_change(instance, now), instance)
        self._alarms.after(self._options.boot_seconds, partial(self._boot, instance))
        return instance

    def _boot(self, instance: EmulatedInstance) -> None:
        with self.lock:
            if instance.state != "pending":
                return
            metadata = MetadataService(instance, self._clock)
            self._metadata[instance.instance_id] = metadata
            instance.metadata_endpoint = metadata.endpoint
            environment = {
                "PATH": self._options.instance_path,
                "AWS_ENDPOINT_URL": self.endpoint,
                "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.endpoint,
            }
            instance.machine = Machine(instance.home, instance.user_data, environment)
            instance.booted_at = self._clock.now()
            instance.enter("running")
            self.timeline.add("booted", instance.instance_id)
            self._tell(event_bus.state_change(instance, self._clock.now()), instance)

    # --- what AWS does ------------------------------------------------------------------------------------------------------------------

    def interrupt(self, instance_id: str, notice_seconds: float) -> EmulatedInstance:
        """Give the notice on all channels, and take the instance `notice_seconds` later.

        Raises:
            NotFound: no such instance.
            WrongState: it is On-Demand, noticed already, or not alive.
        """
        with self.lock:
            instance = self._living_spot(instance_id)
            if instance.reclaim_at is not None:
                raise WrongState(f"{instance_id} has its notice already")
            now = self._clock.now()
            instance.noticed_at, instance.reclaim_at = now, now + timedelta(seconds=notice_seconds)
            self._alarms.after(notice_seconds, partial(self._reclaim, instance))
            self.timeline.add("notice_shown", instance_id, notice_seconds=notice_seconds)
            # With terminate behaviour the code jumps to its final value while the instance still runs (EC2 User Guide, "State changes
            # for a Spot request").
            self._close_request(instance)
            self._tell(event_bus.interruption_warning(instance, now), instance)
            return instance

    def rebalance(self, instance_id: str) -> EmulatedInstance:
        """Recommend to move, on all channels; nothing else follows. Raises NotFound, WrongState."""
        with self.lock:
            instance = self._living_spot(instance_id)
            instance.rebalance_at = self._clock.now()
            self.timeline.add("rebalance_shown", instance_id)
            self._tell(event_bus.rebalance_recommendation(instance, instance.rebalance_at), instance)
            return instance

    def vanish(self, instance_id: str, *, events: bool) -> EmulatedInstance:
        """Take an instance at once and without a word; without `events` its state changes reach nobody either.

        Returns once it is gone. Raises NotFound, WrongState.
        """
        with self.lock:
            instance = self.instance(instance_id)
            if not instance.alive:
                raise WrongState(f"{instance_id} is {instance.state}")
            instance.silent = not events
        gone = threading.Event()
        self._alarms.after(0, partial(self._vanish, instance, gone))
        gone.wait()
        return instance

    def _vanish(self, instance: EmulatedInstance, gone: threading.Event) -> None:
        try:
            self._reclaim(instance)
        finally:
            gone.set()

    def _reclaim(self, instance: EmulatedInstance) -> None:
        if not instance.alive:
            return
        self._kill(instance)
        with self.lock:
            if not instance.alive:
                return
            now = self._clock.now()
            if instance.spot:
                instance.because("Server.SpotInstanceTermination", "Spot instance termination", now)
            else:
                instance.because("Server.InternalError", "Internal error", now)
            self._close_request(instance)
            self._shut_down(instance)
        # Not at once: other instances that are due at this moment come first.
        self._alarms.after(0, partial(self._finish, instance))

    # --- what the account does ----------------------------------------------------------------------------------------------------------

    def terminate(self, instance: EmulatedInstance) -> None:
        """End an instance as TerminateInstances does: shutting down when this returns, terminated soon after."""
        with self.lock:
            if not instance.alive:
                return
            now = self._clock.now()
            instance.because("Client.UserInitiatedShutdown", "User initiated shutdown", now)
            if instance.spot_request:
                instance.spot_request.become("closed", "instance-terminated-by-user", now)
            self._shut_down(instance)
        self._alarms.after(0, partial(self._end, instance))

    def cancel_request(self, request_id: str) -> SpotRequest:
        """Cancel a Spot request; its instance goes on running. Raises NotFound."""
        with self.lock:
            for instance in self._instances.values():
                request = instance.spot_request
                if request and request.request_id == request_id:
                    request.become("cancelled", "request-canceled-and-instance-running", self._clock.now())
                    return request
        raise NotFound(f"no Spot request {request_id}")

    def close(self) -> None:
        """Kill every instance, quietly, and stop."""
        self._alarms.close()
        instances = self.instances()
        for instance in instances:
            self._kill(instance)
        for instance in instances:
            self._clear(instance)

    # --- the end ------------------------------------------------------------------------------------------------------------------------

    def _end(self, instance: EmulatedInstance) -> None:
        self._kill(instance)
        self._finish(instance)

    def _kill(self, instance: EmulatedInstance) -> None:
        """Kill the processes. Only the alarms' thread does this, and `close` after that thread has ended."""
        if instance.machine is not None and instance.machine.kill():
            self.timeline.add("killed", instance.instance_id)

    def _clear(self, instance: EmulatedInstance) -> None:
        if instance.machine is not None:
            instance.machine.clear()
        metadata = self._metadata.pop(instance.instance_id, None)
        if metadata is not None:
            metadata.close()

    def _finish(self, instance: EmulatedInstance) -> None:
        self._clear(instance)
        with self.lock:
            reason = (instance.moto.state_reason.code, instance.moto.state_reason.message, instance.moto.state_transition_reason)
            instance.release()
            instance.moto.state_reason.code, instance.moto.state_reason.message, instance.moto._reason = reason  # noqa: SLF001
            instance.enter("terminated")
            instance.ended_at = self._clock.now()
            self.timeline.add("terminated", instance.instance_id, state_reason=instance.state_reason)
            self._tell(event_bus.state_change(instance, instance.ended_at), instance)

    # --- small things -------------------------------------------------------------------------------------------------------------------

    def _living_spot(self, instance_id: str) -> EmulatedInstance:
        instance = self.instance(instance_id)
        if not instance.alive:
            raise WrongState(f"{instance_id} is {instance.state}")
        if not instance.spot:
            raise WrongState(f"{instance_id} is On-Demand: AWS does not take it back")
        return instance

    def _close_request(self, instance: EmulatedInstance) -> None:
        if instance.spot_request:
            instance.spot_request.become("closed", "instance-terminated-no-capacity", self._clock.now())

    def _shut_down(self, instance: EmulatedInstance) -> None:
        instance.enter("shutting-down")
        self._tell(event_bus.state_change(instance, self._clock.now()), instance)

    def _tell(self, event: dict[str, Any], instance: EmulatedInstance) -> None:
        if instance.silent:
            return
        for target in self._publish(event):
            self.timeline.add(
                "message_sent", instance.instance_id, target=target, **{"detail-type": event["detail-type"]}, **event["detail"]
            )
