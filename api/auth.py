"""Who may call: a bearer token for the REST API, one per job for its agents. An endpoint without one of these is public."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.problems import ProblemRaised
from watchdog.bootstrap import App
from watchdog.ids import JobId

_bearer = HTTPBearer(auto_error=False, description="The API token, or for `/agent/v1` the job's agent token.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def service(request: Request) -> App:
    """Return the running service."""
    app: App = request.app.state.service
    return app


Service = Annotated[App, Depends(service)]


def _operator(app: Service, credentials: Credentials) -> str:
    expected = app.settings.api_token.get_secret_value()
    if credentials is None or not hmac.compare_digest(credentials.credentials.encode(), expected.encode()):
        raise ProblemRaised("unauthenticated", "send the API token as `Authorization: Bearer …`")
    return "operator"


def _agent(app: Service, credentials: Credentials, job_id: Annotated[str, Path()]) -> JobId:
    if credentials is None or not app.environment.accepts(JobId(job_id), credentials.credentials):
        raise ProblemRaised("unauthenticated", "send the job's own agent token as `Authorization: Bearer …`")
    return JobId(job_id)


Operator = Annotated[str, Depends(_operator)]
"""The principal of a REST call."""
AgentOf = Annotated[JobId, Depends(_agent)]
"""The job whose agent calls."""
