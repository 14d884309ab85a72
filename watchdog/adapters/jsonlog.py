"""Logs as events with fields: one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record carries; the rest came with `extra`."""


class JsonFormatter(logging.Formatter):
    """Writes a record as JSON: instant (UTC), level, event, logger, then the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; fields that JSON does not know are written as text."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        for name, value in vars(record).items():
            if name not in _STANDARD:
                line[f"{name}_" if name in line else name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str, skipkeys=True)


def configure(level: int | str = logging.INFO, stream: TextIO | None = None) -> None:
    """Send every log record of the process to `stream` (standard error if none is given) as JSON lines."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # A line per request of a library says nothing that our own events and metrics do not.
    for library in ("botocore", "boto3", "urllib3", "httpx2", "apscheduler"):
        logging.getLogger(library).setLevel(logging.WARNING)
