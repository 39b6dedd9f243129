"""One suite for every kind of store: mapped or pooled, sync or async flush. A kind that differs has a bug.

Each check takes an opener (settings to an open store over one directory) and says in its docstring what must hold.
`test_contract.py` runs every check over every kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pymq
from pymq.errors import OffsetNotFoundError

Opener = Callable[..., pymq.EmbeddedStore]

KINDS: dict[str, dict[str, Any]] = {
    f"{medium}-{flush}": {
        "flush_disk_type": "SYNC_FLUSH" if flush == "sync" else "ASYNC_FLUSH",
        "transient_store_pool_enable": medium == "pool",
        "transient_store_pool_size": 3,
        "transient_store_pool_wait_ms": 5000,
        "commit_interval_commit_log_ms": 20,
        "commit_commit_log_thorough_interval_ms": 20,
    }
    for medium in ("mapped", "pool")
    for flush in ("sync", "async")
}


def read_everything(mq: pymq.EmbeddedStore, count: int, topic: str = "t", queue_id: int = 0) -> list[bytes]:
    """Bodies of a queue once it shows *count* messages: with the pool, visibility follows the commit."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        messages = mq.read(topic, queue_id, len(bodies), timeout=10)
        assert messages, f"only {len(bodies)} of {count} became visible"
        bodies += [message.body for message in messages]
    return bodies


def check_messages_come_back_in_order_over_files(opener: Opener) -> None:
    """What is sent is read, in order, over several log and queue files."""
    mq = opener()
    bodies = [b"%d" % n + b"." * (n * 37 % 900) for n in range(300)]
    for body in bodies[:50]:
        mq.send("t", body)
    mq.send_many("t", bodies[50:])
    assert read_everything(mq, 300) == bodies
    assert len(mq._store.log_files()) > 2


def check_everything_survives_a_clean_restart(opener: Opener) -> None:
    """Close writes everything: messages, keys, times and offsets are as before, and recovery has nothing to do."""
    mq = opener()
    results = [mq.send("t", b"%d" % n, keys=f"k{n}", queue_id=n % 3) for n in range(60)]
    mq.group("g").commit("t", 0, 0)
    mq.close()
    mq = opener()
    assert mq.stats().recovered_clean
    assert [(q.queue_id, q.max_offset) for q in mq.queues("t")] == [(0, 20), (1, 20), (2, 20)]
    for number in (0, 31, 59):
        assert mq.get_by_id(results[number].message_id).body == b"%d" % number
        assert [m.body for m in mq.query("t", f"k{number}")] == [b"%d" % number]
    assert mq.send("t", b"next").queue_offset == 20
    assert mq.group("g").committed("t") == 0


def check_acknowledged_messages_survive_a_crash_of_the_process(opener: Opener) -> None:
    """A kill loses nothing acknowledged, except what only the pool held under ASYNC_FLUSH: there a prefix survives."""
    mq = opener()
    bodies = [b"%d" % n for n in range(40)]
    for body in bodies:
        mq.send("t", body, keys=body.decode())
    config = mq.config
    mq.abandon()
    mq = opener()
    assert not mq.stats().recovered_clean
    survivors = [m.body for m in mq.iterate("t")] if mq.topics() else []
    assert survivors == bodies[: len(survivors)], "what survives is a prefix, whole and in order"
    if not (config.transient_store_pool_enable and config.flush_disk_type == "ASYNC_FLUSH"):
        assert survivors == bodies
    assert [m.body for body in survivors for m in mq.query("t", body.decode())] == survivors
    assert mq.send("t", b"next").queue_offset == len(survivors)


def check_nothing_is_visible_before_it_may_be(opener: Opener) -> None:
    """visible never exceeds what the mode asks for, while sends run and after each of them."""
    mq = opener()
    for _ in range(20):
        mq.send("t", b"x" * 100)
        marks = mq.watermarks()
        assert marks.visible <= marks.committed <= marks.written
        if mq.config.flush_disk_type == "SYNC_FLUSH":
            assert marks.visible <= marks.flushed
        assert marks.dispatched <= marks.visible


def check_sync_flush_has_flushed_what_it_acknowledged(opener: Opener) -> None:
    """After a send returns, SYNC_FLUSH has it below the flushed watermark; every mode has it below written."""
    mq = opener()
    for size in (0, 1, 5000):
        result = mq.send("t", b"x" * size)
        marks = mq.watermarks()
        end = result.physical_offset + result.store_size
        assert marks.written >= end
        if mq.config.flush_disk_type == "SYNC_FLUSH":
            assert marks.flushed >= end
            assert marks.committed >= end


def check_flush_makes_everything_durable(opener: Opener) -> None:
    """flush() moves committed and flushed to what was written before it."""
    mq = opener()
    mq.send_many("t", [b"x" * 300] * 100, wait=False)
    written = mq.watermarks().written
    mq.flush()
    marks = mq.watermarks()
    assert marks.flushed >= written
    assert marks.committed >= written
    assert read_everything(mq, 100) == [b"x" * 300] * 100


def check_removed_files_take_their_messages_and_no_others(opener: Opener) -> None:
    """After the oldest log file is gone, queues begin at the first message still there, and its index is gone too."""
    mq = opener()
    results = mq.send_many("t", [pymq.Message(body=b"x" * 1000, keys=f"k{n}") for n in range(150)])
    mq.flush()
    mq._store.wait_dispatched(10_000)
    assert mq._store.remove_oldest() == 0
    mq._store.clean_queues()
    kept = [r for r in results if r.physical_offset >= mq.config.mapped_file_size_commit_log]
    assert mq.min_offset("t") == kept[0].queue_offset
    assert len(list(mq.iterate("t"))) == len(kept)
    assert mq.query("t", "k0") == []
    assert len(mq.query("t", "k149")) == 1
    for call in (lambda: mq.read("t", 0, 0), lambda: mq.get_by_id(results[0].message_id)):
        try:
            call()
        except OffsetNotFoundError:
            continue
        raise AssertionError("a removed message was found")


CHECKS = [
    check_messages_come_back_in_order_over_files,
    check_everything_survives_a_clean_restart,
    check_acknowledged_messages_survive_a_crash_of_the_process,
    check_nothing_is_visible_before_it_may_be,
    check_sync_flush_has_flushed_what_it_acknowledged,
    check_flush_makes_everything_durable,
    check_removed_files_take_their_messages_and_no_others,
]
