"""Use cases: load, decide, apply. They know the ports, never the adapters."""
