"""Several threads on one store: nothing is lost, doubled or mixed up."""

from __future__ import annotations

import threading

from pymq.errors import OffsetNotFoundError, QueueNotFoundError


def run_all(workers):
    """Run the callables at once and raise what one of them raised."""
    problems: list[BaseException] = []

    def guarded(worker):
        try:
            worker()
        except (AssertionError, OSError, LookupError, ValueError) as error:
            problems.append(error)

    threads = [threading.Thread(target=guarded, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []


def test_threads_that_send_and_read_see_every_message_once(mq):
    """Goal: sends are whole and in order per thread. Method: 4 senders, 2 readers, both kinds of send."""
    count = 300

    def sender(number):
        for index in range(0, count, 3):
            mq.send("t", b"%d:%d" % (number, index), queue_id=number % 2, keys=f"k{number}-{index}")
            mq.send_many("t", [b"%d:%d" % (number, index + 1), b"%d:%d" % (number, index + 2)], queue_id=number % 2)

    def reader(queue_id):
        offset, seen = 0, []
        while len(seen) < 2 * count:
            try:
                messages = mq.read("t", queue_id, offset, timeout=0.05)
            except (QueueNotFoundError, OffsetNotFoundError):
                continue
            offset += len(messages)
            seen += [m.body for m in messages]
        for number in (queue_id, queue_id + 2):
            mine = [body for body in seen if body.startswith(b"%d:" % number)]
            assert mine == [b"%d:%d" % (number, index) for index in range(count)]

    run_all([lambda n=n: sender(n) for n in range(4)] + [lambda q=q: reader(q) for q in range(2)])
    assert mq.max_offset("t", 0) == mq.max_offset("t", 1) == 2 * count
    assert mq.query("t", "k3-297")[0].body == b"3:297"


def test_threads_that_tail_share_one_wake_up(mq):
    """Goal: any number of tails may wait at once. Method: more tails than the core has listeners."""
    mq.send("t", b"old")
    tails = [mq.tail("t", timeout=20) for _ in range(20)]
    got: list[list[bytes]] = [[] for _ in tails]

    def follow(number):
        for message in tails[number]:
            got[number].append(message.body)
            if len(got[number]) == 3:
                return

    def send():
        for body in (b"1", b"2", b"3"):
            mq.send("t", body)

    run_all([lambda n=n: follow(n) for n in range(20)] + [send])
    assert got == [[b"1", b"2", b"3"]] * 20


def test_threads_that_commit_share_the_file(mq, data):
    """Goal: durable commits from many threads all survive. Method: 8 groups commit at once; read the file."""
    from pymq.store.offsets import parse_dialect

    mq.send_many("t", [b"x"] * 50)

    def commit(number):
        for offset in range(0, 50, 10):
            mq.group(f"g{number}").commit("t", 0, offset)

    run_all([lambda n=n: commit(n) for n in range(8)])
    document = parse_dialect((data / "config" / "consumerOffset.json").read_text())
    assert document["offsetTable"] == {f"t@g{n}": {"\x000": 40} for n in range(8)}
