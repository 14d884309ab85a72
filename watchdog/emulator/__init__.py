"""A local AWS with a spot market in it, for the demo and for tests: `python -m watchdog.emulator --run-dir DIR`."""
