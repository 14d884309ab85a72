"""`python -m watchdog.emulator`."""

import sys

from watchdog.emulator.server import main

sys.exit(main())
