"""The FastAPI application over a running service."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api import ops, problems
from api.agent_v1 import routes as agent_v1
from api.v1 import routes as v1
from watchdog.bootstrap import App

TITLE = "Spot Watchdog"
VERSION = "0.1.0"
_TAGS = [
    {"name": "jobs", "description": "Training jobs under our care."},
    {"name": "migrations", "description": "How jobs move: steps, attempts, plan, reasons, journal."},
    {"name": "notices", "description": "What AWS said about our instances."},
    {"name": "decisions", "description": "Why the service did what it did."},
    {"name": "agent", "description": "The agents' own contract, versioned apart."},
    {"name": "operations", "description": "Health, readiness, metrics; public."},
]


def create_app(service: App | None) -> FastAPI:
    """Return the application; without a service it can only describe itself."""
    app = FastAPI(title=TITLE, version=VERSION, summary="Keeps GPU jobs alive on AWS Spot.", openapi_tags=_TAGS)
    app.state.service = service
    problems.install(app)
    app.include_router(v1.router)
    app.include_router(agent_v1.router)
    app.include_router(ops.router)

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]
    return app


def _describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document; FastAPI's own 422 shape gives way to ours, since every error is a problem."""
    document = get_openapi(
        title=app.title, version=app.version, summary=app.summary, routes=app.routes, tags=app.openapi_tags, servers=[{"url": "/"}]
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    template = "#/components/schemas/{model}"
    described = problems.Problem.model_json_schema(ref_template=template)
    schemas.update(described.pop("$defs", {}))
    schemas["Problem"] = described
    for path in document["paths"].values():
        for operation in path.values():
            fallback = operation["responses"].get("422", {}).get("content", {})
            if "application/json" in fallback:
                operation["responses"]["422"] = problems.responses("validation-failed")[422]
    return document
