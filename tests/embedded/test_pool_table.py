"""The table of the transient pool and the flush modes: what an acknowledgement means in each cell.

flush mode    pool   acknowledged means     a kill loses            visible follows
SYNC_FLUSH    off    flushed                nothing                 flushed
SYNC_FLUSH    on     committed and flushed  nothing                 flushed
ASYNC_FLUSH   off    written                nothing                 written
ASYNC_FLUSH   on     in the pool            what only it held       committed
"""

from __future__ import annotations

import logging

import pytest

from pymq.errors import PoolExhaustedError

# An hour: nothing is committed or flushed unless somebody asks for it.
NEVER = {
    "commit_interval_commit_log_ms": 3_600_000,
    "commit_commit_log_thorough_interval_ms": 3_600_000,
    "flush_interval_commit_log_ms": 3_600_000,
    "flush_commit_log_thorough_interval_ms": 3_600_000,
    "commit_commit_log_least_pages": 1_000_000,
}


@pytest.mark.parametrize("pool", [False, True], ids=["no-pool", "pool"])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_each_cell_of_the_table(open_store, flush, pool):
    """Goal: the table above. Method: background work off; send, look at the watermarks, crash, look again."""
    settings = {"flush_disk_type": flush, "transient_store_pool_enable": pool, "transient_store_pool_size": 2}
    mq = open_store(**settings, **NEVER)
    result = mq.send("t", b"x")
    end = result.physical_offset + result.store_size
    marks = mq.watermarks()
    assert marks.written == end
    durable = flush == "SYNC_FLUSH"
    assert marks.flushed == (end if durable else 0)
    assert marks.committed == (end if durable or not pool else 0)
    assert marks.visible == (0 if pool and not durable else end)
    mq.abandon()
    mq = open_store(**settings)
    lost = pool and not durable
    assert mq.topics() == ([] if lost else ["t"])
    assert mq.watermarks().written == (0 if lost else end)


def test_the_start_says_what_a_kill_may_lose(open_store, caplog):
    """Goal: the weak promise is announced. Method: the log lines of each mode."""
    expected = {
        ("SYNC_FLUSH", False): "SYNC_FLUSH: acknowledged messages are on stable storage",
        ("SYNC_FLUSH", True): "SYNC_FLUSH with the transient pool: acknowledged messages are committed and synced",
        ("ASYNC_FLUSH", False): "ASYNC_FLUSH: acknowledged messages are in the page cache",
        (
            "ASYNC_FLUSH",
            True,
        ): "ASYNC_FLUSH with the transient pool: a kill of this process may lose what only the pool",
    }
    for (flush, pool), line in expected.items():
        caplog.clear()
        with caplog.at_level(logging.INFO, "pymq.store"):
            open_store(flush_disk_type=flush, transient_store_pool_enable=pool, transient_store_pool_size=2).close()
        assert line in caplog.text
        assert "open_files=" in caplog.text, "the budget is printed too"
        levels = {record.levelno for record in caplog.records if record.message.startswith("durability")}
        visible = logging.WARNING if (flush, pool) == ("ASYNC_FLUSH", True) else logging.INFO
        assert levels == {visible}, "what a mere kill can take is seen without any set-up of logging"


def test_an_exhausted_pool_names_itself_its_size_and_the_wait(open_store):
    """Goal: "busy" is never one word. Method: two buffers, no wait, nobody commits; sends that fill both."""
    mq = open_store(
        transient_store_pool_enable=True, transient_store_pool_size=2, transient_store_pool_wait_ms=0, **NEVER
    )
    with pytest.raises(
        PoolExhaustedError, match=r"all 2 buffers of the transient store pool .* waiting 0 ms"
    ) as caught:
        for _ in range(10):
            mq.send_many("t", [b"x" * 1000] * 40)
    assert (caught.value.pool_size, caught.value.waited_ms, caught.value.status) == (2, 0, "PYMQ_EPOOL")
    stored = mq.watermarks().written  # buffers may be coming back already: the refused send has rung the committer
    mq.flush()
    assert mq.watermarks().committed >= stored
    assert mq.send("t", b"after").physical_offset >= stored, "a commit frees buffers"


def test_reads_see_only_committed_bytes(open_store):
    """Goal: a pooled message is invisible until it is in the file. Method: send, look, commit by flush, look."""
    mq = open_store(transient_store_pool_enable=True, transient_store_pool_size=2, **NEVER)
    result = mq.send("t", b"x", keys="k")
    assert mq.max_offset("t") == 0
    assert mq.query("t", "k") == []
    mq.flush()
    assert mq.max_offset("t") == 1
    assert mq.get_by_id(result.message_id).body == b"x"
