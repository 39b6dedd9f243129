"""asyncio: sends that await their acknowledgement and readers that follow, without blocked threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from pymq.errors import FlushTimeoutError, StoreClosedError


def run(coroutine):
    """Run on a fresh loop, in debug mode, so that what is never awaited is reported."""
    return asyncio.run(coroutine, debug=True)


def test_send_async_returns_an_acknowledged_message(open_store):
    """Goal: awaiting means durable. Method: compare the flushed watermark with the message's end, under SYNC_FLUSH."""
    mq = open_store(flush_disk_type="SYNC_FLUSH")

    async def scenario():
        result = await mq.send_async("t", b"x", tags="T", keys="k", properties={"a": "b"}, queue_id=2, flag=3)
        assert mq.watermarks().flushed >= result.physical_offset + result.store_size
        return result

    result = run(scenario())
    (message,) = mq.read("t", 2)
    assert (message.message_id, message.tags, message.keys, message.flag) == (result.message_id, "T", ("k",), 3)


def test_many_waiting_sends_share_flushes_and_need_no_threads(open_store):
    """Goal: completions, not blocked threads. Method: 500 tasks; far fewer flush rounds than sends, no new thread."""
    mq = open_store(flush_disk_type="SYNC_FLUSH")

    async def scenario():
        threads = threading.active_count()
        sends = [asyncio.create_task(mq.send_async("t", b"%d" % n)) for n in range(500)]
        await asyncio.sleep(0)
        assert threading.active_count() == threads
        return await asyncio.gather(*sends)

    results = asyncio.run(scenario())
    assert sorted(r.queue_offset for r in results) == list(range(500))
    assert mq.stats().flush_rounds < 250
    assert len(list(mq.iterate("t"))) == 500


def test_send_async_times_out_and_says_where_it_stands(open_store):
    """Goal: the wait has a deadline. Method: a replica that never has it; the loop stays usable."""
    mq = open_store(broker_role="SYNC_MASTER")
    mq._store.set_replica(0)

    async def scenario():
        with pytest.raises(FlushTimeoutError) as caught:
            await mq.send_async("t", b"x", timeout_ms=20)
        result = caught.value.result
        waiting = asyncio.create_task(mq.send_async("t", b"y"))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        mq._store.set_replica(mq.watermarks().written)
        second = await waiting
        return result, second

    first, second = run(scenario())
    assert (first.queue_offset, second.queue_offset) == (0, 1)


def test_sends_are_acknowledged_in_log_order(open_store):
    """Goal: a watermark completes exactly what it covers. Method: move the replica over three sends one by one."""
    mq = open_store(broker_role="SYNC_MASTER")
    mq._store.set_replica(0)

    async def scenario():
        sends = [asyncio.create_task(mq.send_async("t", b"%d" % n)) for n in range(3)]
        await asyncio.sleep(0.01)
        end = mq.watermarks().written
        seen = []
        for number in range(1, 4):
            mq._store.set_replica(end * number // 3)
            await asyncio.sleep(0.05)
            seen.append([task.done() for task in sends])
        await asyncio.gather(*sends)
        return seen

    assert run(scenario()) == [[True, False, False], [True, True, False], [True, True, True]]


def test_cancelling_a_waiting_send_harms_nobody(open_store):
    """Goal: a cancelled task leaves the others waiting. Method: cancel one of two, then acknowledge."""
    mq = open_store(broker_role="SYNC_MASTER")
    mq._store.set_replica(0)

    async def scenario():
        first = asyncio.create_task(mq.send_async("t", b"1"))
        second = asyncio.create_task(mq.send_async("t", b"2"))
        await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        mq._store.set_replica(mq.watermarks().written)
        return await second

    assert run(scenario()).queue_offset == 1
    assert [m.body for m in mq.read("t")] == [b"1", b"2"], "the message was in the log already"


def test_atail_follows_new_messages_over_queues(mq):
    """Goal: an async reader sees what arrives, also in queues made later. Method: send from a thread while it waits."""
    mq.send("t", b"old")

    async def scenario():
        tail = mq.atail("t", timeout=20)

        def send():
            for number in range(5):
                time.sleep(0.005)
                mq.send("t", b"%d" % number, queue_id=number % 3)

        sender = asyncio.get_running_loop().run_in_executor(None, send)
        got = []
        async for message in tail:
            got.append(message.body)
            if len(got) == 5:
                break
        await sender
        return got

    assert sorted(run(scenario())) == [b"0", b"1", b"2", b"3", b"4"]


def test_atail_from_the_beginning_reads_a_long_backlog_and_ends_idle(mq):
    """Goal: backlog, then silence, then the end. Method: more messages than the inline limit; a short idle timeout."""
    mq.send_many("t", [b"x"] * 5000, queue_id=[0, 1])

    async def scenario():
        return [m.queue_offset async for m in mq.atail("t", "earliest", timeout=0.05)]

    offsets = run(scenario())
    assert len(offsets) == 5000
    assert sorted(offsets) == sorted(list(range(2500)) * 2)


def test_many_loops_one_after_another(open_store):
    """Goal: closed loops give their listener back; the core has 16. Method: 40 loops in turn, descriptors counted."""
    mq = open_store(flush_disk_type="SYNC_FLUSH")
    run(mq.send_async("t", b"x"))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(40):
        run(mq.send_async("t", b"x"))
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert mq.max_offset("t") == 41


def test_two_loops_in_two_threads(open_store):
    """Goal: each loop is woken by itself. Method: two threads with a loop each, sending at once."""
    mq = open_store(flush_disk_type="SYNC_FLUSH")

    async def scenario(queue_id):
        return [(await mq.send_async("t", b"x", queue_id=queue_id)).queue_offset for _ in range(20)]

    results: dict[int, list[int]] = {}
    threads = [threading.Thread(target=lambda n=n: results.update({n: asyncio.run(scenario(n))})) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {0: list(range(20)), 1: list(range(20))}


def test_closing_fails_tasks_that_wait(open_store):
    """Goal: no task waits for ever. Method: close on the loop, with a send and a tail waiting."""
    mq = open_store(broker_role="SYNC_MASTER", sync_flush_timeout_ms=60_000)
    mq._store.set_replica(0)

    async def follow():
        return [message async for message in mq.atail("t")]

    async def scenario():
        tasks = [asyncio.create_task(mq.send_async("t", b"x")), asyncio.create_task(follow())]
        await asyncio.sleep(0.02)
        mq.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(outcome) for outcome in run(scenario())] == [StoreClosedError, StoreClosedError]


def test_closing_from_another_thread_fails_tasks_that_wait(open_store):
    """Goal: the same, from outside the loop. Method: close in an executor thread while a task waits."""
    mq = open_store(broker_role="SYNC_MASTER", sync_flush_timeout_ms=60_000)
    mq._store.set_replica(0)

    async def scenario():
        task = asyncio.create_task(mq.send_async("t", b"x"))
        await asyncio.sleep(0.02)
        await asyncio.to_thread(mq.close)
        return await asyncio.gather(task, return_exceptions=True)

    (outcome,) = run(scenario())
    assert isinstance(outcome, StoreClosedError)


def test_a_loop_that_closes_meanwhile_does_not_stop_the_close(open_store, monkeypatch):
    """Goal: close() finishes whatever loops do. Method: a loop that still claims to run when it is closed already."""
    mq = open_store(flush_disk_type="SYNC_FLUSH")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(mq.send_async("t", b"x"))
    (signal,) = mq._loops._signals.values()
    loop.close()
    monkeypatch.setattr(loop, "is_running", lambda: True)
    mq.close()
    assert mq.closed
    assert signal._fd == -1
