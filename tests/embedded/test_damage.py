"""Readers on a store that changes under them: damaged records, and retention that overtakes."""

from __future__ import annotations

import asyncio
import itertools
import logging
from pathlib import Path

import pytest

import pymq

DAMAGED = 2


@pytest.fixture
def damaged(open_store, data: Path):
    """Five messages, of which the one at offset DAMAGED has another body than its CRC says."""
    with open_store() as mq:
        mq.send_many("t", [b"body-%d" % number for number in range(5)])
    path = data / "commitlog" / f"{0:020d}"
    position = path.read_bytes().index(b"body-%d" % DAMAGED)
    with path.open("r+b") as stream:
        stream.seek(position)
        stream.write(b"X")
    return open_store()


def drain(iterator):
    """Offsets that come out of *iterator*, and the places of damaged records."""
    seen: list[int | str] = []
    while True:
        try:
            seen.extend(message.queue_offset for message in iterator)
            return seen
        except pymq.CorruptRecordError as error:
            seen.append(f"{error.topic}/{error.queue_id}/{error.queue_offset}")


def test_a_damaged_record_is_raised_once_and_reading_goes_on_behind_it(damaged):
    """Goal: one bad record does not end a reader. Method: ask the same iterator again after its error."""
    whole = [0, 1, f"t/0/{DAMAGED}", 3, 4]
    assert drain(damaged.tail("t", "earliest", timeout=0)) == whole
    assert drain(damaged.iterate("t")) == whole
    assert drain(damaged.group("g").consume("t", timeout=0)) == whole


def test_an_async_reader_goes_on_behind_a_damaged_record(damaged):
    """Goal: as `tail`. Method: ask the same object again."""

    async def scenario():
        reader = damaged.atail("t", "earliest", timeout=0.05)
        seen: list[int] = []
        with pytest.raises(pymq.CorruptRecordError):
            while True:
                seen.append((await anext(reader)).queue_offset)
        seen.extend([message.queue_offset async for message in reader])
        await reader.aclose()
        return seen

    assert asyncio.run(scenario(), debug=True) == [0, 1, 3, 4]


def test_a_group_is_not_stopped_for_ever_by_a_damaged_record(damaged):
    """Goal: the committed offset is the consumer's. Method: stop at it, begin anew, go on, skip by commit."""
    group = damaged.group("g")
    for _ in range(2):
        with pytest.raises(pymq.CorruptRecordError):
            list(group.consume("t", timeout=0))
        assert group.committed("t") == DAMAGED, "the error alone commits nothing"
    group.commit("t", 0, DAMAGED + 1)
    assert [message.queue_offset for message in group.consume("t", timeout=0)] == [3, 4]
    group.reset("t", 0, DAMAGED)
    reader = group.consume("t", timeout=0)
    with pytest.raises(pymq.CorruptRecordError):
        next(reader)
    next(reader)
    assert group.committed("t") == DAMAGED + 1, "asking for the next message is what commits"
    kept = group.consume("t", timeout=0, auto_commit=False)
    group.reset("t", 0, DAMAGED)
    assert list(kept)[-1].queue_offset == 4
    assert group.committed("t") == DAMAGED


def fill(open_store):
    """A store of several log files, all flushed and dispatched: such files may be removed."""
    mq = open_store()
    mq.send_many("t", [b"x" * 1000] * 400)
    mq.flush()
    assert mq._store.wait_dispatched(10_000)
    mq.checkpoint()
    return mq


def test_readers_overtaken_by_retention_go_on_with_what_is_there(open_store, caplog):
    """Goal: retention ends no reader. Method: remove log files, not yet the queues' units, behind open readers."""
    mq = fill(open_store)
    readers = {
        "tail": mq.tail("t", "earliest", timeout=0),
        "group g": mq.group("g").consume("t", timeout=0),
        "iterate": mq.iterate("t"),
    }
    for reader in readers.values():
        assert next(reader).queue_offset == 0
    for _ in range(3):
        assert mq._store.remove_oldest() is not None
    with caplog.at_level(logging.WARNING, "pymq.store"):
        for name, reader in readers.items():
            offsets = [message.queue_offset for message in reader]
            jumps = [later - earlier for earlier, later in itertools.pairwise(offsets) if later != earlier + 1]
            assert offsets[-1] == 399, name
            assert len(jumps) == 1, "everything but the removed messages is read"
            assert f"reader={name!r} topic=t queue=0" in caplog.text
    assert f"its messages were removed, {jumps[0] - 1} of them" in caplog.text


def test_a_record_that_is_gone_names_the_range_of_its_queue(open_store, monkeypatch):
    """Goal: the error says what can be read. Method: read at 0 after the first files went; step as a reader does."""
    from pymq.store.tailing import step_over_removed

    mq = fill(open_store)
    assert mq._store.remove_oldest() == 0
    with pytest.raises(pymq.OffsetNotFoundError) as caught:
        mq.read("t", 0, 0)
    assert caught.value.offset_max == 400
    first = step_over_removed(mq._store, "t", 0, 0, "test")
    assert mq.read("t", 0, first)[0].queue_offset == first
    with pytest.raises(pymq.OffsetNotFoundError):
        mq.read("t", 0, first - 1)
    assert step_over_removed(mq._store, "t", 0, 900, "test") == 400


class OldCore:
    """A core whose queue still has units of records below `first`, as between two steps of a removal."""

    def __init__(self, first: int) -> None:
        self.first = first

    def queue_range(self, _topic, _queue_id, _settle):
        return 0, 100

    def read(self, _topic, _queue_id, offset, _count, _settle):
        if offset < self.first:
            raise pymq.OffsetNotFoundError("gone")
        if offset == self.first:
            raise pymq.CorruptRecordError("damaged")
        return ["message"]


@pytest.mark.parametrize("first", [6, 40, 99, 100])
def test_units_whose_records_are_gone_are_searched_through(first):
    """Goal: the first record there is found, a damaged one included. Method: a queue whose minimum did not move yet."""
    from pymq.store.tailing import step_over_removed

    assert step_over_removed(OldCore(first), "t", 0, 5, "test") == first
