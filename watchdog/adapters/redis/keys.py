"""THE list of Redis keys. All of a deployment carry one hash tag, so that one script may touch them on a clustered Redis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one deployment. None has a TTL, so that `volatile-lru` can evict none of them."""

    deployment: str

    def _key(self, name: str) -> str:
        return f"{{{self.deployment}}}:{name}"

    def job(self, job_id: str) -> str:
        """Hash version, body: one job."""
        return self._key(f"job:{job_id}")

    def migration(self, migration_id: str) -> str:
        """Hash version, body: one migration."""
        return self._key(f"migration:{migration_id}")

    @property
    def active_jobs(self) -> str:
        """Set of the ids of jobs that are not over: what every poll goes through."""
        return self._key("active-jobs")

    def open_migrations_of(self, job_id: str) -> str:
        """Set of the ids of one job's migrations that are not closed."""
        return self._key(f"open-migrations-of:{job_id}")

    def notice(self, key: str) -> str:
        """Hash version, body: one notice, merged from all channels."""
        return self._key(f"notice:{key}")

    @property
    def jobs(self) -> str:
        """Sorted set of job ids by creation (ms)."""
        return self._key("jobs")

    @property
    def migrations(self) -> str:
        """Sorted set of migration ids by opening (ms)."""
        return self._key("migrations")

    def migrations_of(self, job_id: str) -> str:
        """Sorted set of one job's migration ids by opening (ms)."""
        return self._key(f"migrations-of:{job_id}")

    @property
    def due(self) -> str:
        """Sorted set of migration ids by the moment they are looked at next (ms)."""
        return self._key("due")

    def journal(self, migration_id: str) -> str:
        """List of one migration's facts, oldest first."""
        return self._key(f"journal:{migration_id}")

    @property
    def events(self) -> str:
        """Stream of all facts of all migrations."""
        return self._key("events")

    @property
    def notices(self) -> str:
        """Sorted set of notice keys by the first sight (ms)."""
        return self._key("notices")

    @property
    def decisions(self) -> str:
        """Sorted set of decision ids by time (ms)."""
        return self._key("decisions")

    @property
    def decision_bodies(self) -> str:
        """Hash decision id -> body."""
        return self._key("decision-bodies")

    @property
    def history(self) -> str:
        """Stream of observations."""
        return self._key("history")

    @property
    def pool_memory(self) -> str:
        """Hash `<pool>|refused_at` or `<pool>|lost_at` -> moment."""
        return self._key("pool-memory")

    @property
    def instances(self) -> str:
        """Hash instance id -> job id, for every instance we ever started."""
        return self._key("instances")

    @property
    def outbox(self) -> str:
        """Sorted set of `<announcer>|<message id>` by the moment of the next try (ms)."""
        return self._key("outbox")

    @property
    def outbox_bodies(self) -> str:
        """Hash `<announcer>|<message id>` -> message."""
        return self._key("outbox-bodies")

    @property
    def outbox_tries(self) -> str:
        """Hash `<announcer>|<message id>` -> how often it was handed out."""
        return self._key("outbox-tries")

    @property
    def readings(self) -> str:
        """Hash poll name -> its latest reading."""
        return self._key("readings")

    def agents(self, job_id: str) -> str:
        """Hash incarnation -> latest report."""
        return self._key(f"agents:{job_id}")
