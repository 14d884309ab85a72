"""Prefixed ids: what they look like, and the only place that makes them."""

from __future__ import annotations

import secrets
from typing import NewType, Protocol

JobId = NewType("JobId", str)
MigrationId = NewType("MigrationId", str)
DecisionId = NewType("DecisionId", str)
InstanceId = NewType("InstanceId", str)
Incarnation = NewType("Incarnation", str)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: nothing that reads like something else
_LENGTH = 20


class Ids(Protocol):
    """Where ids and secrets come from."""

    def new(self, prefix: str) -> str:
        """Return `prefix_` and 20 random characters (100 bits)."""


class RandomIds:
    """Ids from the operating system's randomness."""

    def new(self, prefix: str) -> str:
        """Return `prefix_` and 20 random characters (100 bits)."""
        return f"{prefix}_" + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
