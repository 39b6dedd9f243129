"""Reading: by queue and offset, by tag, by key, by id, by time; and what damaged bytes do."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pymq.errors import (
    CorruptRecordError,
    InvalidArgumentError,
    OffsetNotFoundError,
    QueueNotFoundError,
    UnsupportedStoreError,
)


def test_what_was_sent_can_be_read_at_once(mq):
    """Goal: read your own writes. Method: read right behind every send, many times."""
    for number in range(300):
        mq.send("t", b"%d" % number, keys=f"k{number}")
        assert [m.body for m in mq.read("t", 0, number)] == [b"%d" % number]
    assert mq.query("t", "k299")[0].body == b"299"
    assert mq.max_offset("t") == 300


def test_read_is_bounded_by_max_count_and_the_end(mq):
    """Goal: exact counts at the edges. Method: one below, at and above; batches cross the units read at once."""
    mq.send_many("t", [b"%d" % n for n in range(200)])
    assert [m.queue_offset for m in mq.read("t", 0, 10, max_count=1)] == [10]
    assert [m.queue_offset for m in mq.read("t", 0, 0, max_count=199)] == list(range(199))
    assert [m.queue_offset for m in mq.read("t", 0, 0, max_count=200)] == list(range(200))
    assert [m.queue_offset for m in mq.read("t", 0, 0, max_count=201)] == list(range(200))
    assert mq.read("t", 0, 199)[0].body == b"199"
    assert mq.read("t", 0, 200) == []
    with pytest.raises(InvalidArgumentError):
        mq.read("t", 0, 0, max_count=0)


def test_offsets_outside_the_queue_are_named(mq):
    """Goal: the error has the way out. Method: one above the end, and below zero."""
    mq.send("t", b"x")
    for offset in (2, -1):
        with pytest.raises(OffsetNotFoundError, match=r"offsets 0 to 1 \(exclusive\), not " + str(offset)) as caught:
            mq.read("t", 0, offset)
        assert (caught.value.offset_min, caught.value.offset_max) == (0, 1)
        assert caught.value.status == "PYMQ_ENOTFOUND"


def test_a_queue_nobody_wrote_is_not_found(mq):
    """Goal: a typing error is not an empty queue. Method: every method that takes a queue."""
    mq.send("t", b"x")
    for call in (
        lambda: mq.read("t", 1),
        lambda: mq.read("nope"),
        lambda: mq.min_offset("t", 7),
        lambda: mq.max_offset("nope"),
        lambda: mq.offset_by_time("t", 5, 0),
        lambda: next(mq.iterate("nope")),
    ):
        with pytest.raises(QueueNotFoundError, match="no message was ever stored"):
            call()
    assert mq.topics() == ["t"]


def test_read_waits_for_one_more_when_asked(mq):
    """Goal: a timeout is a wait, not an error. Method: nothing arrives."""
    mq.send("t", b"x")
    assert mq.read("t", 0, 1, timeout=0.02) == []
    assert len(mq.read("t", 0, 0, timeout=5)) == 1


def test_iterate_goes_from_start_to_stop_over_files(mq):
    """Goal: iteration crosses log and queue files. Method: bodies that roll both several times."""
    bodies = [b"%d" % n + b"." * 500 for n in range(400)]
    mq.send_many("t", bodies)
    assert len(mq._store.log_files()) > 3
    assert [m.body for m in mq.iterate("t")] == bodies
    assert [m.queue_offset for m in mq.iterate("t", 0, 397)] == [397, 398, 399]
    assert [m.queue_offset for m in mq.iterate("t", 0, 5, stop=8)] == [5, 6, 7]
    assert list(mq.iterate("t", 0, 400)) == []


def test_iterate_by_tags_reads_only_those(mq):
    """Goal: tag filtering is exact. Method: three tags, and two whose Java hashes collide."""
    tags = ["Aa", "BB", "C", None]  # "Aa".hashCode() == "BB".hashCode()
    for number in range(200):
        mq.send("t", b"%d" % number, tags=tags[number % 4])
    assert [int(m.body) for m in mq.iterate("t", tags=["Aa"])] == list(range(0, 200, 4))
    assert [int(m.body) for m in mq.iterate("t", tags=["C", "BB"])] == [n for n in range(200) if n % 4 in (1, 2)]
    assert list(mq.iterate("t", tags=["none"])) == []
    assert [int(m.body) for m in mq.iterate("t", 0, 190, tags="C")] == [190, 194, 198]


def test_look_up_by_key_verifies_the_real_key(mq):
    """Goal: a hash collision never returns another message. Method: colliding keys, one topic within another's name."""
    mq.send("t", b"1", keys="Aa one")
    mq.send("t", b"2", keys="BB")
    mq.send("u", b"3", keys="Aa")
    assert [m.body for m in mq.query("t", "Aa")] == [b"1"]
    assert [m.body for m in mq.query("t", "BB")] == [b"2"]
    assert [m.body for m in mq.query("u", "Aa")] == [b"3"]
    assert mq.query("t", "one Aa") == []
    assert mq.query("nowhere", "Aa") == []


def test_look_up_by_key_is_newest_first_and_bounded(mq):
    """Goal: order and limits of a query. Method: one key over several index files; time windows around the middle."""
    results = [mq.send("t", b"%d" % n, keys="same") for n in range(400)]
    found = mq.query("t", "same", max_count=10)
    assert [int(m.body) for m in found] == list(range(399, 389, -1))
    assert len(mq.query("t", "same", max_count=1024)) == 400
    middle = results[200].store_timestamp_ms
    assert mq.query("t", "same", end=results[0].store_timestamp_ms - 2000) == []
    inside = mq.query("t", "same", begin=datetime.fromtimestamp(middle / 1000, UTC), max_count=1024)
    assert {r.physical_offset for r in results[200:]} <= {m.physical_offset for m in inside}
    for count in (0, 1025):
        with pytest.raises(InvalidArgumentError):
            mq.query("t", "same", max_count=count)


def test_without_an_index_a_query_is_refused(open_store):
    """Goal: message_index_enable is honoured. Method: turn it off, send with a key."""
    mq = open_store(message_index_enable=False)
    result = mq.send("t", b"x", keys="k")
    with pytest.raises(UnsupportedStoreError, match="message_index_enable"):
        mq.query("t", "k")
    assert mq.get_by_id(result.message_id).body == b"x"


def test_get_by_id_and_by_offset(mq):
    """Goal: an id leads back to its message. Method: first, middle and last of several files, both cases of hex."""
    results = mq.send_many("t", [b"%d" % n + b"." * 300 for n in range(500)])
    for number in (0, 250, 499):
        result = results[number]
        assert mq.get_by_id(result.message_id).queue_offset == number
        assert mq.get_by_id(result.message_id.lower()).queue_offset == number
        assert mq.get_by_offset(result.physical_offset).message_id == result.message_id


@pytest.mark.parametrize("message_id", ["", "00", "z" * 32, "0" * 31, "0" * 33, "-" + "0" * 31, "0" * 55])
def test_what_is_no_id_is_refused(mq, message_id):
    """Goal: a wrong id is an argument error. Method: wrong lengths and letters."""
    with pytest.raises(InvalidArgumentError, match="no message id"):
        mq.get_by_id(message_id)


def test_ids_of_elsewhere_are_not_found(mq):
    """Goal: an id of another store finds nothing here. Method: same offset and other host, then an offset far away."""
    result = mq.send("t", b"x")
    other = "0A000001" + result.message_id[8:]
    with pytest.raises(OffsetNotFoundError, match="another store"):
        mq.get_by_id(other)
    with pytest.raises(OffsetNotFoundError):
        mq.get_by_id(result.message_id[:16] + f"{10**9:016X}")
    with pytest.raises(OffsetNotFoundError):
        mq.get_by_id(result.message_id[:16] + "F" * 16)


def test_an_offset_inside_a_record_is_no_record(mq):
    """Goal: only whole records are delivered. Method: every byte offset of a small log."""
    starts = {mq.send("t", b"%d" % n).physical_offset for n in range(3)}
    end = mq.watermarks().visible
    for offset in range(end):
        if offset in starts:
            assert mq.get_by_offset(offset).physical_offset == offset
        else:
            with pytest.raises(CorruptRecordError, match="commitlog/00000000000000000000"):
                mq.get_by_offset(offset)
    with pytest.raises(OffsetNotFoundError):
        mq.get_by_offset(end)


def test_ipv6_stores_have_longer_ids(open_store):
    """Goal: IPv6 hosts travel. Method: a bracketed store host; id of 56 characters found again."""
    mq = open_store(store_host="[fd00::2]:10911")
    result = mq.send("t", b"x", keys="k")
    assert len(result.message_id) == 56
    assert len(result.unique_key) == 56
    message = mq.get_by_id(result.message_id)
    assert (message.store_host, message.born_host) == ("[fd00::2]:10911", "[fd00::2]:10911")
    assert mq.query("t", "k")[0].message_id == result.message_id


def test_offset_by_time_finds_both_boundaries(mq):
    """Goal: as Apache: first at or after, last at or before, the ends beyond. Method: compare with a linear search."""
    import time

    stamps = []
    for number in range(60):
        stamps.append(mq.send("t", b"%d" % number).store_timestamp_ms)
        if number % 7 == 0:
            time.sleep(0.003)
    for moment in range(stamps[0] - 2, stamps[-1] + 3):
        lower = next((n for n, stamp in enumerate(stamps) if stamp >= moment), len(stamps))
        upper = max((n for n, stamp in enumerate(stamps) if stamp <= moment), default=None)
        assert mq.offset_by_time("t", 0, moment) == lower
        if upper is not None:
            assert mq.offset_by_time("t", 0, moment, "upper") == upper
    at = datetime.fromtimestamp(stamps[0] / 1000, UTC)
    assert mq.offset_by_time("t", 0, at) == 0
    with pytest.raises(InvalidArgumentError, match="lower or upper"):
        mq.offset_by_time("t", 0, 0, "middle")


def test_queues_and_topics_are_listed_in_order(mq):
    """Goal: a stable view of what is there. Method: topics and queues out of order, one far queue id."""
    for topic, queue_id in (("b", 2), ("a", 0), ("b", 0), ("b", 100)):
        mq.send(topic, b"x", queue_id=queue_id)
    assert mq.topics() == ["a", "b"]
    assert [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in mq.queues()] == [
        ("a", 0, 0, 1),
        ("b", 0, 0, 1),
        ("b", 2, 0, 1),
        ("b", 100, 0, 1),
    ]
    assert [q.queue_id for q in mq.queues("b")] == [0, 2, 100]
    assert mq.read("b", 100)[0].queue_id == 100


def flip(path: Path, position: int) -> None:
    """Invert one byte of a file."""
    with path.open("r+b") as stream:
        stream.seek(position)
        byte = stream.read(1)
        stream.seek(position)
        stream.write(bytes([byte[0] ^ 0xFF]))


def test_a_damaged_body_is_never_delivered(open_store, data):
    """Goal: the CRC guards every read path. Method: flip one byte of the third body, then read by every way."""
    mq = open_store()
    results = [mq.send("t", b"body-%d" % n, keys=f"k{n}") for n in range(5)]
    mq.close()
    file = data / "commitlog" / f"{0:020d}"
    position = file.read_bytes().index(b"body-2")
    flip(file, position)
    mq = open_store(check_crc_on_recover=False)
    assert [m.body for m in mq.read("t")] == [b"body-0", b"body-1"], "the good ones before it are delivered"
    with pytest.raises(CorruptRecordError) as caught:
        mq.read("t", 0, 2)
    assert caught.value.file == f"commitlog/{0:020d}"
    assert (caught.value.physical_offset, caught.value.queue_offset) == (results[2].physical_offset, 2)
    assert str(results[2].physical_offset) in str(caught.value)
    with pytest.raises(CorruptRecordError):
        mq.get_by_id(results[2].message_id)
    with pytest.raises(CorruptRecordError):
        list(mq.iterate("t"))
    assert [m.body for m in mq.read("t", 0, 3)] == [b"body-3", b"body-4"], "reading goes on behind it"
    assert [m.body for m in mq.query("t", "k3")] == [b"body-3"]


def test_offsets_no_queue_can_reach_are_refused(mq):
    """Goal: positions in files do not overflow. Method: offsets near the largest integers, in each call."""
    mq.send("t", b"x", tags="T")
    for offset in (2**58, 2**62, 2**63 - 1):
        with pytest.raises(OffsetNotFoundError):
            mq.read("t", 0, offset)
        with pytest.raises(OffsetNotFoundError):
            list(mq.iterate("t", 0, offset, tags=["T"]))
        with pytest.raises(InvalidArgumentError, match="no queue gets to"):
            mq._store.wait_arrival("t", 0, offset, 0)
        with pytest.raises(InvalidArgumentError, match="no queue gets to"):
            mq._offsets.commit("g", "t", 0, offset)
