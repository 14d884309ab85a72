"""The words that decisions are made of: pools, offers, the view of the market, signals, decisions, reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Market(StrEnum):
    """How an instance is paid for, and whether AWS may take it back."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CapacityPool:
    """One instance type in one Availability Zone, in one market."""

    region: str
    availability_zone_id: str
    """`use1-az4`: the same zone in every account. Zone names differ between accounts."""
    instance_type: str
    market: Market

    def __str__(self) -> str:
        """Return the form used in logs, Slack and reasons."""
        return f"{self.availability_zone_id}/{self.instance_type}/{self.market}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What is known of one pool. None means unknown, which is neither zero nor good."""

    pool: CapacityPool
    vcpus: int
    quota_family: str | None
    """The instance family as quotas count it (`G`, `P`, `P5`, `Standard`); None if AWS names none we know."""
    price_per_hour: float | None = None
    """USD for the whole instance."""
    headroom_vcpus: float | None = None
    """vCPUs that the quota of this family and market still allows."""
    placement_score: int | None = None
    """1 to 10, from GetSpotPlacementScores."""
    refused_at: datetime | None = None
    """When this pool last refused a launch for lack of capacity."""
    lost_at: datetime | None = None
    """When AWS last took an instance of ours from this pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketView:
    """Everything a policy may know of the market at one moment."""

    as_of: datetime
    offers: tuple[Offer, ...]

    def offer(self, pool: CapacityPool) -> Offer | None:
        """Return what is known of `pool`, or None."""
        return next((offer for offer in self.offers if offer.pool == pool), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """What a policy may know of a job."""

    job_id: str
    instance_types: tuple[str, ...]
    """Allowed types, the user's favourite first."""
    markets: tuple[Market, ...]
    """Allowed markets. On-Demand is used only if it is listed."""
    availability_zone_ids: tuple[str, ...] | None
    """Allowed zones; None allows every zone of the Region."""
    pool: CapacityPool | None
    """Where the job runs now; None if it has no instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLaunch:
    """The job was registered and has no instance yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionNoticed:
    """AWS said that it takes the instance back at `reclaim_at`."""

    reclaim_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRecommended:
    """AWS said that the risk of this instance has risen, without a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLost:
    """The instance is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequested:
    """A person or the scheduler asked for the job to move."""


Signal = FirstLaunch | InterruptionNoticed | RebalanceRecommended | SourceLost | MoveRequested


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One sentence of a decision's explanation, with the numbers it rests on."""

    code: str
    """Stable, for machines: `cheapest`, `spot_quota_exhausted`."""
    text: str
    """For people: Slack, the journal, the demo."""
    pool: CapacityPool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A pool to launch in, and why it stands where it stands in the list."""

    pool: CapacityPool
    because: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """Do nothing."""

    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOnly:
    """Save a checkpoint soon and go on training."""

    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Start an instance for a job that has none."""

    targets: tuple[Target, ...]
    """In the order to try."""
    reasons: tuple[Reason, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrate:
    """Move the job to the first of `targets` that has room."""

    targets: tuple[Target, ...]
    """In the order to try."""
    reasons: tuple[Reason, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """Nowhere to go: keep the checkpoint and look again later; the migration says when."""

    reasons: tuple[Reason, ...]


Decision = Stay | SaveOnly | Launch | Migrate | Park
