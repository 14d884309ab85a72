"""The story while it happens: what the emulated AWS, the service, the job and Slack each say, merged by time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from watchdog.cli.demo.doors import Entry
from watchdog.cli.demo.slack_view import render
from watchdog.cli.demo.steplog import StepLog
from watchdog.cli.demo.world import World

_STYLES = {"EC2": "yellow", "S3": "blue", "EventBridge": "cyan", "service": "green", "job": "bold", "Slack": "magenta"}
_EVERY_STEPS = 100
_MANIFEST = re.compile(r"/manifests/(?P<token>\d+)/(?P<step>\d+)-")
_SLACK_WIDTH = 90
_WIDTHS = (8, 10, 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One line of the story."""

    at: datetime
    who: str
    text: str
    message: Mapping[str, Any] | None = None
    """A Slack message, to be shown as Slack shows it."""


class Timeline:
    """Collects moments from every source and prints each once."""

    def __init__(self, world: World, console: Console) -> None:
        """Start before anything happened."""
        self._world = world
        self._console = console
        self._entries: list[Entry] = []
        self._noticed_at: datetime | None = None
        self._names: dict[str, str] = {}
        self._calls: dict[str, str] = {}
        self._messages = 0
        self._journal: dict[str, int] = {}
        self._told: set[tuple[str, str]] = set()
        self._steps: dict[str, int] = {}
        self._manifest: str | None = None
        self._job_id: str | None = None

    @property
    def entries(self) -> list[Entry]:
        """The emulator's timeline as far as it was read."""
        return self._entries

    def follow(self, job_id: str) -> None:
        """Tell of this job from now on."""
        self._job_id = job_id

    def call(self, instance_id: str, name: str) -> None:
        """Give an instance a name that a reader can follow."""
        self._names[instance_id] = name

    def advance(self) -> None:
        """Read what is new and print it, in order of time."""
        moments = sorted([*self._from_emulator(), *self._from_service(), *self._from_jobs(), *self._from_slack()], key=lambda each: each.at)
        for moment in moments:
            self._print(moment)

    def log_of(self, instance: Mapping[str, Any]) -> StepLog:
        """Return what the job on this instance wrote so far."""
        return self._world.step_log(instance)

    def _print(self, moment: Moment) -> None:
        line = Table.grid(padding=(0, 1))
        for width in _WIDTHS:
            line.add_column(width=width)
        line.add_column()
        room = self._console.width - sum(_WIDTHS) - len(_WIDTHS) - 1
        body = Text(moment.text) if moment.message is None else render(moment.message, width=min(_SLACK_WIDTH, room))
        since = "" if self._noticed_at is None else f"{(moment.at - self._noticed_at).total_seconds():+8.2f} s"
        line.add_row(Text(f"{moment.at.astimezone():%H:%M:%S}", style="dim"), since, Text(moment.who, style=_STYLES[moment.who]), body)
        self._console.print(line)

    def _name(self, instance_id: str | None) -> str:
        return self._names.get(instance_id or "", instance_id or "")

    # --- the sources ----------------------------------------------------------------------------------------------------------------------

    def _from_emulator(self) -> Iterator[Moment]:
        after = self._entries[-1].seq if self._entries else 0
        for entry in self._world.emulator.timeline(after):
            self._entries.append(entry)
            if entry.kind in {"notice_shown", "killed"} and self._noticed_at is None:
                self._noticed_at = entry.at
            told = self._tell_entry(entry)
            if told is not None:
                yield Moment(at=entry.at, who=told[0], text=told[1])

    def _tell_entry(self, entry: Entry) -> tuple[str, str] | None:
        name, detail = self._name(entry.instance_id), entry.detail
        if entry.kind == "message_sent":
            kind = str(detail["detail-type"])
            return ("EventBridge", f"{kind} for {name}") if "State-change" not in kind else None
        if entry.kind == "object_written":
            told = self._tell_object(str(detail["key"]))
            return None if told is None else ("S3", told)
        if entry.kind == "run_instances_call":
            zones = {subnet: zone for zone, subnet in self._world.account.subnets.items()}
            self._calls[detail["client_token"]] = f"{zones.get(detail['subnet_id'])}/{detail['instance_type']}/{detail['market']}"
        pool = self._calls.get(str(detail.get("client_token")))
        texts = {
            "run_instances_call": f"RunInstances in {pool}",
            "launch_refused": f"refuses {pool}: {detail.get('code')}",
            "launched": f"{entry.instance_id} pending in {detail.get('pool')}",
            "booted": f"{name} boots",
            "notice_shown": f"NOTICE: {name} will be taken back in {detail.get('notice_seconds', 0):g} s",
            "rebalance_shown": f"rebalance recommendation for {name}",
            "killed": f"{name} killed",
            "terminated": f"{name} terminated",
        }
        return ("EC2", texts[entry.kind]) if entry.kind in texts else None

    def _tell_object(self, key: str) -> str | None:
        """Return what a write of the job's register means: by itself it is a new owner, after a manifest a new checkpoint."""
        manifest = _MANIFEST.search(key)
        if self._job_id is None or f"/jobs/{self._job_id}/" not in key:
            return None
        if manifest is not None:
            self._manifest = f"step {int(manifest['step'])}, fencing token {int(manifest['token'])}"
            return None
        committed, self._manifest = self._manifest, None
        if committed is not None:
            return f"checkpoint committed: {committed}"
        return "HEAD changes its owner" if self._steps or self._told else "HEAD created"

    def _from_service(self) -> Iterator[Moment]:
        if self._job_id is None:
            return
        for decision in self._world.service.decisions(self._job_id):
            if self._first_time("decision", decision["decision_id"]):
                yield Moment(at=datetime.fromisoformat(decision["at"]), who="service", text=_decision(decision))
        for migration in self._world.service.migrations(self._job_id):
            migration_id = migration["migration_id"]
            known = self._journal.get(migration_id, 0)
            journal = self._world.service.journal(migration_id)
            self._journal[migration_id] = len(journal)
            for item in journal[known:]:
                yield Moment(at=datetime.fromisoformat(item["at"]), who="service", text=_fact(item))

    def _from_jobs(self) -> Iterator[Moment]:
        if self._job_id is None:
            return
        for instance in self._world.instances_of(self._job_id):
            instance_id, log = instance["instance_id"], self.log_of(instance)
            name = self._name(instance_id)
            if log.started and self._first_time("started", instance_id):
                begin = log.started.resumed_from_step
                yield Moment(at=log.started.at, who="job", text=f"{name} {f'resumes from step {begin}' if begin else 'starts from step 0'}")
            printed = self._steps.get(instance_id, 0)
            for step in log.steps:
                if step.step > printed and (printed == 0 or step.step % _EVERY_STEPS == 0):
                    printed = self._steps[instance_id] = step.step
                    yield Moment(at=step.at, who="job", text=f"{name} finished step {step.step}")
            if log.finished and self._first_time("finished", instance_id):
                text = f"{name} finished all {log.finished.step} steps, accuracy {log.finished.accuracy:.1%}"
                yield Moment(at=log.finished.at, who="job", text=text)

    def _from_slack(self) -> Iterator[Moment]:
        messages = self._world.slack.messages()
        for message in messages[self._messages :]:
            if message["to"] == "slack":
                yield Moment(at=datetime.fromisoformat(message["at"]), who="Slack", text="", message=message["body"])
        self._messages = len(messages)

    def _first_time(self, what: str, which: str) -> bool:
        new = (what, which) not in self._told
        self._told.add((what, which))
        return new


def _decision(decision: Mapping[str, Any]) -> str:
    answer = decision["decision"]
    reasons = [str(reason["text"]) for reason in answer.get("reasons") or []]
    targets = [str(target["because"]["text"]) for target in (answer.get("targets") or [])[:1]]
    return f"decides: {answer['kind']}" + "".join(f"; {text}" for text in [*targets, *reasons])


def _fact(item: Mapping[str, Any]) -> str:
    detail: Mapping[str, Any] = item.get("detail") or {}
    checkpoint: Mapping[str, Any] = detail.get("checkpoint") or {}
    sentences = {
        "Opened": "opens a migration",
        "NoticeReceived": f"has the notice from {detail.get('channel')}",
        "CheckpointCommitted": f"knows the checkpoint of step {checkpoint.get('step')}",
        "SaveGivenUp": f"expects no checkpoint any more: {detail.get('why')}",
        "SourceGone": f"sees that the source has ended: {detail.get('why')}",
        "LaunchIntended": f"records launch attempt {detail.get('number')}",
        "Launched": f"has {detail.get('instance_id')} at {detail.get('address')}",
        "LaunchRefusedBy": f"is refused: {detail.get('code')}, scope {detail.get('scope')}",
        "AgentArrived": f"hears from the agent on {detail.get('instance_id')}",
        "TakeOverGranted": f"grants the take-over from fencing token {detail.get('take_over_from')}",
        "TakenOver": f"knows the new owner, fencing token {detail.get('fencing_token')}",
        "JobResumed": f"sees step {detail.get('step')} on {detail.get('instance_id')}",
    }
    fact = str(item["fact"])
    return sentences.get(fact, f"{fact} {detail.get('why', '')}".rstrip())
