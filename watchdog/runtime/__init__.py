"""What keeps running: the worker's loops and the table of periodic jobs."""
