"""For load balancers and Prometheus; unversioned and public."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.auth import Service
from api.problems import ProblemRaised, responses

router = APIRouter(tags=["operations"])


@router.get("/healthz", operation_id="get_health", summary="Is the process alive?")
async def health() -> dict[str, str]:
    """Answer as long as the process can answer at all: a dependency that is down is no reason to restart it."""
    return {"status": "alive"}


@router.get("/readyz", operation_id="get_readiness", summary="Can the service do its work?", responses=responses("not-ready"))
async def readiness(app: Service) -> dict[str, str]:
    """Answer 200 if Redis, the queue and the checkpoint store do; else 503 with what stands in the way."""
    faults = await app.readiness.faults()
    if faults:
        errors = [{"pointer": part, "detail": why} for part, why in sorted(faults.items())]
        raise ProblemRaised("not-ready", "degraded", errors=errors)
    return {"status": "ready"}


@router.get("/metrics", operation_id="get_metrics", summary="Metrics for Prometheus", response_class=Response)
async def metrics(app: Service) -> Response:
    """Return all metrics in Prometheus' text format."""
    return Response(app.telemetry.render(), media_type=app.telemetry.content_type)
