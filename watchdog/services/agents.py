"""The agents' side of the service: take a report, learn from it, answer what should be."""

from __future__ import annotations

import logging
from dataclasses import replace

from policies.model import SourceLost
from watchdog.clock import Clock
from watchdog.errors import VersionConflict
from watchdog.ids import InstanceId
from watchdog.migration.agent import AgentReport, Directive, Phase, directive_for, facts_from, is_superseded, owns
from watchdog.migration.facts import JobEnded
from watchdog.migration.model import Cause, Job, JobState, Migration, Source
from watchdog.notices.imds import parse_entry
from watchdog.notices.model import MalformedMessage
from watchdog.ports import Change, Store, Telemetry
from watchdog.services.announce import message
from watchdog.services.ingest import IngestService
from watchdog.services.migrate import MigrateService, Opening

log = logging.getLogger(__name__)

_CONFLICTS = 20


class AgentService:
    """Answers agents. Reports are level-triggered: each is the whole truth, and the same report twice is no news."""

    def __init__(
        self, *, store: Store, ingest: IngestService, migrate: MigrateService, clock: Clock, telemetry: Telemetry, deployment: str
    ) -> None:
        """Use these ports."""
        self._store = store
        self._ingest = ingest
        self._migrate = migrate
        self._clock = clock
        self._telemetry = telemetry
        self._deployment = deployment

    async def report(self, report: AgentReport) -> tuple[Directive, bool]:
        """Take one report; return the directive, and whether another instance is known to own the job.

        Raises NotFound for an unknown job.
        """
        await self._store.job(report.job_id)
        await self._store.put_report(report)
        # What it has done comes before what it was told: a replacement that resumed and was given notice in one report has resumed.
        await self._take_facts(report)
        await self._take_notices(report)
        await self._take_facts(report)
        match report.phase:
            case Phase.FINISHED:
                await self._finished(report)
            case Phase.FAILED:
                await self._failed(report)
            case Phase.STOPPED:
                await self._stopped(report)
            case _:
                await self._heard(report)
        job = await self._store.job(report.job_id)
        return directive_for(job, await self._concerned(job, report), report), is_superseded(job, report)

    async def _take_facts(self, report: AgentReport) -> None:
        job = await self._store.job(report.job_id)
        migration = await self._concerned(job, report)
        if migration is not None:
            facts = facts_from(report, job, migration)
            if facts:
                await self._migrate.apply(migration.migration_id, *facts)

    async def _take_notices(self, report: AgentReport) -> None:
        if report.instance_id is None:
            return
        for entry in report.notices:
            try:
                notice = parse_entry(entry, instance_id=InstanceId(report.instance_id))
            except MalformedMessage as error:
                self._telemetry.count("spot_watchdog_notices_total", kind="malformed", outcome="imds")
                log.warning("notice.malformed", extra={"job_id": report.job_id, "channel": "imds", "why": str(error)})
                continue
            await self._ingest.handle(notice)

    async def _concerned(self, job: Job, report: AgentReport) -> Migration | None:
        """Return the open migration in which the reporting instance plays a part: the job's own, or one that still retires it."""
        if job.migration_id is not None:
            return await self._store.migration(job.migration_id)
        for migration in await self._store.open_migrations(job.job_id):
            if report.instance_id is not None and migration.has_source(report.instance_id):
                return migration
        return None

    async def _heard(self, report: AgentReport) -> None:
        """Take back that the job is silent."""
        job = await self._store.job(report.job_id)
        if job.silent and owns(job, report):
            await self._store.commit(Change(job=replace(job, silent=False, note=None)))
            log.info("job.heard_again", extra={"job_id": job.job_id})

    async def _stopped(self, report: AgentReport) -> None:
        """Move a job whose process was stopped though nobody asked: its instance does nothing any more, and is ended once the job is gone."""
        job = await self._store.job(report.job_id)
        if job.state is not JobState.RUNNING or job.migration_id is not None or job.member is None or not owns(job, report):
            return
        source = Source(instance_id=job.member.instance_id, pool=job.member.pool, lost_at=self._clock.now())
        opening = Opening(cause=Cause.SOURCE_LOST, signal=SourceLost(), sources=(source,), source_step=report.step)
        await self._migrate.open(job, opening)

    async def _failed(self, report: AgentReport) -> None:
        """Block a running job whose own program failed: it is a person's turn, and a crash is not to look like a reclaim."""
        job = await self._store.job(report.job_id)
        if not owns(job, report) or job.migration_id is not None or job.state is not JobState.RUNNING:
            return
        why = f"its program failed: {report.message or 'no message'}"
        told = message(
            "job.blocked", job, self._clock.now(), message_id=f"{job.job_id}.failed.{job.version}", deployment=self._deployment, why=why
        )
        await self._store.commit(Change(job=replace(job, state=JobState.BLOCKED, note=why), messages=(told,)))
        log.error("job.blocked", extra={"job_id": job.job_id, "why": why})

    async def _finished(self, report: AgentReport) -> None:
        """Close the job that ran to its end, if it is the owner who says so."""
        for _ in range(_CONFLICTS):
            job = await self._store.job(report.job_id)
            if job.state.terminal or not owns(job, report):
                return
            if job.migration_id is not None:
                ended = JobEnded(at=self._clock.now(), state=JobState.FINISHED, step=report.step)
                await self._migrate.apply(job.migration_id, ended)
                continue
            told = message(
                "job.finished",
                job,
                self._clock.now(),
                message_id=f"{job.job_id}.finished",
                deployment=self._deployment,
                step=report.step,
            )
            try:
                await self._store.commit(Change(job=replace(job, state=JobState.FINISHED), messages=(told,)))
            except VersionConflict:
                continue
            log.info("job.finished", extra={"job_id": job.job_id, "step": report.step})
            return
        raise VersionConflict(f"{report.job_id} is being changed too fast")
