"""Which vCPU quota an instance type counts against: the one table.

Sources: EC2 User Guide, "Spot Instance quotas" and "On-Demand Instances"; EC2 instance types guide, "Instance type quotas". Every GPU
quota is 0 in a new account. What the pages do not name (Spot P6, for one) has no family here: unknown, which is not zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from policies.model import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class VcpuQuota:
    """One quota of Service Quotas' service `ec2`, in vCPUs per account and Region."""

    family: str
    market: Market
    code: str


QUOTAS: tuple[VcpuQuota, ...] = (
    VcpuQuota(family="G", market=Market.SPOT, code="L-3819A6DF"),  # All G and VT
    VcpuQuota(family="P", market=Market.SPOT, code="L-7212CCBC"),  # All P4, P3 and P2
    VcpuQuota(family="P5", market=Market.SPOT, code="L-C4BD4855"),
    VcpuQuota(family="Standard", market=Market.SPOT, code="L-34B43A08"),  # A, C, D, H, I, M, R, T, Z: no GPU among them
    VcpuQuota(family="Trn", market=Market.SPOT, code="L-6B0D517C"),
    VcpuQuota(family="Inf", market=Market.SPOT, code="L-B5D1601B"),
    VcpuQuota(family="DL", market=Market.SPOT, code="L-85EED4F7"),
    VcpuQuota(family="F", market=Market.SPOT, code="L-88CF9481"),
    VcpuQuota(family="X", market=Market.SPOT, code="L-E3A00192"),
    VcpuQuota(family="G", market=Market.ON_DEMAND, code="L-DB2E81BA"),
    VcpuQuota(family="P", market=Market.ON_DEMAND, code="L-417A185B"),  # every P
    VcpuQuota(family="Standard", market=Market.ON_DEMAND, code="L-1216C47A"),
    VcpuQuota(family="Trn", market=Market.ON_DEMAND, code="L-2C3B7624"),
    VcpuQuota(family="Inf", market=Market.ON_DEMAND, code="L-1945791B"),
    VcpuQuota(family="DL", market=Market.ON_DEMAND, code="L-6E869C2A"),
    VcpuQuota(family="F", market=Market.ON_DEMAND, code="L-74FC7D96"),
    VcpuQuota(family="X", market=Market.ON_DEMAND, code="L-7295265B"),
)

_BY_LETTERS: Mapping[str, str] = {
    **dict.fromkeys(("g", "gr", "vt"), "G"),
    **dict.fromkeys(("a", "c", "d", "h", "i", "m", "r", "t", "z"), "Standard"),
    "p": "P",
    "trn": "Trn",
    "inf": "Inf",
    "dl": "DL",
    "f": "F",
    "x": "X",
}
_TYPE = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d+)")
_P5 = 5


def quota_family(instance_type: str, market: Market) -> str | None:
    """Return the family whose quota a type counts against in a market, or None if AWS names none that we know."""
    match = _TYPE.match(instance_type)
    if match is None:
        return None
    family = _BY_LETTERS.get(match["letters"])
    generation = int(match["generation"])
    if family == "P" and market is Market.SPOT and generation >= _P5:
        return "P5" if generation == _P5 else None
    return family
