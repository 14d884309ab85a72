"""The emulator's own door, `/_emulator/`: what AWS keeps for itself (docs/protocols.md, section 5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeFloat, NonNegativeInt, ValidationError
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from policies.model import Market
from watchdog.emulator.cloud import Cloud, WrongState
from watchdog.emulator.front import Environ, Faults, StartResponse
from watchdog.emulator.market import Refused
from watchdog.errors import NotFound

Json = dict[str, Any]
T = TypeVar("T", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Interrupt(_Body):
    notice_seconds: NonNegativeFloat = 120


class _Nothing(_Body):
    pass


class _Vanish(_Body):
    events: bool = True


class _Pool(_Body):
    capacity: NonNegativeInt | None = None
    price: NonNegativeFloat | None = None


class _Quota(_Body):
    value: NonNegativeFloat


class _FaultOrder(_Body):
    conditional_writes: bool = True
    throttle_actions: frozenset[str] = frozenset()
    latency_seconds: FiniteFloat = Field(default=0, ge=0)


_ROUTES = Map(
    [
        Rule("/_emulator/health", endpoint="health", methods=["GET"]),
        Rule("/_emulator/instances", endpoint="instances", methods=["GET"]),
        Rule("/_emulator/instances/<instance_id>/interrupt", endpoint="interrupt", methods=["POST"]),
        Rule("/_emulator/instances/<instance_id>/rebalance", endpoint="rebalance", methods=["POST"]),
        Rule("/_emulator/instances/<instance_id>/vanish", endpoint="vanish", methods=["POST"]),
        Rule("/_emulator/pools/<zone_id>/<instance_type>/<market>", endpoint="pool", methods=["PUT"]),
        Rule("/_emulator/quotas/<code>", endpoint="quota", methods=["PUT"]),
        Rule("/_emulator/faults", endpoint="faults", methods=["PUT"]),
        Rule("/_emulator/timeline", endpoint="timeline", methods=["GET"]),
    ]
)


class Control:
    """A small WSGI application; problems are answered as `application/problem+json`."""

    def __init__(self, cloud: Cloud, set_faults: Callable[[Faults], object]) -> None:
        """Act on `cloud`; hand new faults to `set_faults`."""
        self._cloud = cloud
        self._set_faults = set_faults

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        request = Request(environ)
        try:
            endpoint, arguments = _ROUTES.bind_to_environ(environ).match()
            answer = getattr(self, f"_{endpoint}")(request, **arguments)
            response = _json(200, answer)
        except NotFound as error:
            response = _problem(404, str(error))
        except Refused as error:
            response = _problem(404, error.message)
        except WrongState as error:
            response = _problem(409, str(error))
        except ValidationError as error:
            response = _problem(422, "; ".join(f"{'/'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()))
        except HTTPException as error:
            response = _problem(error.code or 500, error.description or "")
        return response(environ, start_response)

    def _health(self, _: Request) -> Json:
        return {"status": "ok"}

    def _instances(self, _: Request) -> Json:
        with self._cloud.lock:
            return {"instances": [instance.as_json() for instance in self._cloud.instances()]}

    def _interrupt(self, request: Request, instance_id: str) -> Json:
        return self._cloud.interrupt(instance_id, _read(_Interrupt, request).notice_seconds).as_json()

    def _rebalance(self, request: Request, instance_id: str) -> Json:
        _read(_Nothing, request)
        return self._cloud.rebalance(instance_id).as_json()

    def _vanish(self, request: Request, instance_id: str) -> Json:
        return self._cloud.vanish(instance_id, events=_read(_Vanish, request).events).as_json()

    def _pool(self, request: Request, zone_id: str, instance_type: str, market: str) -> Json:
        order = _read(_Pool, request)
        if market not in set(Market):
            raise NotFound(f"no market {market}: spot or on_demand")
        with self._cloud.lock:
            pool = self._cloud.market.pool(zone_id, instance_type, Market(market))
            # Left out is not null: null lifts the limit.
            if "capacity" in order.model_fields_set:
                self._cloud.market.set_capacity(pool, order.capacity)
            if order.price is not None:
                self._cloud.market.set_price(pool, order.price)
            return {"pool": str(pool), "capacity": self._cloud.market.capacity(pool), "price": self._cloud.market.price(pool)}

    def _quota(self, request: Request, code: str) -> Json:
        value = _read(_Quota, request).value
        with self._cloud.lock:
            try:
                self._cloud.market.set_quota(code, value)
            except KeyError as error:
                raise NotFound(f"no vCPU quota {code}") from error
        return {"code": code, "value": value}

    def _faults(self, request: Request) -> Json:
        order = _read(_FaultOrder, request)
        self._set_faults(
            Faults(
                conditional_writes=order.conditional_writes,
                throttle_actions=order.throttle_actions,
                latency_seconds=order.latency_seconds,
            )
        )
        return order.model_dump(mode="json")

    def _timeline(self, request: Request) -> Json:
        after = request.args.get("after", default=0, type=int)
        return {"entries": [entry.as_json() for entry in self._cloud.timeline.after(after)]}


def _read(kind: type[T], request: Request) -> T:
    return kind.model_validate_json(request.get_data() or b"{}")


def _json(status: int, body: Json, mimetype: str = "application/json") -> Response:
    return Response(json.dumps(body), status=status, mimetype=mimetype)


def _problem(status: int, detail: str) -> Response:
    return _json(status, {"title": detail, "status": status}, "application/problem+json")
