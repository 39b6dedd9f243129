"""Faults of what a store says of itself: checkpoint (A8), offsets (A9), topics (A10), how it was left (A12)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pymq.broker.names import DLQ_PREFIX, REPLY_TOPIC_SUFFIX, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from tests.spark_jobs.faults import Case, Expected, NothingFitsError, PatchedStore
from tests.spark_jobs.faults.pages import OWN_CRC_AT, edit_checkpoint, read_checkpoint
from tests.spark_jobs.faults.patch import UNIT, flip, put
from tests.spark_jobs.faults.seeding import Faults

FAULTS = Faults()

HOUR_MS = 3_600_000
OFFSETS, TOPICS = "consumerOffset.json", "topics.json"


def own(case: Case) -> dict[str, int]:
    """The checkpoint of a store that pymq stopped."""
    page = read_checkpoint(case.path)
    if page.get("clean_end", -1) < 0 or (case.path / "abort").exists():
        raise NothingFitsError("pymq did not stop it in order")
    return page


# ---- A8: the checkpoint ----------------------------------------------------------------------------------------------


def last_time(case: Case) -> int:
    """When the last record was stored."""
    return max(one.record.store_timestamp_ms for one in case.store.records())


@FAULTS.seeds("A8")
def _log_flushed_later(case: Case) -> Expected:
    edit_checkpoint(case.path, physic_msg_timestamp=last_time(case) + case.random.randrange(1, HOUR_MS))
    return Expected("A8", offset=0)


@FAULTS.seeds("A8")
def _queues_flushed_later(case: Case) -> Expected:
    edit_checkpoint(case.path, logics_msg_timestamp=last_time(case) + case.random.randrange(1, HOUR_MS))
    return Expected("A8", offset=8)


@FAULTS.seeds("A8")
def _index_flushed_later(case: Case) -> Expected:
    edit_checkpoint(case.path, index_msg_timestamp=last_time(case) + case.random.randrange(1, HOUR_MS))
    return Expected("A8", offset=16)


@FAULTS.seeds("A8")
def _a_time_below_zero(case: Case) -> Expected:
    edit_checkpoint(case.path, physic_msg_timestamp=-case.random.randrange(1, HOUR_MS))
    return Expected("A8", offset=0)


@FAULTS.seeds("A8")
def _queues_flushed_further(case: Case) -> Expected:
    edit_checkpoint(case.path, logics_physical_offset=case.store.log_end() + case.random.randrange(1 << 20, 1 << 40))
    return Expected("A8", offset=40)


@FAULTS.seeds("A8")
def _log_flushed_further(case: Case) -> Expected:
    own(case)
    edit_checkpoint(case.path, flushed_offset=case.store.log_end() + case.random.randrange(1 << 20, 1 << 40))
    return Expected("A8", offset=2072)


@FAULTS.seeds("A8")
def _safe_but_not_flushed(case: Case) -> Expected:
    page = own(case)
    edit_checkpoint(case.path, safe_offset=page["flushed_offset"] + case.random.randrange(1, 1 << 20))
    return Expected("A8", offset=2064)


@FAULTS.seeds("A8")
def _no_record_where_the_last_was(case: Case) -> Expected:
    page = own(case)
    edit_checkpoint(case.path, last_record=page["last_record"] - 1)
    return Expected("A8", offset=2088)


@FAULTS.seeds("A8")
def _a_bit_of_the_block(case: Case) -> Expected:
    own(case)
    flip(case.path / "checkpoint", OWN_CRC_AT + case.random.randrange(4, 104), case.random.randrange(8))
    return Expected("A8", offset=2048)


@FAULTS.seeds("A8")
def _half_a_page(case: Case) -> Expected:
    with (case.path / "checkpoint").open("r+b") as stream:
        stream.truncate(case.random.randrange(4096))
    return Expected("A8", offset=0)


# ---- A9: consumer offsets --------------------------------------------------------------------------------------------

Committed = tuple[str, int, int, int]  # "topic@group", queue, offset, where the queue ends


def committed(
    case: Case, store: PatchedStore | None = None, wanted: Callable[[Committed], object] = lambda one: True
) -> Committed:
    """An offset above 0 of a queue that is there."""
    store = store or case.store
    ends = {queue: max(units) + 1 for queue in store.queues() if (units := store.units(*queue))}
    found = [
        (name, int(queue), offset, ends[name.rpartition("@")[0], int(queue)])
        for name, queues in store.config(OFFSETS)["offsetTable"].items()
        for queue, offset in queues.items()
        if (name.rpartition("@")[0], int(queue)) in ends and offset > 0
    ]
    found = [one for one in found if wanted(one)]
    if not found:
        raise NothingFitsError("no offset fits")
    return case.random.choice(sorted(found))


def commit(store: PatchedStore, one: Committed, offset: int) -> None:
    """Another offset in its place."""

    def change(document: dict[str, Any]) -> None:
        queues = document["offsetTable"][one[0]]
        key = next(key for key in queues if int(key) == one[1])
        queues[key] = offset

    store.edit_config(OFFSETS, change)


def committed_at(one: Committed, offset: int) -> Expected:
    """The finding of an offset."""
    return Expected("A9", one[0].rpartition("@")[0], one[1], offset)


@FAULTS.seeds("A9")
def _one_beyond_the_queue(case: Case) -> Expected:
    one = committed(case)
    commit(case.store, one, one[3] + 1)
    return committed_at(one, one[3] + 1)


@FAULTS.seeds("A9")
def _far_beyond_the_queue(case: Case) -> Expected:
    one = committed(case)
    offset = one[3] + case.random.randrange(2, 1 << 40)
    commit(case.store, one, offset)
    return committed_at(one, offset)


@FAULTS.seeds("A9")
def _below_zero(case: Case) -> Expected:
    one = committed(case)
    offset = -case.random.randrange(1, 1 << 20)
    commit(case.store, one, offset)
    return committed_at(one, offset)


@FAULTS.seeds("A9")
def _a_damaged_file(case: Case) -> Expected:
    path = case.path / "config" / OFFSETS
    if not path.exists():
        raise NothingFitsError("no offsets")
    data = path.read_bytes()
    path.with_name(OFFSETS + ".bak").write_bytes(data)
    path.write_bytes(data[: len(data) // 2])
    return Expected("A9")


@FAULTS.seeds("A9")
def _a_group_nobody_has_heard_of(case: Case) -> Expected:
    topic, queue = case.store.pick_queue(case.random)
    end = max(case.store.units(topic, queue)) + 1
    case.store.edit_config(
        OFFSETS, lambda document: document["offsetTable"].update({f"{topic}@late": {queue: end + 5}})
    )
    return Expected("A9", topic, queue, end + 5)


@FAULTS.seeds("A9", against="same")
def _one_back(case: Case) -> Expected:
    one = committed(case)
    commit(case.store, one, one[2] - 1)
    return committed_at(one, one[2] - 1)


@FAULTS.seeds("A9", against="same")
def _back_to_the_beginning(case: Case) -> Expected:
    one = committed(case)
    commit(case.store, one, 0)
    return committed_at(one, 0)


@FAULTS.seeds("A9", against="same")
def _further_before(case: Case) -> Expected:
    one = committed(case, wanted=lambda one: one[2] < one[3])
    commit(case.other, one, one[3])
    return committed_at(one, one[2])


@FAULTS.seeds("A9", against="same")
def _another_groups_reset(case: Case) -> Expected:
    one = committed(case)
    commit(case.store, one, one[2] - 1)
    topic = one[0].rpartition("@")[0]
    resets = {f"{topic}@somebody_else": {one[1]: one[2] - 1}}
    case.store.edit_config(OFFSETS, lambda document: document.update(pymqResetTable=resets))
    return committed_at(one, one[2] - 1)


@FAULTS.seeds("A9", against="earlier")
def _back_behind_the_earlier_dump(case: Case) -> Expected:
    before = {
        (name, int(queue)): offset
        for name, queues in case.other.config(OFFSETS)["offsetTable"].items()
        for queue, offset in queues.items()
    }
    one = committed(case, wanted=lambda one: before.get(one[:2], 0) > 0)
    offset = case.random.randrange(before[one[0], one[1]])
    commit(case.store, one, offset)
    return committed_at(one, offset)


# ---- A10: topics -----------------------------------------------------------------------------------------------------


def is_own(topic: str) -> bool:
    """Whether RocketMQ makes the topic by itself."""
    return (
        topic in SYSTEM_TOPICS
        or topic.startswith((SYSTEM_TOPIC_PREFIX, RETRY_PREFIX, DLQ_PREFIX))
        or topic.endswith(REPLY_TOPIC_SUFFIX)
    )


def configured(case: Case, wanted: Callable[[str], object]) -> str:
    """A topic that is configured."""
    found = [topic for topic in case.store.config(TOPICS)["topicConfigTable"] if wanted(topic)]
    if not found:
        raise NothingFitsError("no topic fits")
    return case.random.choice(sorted(found))


def with_messages(case: Case) -> Callable[[str], bool]:
    """Whether a topic is a user's and has messages that the log has."""
    begin = int(case.store.log_files()[0].name)
    full = {
        topic
        for topic, queue in case.store.queues()
        if any(unit.physical_offset >= begin for unit in case.store.units(topic, queue).values())
    }
    return lambda topic: topic in full and not is_own(topic)


def configure(case: Case, topic: str, **values: int) -> Expected:
    """Other settings of a topic."""
    case.store.edit_config(TOPICS, lambda document: document["topicConfigTable"][topic].update(values))
    return Expected("A10", topic)


@FAULTS.seeds("A10")
def _no_configuration(case: Case) -> Expected:
    topic = configured(case, with_messages(case))
    case.store.edit_config(TOPICS, lambda document: document["topicConfigTable"].pop(topic))
    return Expected("A10", topic)


@FAULTS.seeds("A10")
def _fewer_read_queues_than_none(case: Case) -> Expected:
    return configure(case, configured(case, lambda topic: True), readQueueNums=-1)


@FAULTS.seeds("A10")
def _fewer_write_queues_than_none(case: Case) -> Expected:
    return configure(case, configured(case, lambda topic: True), writeQueueNums=-case.random.randrange(1, 100))


@FAULTS.seeds("A10")
def _a_permission_nobody_knows(case: Case) -> Expected:
    return configure(case, configured(case, lambda topic: True), perm=16 | case.random.choice((2, 4, 6)))


@FAULTS.seeds("A10")
def _a_permission_below_zero(case: Case) -> Expected:
    return configure(case, configured(case, lambda topic: True), perm=-1)


@FAULTS.seeds("A10")
def _dead_letters_nobody_can_read(case: Case) -> Expected:
    return configure(case, configured(case, lambda topic: topic.startswith(DLQ_PREFIX)), perm=2)


@FAULTS.seeds("A10")
def _retries_nobody_can_write(case: Case) -> Expected:
    return configure(case, configured(case, lambda topic: topic.startswith(RETRY_PREFIX)), perm=4)


@FAULTS.seeds("A10")
def _retries_nobody_can_read(case: Case) -> Expected:
    return configure(case, configured(case, lambda topic: topic.startswith(RETRY_PREFIX)), perm=2)


@FAULTS.seeds("A10")
def _a_queue_nobody_is_offered(case: Case) -> Expected:
    topic = configured(case, with_messages(case))
    queues = [queue for name, queue in case.store.queues() if name == topic]
    source = case.path / "consumequeue" / topic / str(case.random.choice(queues))
    if not any(case.store.units(topic, int(source.name))):
        raise NothingFitsError("an empty queue")
    nums = case.store.config(TOPICS)["topicConfigTable"][topic]["readQueueNums"]
    source.rename(source.with_name(str(nums + 3)))
    return Expected("A10", topic, nums + 3)


@FAULTS.seeds("A10")
def _a_damaged_file_of_topics(case: Case) -> Expected:
    path = case.path / "config" / TOPICS
    if not path.exists():
        raise NothingFitsError("no topics")
    data = path.read_bytes()
    path.with_name(TOPICS + ".bak").write_bytes(data)
    path.write_bytes(data[: len(data) // 2])
    return Expected("A10")


# ---- A12: how it was left --------------------------------------------------------------------------------------------


def last_record_zeroed(case: Case) -> int:
    """Take the last record away; where it stood."""
    last = list(case.store.records())[-1]
    case.store.write(last.offset, bytes(last.size))
    return last.offset


@FAULTS.seeds("A12")
def _ended_further(case: Case) -> Expected:
    page = own(case)
    edit_checkpoint(case.path, clean_end=page["clean_end"] + case.random.randrange(1, 1 << 20))
    return Expected("A12", offset=case.store.log_end())


@FAULTS.seeds("A12")
def _ended_earlier(case: Case) -> Expected:
    page = own(case)
    edit_checkpoint(case.path, clean_end=page["clean_end"] - case.random.randrange(1, 91))
    return Expected("A12", offset=case.store.log_end())


@FAULTS.seeds("A12")
def _more_units(case: Case) -> Expected:
    page = own(case)
    edit_checkpoint(case.path, unit_total=page["unit_total"] + case.random.randrange(1, 100))
    return Expected("A12")


@FAULTS.seeds("A12")
def _another_end_of_the_index(case: Case) -> Expected:
    page = own(case)
    if page["index_end"] < 1:
        raise NothingFitsError("no index")
    edit_checkpoint(case.path, index_end=page["index_end"] - 1)
    return Expected("A12", offset=page["index_end"])


@FAULTS.seeds("A12")
def _the_last_record_gone(case: Case) -> Expected:
    own(case)
    return Expected("A12", offset=last_record_zeroed(case))


@FAULTS.seeds("A12")
def _stale_bytes_behind_the_end(case: Case) -> Expected:
    own(case)
    end = case.store.log_end()
    case.store.write(end, case.random.randbytes(case.random.randrange(1, 64)) + b"\x01")
    return Expected("A12", offset=end)


@FAULTS.seeds("A12")
def _a_record_behind_the_end(case: Case) -> Expected:
    own(case)
    last = list(case.store.records())[-1]
    appended = case.store.append(replace(last.record, queue_offset=last.record.queue_offset + 1))
    return Expected("A12", offset=appended.offset + appended.size)


@FAULTS.seeds("A12")
def _the_last_unit_gone(case: Case) -> Expected:
    own(case)
    topic, queue = case.store.pick_queue(case.random, units_min=2)
    case.store.zero_unit(topic, queue, max(case.store.units(topic, queue)))
    return Expected("A12")


@FAULTS.seeds("A12")
def _a_queue_file_cut_short(case: Case) -> Expected:
    topic, queue = case.store.pick_queue(case.random)
    units = case.store.units(topic, queue)
    path: Path = case.store.queue_files(topic, queue)[-1]
    used = [offset - int(path.name) // UNIT.size for offset in units if offset * UNIT.size >= int(path.name)]
    size = (max(used, default=0) + 1) * UNIT.size
    if not used or size >= path.stat().st_size:
        raise NothingFitsError("a full queue file")
    with path.open("r+b") as stream:
        stream.truncate(size)
    return Expected("A12", topic, queue, max(units))


@FAULTS.seeds("A12")
def _killed_and_shorter_than_before(case: Case) -> Expected:
    own(case)
    put_abort(case.path)
    return Expected("A12", offset=last_record_zeroed(case))


def put_abort(root: Path) -> None:
    """As if somebody had opened the store and been killed."""
    (root / "abort").write_bytes(b"4711")
    put(root / "abort", 0, b"4712")
