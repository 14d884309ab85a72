"""`PUT /agent/v1/jobs/{job_id}/agents/{incarnation}`: the agent says what is, the answer says what should be."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field

from api.auth import AgentOf, Service
from api.problems import Superseded, responses
from watchdog.errors import StoreUnavailable, VersionConflict
from watchdog.ids import Incarnation, InstanceId
from watchdog.migration.agent import AgentReport, Desired, Phase
from watchdog.migration.model import CheckpointRef

router = APIRouter(prefix="/agent/v1", tags=["agent"])

PROTOCOL = 1
_CHARACTERS = 4000


def _cut(value: Any) -> Any:
    """Shorten a long text: a report is the whole truth about an agent and must not be lost over the length of an error."""
    return f"{value[:_CHARACTERS]} …" if isinstance(value, str) and len(value) > _CHARACTERS else value


Said = Annotated[str, BeforeValidator(_cut)]


class CheckpointIn(BaseModel):
    """The newest checkpoint that this agent committed."""

    step: Annotated[int, Field(ge=0)]
    fencing_token: Annotated[int, Field(ge=0)]
    manifest_key: str
    manifest_sha256: str
    bytes: Annotated[int, Field(ge=0)]
    reason: Literal["periodic", "notice", "requested", "final"]
    started_at: AwareDatetime
    committed_at: AwareDatetime


class ReportIn(BaseModel):
    """What an agent says of itself. Unknown fields of newer agents are ignored."""

    protocol: Literal[1]
    instance_id: str | None = None
    availability_zone_id: str | None = None
    address: str | None = None
    node_rank: Annotated[int, Field(ge=0)] = 0
    phase: Phase
    fencing_token: Annotated[int, Field(ge=0)] | None = None
    step: Annotated[int, Field(ge=0)] | None = None
    resumed_from_step: Annotated[int, Field(ge=0)] | None = None
    notices: list[dict[str, Any]] = []
    checkpoint: CheckpointIn | None = None
    handled_generation: Annotated[int, Field(ge=0)] = 0
    save_error: Said | None = None
    metadata: Literal["watching", "blind", "absent"] = "absent"
    message: Said | None = None
    sent_at: AwareDatetime


class DirectiveOut(BaseModel):
    """What the agent should do."""

    protocol: int
    generation: int = Field(description="Grows with every save that is asked for; each is done once.")
    desired: Desired
    take_over_from: int | None = Field(description="The token that this agent may take over from; null: not granted.")
    hazard_rate_per_hour: float | None = Field(description="Interruptions per hour that the service expects; null: unknown.")
    report_again_seconds: float


@router.put(
    "/jobs/{job_id}/agents/{incarnation}",
    operation_id="put_agent_report",
    summary="Report what is, hear what should be",
    responses=responses("unauthenticated", "not-found", "superseded", "validation-failed", "store-unavailable"),
)
async def put_report(
    body: ReportIn, app: Service, job_id: AgentOf, incarnation: Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
) -> DirectiveOut:
    """Take one report. It may come as often as the agent likes; the same report twice is no news."""
    try:
        directive, superseded = await app.agents.report(_report(body, job_id, incarnation, received_at=app.clock.now()))
    except VersionConflict as error:
        # To an agent a 409 means that it has lost the job; this only means: say it again.
        raise StoreUnavailable(str(error)) from error
    if superseded:
        raise Superseded("another instance owns this job: stop training and do not write")
    return DirectiveOut(
        protocol=PROTOCOL,
        generation=directive.generation,
        desired=directive.desired,
        take_over_from=directive.take_over_from,
        hazard_rate_per_hour=None,
        report_again_seconds=directive.report_again_seconds,
    )


def _report(body: ReportIn, job_id: AgentOf, incarnation: str, *, received_at: datetime) -> AgentReport:
    checkpoint = CheckpointRef(**body.checkpoint.model_dump()) if body.checkpoint else None
    return AgentReport(
        job_id=job_id,
        incarnation=Incarnation(incarnation),
        instance_id=InstanceId(body.instance_id) if body.instance_id else None,
        phase=body.phase,
        received_at=received_at,
        sent_at=body.sent_at,
        node_rank=body.node_rank,
        availability_zone_id=body.availability_zone_id,
        address=body.address,
        fencing_token=body.fencing_token,
        step=body.step,
        resumed_from_step=body.resumed_from_step,
        notices=tuple(body.notices),
        checkpoint=checkpoint,
        handled_generation=body.handled_generation,
        save_error=body.save_error,
        metadata=body.metadata,
        message=body.message,
    )
