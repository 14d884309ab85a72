"""The agents' side of the service: take a report, learn from it, answer what should be."""

from __future__ import annotations

import logging
from dataclasses import replace

from watchdog.clock import Clock
from watchdog.errors import VersionConflict
from watchdog.ids import InstanceId
from watchdog.migration.agent import AgentReport, Directive, Phase, directive_for, facts_from, is_superseded
from watchdog.migration.facts import JobEnded
from watchdog.migration.model import Job, JobState, Migration
from watchdog.notices.imds import parse_entry
from watchdog.notices.model import MalformedMessage
from watchdog.ports import Change, Store, Telemetry
from watchdog.services.announce import message
from watchdog.services.ingest import IngestService
from watchdog.services.migrate import MigrateService

log = logging.getLogger(__name__)


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
        job = await self._store.job(report.job_id)
        await self._store.put_report(report)
        await self._take_notices(report)
        if report.phase is Phase.FINISHED:
            await self._finished(report)
        if report.phase is Phase.FAILED:
            await self._failed(report)
        job = await self._store.job(report.job_id)
        migration = await self._concerned(job, report)
        if migration is not None:
            facts = facts_from(report, job, migration)
            if facts:
                await self._migrate.apply(migration.migration_id, *facts)
                job = await self._store.job(report.job_id)
                migration = await self._store.migration(migration.migration_id)
        return directive_for(job, migration, report), is_superseded(job, report)

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
        for migration in await self._store.migrations(job.job_id):
            if migration.closed_at is None and report.instance_id is not None and migration.has_source(report.instance_id):
                return migration
        return None

    async def _failed(self, report: AgentReport) -> None:
        """Block a running job whose own program failed: it is a person's turn, and a crash is not to look like a reclaim."""
        job = await self._store.job(report.job_id)
        owner = job.member is not None and job.member.instance_id == report.instance_id and not is_superseded(job, report)
        if not owner or job.migration_id is not None or job.state is not JobState.RUNNING:
            return
        why = f"its program failed: {report.message or 'no message'}"
        told = message(
            "job.blocked", job, self._clock.now(), message_id=f"{job.job_id}.failed.{job.version}", deployment=self._deployment, why=why
        )
        await self._store.commit(Change(job=replace(job, state=JobState.BLOCKED, note=why), messages=(told,)))
        log.error("job.blocked", extra={"job_id": job.job_id, "why": why})

    async def _finished(self, report: AgentReport) -> None:
        """Close the job that ran to its end, if it is the owner who says so."""
        for _ in range(20):
            job = await self._store.job(report.job_id)
            if job.state.terminal or is_superseded(job, report):
                return
            if job.migration_id is not None:
                migration = await self._store.migration(job.migration_id)
                facts = facts_from(report, job, migration)
                await self._migrate.apply(job.migration_id, *facts)
                job = await self._store.job(report.job_id)
                if job.migration_id is not None:
                    await self._migrate.apply(job.migration_id, JobEnded(at=self._clock.now(), state=JobState.FINISHED))
                    return
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
