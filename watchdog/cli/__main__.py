"""`python -m watchdog.cli` is `spot-watchdog`."""

import sys

from watchdog.cli import main

if __name__ == "__main__":
    sys.exit(main())
