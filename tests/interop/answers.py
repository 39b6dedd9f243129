"""What the right answers are: a plain reading of a store's contents, to hold either side's look-ups against.

Questions are drawn from what was written; the oracle answers them by looking at every message. Neither Apache's nor
pymq's code has a part in it, so when both agree with the oracle they agree with each other for the right reason.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tests.interop.stored import PutResult, Queue, QueueContents, StoredMessage, tags_hash
from tests.interop.workloads import DELAY_TOPIC, TRANSACTION_ROLLBACK, OutMessage

Boundary = Literal["LOWER", "UPPER"]

TIMESTAMP_MS_MAX = 2**63 - 1

# An index item's time is kept in whole seconds from its file's first: windows closer than this are not comparable.
INDEX_TIME_MARGIN_MS = 10_000

# Apache's maxMsgsNumBatch: no key look-up returns more.
KEY_ANSWER_COUNT_MAX = 64

DELAY_LEVEL_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


class Reader(Protocol):
    """An open store, whoever opened it."""

    @property
    def queues(self) -> dict[Queue, QueueContents]:
        """Everything queued."""

    def by_key(
        self, topic: str, key: str, max_count: int, begin_ms: int = 0, end_ms: int = TIMESTAMP_MS_MAX
    ) -> list[StoredMessage]:
        """Messages of *topic* under *key*, stored within [begin_ms, end_ms]."""

    def by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary) -> int:
        """The queue offset for a moment."""

    def by_offset(self, physical_offset: int) -> StoredMessage | None:
        """The message whose record starts there."""


@dataclass(frozen=True)
class Acknowledged:
    """A message and what its writer said about it."""

    message: OutMessage
    put: PutResult


def acknowledged(messages: Sequence[OutMessage], puts: Sequence[PutResult]) -> list[Acknowledged]:
    """Pair what was sent with what came back; nothing may be missing."""
    return [Acknowledged(message, put) for message, put in zip(messages, puts, strict=True)]


def assert_holds_exactly(queues: dict[Queue, QueueContents], written: Sequence[Acknowledged]) -> None:
    """Every acknowledged message stands where its acknowledgement said, as it was sent, and nothing else is there."""
    expected: dict[Queue, list[Acknowledged]] = {}
    for one in written:
        if one.message.queued:
            expected.setdefault((one.message.topic, one.message.queue_id), []).append(one)
    assert set(queues) == set(expected)
    for queue, contents in queues.items():
        sent = expected[queue]
        assert (contents.min_offset, contents.max_offset) == (0, len(sent)), queue
        assert [one.put.queue_offset for one in sent] == list(range(len(sent))), queue
        assert len(contents.messages) == len(sent), queue
        for stored, one in zip(contents.messages, sent, strict=True):
            assert_same_message(stored, one)
        for unit, stored in zip(contents.units or [], contents.messages, strict=contents.units is not None):
            assert (unit.queue_offset, unit.physical_offset, unit.size, unit.tags_code) == (
                stored.queue_offset,
                stored.physical_offset,
                stored.store_size,
                expected_tags_code(stored),
            ), stored


def assert_same_message(stored: StoredMessage, one: Acknowledged) -> None:
    """The stored message is the one that was sent. A writer may add properties of its own; the sent ones are kept."""
    sent, put = one.message, one.put
    assert (stored.topic, stored.queue_id, stored.body) == (sent.topic, sent.queue_id, sent.body)
    assert (stored.flag, stored.sys_flag, stored.born_timestamp_ms) == (
        sent.flag,
        sent.sys_flag,
        sent.born_timestamp_ms,
    )
    assert sent.stored_properties.items() <= stored.properties.items()
    assert (stored.physical_offset, stored.store_timestamp_ms, stored.message_id) == (
        put.physical_offset,
        put.store_timestamp_ms,
        put.message_id,
    )
    if sent.queued:
        assert stored.queue_offset == put.queue_offset


def expected_tags_code(message: StoredMessage) -> int:
    """The queue unit's tag field: a hash of the tags; in the delay topic, when to deliver."""
    level = int(message.properties.get("DELAY", "0"))
    if message.topic == DELAY_TOPIC and level > 0:
        return message.store_timestamp_ms + 1000 * DELAY_LEVEL_SECONDS[min(level, len(DELAY_LEVEL_SECONDS)) - 1]
    return tags_hash(message.properties.get("TAGS", ""))


@dataclass(frozen=True)
class KeyQuestion:
    """Which messages of *topic* carry *key*: the newest *max_count*, if there are more."""

    topic: str
    key: str
    max_count: int


def key_questions(written: Sequence[Acknowledged], count: int = 150) -> list[KeyQuestion]:
    """A fixed sample of the keys in use, every key that is used often, and keys nobody used."""
    uses: dict[tuple[str, str], int] = {}
    for one in written:
        keys = [*one.message.keys, *filter(None, [one.message.properties.get("UNIQ_KEY")])]
        for key in keys:
            uses[one.message.topic, key] = uses.get((one.message.topic, key), 0) + 1
    often = [pair for pair, number in uses.items() if number > 3]
    once = [pair for pair, number in uses.items() if number <= 3]
    chosen = often + random.Random(len(uses)).sample(once, min(count, len(once)))
    questions = [KeyQuestion(topic, key, KEY_ANSWER_COUNT_MAX) for topic, key in chosen]
    topics = sorted({one.message.topic for one in written})
    return questions + [KeyQuestion(topic, "nobody-used-this", KEY_ANSWER_COUNT_MAX) for topic in topics]


def right_key_answer(written: Sequence[Acknowledged], question: KeyQuestion) -> list[int]:
    """Physical offsets, ascending, of the newest messages with that key. Rolled-back messages are not indexed."""
    found = [
        one.put.physical_offset
        for one in written
        if one.message.topic == question.topic
        and one.message.sys_flag & TRANSACTION_ROLLBACK != TRANSACTION_ROLLBACK
        and (question.key in one.message.keys or one.message.properties.get("UNIQ_KEY") == question.key)
    ]
    return sorted(found)[-question.max_count :]


def carriers(answer: Sequence[StoredMessage], key: str) -> list[int]:
    """Physical offsets, ascending, of those in an answer that really carry *key*.

    Apache's store answers by hash alone: messages with another key of the same hash come along, and a message with
    two keys of one hash comes twice.
    """
    return sorted({message.physical_offset for message in answer if key in message.index_keys})


def assert_right_key_answer(reader: Reader, written: Sequence[Acknowledged], question: KeyQuestion) -> None:
    """The newest carriers of the key, all of them up to the limit; strangers in the answer may crowd out the oldest."""
    answer = reader.by_key(question.topic, question.key, question.max_count)
    found, right = carriers(answer, question.key), right_key_answer(written, question)
    crowded = len(answer) == question.max_count and len(found) < len(answer)
    assert found == (right[-len(found) :] if crowded else right), question


def assert_right_key_windows(reader: Reader, written: Sequence[Acknowledged], question: KeyQuestion) -> None:
    """A window around everything changes nothing; one before or after everything leaves nothing."""
    first = written[0].put.store_timestamp_ms - INDEX_TIME_MARGIN_MS
    last = written[-1].put.store_timestamp_ms + INDEX_TIME_MARGIN_MS
    topic, key, max_count = question.topic, question.key, question.max_count
    assert reader.by_key(topic, key, max_count, first, last) == reader.by_key(topic, key, max_count), question
    assert reader.by_key(topic, key, max_count, 0, first) == [], question
    assert reader.by_key(topic, key, max_count, last, TIMESTAMP_MS_MAX) == [], question


@dataclass(frozen=True)
class TimeQuestion:
    """Where in the queue *timestamp_ms* falls."""

    topic: str
    queue_id: int
    timestamp_ms: int


def time_questions(queues: dict[Queue, QueueContents], per_queue: int = 12) -> list[TimeQuestion]:
    """Around store times that occur, between them, and outside them on both sides."""
    questions = []
    for (topic, queue_id), contents in sorted(queues.items()):
        times = sorted({message.store_timestamp_ms for message in contents.messages})
        chosen = random.Random(len(times)).sample(times, min(per_queue, len(times)))
        moments = {times[0] - 1000, times[-1] + 1000}.union(*({time - 1, time, time + 1} for time in chosen))
        questions += [TimeQuestion(topic, queue_id, moment) for moment in sorted(moments)]
    return questions


def right_time_answers(contents: QueueContents, timestamp_ms: int) -> tuple[int, int]:
    """(lower, upper): the first offset at or after the moment; the last at or before it, or the first there is."""
    times = [message.store_timestamp_ms for message in contents.messages]
    lower = contents.min_offset + bisect_left(times, timestamp_ms)
    upper = contents.min_offset + max(bisect_right(times, timestamp_ms) - 1, 0)
    return lower, upper


def assert_answers_rightly(reader: Reader, written: Sequence[Acknowledged]) -> None:
    """Everything acknowledged is held, and every look-up by key, time and physical offset is answered as it must be."""
    assert_holds_exactly(reader.queues, written)
    for one in written[::7]:
        stored = reader.by_offset(one.put.physical_offset)
        assert stored is not None, one
        assert_same_message(stored, one)
    questions = key_questions(written)
    for question in questions:
        assert_right_key_answer(reader, written, question)
    for question in questions[::10]:
        assert_right_key_windows(reader, written, question)
    for moment in time_questions(reader.queues):
        answers = tuple(
            reader.by_time(moment.topic, moment.queue_id, moment.timestamp_ms, boundary)
            for boundary in ("LOWER", "UPPER")
        )
        right = right_time_answers(reader.queues[moment.topic, moment.queue_id], moment.timestamp_ms)
        assert answers == right, moment
