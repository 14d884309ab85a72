"""What a new instance is told: its user data, its tags, and the token with which its agent speaks to us."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shlex
from dataclasses import dataclass

from watchdog.ids import JobId
from watchdog.migration.model import Attempt, Job, Migration
from watchdog.ports import HeadRegister

AGENT_TOKEN_PREFIX = "swa_"  # noqa: S105 - a prefix that secret scanners can look for, not a secret


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEnvironment:
    """Renders user data. Pure: the same job always gets the same text, which an EC2 client token demands of a repeated call."""

    deployment: str
    service_url: str
    agent_key: bytes
    """Agents' tokens are derived from this, so that none has to be stored."""
    heads: HeadRegister

    def token(self, job_id: JobId) -> str:
        """Return the bearer token of the job's agents, good for `/agent/v1` of this job only."""
        digest = hmac.new(self.agent_key, f"{self.deployment}/{job_id}".encode(), hashlib.sha256).digest()
        return AGENT_TOKEN_PREFIX + base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def accepts(self, job_id: JobId, token: str) -> bool:
        """Return whether `token` is the one of this job's agents."""
        return hmac.compare_digest(self.token(job_id).encode(), token.encode())

    def user_data(self, job: Job) -> str:
        """Return the script that an instance of this job runs at boot (docs/protocols.md, section 2)."""
        exports = {
            "SPOT_WATCHDOG_JOB_ID": job.job_id,
            "SPOT_WATCHDOG_STORE_URL": self.heads.agent_url(job.job_id),
            "SPOT_WATCHDOG_SERVICE_URL": self.service_url,
            "SPOT_WATCHDOG_AGENT_TOKEN": self.token(job.job_id),
        }
        if job.spec.checkpoint_seconds is not None:
            exports["SPOT_WATCHDOG_CHECKPOINT_SECONDS"] = f"{job.spec.checkpoint_seconds:g}"
        lines = [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
        return "\n".join(("#!/bin/sh", *lines, f"exec {shlex.join(job.spec.command)}", ""))

    def tags(self, job: Job, migration: Migration, attempt: Attempt) -> dict[str, str]:
        """Return what marks an instance as ours, so that it is found after any crash. The adapter adds the tags of the deployment."""
        return {
            "spot-watchdog:job-id": job.job_id,
            "spot-watchdog:migration-id": migration.migration_id,
            "spot-watchdog:attempt": str(attempt.number),
        }
