"""Checkpoints in Amazon S3 and stores that speak its protocol, through obstore."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from spot_watchdog_agent.errors import (
    ConditionFailed,
    MetadataUnavailable,
    ObjectMissing,
    SettingsInvalid,
    StoreRefused,
    StoreUnavailable,
)
from spot_watchdog_agent.imds import InstanceMetadata
from spot_watchdog_agent.stores.base import Buffer, StoredObject

if TYPE_CHECKING:
    from obstore.store import S3Credential

_READ_RANGE_BYTES = 16 * 1024 * 1024
"""AWS's advice for throughput is ranges of 8 to 16 MB (S3 User Guide, "Performance design patterns")."""
_READ_CONNECTIONS = 8
_PART_BYTES = 16 * 1024 * 1024
_MOST_PARTS = 9_000
"""S3 allows 10,000 parts in an upload."""


class S3Store:
    """One prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str) -> None:
        """Use `s3://bucket/prefix`, with region, endpoint and credentials from the environment, else from the instance's metadata.

        Raises:
            SettingsInvalid: obstore is not installed, or no region can be found.
        """
        try:
            # Imported late: a job that keeps its checkpoints in a folder never pays for it.
            import obstore  # noqa: PLC0415
            import obstore.exceptions  # noqa: PLC0415
            import obstore.store  # noqa: PLC0415
        except ImportError as error:
            raise SettingsInvalid("Checkpoints in S3 need obstore: pip install 'spot-watchdog-agent[s3]'") from error
        self._obstore = obstore
        self._url = f"s3://{bucket}/{prefix}"
        metadata = InstanceMetadata.from_environment()
        settings: dict[str, Any] = {"region": _region(metadata)}
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if endpoint:
            settings |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
        if not os.environ.get("AWS_ACCESS_KEY_ID"):
            if metadata is None:
                raise SettingsInvalid("There are no AWS credentials: set AWS_ACCESS_KEY_ID, or allow instance metadata.")
            settings["credential_provider"] = InstanceRoleCredentials(metadata)
        self._store = obstore.store.S3Store(
            bucket,
            prefix=prefix or None,
            client_options={"allow_http": bool(endpoint and endpoint.startswith("http://")), "connect_timeout": "5s", "timeout": "60s"},
            # Short, since callers have their own retries and a notice leaves two minutes.
            retry_config={
                "max_retries": 3,
                "retry_timeout": timedelta(seconds=30),
                "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3), "base": 2},
            },
            **settings,
        )

    def __repr__(self) -> str:
        return f"S3Store({self._url!r})"

    def get(self, key: str) -> StoredObject:
        """Return a small object."""
        with self._translated(key):
            answer = self._store.get(key)
            return StoredObject(data=bytes(answer.bytes()), etag=answer.meta["e_tag"] or "")

    def create(self, key: str, data: bytes) -> str:
        """Write an object with `If-None-Match: *`."""
        with self._translated(key):
            return self._store.put(key, data, mode="create", use_multipart=False)["e_tag"] or ""

    def replace(self, key: str, data: bytes, *, etag: str) -> str:
        """Replace an object with `If-Match`."""
        with self._translated(key):
            return self._store.put(key, data, mode={"e_tag": etag}, use_multipart=False)["e_tag"] or ""

    def write(self, key: str, data: Buffer) -> None:
        """Upload a large object in parts, and look that all of it arrived."""
        with self._translated(key):
            # Unconditional: a 409 on a conditional CompleteMultipartUpload means uploading everything again (S3 User Guide).
            self._store.put(key, data, chunk_size=max(_PART_BYTES, len(data) // _MOST_PARTS + 1))
            # S3-compatible stores have answered 200 with parts missing (mlcommons/storage#593).
            size = self._store.head(key)["size"]
        if size != len(data):
            raise StoreUnavailable(f"{key} has {size} bytes in the store instead of {len(data)}.")

    def read_into(self, key: str, buffer: memoryview) -> int:
        """Fill `buffer` from an object, over several connections if it is large."""
        with self._translated(key):
            size = int(self._store.head(key)["size"])
            wanted = min(size, len(buffer))

            def fetch(start: int) -> None:
                end = min(start + _READ_RANGE_BYTES, wanted)
                buffer[start:end] = memoryview(self._store.get_range(key, start=start, end=end))

            starts = range(0, wanted, _READ_RANGE_BYTES)
            if len(starts) <= 1:
                for start in starts:
                    fetch(start)
            else:
                with ThreadPoolExecutor(_READ_CONNECTIONS) as pool:
                    list(pool.map(fetch, starts))
            return size

    def delete(self, key: str) -> None:
        """Delete an object."""
        with self._translated(key):
            self._store.delete(key)

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        exceptions = self._obstore.exceptions
        try:
            yield
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
            raise ConditionFailed(f"{self._url}/{key}: the condition did not hold.") from error
        except FileNotFoundError as error:
            raise ObjectMissing(f"There is no {self._url}/{key}.") from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise StoreRefused(f"{self._url}/{key}: {error}") from error
        except (exceptions.BaseError, MetadataUnavailable, OSError) as error:
            raise StoreUnavailable(f"{self._url}/{key}: {error}") from error


class InstanceRoleCredentials:
    """The credentials of the instance's role, kept until shortly before they end."""

    _RENEW_BEFORE = timedelta(minutes=10)
    """AWS shows new credentials at least five minutes before the old ones expire (EC2 User Guide, "IAM roles for Amazon EC2")."""

    def __init__(self, metadata: InstanceMetadata) -> None:
        """Ask `metadata` for the role and its credentials when they are first needed."""
        self._metadata = metadata
        self._credential: S3Credential | None = None

    def __call__(self) -> S3Credential:
        """Return credentials that are good for some minutes more. Raises MetadataUnavailable."""
        now = datetime.now(timezone.utc)
        credential = self._credential
        if credential is None or credential["expires_at"] is None or credential["expires_at"] - now < self._RENEW_BEFORE:
            try:
                credential = self._credential = self._metadata.role_credentials()
            except MetadataUnavailable:
                # The metadata service has bad moments; credentials that still live are better than none.
                if credential is None or credential["expires_at"] is None or credential["expires_at"] <= now:
                    raise
        return credential


def _region(metadata: InstanceMetadata | None) -> str:
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region:
        return region
    try:
        found = metadata.get("placement/region") if metadata else None
    except MetadataUnavailable as error:
        raise SettingsInvalid(f"No AWS region: AWS_REGION is not set, and instance metadata does not tell ({error}).") from error
    if not found:
        raise SettingsInvalid("No AWS region: set AWS_REGION.")
    return found
