"""Following a topic: where it starts, what it waits for, when it ends."""

from __future__ import annotations

import threading
import time

import pytest

from pymq.errors import InvalidArgumentError


def test_tail_starts_where_it_is_told(mq):
    """Goal: earliest, latest and an offset map. Method: the same messages, three starts."""
    mq.send_many("t", [b"%d" % n for n in range(6)], queue_id=[0, 1])
    assert sorted(m.body for m in mq.tail("t", "earliest", timeout=0)) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert list(mq.tail("t", timeout=0.01)) == []
    assert [m.body for m in mq.tail("t", {0: 2, 1: 3}, timeout=0)] == [b"4"]
    assert sorted(m.body for m in mq.tail("t", {0: 2}, timeout=0)) == [b"1", b"3", b"4", b"5"]
    assert [m.body for m in mq.tail("t", "earliest", queue_ids=[1], timeout=0)] == [b"1", b"3", b"5"]
    with pytest.raises(InvalidArgumentError, match="earliest, latest"):
        mq.tail("t", "yesterday")


def test_latest_means_when_tail_was_called(mq):
    """Goal: no message falls between the call and the first next(). Method: send in between."""
    mq.send("t", b"before")
    tail = mq.tail("t", timeout=20)
    mq.send("t", b"between")
    assert next(tail).body == b"between"


def test_tail_waits_for_a_topic_that_does_not_exist_yet(mq):
    """Goal: start the reader first. Method: its first message comes from another thread, in a late queue too."""
    tail = mq.tail("later", timeout=20)

    def send():
        time.sleep(0.01)
        mq.send("later", b"1", queue_id=4)
        mq.send("other", b"no")
        mq.send("later", b"2", queue_id=9)

    thread = threading.Thread(target=send)
    thread.start()
    assert sorted([next(tail).body, next(tail).body]) == [b"1", b"2"]
    thread.join(20)


def test_tail_keeps_order_in_each_queue_and_starves_none(mq):
    """Goal: order per queue, turns between queues. Method: a long queue and a short one, read to the end."""
    mq.send_many("t", [b"%d" % n for n in range(1000)], queue_id=0)
    mq.send_many("t", [b"%d" % n for n in range(10)], queue_id=1)
    messages = list(mq.tail("t", "earliest", timeout=0))
    for queue_id, count in ((0, 1000), (1, 10)):
        assert [int(m.body) for m in messages if m.queue_id == queue_id] == list(range(count))
    first_of_short = next(number for number, m in enumerate(messages) if m.queue_id == 1)
    assert first_of_short <= 64


def test_tail_ends_only_after_silence(mq):
    """Goal: the timeout counts from the last message. Method: messages closer together than it, for longer than it."""
    tail = mq.tail("t", timeout=0.25)

    def send():
        for number in range(8):
            mq.send("t", b"%d" % number)
            time.sleep(0.06)

    thread = threading.Thread(target=send)
    thread.start()
    assert [int(m.body) for m in tail] == list(range(8))
    thread.join(20)
