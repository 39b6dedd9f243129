"""`Tables`: what checks share, while several of them run."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from spark_jobs.tables import Tables

ASKERS = 4


def test_what_checks_ask_for_at_once_is_made_once():
    """Goal: no pass over the log is made twice because two checks want it. Method: threads that ask together."""
    nobody: Any = None
    tables = Tables(nobody, [])
    made: list[object] = []
    ready = threading.Barrier(ASKERS)

    def make() -> object:
        time.sleep(0.05)
        made.append(object())
        return made[-1]

    def ask(_: int) -> object:
        ready.wait(10)
        return tables.once("outer", lambda: tables.once("inner", make))  # what is made may need what is made

    with ThreadPoolExecutor(ASKERS) as pool:
        given = list(pool.map(ask, range(ASKERS)))
    assert len(made) == 1
    assert given == made * ASKERS
