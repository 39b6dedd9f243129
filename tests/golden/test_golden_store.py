"""The store Apache RocketMQ 5.5.0 wrote, read back through the embedded API and compared field for field.

Ground truth is layout.json, made by Apache's own MessageDecoder (tests/data/README.md). Each test opens a private copy.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import pymq
from tests.golden import golden_layout
from tests.golden.golden_layout import GoldenMessage

READ_COUNT_MAX = 7  # odd and small, so that reads begin and end inside queue files of 20 units


def open_golden(path: Path) -> pymq.EmbeddedStore:
    """Open a golden copy with the file sizes it was written with."""
    return pymq.open(
        path,
        config=pymq.StoreConfig(
            mapped_file_size_commit_log=golden_layout.COMMIT_LOG_FILE_SIZE,
            mapped_file_size_consume_queue=golden_layout.CONSUME_QUEUE_FILE_SIZE,
            max_hash_slot_num=golden_layout.INDEX_SLOT_COUNT,
            max_index_num=golden_layout.INDEX_ITEM_COUNT_MAX,
        ),
    )


@pytest.fixture
def mq(golden_store: Path) -> Iterator[pymq.EmbeddedStore]:
    """The golden store, open."""
    with open_golden(golden_store) as store:
        yield store


def read_queue(mq: pymq.EmbeddedStore, topic: str, queue_id: int) -> list[pymq.ReceivedMessage]:
    """Every message of a queue, in small reads."""
    offset = mq.min_offset(topic, queue_id)
    found: list[pymq.ReceivedMessage] = []
    while batch := mq.read(topic, queue_id, offset, max_count=READ_COUNT_MAX):
        found += batch
        offset = batch[-1].queue_offset + 1
    return found


def as_golden(message: pymq.ReceivedMessage) -> GoldenMessage:
    """A received message under the names of the ground truth; every field, none left out."""
    return GoldenMessage(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        store_size=message.store_size,
        message_id=message.message_id,
        flag=message.flag,
        sys_flag=message.sys_flag,
        body_crc=message.body_crc,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        store_timestamp_ms=message.store_timestamp_ms,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        body=message.body,
        properties=dict(message.properties),
    )


def test_every_message_reads_back_field_for_field(mq: pymq.EmbeddedStore):
    """Goal: nothing Apache stored is changed or lost in our reading. Method: read all queues, compare all 325."""
    found = [as_golden(message) for queue in mq.queues() for message in read_queue(mq, *queue[:2])]
    assert sorted(found, key=lambda message: message.physical_offset) == golden_layout.messages()


def test_queues_are_those_of_the_layout(mq: pymq.EmbeddedStore):
    """Goal: the same queues with the same bounds. Method: names, minimum and maximum against the unit lists."""
    expected = golden_layout.queue_units()
    assert {queue[:2] for queue in mq.queues()} == set(expected)
    bounds = {queue: (mq.min_offset(*queue), mq.max_offset(*queue)) for queue in expected}
    assert bounds == {queue: (0, len(units)) for queue, units in expected.items()}


def test_queue_units_point_where_apache_says(mq: pymq.EmbeddedStore):
    """Goal: offset n of a queue is the n-th unit. Method: (position, size) of what each offset returns."""
    for (topic, queue_id), units in golden_layout.queue_units().items():
        found = [(message.physical_offset, message.store_size) for message in read_queue(mq, topic, queue_id)]
        assert found == [(position, size) for position, size, _ in units], (topic, queue_id)


def test_index_answers_every_key_with_exactly_its_messages(mq: pymq.EmbeddedStore):
    """Goal: five rolled index files answer as one. Method: each key of each message, unique ids and shared keys."""
    expected: dict[tuple[str, str], set[int]] = defaultdict(set)
    for message in golden_layout.messages():
        for key in message.index_keys:
            expected[message.topic, key].add(message.physical_offset)
    assert len(expected) > 300
    for (topic, key), positions in expected.items():
        found = [message.physical_offset for message in mq.query(topic, key, max_count=64)]
        assert sorted(found) == sorted(positions), (topic, key)


def test_index_does_not_answer_for_a_key_nobody_sent(mq: pymq.EmbeddedStore):
    """Goal: a hash collision never returns another message. Method: 500 unknown keys over 100 slots, other topics."""
    assert [key for key in (f"nobody-{number}" for number in range(500)) if mq.query("GoldenA", key)] == []
    assert mq.query("GoldenB", "common") == []


def test_index_honours_the_time_range(mq: pymq.EmbeddedStore):
    """Goal: a query looks only inside its range. Method: a half message checked every 5 s, cut in each pause."""
    topic, key = "RMQ_SYS_TRANS_HALF_TOPIC", "KTX-4"
    copies = [message for message in golden_layout.messages() if message.topic == topic and key in message.index_keys]
    times = [message.store_timestamp_ms for message in copies]
    pauses = [(before + after) // 2 for before, after in pairwise(times) if after - before > 3000]  # items keep seconds
    assert len(pauses) >= 3
    for cut_ms in pauses:
        older = mq.query(topic, key, max_count=64, begin=0, end=cut_ms)
        newer = mq.query(topic, key, max_count=64, begin=cut_ms, end=times[-1] + 1000)
        assert {message.store_timestamp_ms for message in older} == {time for time in times if time < cut_ms}
        assert {message.store_timestamp_ms for message in newer} == {time for time in times if time > cut_ms}


def test_time_lookup_finds_the_first_and_the_last_message_of_a_time(mq: pymq.EmbeddedStore):
    """Goal: look-up by store time, both boundaries. Method: each message's own time, and the times beside it."""
    times: dict[tuple[str, int], list[int]] = defaultdict(list)
    for message in sorted(golden_layout.messages(), key=lambda message: message.queue_offset):
        times[message.topic, message.queue_id].append(message.store_timestamp_ms)
    for (topic, queue_id), store_times in times.items():
        for time_ms in {store_time + step for store_time in store_times for step in (-1, 0, 1)}:
            lower, upper = bisect_left(store_times, time_ms), bisect_right(store_times, time_ms) - 1
            assert mq.offset_by_time(topic, queue_id, time_ms) == lower, (topic, queue_id, time_ms)
            if upper >= 0:
                assert mq.offset_by_time(topic, queue_id, time_ms, "upper") == upper, (topic, queue_id, time_ms)


def test_message_is_found_by_id_and_by_position(mq: pymq.EmbeddedStore):
    """Goal: both direct look-ups. Method: each message of the log, compared whole."""
    for message in golden_layout.messages():
        assert as_golden(mq.get_by_id(message.message_id)) == message
        assert as_golden(mq.get_by_offset(message.physical_offset)) == message


def store_bytes(path: Path) -> dict[str, bytes]:
    """The contents of log, queue and index files, by relative name."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for directory in ("commitlog", "consumequeue", "index")
        for file in sorted((path / directory).rglob("*"))
        if file.is_file()
    }


def test_open_and_close_change_no_golden_byte(golden_store: Path):
    """Goal: a store can go back to Apache untouched. Method: open, close, compare every log, queue and index byte."""
    before = store_bytes(golden_store)
    assert before == store_bytes(golden_layout.STORE)
    with open_golden(golden_store) as store:
        assert len(store.queues()) == 23
    after = {name: content for name, content in store_bytes(golden_store).items() if name in before}
    assert after == before


def test_new_messages_continue_the_golden_queues(golden_store: Path):
    """Goal: we go on where Apache stopped. Method: send to a golden queue, reopen, read old and new together."""
    with open_golden(golden_store) as store:
        next_offset = store.max_offset("GoldenA", 1)
        receipt = store.send("GoldenA", b"after the golden age", queue_id=1, keys=["golden-next"])
        assert (receipt.queue_id, receipt.queue_offset) == (1, next_offset)
    with open_golden(golden_store) as store:
        assert [message.body for message in store.query("GoldenA", "golden-next")] == [b"after the golden age"]
        found = read_queue(store, "GoldenA", 1)
    assert [message.queue_offset for message in found] == list(range(next_offset + 1))
    golden = [message for message in golden_layout.messages() if (message.topic, message.queue_id) == ("GoldenA", 1)]
    assert [as_golden(message) for message in found[:-1]] == golden
