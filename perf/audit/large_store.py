"""A store of any size to audit: about two million messages a GiB, over many queues, with keys and tags."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pymq

GIB = 1 << 30
BODY_SIZE = 300  # with UNIQ_KEY, KEYS and TAGS a record of about 512 bytes
TOPICS, QUEUES = 8, 8
BATCH = 10_000
SEED = 20_261_117


def messages(randomness: random.Random) -> list[pymq.Message]:
    """A batch to send again and again; the store gives every copy a UNIQ_KEY of its own."""
    return [
        pymq.Message(
            body=randomness.randbytes(BODY_SIZE),
            tags=f"Tag{number % 4}",
            keys=(f"order-{randomness.getrandbits(40)}",) if number % 4 == 0 else None,
        )
        for number in range(BATCH)
    ]


def make_store(path: Path, size: int, say: Callable[[str], None]) -> int:
    """Write at least *size* bytes of log under *path*, with files as large as a broker's, and stop; how many messages.

    A directory that holds a log of that size already is taken as it is.
    """
    done = path / f"made-{size}"
    if done.exists():
        return int(done.read_text(encoding="ascii"))
    shutil.rmtree(path, ignore_errors=True)
    batch, count, written = messages(random.Random(SEED)), 0, 0
    with pymq.open(path, config=pymq.StoreConfig(flush_disk_type="ASYNC_FLUSH")) as store:
        while written < size:
            place = count // BATCH
            results = store.send_many(f"audit-{place % TOPICS}", batch, queue_id=place // TOPICS % QUEUES)
            count, written = count + BATCH, results[-1].physical_offset
            if place % 200 == 199:
                say(f"{written / GIB:.1f} GiB, {count:,} messages")
    done.write_text(str(count), encoding="ascii")
    return count
