"""`python -m pymq.store.dump SOURCE TARGET`."""

from __future__ import annotations

import signal
import sys

from pymq.store.dump.cli import main

if __name__ == "__main__":
    # Who is told to end gives the broker its files back first, as at Ctrl-C; a killed one's lease has to expire.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
