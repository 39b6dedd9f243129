"""`python -m pymq.broker`."""

from pymq.broker.cli import main

raise SystemExit(main())
