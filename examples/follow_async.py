"""asyncio: many sends that share a flush, and a reader that follows the topic.

Run it: python examples/follow_async.py [directory]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

import pymq


async def follow(mq: pymq.EmbeddedStore, count: int) -> list[bytes]:
    """The next *count* messages of the topic."""
    bodies: list[bytes] = []
    async for message in mq.atail("ticks", "earliest", timeout=10):
        bodies.append(message.body)
        if len(bodies) == count:
            break
    return bodies


async def main(directory: str) -> None:
    """A hundred tasks send, one task reads."""
    with pymq.open(directory) as mq:
        reader = asyncio.create_task(follow(mq, 100))
        # Each awaits its own acknowledgement; all of them together cost a few flushes and no thread.
        results = await asyncio.gather(*(mq.send_async("ticks", b"tick %d" % number) for number in range(100)))
        received = await reader
        print(f"sent {len(results)}, received {len(received)}, first {received[0]!r}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="pymq-")))
