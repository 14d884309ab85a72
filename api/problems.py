"""Errors on the wire: RFC 9457, all types in one table."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from watchdog.errors import (
    CheckpointStoreUnavailable,
    CheckpointStoreUnsuitable,
    CloudUnavailable,
    JobRejected,
    NotFound,
    StoreUnavailable,
    VersionConflict,
)
from watchdog.services.jobs import IdempotencyKeyReused

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
DOCUMENTED_AT = "urn:spot-watchdog:problem:"


class Superseded(Exception):
    """Another instance owns the job."""


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One kind of problem."""

    name: str
    status: int
    title: str
    raised_as: type[Exception] | None = None
    retry_after_seconds: int | None = None


PROBLEMS = (
    ProblemType("validation-failed", 422, "The request's content cannot be accepted", RequestValidationError),
    ProblemType("job-rejected", 422, "The job's specification cannot be accepted", JobRejected),
    ProblemType("idempotency-key-reused", 422, "This idempotency key belongs to another request", IdempotencyKeyReused),
    ProblemType("idempotency-key-missing", 400, "An Idempotency-Key header is needed"),
    ProblemType("unauthenticated", 401, "A valid bearer token is needed"),
    ProblemType("not-found", 404, "There is no such thing", NotFound),
    ProblemType("superseded", 409, "Another instance owns this job now", Superseded),
    ProblemType("busy", 409, "The job is being changed by somebody else; try again", VersionConflict, 1),
    ProblemType("store-unavailable", 503, "The working record (Redis) does not answer", StoreUnavailable, 1),
    ProblemType("checkpoint-store-unavailable", 503, "The checkpoint store does not answer", CheckpointStoreUnavailable, 1),
    ProblemType("checkpoint-store-unsuitable", 503, "The checkpoint store cannot fence jobs", CheckpointStoreUnsuitable),
    ProblemType("cloud-unavailable", 503, "AWS does not answer or throttles", CloudUnavailable, 1),
    ProblemType("not-ready", 503, "The service is not ready", None, 1),
)
_BY_NAME = {problem.name: problem for problem in PROBLEMS}


class FieldFault(BaseModel):
    """One fault in a request."""

    pointer: str = Field(description="JSON pointer to the field at fault.", examples=["/instance_types/0"])
    detail: str = Field(description="What is wrong with it.", examples=["EC2 knows no instance type 'p99.48xlarge' in this Region"])


class Problem(BaseModel):
    """An error, as RFC 9457 describes it."""

    type: str = Field(
        description="Which kind of problem; docs/problems.md lists them.", examples=["urn:spot-watchdog:problem:job-rejected"]
    )
    title: str = Field(description="The kind of problem in words; the same for every occurrence.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What happened here, for people; do not parse it.")
    errors: list[FieldFault] | None = Field(default=None, description="The fields at fault.")


class ProblemRaised(Exception):
    """A problem that no error of the service stands for."""

    def __init__(self, name: str, detail: str, *, errors: list[dict[str, str]] | None = None) -> None:
        """Raise the problem `name` of the table."""
        super().__init__(detail)
        self.name = name
        self.errors = errors


def responses(*names: str) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of these problems for an endpoint's `responses=`."""
    documented: dict[int | str, dict[str, Any]] = {}
    for name in names:
        problem = _BY_NAME[name]
        before = documented.get(problem.status, {}).get("description")
        text = f"{before}; or: {problem.title}" if before else problem.title
        documented[problem.status] = {"description": text, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    return documented


def install(app: FastAPI) -> None:
    """Make every error of `app` a problem."""
    for problem in PROBLEMS:
        if problem.raised_as is not None:
            app.add_exception_handler(problem.raised_as, _handler_of(problem))
    app.add_exception_handler(ProblemRaised, _raised)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def _handler_of(problem: ProblemType) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    async def handler(_: Request, error: Exception) -> JSONResponse:
        return _answer(problem, str(error) or problem.title, _faults(error))

    return handler


async def _raised(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, ProblemRaised):
        raise error
    return _answer(_BY_NAME[error.name], str(error), error.errors)


async def _http(_: Request, error: Exception) -> JSONResponse:
    """Answer what the framework itself refuses: unknown paths, wrong methods."""
    if not isinstance(error, HTTPException):
        raise error
    return _response("about:blank", str(error.detail), error.status_code, str(error.detail), None, dict(error.headers or {}))


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("request.fault", exc_info=error, extra={"method": request.method, "path": request.url.path})
    return _response("about:blank", "Internal error", 500, "This is a fault of the service; it was logged.", None, {})


def _answer(problem: ProblemType, detail: str, errors: list[dict[str, str]] | None) -> JSONResponse:
    headers = {"Retry-After": str(problem.retry_after_seconds)} if problem.retry_after_seconds else {}
    if problem.status == status.HTTP_401_UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return _response(DOCUMENTED_AT + problem.name, problem.title, problem.status, detail, errors, headers)


def _faults(error: Exception) -> list[dict[str, str]] | None:
    match error:
        case JobRejected():
            return [{"pointer": fault.pointer, "detail": fault.detail} for fault in error.faults]
        case RequestValidationError():
            return [{"pointer": _pointer(each["loc"]), "detail": each["msg"].removeprefix("Value error, ")} for each in error.errors()]
        case _:
            return None


def _pointer(location: tuple[Any, ...]) -> str:
    return "".join(f"/{part}" for part in location[1:]) if location[:1] == ("body",) else "/".join(str(part) for part in location)


def _response(
    kind: str, title: str, code: int, detail: str, errors: list[dict[str, str]] | None, headers: Mapping[str, str]
) -> JSONResponse:
    body: dict[str, Any] = {"type": kind, "title": title, "status": code, "detail": detail}
    if errors is not None:
        body["errors"] = errors
        body["detail"] = "; ".join(f"{fault['pointer']}: {fault['detail']}" for fault in errors) or detail
    return JSONResponse(body, status_code=code, media_type=MEDIA_TYPE, headers=dict(headers))
