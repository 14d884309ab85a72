"""The default policy: move when AWS takes the instance, save when it only warns, prefer quiet cheap pools."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from policies.model import (
    Decision,
    FirstLaunch,
    InterruptionNoticed,
    JobSnapshot,
    Launch,
    MarketView,
    Migrate,
    MoveRequested,
    Park,
    Reason,
    RebalanceRecommended,
    SaveOnly,
    Signal,
    SourceLost,
)
from policies.placement import rank

NAME = "balanced"
VERSION = 1


def decide(view: MarketView, job: JobSnapshot, signal: Signal, *, now: datetime) -> Decision:
    """Decide what to do with a job on a signal.

    Args:
        view: what is known of the market.
        job: what the job allows and where it is.
        signal: what happened.
        now: the moment of the decision.
    """
    match signal:
        case RebalanceRecommended():
            # Measured on public traces: moving from Spot to Spot before a notice that saves the state gains 0 to 1.5 percent (ADR 0008).
            return SaveOnly(
                reasons=(
                    Reason(
                        code="rebalance_saved_only",
                        text="a rebalance recommendation gives no time and may come to nothing: save now, train on, move on the notice",
                        pool=job.pool,
                    ),
                )
            )
        case FirstLaunch():
            targets, reasons = rank(view, job, leaving=None, now=now)
            return Launch(targets=targets, reasons=reasons) if targets else _park(reasons)
        case InterruptionNoticed() | SourceLost() | MoveRequested():
            targets, reasons = rank(view, job, leaving=job.pool, now=now)
            if isinstance(signal, MoveRequested):
                targets = tuple(target for target in targets if target.pool != job.pool)
            return Migrate(targets=targets, reasons=reasons) if targets else _park(reasons)
        case _:
            assert_never(signal)


def _park(reasons: tuple[Reason, ...]) -> Park:
    nowhere = Reason(
        code="no_pool", text="of the types, zones and markets that the job allows, none is on offer in our subnets with room in its quota"
    )
    return Park(reasons=(*reasons, nowhere))
