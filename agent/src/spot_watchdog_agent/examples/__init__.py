"""Runnable training jobs that use the agent."""
