"""Queues and index as they were at a position: against a store that was stopped there."""

from __future__ import annotations

import os
import struct

import pytest

import pymq
from pymq._scan import decode_index
from pymq._scan._index_cut import cut_index_slots
from pymq.errors import InvalidArgumentError
from pymq.store.config import StoreConfig
from pymq.store.dump.cuts import IndexFile, QueueReader, index_jobs, queue_end, queue_jobs
from pymq.store.dump.errors import DumpError
from pymq.store.dump.log_reader import LogReader
from pymq.store.dump.removed import read_removed, render_removed
from tests.store.dumps import SIZES

CONFIG = StoreConfig(**{**SIZES, "max_index_num": 4001, "flush_disk_type": "ASYNC_FLUSH"})
QUEUE_SIZE = SIZES["mapped_file_size_consume_queue"]


def send_some(path, count):
    """Send *count* more messages into a store; where its log then ends."""
    with pymq.open(path, config=CONFIG) as store:
        for number in range(count):
            store.send(f"T{number % 2}", b"x" * (number % 50), keys=f"a{number} b{number % 7}", tags=f"t{number % 3}")
        return int(store.watermarks().written)


@pytest.fixture
def grown(tmp_path):
    """A store, its index and queue files and log end at an earlier moment, and it has grown since."""
    path = tmp_path / "store"
    position = send_some(path, 100)
    before = {
        str(file.relative_to(path)): file.read_bytes()
        for kind in ("index", "consumequeue")
        for file in (path / kind).rglob("*")
        if file.is_file()
    }
    send_some(path, 333)
    return path, position, before


def test_a_cut_index_is_the_one_that_never_had_more(grown, tmp_path):
    """Goal: header, slots and chains are right. Method: compare every byte with the file of the earlier stop."""
    path, position, before = grown
    with LogReader(path) as log:
        (job,) = index_jobs(path, CONFIG.max_hash_slot_num, CONFIG.max_index_num, log, position)
        target = os.open(tmp_path / "made", os.O_RDWR | os.O_CREAT)
        job.make(target)
        os.close(target)
    made = (tmp_path / "made").read_bytes()
    assert decode_index(made, CONFIG.max_hash_slot_num) == decode_index(before[job.path], CONFIG.max_hash_slot_num)
    assert made == before[job.path]
    assert not made[job.written :].strip(b"\0")


def test_index_items_at_the_position_are_cut_at_each_record(grown):
    """Goal: no item at or above, none below missing. Method: every record as the position, against a plain filter."""
    path, _, _ = grown
    file = IndexFile(next((path / "index").iterdir()), CONFIG.max_hash_slot_num, CONFIG.max_index_num)
    index = decode_index(file.path.read_bytes(), CONFIG.max_hash_slot_num)
    offsets = list(index.items["physical_offset"])
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        for position in [0, 1, *sorted(set(offsets))[::7], max(offsets), max(offsets) + 1]:
            assert file.kept(descriptor, position) == 1 + sum(offset < position for offset in offsets)
    finally:
        os.close(descriptor)


def test_queues_are_cut_at_the_position(grown):
    """Goal: exactly the units below. Method: bytes that belong to the dump, against the files of the earlier stop."""
    path, position, before = grown
    with LogReader(path) as log:
        for topic in ("T0", "T1"):
            for job in queue_jobs(path, path / "consumequeue" / topic / "0", log, 0, position):
                data = (path / job.path).read_bytes()
                assert data[: job.written] == before[job.path][: job.written]
                assert not before[job.path][job.written :].strip(b"\0")
                before.pop(job.path)
    assert not [name for name, data in before.items() if name.startswith("consumequeue") and data.strip(b"\0")]


def test_a_unit_in_the_middle_of_being_written_is_not_taken(grown):
    """Goal: a unit that looks as if it were below the position is not believed. Method: write half of one, anywhere."""
    path, position, _ = grown
    queue_directory = path / "consumequeue" / "T0" / "0"
    with LogReader(path) as log:
        queue = QueueReader(queue_directory)
        end = queue_end(queue, 0, log, 0, position)
        queue.close()
        for torn in (end, end + 1, end + 40):
            file = queue_directory / f"{torn * 20 // QUEUE_SIZE * QUEUE_SIZE:020d}"
            data = bytearray(file.read_bytes())
            for half in (struct.pack(">qi", 0, 77), struct.pack(">qi", position - 5, 1)):
                data[torn * 20 % QUEUE_SIZE : torn * 20 % QUEUE_SIZE + 12] = half
                file.write_bytes(data)
                queue = QueueReader(queue_directory)
                assert queue_end(queue, 0, log, 0, position) == end
                queue.close()


def test_a_position_at_the_beginning_leaves_nothing(grown):
    """Goal: the edges. Method: a position before the first record, and one behind the last."""
    path, _, _ = grown
    with LogReader(path) as log:
        assert list(queue_jobs(path, path / "consumequeue" / "T0" / "0", log, 0, 0)) == []
        assert list(index_jobs(path, CONFIG.max_hash_slot_num, CONFIG.max_index_num, log, 0)) == []
        queue = QueueReader(path / "consumequeue" / "T0" / "0")
        with pymq.open(path) as store:
            _, high = store._store.queue_range("T0", 0)
        assert queue_end(queue, 0, log, 0, 1 << 40) == high
        queue.close()


def test_slots_and_items_of_different_files_are_refused():
    """Goal: C never reads beyond what it was given. Method: fewer items than said, odd slots."""
    for slots, items, limit in [(bytearray(8), bytes(20), 2), (bytearray(7), bytes(40), 2)]:
        with pytest.raises(InvalidArgumentError):
            cut_index_slots(slots, items, limit, 1)


def test_removed_topics_are_clamped(tmp_path):
    """Goal: names of any bytes survive, offsets do not exceed the position. Method: read, render, read again."""
    path = tmp_path / "removedTopics"
    assert read_removed(path) == {}
    path.write_bytes(b"pymq removed topics 1\n123456 7 orders1\n99 5 a b\nc\n")
    assert read_removed(path) == {"orders1": 123456, "a b\nc": 99}
    path.write_bytes(render_removed(read_removed(path), 1000))
    assert read_removed(path) == {"orders1": 1000, "a b\nc": 99}
    path.write_bytes(b"something else")
    with pytest.raises(DumpError, match="removed topics"):
        read_removed(path)
