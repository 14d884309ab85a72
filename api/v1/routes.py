"""The REST API for schedulers and people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response, status

from api.auth import Operator, Service
from api.problems import ProblemRaised, responses
from api.v1.schemas import DecisionOut, JobIn, JobOut, JournalEntryOut, Listed, MigrationOut, NoticeOut
from watchdog.bootstrap import App
from watchdog.ids import JobId, MigrationId
from watchdog.migration.agent import AgentReport
from watchdog.migration.model import Job

router = APIRouter(prefix="/v1")

_COMMON = ("unauthenticated", "store-unavailable")
JobFilter = Annotated[str | None, Query(description="Only what concerns this job.")]


@router.post(
    "/jobs",
    tags=["jobs"],
    operation_id="register_job",
    summary="Register a job and launch it",
    status_code=status.HTTP_201_CREATED,
    responses=responses(
        *_COMMON,
        "idempotency-key-missing",
        "idempotency-key-reused",
        "job-rejected",
        "validation-failed",
        "checkpoint-store-unavailable",
        "checkpoint-store-unsuitable",
    ),
)
async def register_job(
    body: JobIn,
    app: Service,
    principal: Operator,
    response: Response,
    idempotency_key: Annotated[
        str | None, Header(max_length=255, description="Names this request: sent again with the same key it makes no second job.")
    ] = None,
) -> JobOut:
    """Register a job. The service creates its register in the checkpoint store and launches its first instance.

    The same key and the same body answer with the job as it is now (`Idempotent-Replayed: true`); the same key with another body is refused.
    """
    key = (idempotency_key or "").strip().strip('"')
    if not key:
        raise ProblemRaised("idempotency-key-missing", "send an Idempotency-Key header, e.g. a UUID that you keep for retries")
    registration = await app.jobs.register(body.to_spec(), principal=principal, idempotency_key=key)
    response.headers["Location"] = f"/v1/jobs/{registration.job.job_id}"
    if registration.replayed:
        response.headers["Idempotent-Replayed"] = "true"
    return await _job_out(app, registration.job)


@router.get("/jobs", tags=["jobs"], operation_id="list_jobs", summary="List jobs", responses=responses(*_COMMON))
async def list_jobs(app: Service, _: Operator) -> Listed[JobOut]:
    """Return the newest jobs."""
    return Listed(items=[await _job_out(app, job) for job in await app.store.jobs()])


@router.get("/jobs/{job_id}", tags=["jobs"], operation_id="get_job", summary="Read a job", responses=responses(*_COMMON, "not-found"))
async def get_job(job_id: str, app: Service, _: Operator) -> JobOut:
    """Return one job: where it runs, what its agent reported last."""
    return await _job_out(app, await app.store.job(JobId(job_id)))


@router.delete(
    "/jobs/{job_id}", tags=["jobs"], operation_id="cancel_job", summary="Cancel a job", responses=responses(*_COMMON, "not-found", "busy")
)
async def cancel_job(job_id: str, app: Service, _: Operator) -> JobOut:
    """Cancel a job: its agent stops, its instances are ended. Its checkpoints stay. Cancelling twice is no error."""
    return await _job_out(app, await app.jobs.cancel(JobId(job_id)))


@router.get("/migrations", tags=["migrations"], operation_id="list_migrations", summary="List migrations", responses=responses(*_COMMON))
async def list_migrations(app: Service, _: Operator, job_id: JobFilter = None) -> Listed[MigrationOut]:
    """Return the newest migrations with their steps, attempts, plan and reasons."""
    found = await app.store.migrations(JobId(job_id) if job_id else None)
    return Listed(items=[MigrationOut.of(each) for each in found])


@router.get(
    "/migrations/{migration_id}",
    tags=["migrations"],
    operation_id="get_migration",
    summary="Read a migration",
    responses=responses(*_COMMON, "not-found"),
)
async def get_migration(migration_id: str, app: Service, _: Operator) -> MigrationOut:
    """Return one migration."""
    return MigrationOut.of(await app.store.migration(MigrationId(migration_id)))


@router.get(
    "/migrations/{migration_id}/journal",
    tags=["migrations"],
    operation_id="get_migration_journal",
    summary="Read every fact of a migration",
    responses=responses(*_COMMON, "not-found"),
)
async def get_journal(migration_id: str, app: Service, _: Operator) -> Listed[JournalEntryOut]:
    """Return the facts in the order in which they were stored, oldest first."""
    await app.store.migration(MigrationId(migration_id))
    return Listed(items=[JournalEntryOut.of(each) for each in await app.store.journal(MigrationId(migration_id))])


@router.get("/notices", tags=["notices"], operation_id="list_notices", summary="List notices", responses=responses(*_COMMON))
async def list_notices(app: Service, _: Operator, job_id: JobFilter = None) -> Listed[NoticeOut]:
    """Return the newest notices about our instances, each merged from all channels that told of it."""
    found = await app.store.notices()
    if job_id is not None:
        found = [each for each in found if await app.store.owner_of(each.instance_id) == job_id]
    return Listed(items=[NoticeOut.of(each) for each in found])


@router.get("/decisions", tags=["decisions"], operation_id="list_decisions", summary="List decisions", responses=responses(*_COMMON))
async def list_decisions(app: Service, _: Operator, job_id: JobFilter = None) -> Listed[DecisionOut]:
    """Return the newest decisions, with what the policy was asked and what it answered."""
    return Listed(items=[DecisionOut.of(each) for each in await app.store.decisions(JobId(job_id) if job_id else None)])


async def _job_out(app: App, job: Job) -> JobOut:
    reports = await app.store.reports(job.job_id)
    return JobOut.of(job, _of_owner(job, reports.values()))


def _of_owner(job: Job, reports: Iterable[AgentReport]) -> AgentReport | None:
    """Return the owner's latest report, else the latest of any agent of the job."""
    owner = job.member.instance_id if job.member else None
    return max(reports, key=lambda report: (report.instance_id == owner, report.received_at), default=None)
