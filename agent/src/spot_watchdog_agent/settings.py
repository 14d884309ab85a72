"""What the agent is told through its environment (docs/protocols.md, section 2)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from spot_watchdog_agent.errors import SettingsInvalid

DEFAULT_CHECKPOINT_SECONDS = 600.0
STAND_ALONE_JOB = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Where this agent belongs to."""

    job_id: str
    incarnation: str
    """New for every process: the owner that HEAD names."""
    store_url: str
    service_url: str | None
    """None: stand-alone."""
    agent_token: str | None
    take_over_from: int | None
    checkpoint_seconds: float

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None, *, store: str | os.PathLike[str], checkpoint_seconds: float | None
    ) -> AgentSettings:
        """Read the variables; where they say nothing, the arguments count. Raises SettingsInvalid."""
        variables = os.environ if environment is None else environment

        def variable(name: str) -> str | None:
            return variables.get(f"SPOT_WATCHDOG_{name}") or None

        service_url, job_id = variable("SERVICE_URL"), variable("JOB_ID")
        if service_url and not (job_id and variable("STORE_URL")):
            raise SettingsInvalid("With SPOT_WATCHDOG_SERVICE_URL, SPOT_WATCHDOG_JOB_ID and SPOT_WATCHDOG_STORE_URL are needed too.")
        if service_url and not service_url.startswith(("http://", "https://")):
            raise SettingsInvalid(f"SPOT_WATCHDOG_SERVICE_URL is {service_url!r}; it begins with http:// or https://.")
        try:
            take_over_from = int(text) if (text := variable("TAKE_OVER_FROM")) else None
            seconds = float(text) if (text := variable("CHECKPOINT_SECONDS")) else checkpoint_seconds
        except ValueError as error:
            raise SettingsInvalid(f"SPOT_WATCHDOG_TAKE_OVER_FROM or SPOT_WATCHDOG_CHECKPOINT_SECONDS is no number: {error}.") from error
        if seconds is None:
            seconds = DEFAULT_CHECKPOINT_SECONDS
        if not seconds > 0:
            raise SettingsInvalid(f"checkpoint_seconds is {seconds}; it must be more than 0.")
        return cls(
            job_id=job_id or STAND_ALONE_JOB,
            incarnation=f"inc_{uuid.uuid4().hex}",
            store_url=variable("STORE_URL") or os.fspath(store),
            service_url=service_url.rstrip("/") if service_url else None,
            agent_token=variable("AGENT_TOKEN"),
            take_over_from=take_over_from,
            checkpoint_seconds=seconds,
        )
