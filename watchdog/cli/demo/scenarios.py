"""The five things that can happen to the demo's job, and what must hold afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from watchdog.cli.demo.doors import EmulatorDoor
from watchdog.cli.demo.evidence import Evidence, Outcome
from watchdog.cli.demo.world import INSTANCE_TYPE, SPOT_QUOTA_CODE, SPOT_QUOTA_VCPUS, ZONE_IDS, World

_ANSWER_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """What a scenario needs to know when it strikes."""

    world: World
    source: Mapping[str, Any]
    """The instance that the job runs on, as the emulator lists it."""
    job_id: str
    notice_seconds: float
    wait: Callable[[str, Callable[[], bool], float], None]
    """Wait until something holds, at most so many seconds, while the story goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One thing that must hold."""

    claim: str
    holds: Callable[[Evidence, Outcome], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What happens, and what must hold."""

    name: str
    title: str
    strike: Callable[[Strike], None]
    expectations: tuple[Expectation, ...]
    arrange: Callable[[EmulatorDoor], None] = lambda _: None
    """Changes the market before the service first looks at it."""


def _interrupt(strike: Strike) -> None:
    strike.world.emulator.interrupt(strike.source["instance_id"], notice_seconds=strike.notice_seconds)


def _vanish(strike: Strike) -> None:
    strike.world.emulator.vanish(strike.source["instance_id"])


def _recommend_then_interrupt(strike: Strike) -> None:
    world, job_id = strike.world, strike.job_id
    world.emulator.rebalance(strike.source["instance_id"])
    strike.wait("the service decides to save only", lambda: "SaveOnly" in decision_kinds(world, job_id), _ANSWER_SECONDS)
    strike.wait(
        "the job saves because it was asked to", lambda: world.newest_checkpoint(job_id).get("reason") == "requested", _ANSWER_SECONDS
    )
    _interrupt(strike)


def _empty_the_next_two_pools(strike: Strike) -> None:
    others = [zone for zone in ZONE_IDS if zone != strike.source["availability_zone_id"]]
    for zone in others[:2]:  # zones stand in the order of their prices, and nothing else sets them apart
        strike.world.emulator.set_pool(zone, INSTANCE_TYPE, "spot", capacity=0)
    _interrupt(strike)


def decision_kinds(world: World, job_id: str) -> list[str]:
    """Return the kinds of the decisions about a job."""
    return [str(decision["decision"]["kind"]) for decision in world.service.decisions(job_id)]


def _launch_calls_before_the_notice(evidence: Evidence) -> int:
    noticed = evidence.noticed_at
    return sum(1 for entry in evidence.entries if entry.kind == "run_instances_call" and noticed is not None and entry.at < noticed)


BIT_EXACT = Expectation(
    claim="the final weights equal those of a run that was never interrupted, bit for bit", holds=lambda _, outcome: outcome.bit_exact
)
ONE_ALIVE = Expectation(
    claim="after the source was reclaimed, exactly one instance of the job is alive", holds=lambda _, outcome: outcome.instances_alive == 1
)
TWO_LAUNCHED = Expectation(
    claim="no more than the two instances needed were ever started",
    holds=lambda _, outcome: outcome.instances_launched == 2,  # noqa: PLR2004
)
OTHER_ZONE = Expectation(
    claim="the replacement stands in another Availability Zone",
    holds=lambda _, outcome: outcome.to_zone is not None and outcome.from_zone != outcome.to_zone,
)
NO_STEP_LOST = Expectation(claim="no training step was lost", holds=lambda _, outcome: outcome.steps_lost == 0)
ALL_MOMENTS = Expectation(
    claim="saved, launched and resumed were all seen after the notice",
    holds=lambda _, outcome: None not in {outcome.notice_to_saved_s, outcome.notice_to_launch_call_s, outcome.notice_to_resumed_s},
)
TOLD = Expectation(
    claim="Slack and the scheduler were told that the job had moved",
    holds=lambda evidence, outcome: outcome.slack_messages > 0 and "migration.succeeded" in evidence.scheduler_kinds,
)
_ALWAYS = (BIT_EXACT, ONE_ALIVE, TWO_LAUNCHED, TOLD)
_AFTER_A_NOTICE = (NO_STEP_LOST, ALL_MOMENTS, *_ALWAYS)


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="interruption",
            title="AWS gives notice that it takes the instance back",
            strike=_interrupt,
            expectations=(*_AFTER_A_NOTICE, OTHER_ZONE),
        ),
        Scenario(
            name="no-notice",
            title="the instance vanishes without a word",
            strike=_vanish,
            expectations=(
                Expectation(
                    claim="the job resumed from its last periodic checkpoint and says how many steps it computes again",
                    holds=lambda evidence, outcome: (
                        outcome.steps_lost is not None
                        and outcome.steps_lost >= 0
                        and evidence.replacement_log.started is not None
                        and evidence.replacement_log.started.resumed_from_step > 0
                    ),
                ),
                *_ALWAYS,
                OTHER_ZONE,
            ),
        ),
        Scenario(
            name="rebalance",
            title="AWS recommends to rebalance, and gives notice some time later",
            strike=_recommend_then_interrupt,
            expectations=(
                Expectation(
                    claim="on the recommendation the job saved and stayed; it moved only on the notice",
                    holds=lambda evidence, _: "SaveOnly" in evidence.decision_kinds and _launch_calls_before_the_notice(evidence) == 1,
                ),
                *_AFTER_A_NOTICE,
                OTHER_ZONE,
            ),
        ),
        Scenario(
            name="capacity",
            title="AWS gives notice, and the two best pools have no capacity left",
            strike=_empty_the_next_two_pools,
            expectations=(
                Expectation(
                    claim="two pools refused, and the job landed in a third zone",
                    holds=lambda _, outcome: outcome.launches_refused == 2,  # noqa: PLR2004
                ),
                *_AFTER_A_NOTICE,
                OTHER_ZONE,
            ),
        ),
        Scenario(
            name="quota",
            title="AWS gives notice, and the Spot quota has room for one instance only",
            arrange=lambda emulator: emulator.set_quota(SPOT_QUOTA_CODE, SPOT_QUOTA_VCPUS),
            strike=_interrupt,
            expectations=(
                Expectation(
                    claim="the job went to On-Demand, and the quota was given as the reason",
                    holds=lambda evidence, outcome: outcome.to_market == "on_demand" and "quota" in evidence.why,
                ),
                *_AFTER_A_NOTICE,
            ),
        ),
    )
}
