"""What a person wants to know when it is over: each moment, each number, and whether everything held."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from watchdog.cli.demo.evidence import Evidence, Outcome
from watchdog.cli.demo.scenarios import Scenario

_AWS_NOTICE_SECONDS = 120
_MIB = 1024 * 1024


def broken_claims(scenario: Scenario, evidence: Evidence, outcome: Outcome) -> list[str]:
    """Return what the scenario claims and what does not hold."""
    return [expectation.claim for expectation in scenario.expectations if not expectation.holds(evidence, outcome)]


def summary(scenario: Scenario, evidence: Evidence, outcome: Outcome, *, notice_seconds: float) -> RenderableType:
    """Return the summary for a terminal."""
    parts: list[RenderableType] = [Text(f"\n{scenario.title}", style="bold"), _moments(evidence), _numbers(evidence, outcome)]
    if evidence.noticed_at is not None and notice_seconds != _AWS_NOTICE_SECONDS:
        parts.append(Text(f"The notice came {notice_seconds:g} s ahead here; AWS gives {_AWS_NOTICE_SECONDS} s.", style="dim"))
    parts.append(_claims(scenario, broken_claims(scenario, evidence, outcome)))
    return Group(*parts)


def _moments(evidence: Evidence) -> Table:
    struck = evidence.noticed_at or evidence.source_ended_at
    table = Table(box=box.SIMPLE, title="moments", title_justify="left")
    table.add_column("since the notice" if evidence.noticed_at else "since the loss", justify="right")
    table.add_column("what")
    what = {
        "the source was given notice": evidence.noticed_at,
        "RunInstances called for the replacement": evidence.launch_called_at,
        "checkpoint saved and published": evidence.saved_at,
        "the replacement booted": next(
            (e.at for e in evidence.entries if e.kind == "booted" and e.instance_id == evidence.replacement["instance_id"]), None
        ),
        "the replacement holds the checkpoint and starts": evidence.replacement_log.started.at
        if evidence.replacement_log.started
        else None,
        "first new step finished": evidence.resumed_at,
        "the source was taken back": evidence.source_ended_at,
        "the job finished": evidence.replacement_log.finished.at if evidence.replacement_log.finished else None,
    }
    for text, at in sorted(((text, at) for text, at in what.items() if at is not None), key=lambda each: each[1]):
        table.add_row("" if struck is None else f"{(at - struck).total_seconds():.2f} s", text)
    return table


def _numbers(evidence: Evidence, outcome: Outcome) -> Table:
    started = evidence.replacement_log.started
    resumed_from = "nowhere" if started is None else f"step {started.resumed_from_step}"
    size = "unknown" if outcome.checkpoint_bytes is None else f"{outcome.checkpoint_bytes / _MIB:.2f} MiB"
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("from", f"{outcome.from_zone} ({evidence.source['availability_zone']}), {evidence.source['market']}")
    table.add_row("to", f"{outcome.to_zone} ({evidence.replacement['availability_zone']}), {outcome.to_market}")
    table.add_row("why there", evidence.why or "the service gave no reason")
    table.add_row("steps lost", f"{outcome.steps_lost} (last step before: {evidence.source_log.last_step}, resumed from {resumed_from})")
    table.add_row("checkpoint", size)
    table.add_row("instances alive", f"{outcome.instances_alive} after the source was taken back")
    table.add_row("final weights", _weights(evidence, outcome))
    table.add_row("told", f"{outcome.slack_messages} messages in Slack; to the scheduler: {', '.join(evidence.scheduler_kinds)}")
    return table


def _weights(evidence: Evidence, outcome: Outcome) -> Text:
    digests = [log.finished.sha256[:16] if log.finished else "-" for log in (evidence.replacement_log, evidence.reference_log)]
    verdict = "equal" if outcome.bit_exact else "DIFFERENT"
    return Text(f"{verdict}: interrupted {digests[0]}…, uninterrupted {digests[1]}…", style="green" if outcome.bit_exact else "bold red")


def _claims(scenario: Scenario, broken: Sequence[str]) -> Text:
    text = Text()
    for expectation in scenario.expectations:
        held = expectation.claim not in broken
        text.append("  ✓ " if held else "  ✗ ", style="green" if held else "bold red")
        text.append(f"{expectation.claim}\n")
    return text
