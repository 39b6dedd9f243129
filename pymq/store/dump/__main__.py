"""`python -m pymq.store.dump SOURCE TARGET`."""

from __future__ import annotations

import sys

from pymq.store.dump.cli import main

if __name__ == "__main__":
    sys.exit(main())
