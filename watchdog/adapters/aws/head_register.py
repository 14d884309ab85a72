"""One `HEAD` object per job, guarded by S3's conditional writes (docs/protocols.md, section 1)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from botocore.exceptions import ClientError

from watchdog.adapters.aws.errors import NO_ANSWER, code_of
from watchdog.adapters.aws.session import Aws
from watchdog.errors import CheckpointStoreUnavailable, CheckpointStoreUnsuitable, SettingsInvalid
from watchdog.ids import JobId

log = logging.getLogger(__name__)

_SETTING = "SPOT_WATCHDOG_CHECKPOINT_STORE"
_FORMAT = 1
# S3 User Guide, "Conditional writes": 412 the condition does not hold; 404 If-Match on an object that is gone; 409 another write of the key
# is going on, so the same call may be made again.
_REFUSED = frozenset({"PreconditionFailed", "412", "NoSuchKey"})
_CONFLICT = frozenset({"ConditionalRequestConflict", "409"})
_CONFLICT_WAITS_SECONDS = (0.05, 0.2, 0.5, 1.0)


class S3HeadRegister:
    """`ports.HeadRegister` over S3 or a store that speaks its protocol."""

    def __init__(self, aws: Aws, store_url: str, deployment: str) -> None:
        """Keep everything below `store_url`, which is `s3://bucket` or `s3://bucket/prefix`. Raises SettingsInvalid."""
        url = urlsplit(store_url)
        if url.scheme != "s3" or not url.netloc:
            raise SettingsInvalid(f"{_SETTING} is not s3://bucket or s3://bucket/prefix: {store_url!r}")
        self._aws = aws
        self._bucket = url.netloc
        self._root = "/".join(part for part in (url.path.strip("/"), deployment) if part)

    def agent_url(self, job_id: JobId) -> str:
        """Return the job's own prefix as the agent is told it."""
        return f"s3://{self._bucket}/{self._prefix(job_id)}"

    async def register(self, job_id: JobId, spec: Mapping[str, Any]) -> None:
        """Write the job's spec, then its `HEAD` at fencing token 0. What is there already stays. Raises CheckpointStoreUnavailable."""
        head: dict[str, Any] = {
            "format": _FORMAT,
            "fencing_token": 0,
            "owner": None,
            "nonce": str(uuid4()),
            "checkpoint": None,
            "previous": [],
        }
        with self._store_errors():
            # The spec first: a HEAD says that the job is registered.
            await self._put(f"{self._prefix(job_id)}/spec.json", spec, IfNoneMatch="*")
            await self._put(f"{self._prefix(job_id)}/HEAD", head, IfNoneMatch="*")

    async def read(self, job_id: JobId) -> Mapping[str, Any] | None:
        """Return the job's `HEAD`, or None if there is none. Raises CheckpointStoreUnavailable."""
        with self._store_errors():
            try:
                body = await self._aws.call(self._get, key=f"{self._prefix(job_id)}/HEAD")
            except ClientError as error:
                if code_of(error) != "NoSuchKey":
                    raise
                return None
        try:
            head = json.loads(body)
        except ValueError:
            head = None
        if not isinstance(head, dict):
            raise CheckpointStoreUnavailable(f"{self.agent_url(job_id)}/HEAD is not what we wrote: it holds no JSON object")
        return head

    async def self_test(self) -> None:
        """Prove on a probe object that conditional writes are honoured.

        Raises:
            CheckpointStoreUnsuitable: the store lets a write pass that it must refuse, or does not know such writes.
            CheckpointStoreUnavailable: the store does not answer.
        """
        key = f"{self._root}/probe/{uuid4()}"
        with self._store_errors():
            try:
                await self._probe(key)
            except ClientError as error:
                if code_of(error) in {"NotImplemented", "501"}:
                    raise self._unsuitable("does not know conditional writes") from error
                raise
            finally:
                await self._remove(key)

    async def _probe(self, key: str) -> None:
        first = await self._put(key, {"write": 1}, IfNoneMatch="*")
        if first is None:
            raise CheckpointStoreUnavailable(f"s3://{self._bucket}/{key} exists though its name is new: try again")
        if await self._put(key, {"write": 2}, IfNoneMatch="*") is not None:
            raise self._unsuitable("creates an object that exists (If-None-Match: * is ignored)")
        if await self._put(key, {"write": 3}, IfMatch=first) is None:
            raise self._unsuitable("refuses to replace an object that has not changed (If-Match)")
        if await self._put(key, {"write": 4}, IfMatch=first) is not None:
            raise self._unsuitable("replaces an object that has changed (If-Match is ignored)")

    def _unsuitable(self, what: str) -> CheckpointStoreUnsuitable:
        return CheckpointStoreUnsuitable(
            f"the store at s3://{self._bucket} {what}, so two instances could both own a job. "
            f"Point {_SETTING} at Amazon S3, or at a store that honours If-None-Match and If-Match on PutObject."
        )

    async def _put(self, key: str, content: Mapping[str, Any], **condition: str) -> str | None:
        """Write an object under a condition; return its ETag, or None if the condition does not hold."""
        body = json.dumps(content, separators=(",", ":")).encode()
        for wait in (*_CONFLICT_WAITS_SECONDS, None):
            try:
                written = await self._aws.call(
                    self._aws.s3.put_object, Bucket=self._bucket, Key=key, Body=body, ContentType="application/json", **condition
                )
            except ClientError as error:
                code = code_of(error)
                if code in _REFUSED:
                    return None
                if code not in _CONFLICT or wait is None:
                    raise
                await asyncio.sleep(wait)
            else:
                return written["ETag"]
        raise AssertionError  # the last try returns or raises

    def _get(self, key: str) -> bytes:
        answer = self._aws.s3.get_object(Bucket=self._bucket, Key=key)
        with answer["Body"] as body:
            return body.read()

    async def _remove(self, key: str) -> None:
        try:
            await self._aws.call(self._aws.s3.delete_object, Bucket=self._bucket, Key=key)
        except (ClientError, *NO_ANSWER) as error:
            # Deleting is a right that the service may well not have; a few bytes stay.
            log.info("probe.left_behind", extra={"key": key, "why": str(error)})

    def _prefix(self, job_id: JobId) -> str:
        return f"{self._root}/jobs/{job_id}"

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        try:
            yield
        except (ClientError, *NO_ANSWER) as error:
            raise CheckpointStoreUnavailable(f"the store at s3://{self._bucket}: {error}") from error
