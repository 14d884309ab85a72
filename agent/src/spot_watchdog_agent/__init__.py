"""Checkpoints for PyTorch jobs on AWS Spot."""

from spot_watchdog_agent.checkpointer import Checkpointer
from spot_watchdog_agent.errors import (
    AgentError,
    AgentExit,
    SaveFailed,
    SettingsInvalid,
    StateMismatch,
    StoreError,
    UnsupportedState,
)

__all__ = [
    "AgentError",
    "AgentExit",
    "Checkpointer",
    "SaveFailed",
    "SettingsInvalid",
    "StateMismatch",
    "StoreError",
    "UnsupportedState",
]
