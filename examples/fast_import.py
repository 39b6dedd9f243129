"""Sending fast: send_many, ASYNC_FLUSH, one flush at the end.

ASYNC_FLUSH acknowledges from the page cache: a kill of the process loses nothing, a power failure may lose the last
half second. Here flush() at the end makes all of it durable at once.

Run it: python examples/fast_import.py [directory]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pymq


def main(directory: str, count: int = 200_000) -> None:
    """Import many messages over four queues."""
    config = pymq.config_for(Path(directory), flush_disk_type="ASYNC_FLUSH")
    with pymq.open(directory, config) as mq:
        bodies = [b"line %d" % number for number in range(count)]
        begin = time.perf_counter()
        results = mq.send_many("lines", bodies, queue_id=[0, 1, 2, 3])
        mq.flush()
        seconds = time.perf_counter() - begin
        print(f"{len(results):,} messages in {seconds:.2f} s, durable; the last is {results[-1].message_id}")
        print("in the queues:", [queue.max_offset for queue in mq.queues("lines")])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="pymq-"))
