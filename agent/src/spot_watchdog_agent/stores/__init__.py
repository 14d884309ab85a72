"""Places that keep checkpoints."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from spot_watchdog_agent.errors import SettingsInvalid
from spot_watchdog_agent.stores.base import ObjectStore, StoredObject, prove_conditional_writes

__all__ = ["ObjectStore", "StoredObject", "open_store", "prove_conditional_writes"]


def open_store(url: str | os.PathLike[str]) -> ObjectStore:
    """Open `s3://bucket/prefix`, `file:///folder`, or a folder by its path.

    Raises SettingsInvalid.
    """
    text = os.fspath(url)
    scheme, separator, _ = text.partition("://")
    if not separator:
        from spot_watchdog_agent.stores.folder import FolderStore  # noqa: PLC0415  # only what is used is imported

        return FolderStore(text)
    parts = urlsplit(text)
    if scheme == "file":
        from spot_watchdog_agent.stores.folder import FolderStore  # noqa: PLC0415

        return FolderStore(unquote(parts.path))
    if scheme == "s3" and parts.netloc:
        from spot_watchdog_agent.stores.s3 import S3Store  # noqa: PLC0415

        return S3Store(parts.netloc, parts.path.strip("/"))
    raise SettingsInvalid(f"{text!r} is no place for checkpoints: use s3://bucket/prefix, file:///folder or a path.")
