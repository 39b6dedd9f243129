"""A walk through the embedded store: `python -m pymq.demo`, or `make run`.

Opens a store (a temporary one, or the directory given with --data), sends, reads, looks up by key, id and time,
consumes with a group over a restart, follows a topic from a thread and from asyncio, and prints what it did with the
figures it took. Exits 0 when everything was found again.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pymq.embedded import EmbeddedStore, open
from pymq.store.layout import config_for
from pymq.store.message_store import durability_line

MANY = 100_000
BODY_SIZE = 128
SYNC_SENDS = 200
TASKS = 256

Say = Callable[[str], None]


def say_line(text: str) -> None:
    """Print one line of the transcript at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def rate(count: int, seconds: float) -> str:
    """So many a second, readable."""
    return f"{count / seconds:,.0f}/s" if seconds > 0 else "at once"


def send_and_find(mq: EmbeddedStore, say: Say) -> None:
    """One message, found in every way there is."""
    say("\n1. One message, found again in every way")
    result = mq.send("orders", b"one coffee", tags="hot", keys=["order-17", "table-4"], properties={"waiter": "Ada"})
    say(f"   sent      {result.topic} queue {result.queue_id} offset {result.queue_offset}, id {result.message_id}")
    (message,) = mq.read("orders", result.queue_id, result.queue_offset, max_count=1)
    say(f"   read      {message.body!r} tags={message.tags} keys={message.keys} properties={message.properties}")
    by_key = mq.query("orders", "order-17")
    by_id = mq.get_by_id(result.message_id)
    since = datetime.fromtimestamp(result.store_timestamp_ms / 1000, UTC) - timedelta(seconds=1)
    by_time = mq.offset_by_time("orders", result.queue_id, since)
    say(f"   by key    {len(by_key)} message(s), newest {by_key[0].body!r}")
    say(f"   by id     {by_id.body!r}")
    say(f"   by time   first offset since {since:%H:%M:%S} is {by_time}")
    if by_id != message or message not in by_key or by_time > result.queue_offset:
        raise SystemExit("the message was not found again")


def send_many(mq: EmbeddedStore, say: Say) -> None:
    """Rates, each with its promise."""
    say(f"\n2. Rates with bodies of {BODY_SIZE} bytes, durable when the call returns (SYNC_FLUSH)")
    body = b"x" * BODY_SIZE
    begin = time.perf_counter()
    for _ in range(SYNC_SENDS):
        mq.send("rates", body)
    say(f"   send(), one after another     {rate(SYNC_SENDS, time.perf_counter() - begin):>14}")

    async def together() -> None:
        await asyncio.gather(*(mq.send_async("rates", body) for _ in range(TASKS)))

    before = mq.stats().flush_rounds
    begin = time.perf_counter()
    asyncio.run(together())
    seconds, rounds = time.perf_counter() - begin, mq.stats().flush_rounds - before
    say(f"   send_async(), {TASKS} at once      {rate(TASKS, seconds):>14}   ({rounds} flushes for all of them)")
    begin = time.perf_counter()
    mq.send_many("rates", [body] * MANY)
    say(f"   send_many() of {MANY:,}        {rate(MANY, time.perf_counter() - begin):>14}")
    begin = time.perf_counter()
    count = sum(1 for _ in mq.iterate("rates"))
    say(f"   iterate(), CRC checked        {rate(count, time.perf_counter() - begin):>14}   ({count:,} messages)")


def follow(mq: EmbeddedStore, say: Say) -> None:
    """A blocking and an async reader see what arrives."""
    say("\n3. Following a topic while it is written")
    received: list[float] = []

    def reader() -> None:
        for message in tail:
            received.append(time.time() - message.born_timestamp_ms / 1000)
            if len(received) == 5:
                return

    tail = mq.tail("news", timeout=10)
    thread = threading.Thread(target=reader)
    thread.start()
    for number in range(5):
        mq.send("news", b"headline %d" % number, queue_id=number % 2)
    thread.join()
    say(f"   tail()    {len(received)} of 5 headlines over two queues")

    async def watch() -> list[bytes]:
        bodies: list[bytes] = []
        following = mq.atail("news", timeout=10)
        await mq.send_async("news", b"breaking")
        async for message in following:
            bodies.append(message.body)
            break
        return bodies

    say(f"   atail()   {asyncio.run(watch())}")
    if len(received) != 5:
        raise SystemExit("a follower missed messages")


def consume(path: Path, say: Say) -> None:
    """A group reads on where it stopped, in another life of the store."""
    say("\n5. A consumer group over a restart")
    with open(path) as mq:
        group = mq.group("billing")
        group.reset("bills", 0, mq.send("bills", b"bill 0").queue_offset)
        mq.send_many("bills", [b"bill %d" % number for number in range(1, 6)])
        handled = []
        for message in group.consume("bills", timeout=0):
            handled.append(message.body)
            if len(handled) == 3:
                break
        say(f"   before    {handled}; the third was handed out, but not finished")
    with open(path) as mq:
        rest = [message.body for message in mq.group("billing").consume("bills", timeout=0)]
        say(f"   after     {rest}")
        if rest != [b"bill 2", b"bill 3", b"bill 4", b"bill 5"]:
            raise SystemExit("the group did not read on where it stopped")


def figures(mq: EmbeddedStore, say: Say) -> None:
    """How the store stands."""
    stats = mq.stats()
    marks = stats.watermarks
    say("\n4. The store now")
    say(f"   log       {marks.min:,} to {marks.written:,}, flushed to {marks.flushed:,}, visible to {marks.visible:,}")
    say(f"   topics    {', '.join(f'{q.topic}/{q.queue_id} ({q.max_offset:,})' for q in mq.queues())}")
    slow = {label: count for label, count in stats.latency_buckets.items() if count}
    say(f"   puts      {stats.put_count:,} messages, waits {slow}")
    disk = stats.disk.log_ratio
    say(f"   disk      {'unknown' if disk is None else f'{disk:.0%}'} used")


def run(path: Path, say: Say = say_line) -> None:
    """The whole walk in the store under *path*."""
    config = config_for(path)
    say(f"store     {path}")
    say(f"promise   {durability_line(config)}")
    with open(path, config, progress=True) as mq:
        send_and_find(mq, say)
        send_many(mq, say)
        follow(mq, say)
        figures(mq, say)
    consume(path, say)
    say("\nEverything was found again. The directory is an Apache RocketMQ store.")


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and walk."""
    parser = argparse.ArgumentParser(
        prog="python -m pymq.demo",
        description="A walk through the embedded store.",
        epilog="example: python -m pymq.demo --data /tmp/pymq-demo",
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="the store directory; a temporary one when not given")
    parser.add_argument("--verbose", action="store_true", help="show the library's log as well")
    options = parser.parse_args(arguments)
    if options.verbose:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    if options.data is not None:
        run(options.data)
        return 0
    with tempfile.TemporaryDirectory(prefix="pymq-demo-") as directory:
        run(Path(directory) / "store")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
