"""What it costs a job to import the agent, beyond the torch that it has anyway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass

_FOLDER = """
import json, sys, time
import psutil
import torch
memory = psutil.Process().memory_info
before, began = memory().rss, time.perf_counter()
import spot_watchdog_agent
from spot_watchdog_agent.stores import open_store
spot_watchdog_agent.Checkpointer
open_store(sys.argv[1])
print(json.dumps({"ms": 1000 * (time.perf_counter() - began), "mb": (memory().rss - before) / 1e6}))
"""
_S3 = """
import json, sys, time
import spot_watchdog_agent
from spot_watchdog_agent.stores import open_store
began = time.perf_counter()
open_store("s3://bucket/prefix")
print(json.dumps({"ms": 1000 * (time.perf_counter() - began)}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCost:
    """One measurement, each in a fresh process."""

    agent_ms: float
    agent_mb: float
    s3_client_ms: float


def measure() -> ImportCost:
    """Import the agent with a folder as its store, and, apart from that, make an S3 client."""
    with tempfile.TemporaryDirectory() as folder:
        agent = _run(_FOLDER, folder)
        s3 = _run(_S3, folder)
    return ImportCost(agent_ms=agent["ms"], agent_mb=agent["mb"], s3_client_ms=s3["ms"])


def _run(script: str, folder: str) -> dict[str, float]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": folder,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    output = subprocess.run([sys.executable, "-c", script, folder], env=environment, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(output)
    return result
