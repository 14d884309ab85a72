"""Records to JSON and back. The records are plain dataclasses; pydantic reads and writes them without their knowing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import TypeAdapter

from policies.model import CapacityPool, Market
from watchdog.migration.facts import Fact

T = TypeVar("T")


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter_of(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def to_json(record: object) -> str:
    """Return a dataclass as JSON."""
    return _adapter_of(type(record)).dump_json(record).decode()


def to_data(record: object) -> Any:
    """Return a dataclass as plain JSON values."""
    return _adapter_of(type(record)).dump_python(record, mode="json")


def from_json(kind: type[T], body: str | bytes) -> T:
    """Return the record that `to_json` wrote."""
    record: T = _adapter_of(kind).validate_json(body)
    return record


def fact_to_json(fact: Fact, *, job_id: str, migration_id: str) -> str:
    """Return one journal line: which fact, of what, when, and its fields."""
    fields = {name: value for name, value in to_data(fact).items() if name != "at"}
    return json.dumps(
        {"at": fact.at.isoformat(), "fact": type(fact).__name__, "job_id": job_id, "migration_id": migration_id, "detail": fields}
    )


def pool_to_text(pool: CapacityPool) -> str:
    """Return a pool as a hash field: `us-east-1/use1-az4/g5.xlarge/spot`."""
    return f"{pool.region}/{pool}"


def pool_from_text(text: str) -> CapacityPool:
    """Return the pool that `pool_to_text` wrote."""
    region, zone, instance_type, market = text.split("/")
    return CapacityPool(region=region, availability_zone_id=zone, instance_type=instance_type, market=Market(market))


def milliseconds(moment: datetime) -> int:
    """Return a moment as a sorted set's score; whole milliseconds are exact in a double."""
    return int(moment.timestamp() * 1000)


def moment(score: float) -> datetime:
    """Return the moment of a score."""
    return datetime.fromtimestamp(score / 1000, UTC)
