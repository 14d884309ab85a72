"""The vCPU quotas of EC2: which code limits which instance family in which market.

Source: EC2 User Guide, "Spot Instance quotas" and "On-Demand Instances", and the instance types guide, "Instance type quotas".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from policies.model import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class VcpuQuota:
    """One quota, in vCPUs per account and Region."""

    code: str
    name: str
    market: Market
    families: frozenset[str]
    usage_class: str
    """The `Class` dimension of the AWS/Usage metric."""
    aws_default: float
    """What a new account gets: no GPU at all."""


def _quota(code: str, name: str, market: Market, usage_class: str, *families: str, aws_default: float = 0) -> VcpuQuota:
    return VcpuQuota(code=code, name=name, market=market, families=frozenset(families), usage_class=usage_class, aws_default=aws_default)


QUOTAS: tuple[VcpuQuota, ...] = (
    _quota("L-3819A6DF", "All G and VT Spot Instance Requests", Market.SPOT, "G/Spot", "G"),
    _quota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", Market.SPOT, "P/Spot", "P"),
    _quota("L-C4BD4855", "All P5 Spot Instance Requests", Market.SPOT, "P5/Spot", "P5"),
    _quota(
        "L-34B43A08",
        "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
        Market.SPOT,
        "Standard/Spot",
        "Standard",
        aws_default=5,
    ),
    _quota("L-6B0D517C", "All Trn Spot Instance Requests", Market.SPOT, "Trn/Spot", "Trn"),
    _quota("L-B5D1601B", "All Inf Spot Instance Requests", Market.SPOT, "Inf/Spot", "Inf"),
    _quota("L-85EED4F7", "All DL Spot Instance Requests", Market.SPOT, "DL/Spot", "DL"),
    _quota("L-88CF9481", "All F Spot Instance Requests", Market.SPOT, "F/Spot", "F"),
    _quota("L-E3A00192", "All X Spot Instance Requests", Market.SPOT, "X/Spot", "X"),
    _quota("L-DB2E81BA", "Running On-Demand G and VT instances", Market.ON_DEMAND, "G/OnDemand", "G"),
    _quota("L-417A185B", "Running On-Demand P instances", Market.ON_DEMAND, "P/OnDemand", "P", "P5"),
    _quota(
        "L-1216C47A",
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        Market.ON_DEMAND,
        "Standard/OnDemand",
        "Standard",
        aws_default=5,
    ),
    _quota("L-2C3B7624", "Running On-Demand Trn instances", Market.ON_DEMAND, "Trn/OnDemand", "Trn"),
    _quota("L-1945791B", "Running On-Demand Inf instances", Market.ON_DEMAND, "Inf/OnDemand", "Inf"),
    _quota("L-6E869C2A", "Running On-Demand DL instances", Market.ON_DEMAND, "DL/OnDemand", "DL"),
    _quota("L-74FC7D96", "Running On-Demand F instances", Market.ON_DEMAND, "F/OnDemand", "F"),
    _quota("L-7295265B", "Running On-Demand X instances", Market.ON_DEMAND, "X/OnDemand", "X"),
)

BY_CODE = {quota.code: quota for quota in QUOTAS}

_FAMILY_OF_LETTERS = {
    **dict.fromkeys(("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"), "Standard"),
    **dict.fromkeys(("g", "gr", "vt"), "G"),
    "dl": "DL",
    "f": "F",
    "inf": "Inf",
    "trn": "Trn",
    "x": "X",
}
_FIRST_GENERATION_UNDER_P5 = 5


def family_of(instance_type: str) -> str | None:
    """Return the family that quotas count `instance_type` in, or None if its quota is not known."""
    match = re.match(r"([a-z]+)(\d+)", instance_type)
    if match is None:
        return None
    letters, generation = match.group(1), int(match.group(2))
    if letters == "p":
        return "P5" if generation >= _FIRST_GENERATION_UNDER_P5 else "P"
    return _FAMILY_OF_LETTERS.get(letters)


def quota_of(instance_type: str, market: Market) -> VcpuQuota | None:
    """Return the quota that limits `instance_type` in `market`, or None if it is not known."""
    family = family_of(instance_type)
    return next((quota for quota in QUOTAS if quota.market is market and family in quota.families), None)
