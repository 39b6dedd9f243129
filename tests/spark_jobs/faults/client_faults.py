"""Faults that clients notice: A18 (duplicates), A19 (order), A21 (acknowledged sends), A22 (consumption), A23
(retention). Some are in the store, some in the books of the clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pymq.broker.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.spark_jobs.faults import Case, Expected, Fault, NothingFitsError
from tests.spark_jobs.faults.patch import Placed, Unit
from tests.spark_jobs.faults.waiting_faults import at, chosen, other, put

COPIED = ("REAL_TOPIC", "ORIGIN_MESSAGE_ID", "1ST_POP_TIME", "TRAN_MSG", "TIMER_DEQUEUE_MS")
INNER = (HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)
SHARDING_KEY = "__SHARDINGKEY"
FILLER = Unit(0, 2**31 - 1, 0)
HOUR_MS = 3_600_000


def plain(case: Case) -> list[Placed]:
    """Messages as producers sent them."""

    def is_plain(one: Placed) -> bool:
        system = one.topic in INNER or one.topic.startswith(("%", "rmq_sys_", "RMQ_SYS_", "TRANS_"))
        return not system and "UNIQ_KEY" in one.properties and not any(name in one.properties for name in COPIED)

    return [one for one in case.store.find(is_plain) if not one.topic.endswith("_REPLY_TOPIC")]


# ---- A18: duplicates -------------------------------------------------------------------------------------------------


def stored_again(case: Case, wanted: Callable[[Placed], Any] = lambda one: True, **changes: Any) -> Expected:
    """A message of a producer's is there twice."""
    one = chosen(case, [one for one in plain(case) if wanted(one)], "plain message")
    return at("A18", put(case, one, **changes))


def in_another_queue(case: Case) -> Expected:
    """The second copy is in another queue of the topic."""
    one = chosen(case, plain(case), "plain message")
    queues = [queue for topic, queue in case.store.queues() if topic == one.topic and queue != one.record.queue_id]
    if not queues:
        raise NothingFitsError("a topic of one queue")
    return at("A18", put(case, one, queue_id=case.random.choice(queues)))


def key_of_another(case: Case, near: bool) -> Expected:
    """A message has the key of another one of its topic."""
    found = plain(case)
    pairs = [
        (before, one)
        for index, one in enumerate(found)
        for before in (found[max(index - 3, 0) : index] if near else found[:1])
        if before.topic == one.topic
        and before.offset < one.offset
        and len(before.properties["UNIQ_KEY"]) == len(one.properties["UNIQ_KEY"])
    ]
    if not pairs:
        raise NothingFitsError("no two messages of a topic")
    before, one = case.random.choice(pairs)
    case.store.set_property(one, "UNIQ_KEY", before.properties["UNIQ_KEY"])
    return at("A18", one)


def three_times(case: Case) -> Expected:
    """A message is there three times: one finding."""
    one = chosen(case, plain(case), "plain message")
    put(case, one)
    return at("A18", put(case, one))


def once_delayed(case: Case) -> Expected:
    """One copy was delayed, the other sent: no crash explains that."""
    one = chosen(case, plain(case), "plain message")
    raw = one.record.properties.rstrip(b"\x02") + b"\x02DELAY\x011\x02REAL_TOPIC\x01" + one.record.topic + b"\x02"
    return at("A18", put(case, one, raw))


def last(case: Case) -> Placed:
    """The last plain message."""
    found = plain(case)
    if not found:
        raise NothingFitsError("no plain message")
    return found[-1]


A18 = (
    Fault("A18", "stored_again", stored_again),
    Fault("A18", "stored_again_with_tags", partial(stored_again, wanted=lambda one: "TAGS" in one.properties)),
    Fault("A18", "stored_again_with_another_body", partial(stored_again, body=b"another body")),
    Fault("A18", "stored_again_by_another_host", partial(stored_again, born_timestamp_ms=1)),
    Fault("A18", "the_last_one_again", lambda case: at("A18", put(case, last(case)))),
    Fault("A18", "in_another_queue", in_another_queue),
    Fault("A18", "key_of_the_one_before", partial(key_of_another, near=True)),
    Fault("A18", "key_of_the_first", partial(key_of_another, near=False)),
    Fault("A18", "three_times", three_times),
    Fault("A18", "once_sent_and_once_delayed", once_delayed),
)


# ---- A19: order ------------------------------------------------------------------------------------------------------


def lines(case: Case) -> list[list[Placed]]:
    """Messages of each sharding key and queue in order, of those with two or more."""
    by_key: dict[tuple[Any, ...], list[Placed]] = {}
    for one in plain(case):
        if SHARDING_KEY in one.properties:
            key = (*one.queue, one.properties[SHARDING_KEY], one.record.born_host)
            by_key.setdefault(key, []).append(one)
    found = [line for line in by_key.values() if len(line) > 1]
    if not found:
        raise NothingFitsError("no ordered messages")
    return found


def born_before(case: Case, by_ms: int, at_end: bool = False) -> Expected:
    """A message was born before the one in front of it."""
    line = case.random.choice(lines(case))
    index = len(line) - 1 if at_end else case.random.randrange(1, len(line))
    case.store.rewrite(line[index], born_timestamp_ms=line[index - 1].record.born_timestamp_ms - by_ms)
    return at("A19", line[index])


def born_after(case: Case, by_ms: int) -> Expected:
    """A message was born after the one behind it."""
    line = case.random.choice(lines(case))
    index = case.random.randrange(0, len(line) - 1)
    later = max(one.record.born_timestamp_ms for one in line)
    case.store.rewrite(line[index], born_timestamp_ms=later + by_ms)
    return at("A19", line[index + 1])


def came_late(case: Case, index: int) -> Expected:
    """A message is put behind all others of its key, with the birth of an earlier one."""
    line = case.random.choice([line for line in lines(case) if line[0].record != line[-1].record])
    one = line[index]
    born = line[0].record.born_timestamp_ms - 1
    key = one.properties["UNIQ_KEY"].encode()
    raw = one.record.properties.replace(key, other(key.decode()).encode())
    return at("A19", put(case, one, raw, born_timestamp_ms=born))


def answered_before(case: Case) -> Expected:
    """A send began when one that lies behind it had been answered, says the ledger."""
    for path in case.ledgers:
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
        sent = [row for row in rows if row[0] == "A"]
        for row in sent:
            behind = [one for one in sent if one[1:3] == row[1:3] and int(one[3]) == int(row[3]) + 1]
            place = int(row[4][-16:], 16)
            if not behind or case.store.at(place).topic != row[1]:
                continue
            row[8], row[9] = str(int(behind[0][9]) + 1), str(int(behind[0][9]) + 1000)
            path.write_text("\n".join("\t".join(one) for one in rows) + "\n", encoding="utf-8")
            return Expected("A19", row[1], int(row[2]), int(row[3]))
    raise NothingFitsError("no two acknowledged sends of a queue")


A19 = (
    Fault("A19", "born_a_millisecond_before", partial(born_before, by_ms=1)),
    Fault("A19", "born_a_second_before", partial(born_before, by_ms=1000)),
    Fault("A19", "born_an_hour_before", partial(born_before, by_ms=HOUR_MS)),
    Fault("A19", "the_last_born_before", partial(born_before, by_ms=1, at_end=True)),
    Fault("A19", "born_a_millisecond_after", partial(born_after, by_ms=1)),
    Fault("A19", "born_a_second_after", partial(born_after, by_ms=1000)),
    Fault("A19", "born_an_hour_after", partial(born_after, by_ms=HOUR_MS)),
    Fault("A19", "the_first_came_late", partial(came_late, index=0)),
    Fault("A19", "the_last_came_late", partial(came_late, index=-1)),
    Fault("A19", "answered_before_it_was_sent", answered_before, ledgers=True),
)


# ---- A21: acknowledged sends -----------------------------------------------------------------------------------------


def rows_of(path: Path, kind: str) -> list[list[str]]:
    """Lines of a ledger."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row[0] == kind]


def acknowledged(case: Case, *, waits: bool = False) -> tuple[Path, list[str], Placed]:
    """A ledger, an acknowledged line of it, and its record: one that waited, or one that did not."""
    found = [(path, row) for path in case.ledgers for row in rows_of(path, "A")]
    case.random.shuffle(found)
    for path, row in found:
        one = case.store.at(int(row[4][-16:], 16))
        if (one.topic in INNER) == waits:
            return path, row, one
    raise NothingFitsError("no such line")


def named(check: str, row: list[str]) -> Expected:
    """A finding where a line says its message is."""
    return Expected(check, row[1], int(row[2]), int(row[3]))


def record_is(case: Case, change: Callable[[Placed], dict[str, Any]]) -> Expected:
    """The record that was acknowledged is another one."""
    _, row, one = acknowledged(case)
    case.store.rewrite(one, **change(one))
    return named("A21", row)


def target_is(case: Case) -> Expected:
    """A message that waits is for another topic than it was sent to."""
    _, row, one = acknowledged(case, waits=True)
    case.store.set_property(one, "REAL_TOPIC", other(one.properties["REAL_TOPIC"]))
    return named("A21", row)


def record_is_gone(case: Case, *, is_last: bool) -> Expected:
    """No record begins where one was acknowledged."""
    sent = {int(row[4][-16:], 16): row for path in case.ledgers for row in rows_of(path, "A")}
    ends = sorted(one.offset for one in case.store.records())
    inner = [offset for offset in ends[1:-1] if offset in sent]
    wanted = [ends[-1]] if is_last else inner
    if not wanted or wanted[0] not in sent:
        raise NothingFitsError("the last record is not a client's")
    offset = case.random.choice(wanted)
    one = case.store.at(offset)
    case.store.write(offset, bytes(one.size) if is_last else b"\xff\xff\xff\xff\xff\xff\xff\xff")
    return named("A21", sent[offset])


def add_line(path: Path, row: list[str]) -> None:
    """One more line in a ledger."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write("\t".join(row) + "\n")


def promised(case: Case) -> Expected:
    """A client was told of a message behind the log's end."""
    path, row, _ = acknowledged(case)
    far = f"{row[4][:-16]}{case.store.log_end() + 64:016X}"
    add_line(path, [*row[:3], "100000", far, row[5], "999999", *row[7:]])
    return Expected("A21", row[1], int(row[2]), 100_000)


def told_twice(case: Case) -> Expected:
    """Two sends were answered with one record."""
    path, row, _ = acknowledged(case)
    add_line(path, [*row[:6], "999999", *row[7:]])
    return named("A21", row)


def line_cut(case: Case) -> Expected:
    """A line ends in its middle."""
    path = case.random.choice(case.ledgers)
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "A\tPlain\t0\t17\t7F00", encoding="utf-8")
    return Expected("A21")


def head_gone(case: Case) -> Expected:
    """A ledger does not say that it is one."""
    path = case.random.choice([path for path in case.ledgers if rows_of(path, "A")])
    path.write_text(path.read_text(encoding="utf-8").replace("# pymq-ledger 1", "# a ledger", 1), encoding="utf-8")
    return Expected("A21")


A21 = tuple(
    replace(fault, ledgers=True)
    for fault in (
        Fault("A21", "the_last_record_is_gone", partial(record_is_gone, is_last=True)),
        Fault("A21", "a_record_is_gone", partial(record_is_gone, is_last=False)),
        Fault(
            "A21",
            "at_another_queue_offset",
            partial(record_is, change=lambda one: {"queue_offset": one.record.queue_offset + 1}),
        ),
        Fault("A21", "in_another_queue", partial(record_is, change=lambda one: {"queue_id": one.record.queue_id + 1})),
        Fault("A21", "in_another_topic", partial(record_is, change=lambda one: {"topic": other(one.topic).encode()})),
        Fault("A21", "waits_for_another_topic", target_is),
        Fault("A21", "promised_and_never_stored", promised),
        Fault("A21", "one_record_for_two_sends", told_twice),
        Fault("A21", "a_line_is_cut", line_cut),
        Fault("A21", "no_ledger", head_gone),
    )
)


# ---- A22: consumption ------------------------------------------------------------------------------------------------


def ledger_of(case: Case, group: str) -> Path:
    """What a group has handled."""
    for path in case.ledgers:
        if path.name == f"handled-{group}.tsv" and rows_of(path, "R"):
            return path
    raise NothingFitsError(f"no ledger of {group}")


def committed(case: Case, group: str, topic: str) -> dict[int, int]:
    """Its offsets."""
    return case.store.config("consumerOffset.json")["offsetTable"].get(f"{topic}@{group}", {})


def moved_on(case: Case, by: int) -> Expected:
    """A group's offset is beyond messages it has never seen."""
    group, topic = "half-way", "Plain"
    queues = {row[2] for row in rows_of(ledger_of(case, group), "R") if row[1] == topic}
    offsets = {queue: offset for queue, offset in committed(case, group, topic).items() if str(queue) in queues}
    free = [queue for queue, offset in offsets.items() if max(case.store.units(topic, queue), default=0) >= offset + by]
    if not free:
        raise NothingFitsError("the group has read everything")
    queue = case.random.choice(free)

    def change(table: Any) -> None:
        table["offsetTable"][f"{topic}@{group}"][queue] += by

    case.store.edit_config("consumerOffset.json", change)
    return Expected("A22", topic, queue, offsets[queue])


def lines_gone(case: Case, group: str, topic: str, count: int, *, at_end: bool = False) -> Expected:
    """A group has handled less than its offset says."""
    path = ledger_of(case, group)
    text = path.read_text(encoding="utf-8").splitlines()
    offsets = committed(case, group, topic)
    by_queue: dict[int, list[int]] = {}
    for row in rows_of(path, "R"):
        if row[1] == topic and int(row[3]) < offsets.get(int(row[2]), 0):
            by_queue.setdefault(int(row[2]), []).append(int(row[3]))
    # Neither the first (where the group began is not known without it), nor one that was handled again.
    queues = {
        queue: sorted(found)[1:]
        for queue, found in by_queue.items()
        if len(found) > count + 1 and len(set(found)) == len(found)
    }
    if not queues:
        raise NothingFitsError("too few lines")
    queue = case.random.choice(sorted(queues))
    found = queues[queue]
    first = len(found) - count if at_end else case.random.randrange(0, len(found) - count + 1)
    gone = {f"R\t{topic}\t{queue}\t{offset}\t" for offset in found[first : first + count]}
    kept = [line for line in text if not line.startswith(tuple(gone))]
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return Expected("A22", topic, queue, found[first])


def handled(case: Case) -> tuple[Path, list[str], Placed]:
    """A line of a group that reads whole topics, and its record."""
    path = ledger_of(case, "readers")
    row = case.random.choice(rows_of(path, "R"))
    return path, row, case.store.at(int(row[4][-16:], 16))


def handled_nothing(case: Case) -> Expected:
    """A group has handled a message that is not in the log."""
    path, row, _ = handled(case)
    far = f"{row[4][:-16]}{case.store.log_end() + 64:016X}"
    add_line(path, [*row[:3], "100000", far, *row[5:]])
    return Expected("A22", row[1], int(row[2]), 100_000)


def handled_is_gone(case: Case) -> Expected:
    """A message that was handled is no record any more."""
    _, row, one = handled(case)
    case.store.write(one.offset, b"\xff\xff\xff\xff\xff\xff\xff\xff")
    return named("A22", row)


def handled_elsewhere(case: Case) -> Expected:
    """A message that was handled says that it stands elsewhere."""
    _, row, one = handled(case)
    case.store.rewrite(one, queue_offset=one.record.queue_offset + 100_000)
    return named("A22", row)


def another_body(case: Case) -> Expected:
    """A consumer got another message than its producer had sent."""
    path, row, _ = handled(case)
    add_line(path, [*row[:5], "999", "999", *row[7:]])
    return named("A22", row)


A22 = tuple(
    replace(fault, ledgers=True)
    for fault in (
        Fault("A22", "offset_one_too_far", partial(moved_on, by=1)),
        Fault("A22", "offset_three_too_far", partial(moved_on, by=3)),
        Fault("A22", "one_was_skipped", partial(lines_gone, group="readers", topic="Plain", count=1)),
        Fault("A22", "two_were_skipped", partial(lines_gone, group="readers", topic="Plain", count=2)),
        Fault("A22", "the_last_was_skipped", partial(lines_gone, group="readers", topic="Plain", count=1, at_end=True)),
        Fault("A22", "one_with_the_tag_was_skipped", partial(lines_gone, group="tagged", topic="Plain", count=1)),
        Fault("A22", "handled_and_not_there", handled_nothing),
        Fault("A22", "handled_and_gone", handled_is_gone),
        Fault("A22", "handled_elsewhere", handled_elsewhere),
        Fault("A22", "another_body", another_body),
    )
)


# ---- A23: retention --------------------------------------------------------------------------------------------------


def deleted_unread(case: Case, left: int, *, is_filler: bool = True, topics: tuple[str, ...] = ()) -> Expected:
    """A queue begins behind what a group wants next; *left* of its messages are still there.

    The group stands in the middle of the queue in both stores, and nobody else reads there before it.
    """
    table = case.store.config("consumerOffset.json")["offsetTable"]
    places = [
        (topic, group, queue)
        for name, offsets in table.items()
        for topic, _, group in [name.rpartition("@")]
        for queue in offsets
        if not group.startswith("CID_RMQ_SYS_") and (not topics or topic in topics)
    ]
    case.random.shuffle(places)
    for topic, group, queue in places:
        units = sorted(case.store.units(topic, queue)) if (topic, queue) in case.store.queues() else []
        if len(units) < left + 2 or units[0] != 0:
            continue
        offset = units[-1] - left
        others = [
            table[name][queue]
            for name in table
            if name.rpartition("@")[0] == topic and name != f"{topic}@{group}" and queue in table[name]
        ]
        if any(other <= offset for other in others):
            continue
        for store in (case.store, case.other):
            store.edit_config(
                "consumerOffset.json",
                lambda found: found["offsetTable"][f"{topic}@{group}"].update({queue: offset}),  # noqa: B023
            )
        for at_ in range(offset + 1):
            case.store.put_unit(topic, queue, at_, FILLER if is_filler else Unit(0, 0, 0))
        return Expected("A23", topic, queue, offset)
    raise NothingFitsError("no group that reads a queue alone")


A23 = tuple(
    replace(fault, against="same")
    for fault in (
        *(Fault("A23", f"{left}_are_left", partial(deleted_unread, left=left)) for left in (1, 2, 3, 4, 5)),
        *(
            Fault("A23", f"{left}_are_left_behind_a_hole", partial(deleted_unread, left=left, is_filler=False))
            for left in (1, 2, 3)
        ),
        Fault("A23", "of_ordered_messages", partial(deleted_unread, left=1, topics=("Ordered", "GoldenFifo"))),
        Fault("A23", "of_plain_messages", partial(deleted_unread, left=1, topics=("Plain", "GoldenA"))),
    )
)

FAULTS = (*A18, *A19, *A21, *A22, *A23)
