"""Faults of messages that wait, fail and are decided about: A13 (transactions), A14 (POP), A15 (timers), A16 (delays),
A17 (retries). Each changes one thing that a broker would never write, and leaves the rest of the story as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pymq.broker.names import (
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from tests.spark_jobs.faults import Case, Expected, Fault, NothingFitsError, pages
from tests.spark_jobs.faults.patch import PatchedStore, Placed

COMMITTED, BITS = 8, 12
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
HOUR_MS = 3_600_000
INNER = (HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)


# ---- tools -----------------------------------------------------------------------------------------------------------


def chosen(case: Case, found: list[Placed], what: str) -> Placed:
    """One of *found*."""
    if not found:
        raise NothingFitsError(f"{case.path}: no {what}")
    return case.random.choice(found)


def at(check: str, one: Placed) -> Expected:
    """A finding at a record's place in its queue."""
    return Expected(check, one.topic, one.record.queue_id, one.record.queue_offset)


def other(text: str) -> str:
    """A text of the same length that is another one: its last letter or digit is."""
    last = text[-1]
    changed = "1" if last == "0" else "0" if last.isdigit() else "b" if last == "a" else "a"
    return text[:-1] + changed


def queue_end(store: PatchedStore, topic: str, queue_id: int) -> int:
    """The queue offset a next message would get."""
    return max(store.units(topic, queue_id), default=-1) + 1


def put(case: Case, one: Placed, properties: bytes | None = None, **changes: Any) -> Placed:
    """A copy of *one* at the log's end, in the queue *changes* name (or its own), with its unit."""
    topic = changes.pop("topic", one.topic)
    queue_id = changes.pop("queue_id", one.record.queue_id)
    offset = queue_end(case.store, topic, queue_id)
    raw = one.record.properties if properties is None else properties
    record = replace(
        one.record, topic=topic.encode(), queue_id=queue_id, queue_offset=offset, properties=raw, **changes
    )
    last = max(case.store.records(), key=lambda record: record.offset)
    stored = max(last.record.store_timestamp_ms, changes.get("store_timestamp_ms", 0))
    return case.store.append(replace(record, store_timestamp_ms=stored), unit=True)


def without(properties: bytes, *names: str) -> bytes:
    """Properties less some."""
    for name in names:
        properties = re.sub(name.encode() + b"\x01[^\x02]*\x02?", b"", properties)
    return properties


# ---- A13: transactions -----------------------------------------------------------------------------------------------


def halves(store: PatchedStore) -> list[Placed]:
    """Every half message."""
    return store.find(lambda one: one.topic == HALF_TOPIC)


def commits(store: PatchedStore) -> list[Placed]:
    """Every message a transaction was committed to."""
    return store.find(
        lambda one: (
            one.record.sys_flag & BITS == COMMITTED
            and one.topic not in INNER
            and not one.topic.startswith("%")
            and "REAL_TOPIC" not in one.properties
        )
    )


def ended(store: PatchedStore) -> dict[int, Placed]:
    """Half queue offsets with the op message that names each."""
    ops = store.find(lambda one: one.topic == OP_HALF_TOPIC)
    return {int(word): one for one in ops for word in one.record.body.split(b",") if word}


def rolled_back(store: PatchedStore) -> list[Placed]:
    """Half messages that an op message ended and nothing came of, of which there is one copy only."""
    named, everything = ended(store), halves(store)
    made = {one.properties["UNIQ_KEY"] for one in commits(store)}
    keys = [one.properties["UNIQ_KEY"] for one in everything]
    return [
        one
        for one in everything
        if one.record.queue_offset in named
        and one.properties["UNIQ_KEY"] not in made
        and keys.count(one.properties["UNIQ_KEY"]) == 1
    ]


def pending(store: PatchedStore) -> Placed:
    """The last copy of a half message that has no end."""
    named, made = ended(store), {one.properties["UNIQ_KEY"] for one in commits(store)}
    last = {one.properties["UNIQ_KEY"]: one for one in halves(store)}
    keys = {one.properties["UNIQ_KEY"] for one in halves(store) if one.record.queue_offset in named}
    found = [one for key, one in last.items() if key not in made and key not in keys]
    if not found:
        raise NothingFitsError(f"{store.root}: no pending transaction")
    return found[-1]


def prepared_elsewhere(case: Case, step: int) -> Expected:
    """The committed message names a place where no half message begins."""
    one = chosen(case, commits(case.store), "committed message")
    changed = one.record.prepared_transaction_offset + step
    case.store.rewrite(one, prepared_transaction_offset=changed)
    return at("A13", one)


def prepared_by_another(case: Case) -> Expected:
    """The committed message names a half message of another transaction."""
    one = chosen(case, commits(case.store), "committed message")
    case.store.rewrite(one, prepared_transaction_offset=pending(case.store).offset)
    return at("A13", one)


def commit_of_another_key(case: Case) -> Expected:
    """The committed message has another key than its half."""
    one = chosen(case, commits(case.store), "committed message")
    case.store.set_property(one, "UNIQ_KEY", other(one.properties["UNIQ_KEY"]))
    return at("A13", one)


def half_for_another_topic(case: Case) -> Expected:
    """The half was meant for another topic than its message went to."""
    one = chosen(case, commits(case.store), "committed message")
    half = case.store.at(one.record.prepared_transaction_offset)
    case.store.set_property(half, "REAL_TOPIC", other(half.properties["REAL_TOPIC"]))
    return at("A13", one)


def committed_twice(case: Case) -> Expected:
    """The same commit, stored again."""
    return at("A13", put(case, chosen(case, commits(case.store), "committed message")))


def committed_after_rollback(case: Case) -> Expected:
    """A rolled back half message becomes visible."""
    half = chosen(case, rolled_back(case.store), "rolled back transaction")
    raw = without(half.record.properties, "REAL_TOPIC", "REAL_QID")
    made = put(
        case, half, raw, topic=half.properties["REAL_TOPIC"], queue_id=0, sys_flag=COMMITTED,
        prepared_transaction_offset=half.offset,
    )  # fmt: skip
    return at("A13", made)


def half_visible(case: Case) -> Expected:
    """A half message is put where consumers read."""
    half = pending(case.store)
    raw = without(half.record.properties, "REAL_TOPIC", "REAL_QID")
    return at("A13", put(case, half, raw, topic=half.properties["REAL_TOPIC"], queue_id=0))


def op_of_another(case: Case) -> Expected:
    """The op message of a rollback names a committed half instead."""
    made = {one.record.prepared_transaction_offset for one in commits(case.store)}
    done = [one.record.queue_offset for one in halves(case.store) if one.offset in made]
    named = ended(case.store)
    for half in rolled_back(case.store):
        offset = half.record.queue_offset
        instead = [one for one in done if len(str(one)) == len(str(offset)) and one in named]
        if not instead:
            continue
        op = named[offset]
        words = op.record.body.split(b",")
        body = b",".join(b"%d" % instead[0] if word == b"%d" % offset else word for word in words)
        case.store.rewrite(op, body=body)
        return at("A13", half)
    raise NothingFitsError("no op message of a rollback")


def op_astray(case: Case, body: bytes) -> Expected:
    """An op message that names no half message, or nothing."""
    ops = case.store.find(lambda one: one.topic == OP_HALF_TOPIC)
    return at("A13", put(case, chosen(case, ops, "op message"), body=body))


def progress_beyond(case: Case) -> Expected:
    """The checks have left a pending half message behind."""
    half = pending(case.store)
    entry = f"{HALF_TOPIC}@{TRANSACTION_GROUP}"

    def change(offsets: Any) -> None:
        offsets["offsetTable"][entry][0] = half.record.queue_offset + 1

    case.store.edit_config("consumerOffset.json", change)
    return at("A13", half)


A13 = (
    Fault("A13", "prepared_a_byte_later", partial(prepared_elsewhere, step=1)),
    Fault("A13", "rollback_without_op", op_of_another),
    Fault("A13", "prepared_by_another_half", prepared_by_another),
    Fault("A13", "commit_of_another_key", commit_of_another_key),
    Fault("A13", "half_for_another_topic", half_for_another_topic),
    Fault("A13", "committed_twice", committed_twice),
    Fault("A13", "committed_after_rollback", committed_after_rollback),
    Fault("A13", "half_visible", half_visible),
    Fault("A13", "op_names_no_half", partial(op_astray, body=b"777777,")),
    Fault("A13", "progress_beyond_a_pending_half", progress_beyond),
)


# ---- A14: POP --------------------------------------------------------------------------------------------------------


def revived(store: PatchedStore) -> Placed:
    """A message that came again because nobody acked it."""
    found = store.find(lambda one: "1ST_POP_TIME" in one.properties)
    if not found:
        raise NothingFitsError(f"{store.root}: nothing was revived")
    return found[0]


def acks(store: PatchedStore) -> list[Placed]:
    """Acks of check-points that revive has passed."""
    table = store.config("consumerOffset.json")["offsetTable"]
    passed = next((value for name, value in table.items() if name.endswith(f"@{REVIVE_GROUP}")), {})
    queues = store.find(lambda one: one.topic.startswith(REVIVE_PREFIX))
    points = [one for one in queues if one.properties.get("TAGS") == "ck"]
    done = {number(one, b"pt"): one for one in points if one.record.queue_offset <= passed.get(one.record.queue_id, -1)}
    return [one for one in queues if one.properties.get("TAGS") == "ack" and number(one, b"pt") in done]


def number(one: Placed, name: bytes) -> int:
    """A number in a body of JSON."""
    found = re.search(b'"' + name + b'":([0-9]+)', one.record.body)
    return int(found[1]) if found else -1


def ack_says(case: Case, name: bytes) -> Expected:
    """An ack of a message is one of something else: another offset, queue, pop or group."""
    one = chosen(case, acks(case.store), "ack")
    topic, queue_id, offset = one.properties["UNIQ_KEY"].split("@")[:3]
    body = re.sub(
        b'("' + name + b'":"?)([^,"}]+)', lambda found: found[1] + other(found[2].decode()).encode(), one.record.body
    )
    case.store.rewrite(one, body=body)
    return Expected("A14", topic, int(queue_id), int(offset))


def origin_of(store: PatchedStore, copy: Placed) -> Placed:
    """What a revived message is a copy of."""
    key = copy.properties["UNIQ_KEY"]
    return store.find(lambda one: one.properties.get("UNIQ_KEY") == key and not one.topic.startswith("%"))[0]


def revived_is_another(case: Case, change: Callable[[PatchedStore, Placed], Any]) -> Expected:
    """The revived copy is not the message's any more."""
    copy = revived(case.store)
    origin = origin_of(case.store, copy)
    change(case.store, copy)
    return at("A14", origin)


def acked_comes_again(case: Case) -> Expected:
    """A message that was acked is put into the retry topic."""
    copy = revived(case.store)
    key = chosen(case, acks(case.store), "ack").properties["UNIQ_KEY"].split("@")
    place = (key[0], int(key[1]), int(key[2]))
    acked = case.store.find(lambda one: (one.topic, one.record.queue_id, one.record.queue_offset) == place)[0]
    raw = acked.record.properties.rstrip(b"\x02") + b"\x021ST_POP_TIME\x01" + key[4].encode() + b"\x02"
    return at("A14", put(case, acked, raw, topic=copy.topic, queue_id=0, reconsume_times=1))


def comes_too_early(case: Case) -> Expected:
    """A message comes again within its invisible time."""
    copy = revived(case.store)
    case.store.rewrite(copy, store_timestamp_ms=int(copy.properties["1ST_POP_TIME"]) + 1)
    return at("A14", copy)


def unread_ack(case: Case) -> Expected:
    """An ack of a check-point that is still in flight cannot be read."""
    done = {one.offset for one in acks(case.store)}
    waiting = case.store.find(
        lambda one: (
            one.topic.startswith(REVIVE_PREFIX) and one.properties.get("TAGS") == "ack" and one.offset not in done
        )
    )
    one = chosen(case, waiting, "ack in flight")
    case.store.rewrite(one, body=one.record.body.replace(b'"ao"', b'"xx"'))
    return Expected("A14", None, one.record.queue_id, one.record.queue_offset)


def other_key(store: PatchedStore, one: Placed) -> None:
    """Another UNIQ_KEY."""
    store.set_property(one, "UNIQ_KEY", other(one.properties["UNIQ_KEY"]))


POPPED = ("golden",)
A14 = (
    *(
        Fault("A14", f"ack_of_another_{what}", partial(ack_says, name=name), kinds=POPPED)
        for what, name in (
            ("offset", b"ao"),
            ("pop", b"pt"),
            ("group", b"c"),
            ("broker", b"bn"),
            ("topic", b"t"),
        )
    ),
    Fault("A14", "revived_with_another_key", partial(revived_is_another, change=other_key), kinds=POPPED),
    Fault(
        "A14",
        "revived_with_another_count",
        partial(revived_is_another, change=lambda store, one: store.rewrite(one, reconsume_times=3)),
        kinds=POPPED,
    ),
    Fault("A14", "acked_comes_again", acked_comes_again, kinds=POPPED),
    Fault("A14", "comes_too_early", comes_too_early, kinds=POPPED),
    Fault("A14", "unread_ack", unread_ack, kinds=POPPED),
)


# ---- A15: timers -----------------------------------------------------------------------------------------------------


def pending_unit(case: Case) -> tuple[int, pages.TimerUnit]:
    """A unit of a slot that is still to come, not the log's first."""
    read_ms = pages.read_timer_check(case.path).read_ms
    units = pages.timer_units(case.path)
    found = [
        (position, unit)
        for position, unit in units.items()
        if unit.written_ms + unit.delay_ms >= read_ms and position > min(units)
    ]
    if not found:
        raise NothingFitsError(f"{case.path}: no pending timer")
    return case.random.choice(found)


def unit_leads(case: Case, to: Callable[[int, list[int]], int]) -> Expected:
    """A unit's chain leads elsewhere: *to* gets its position and those of units of other slots."""
    position, unit = pending_unit(case)
    slot = unit.written_ms + unit.delay_ms
    strangers = [place for place, one in pages.timer_units(case.path).items() if one.written_ms + one.delay_ms != slot]
    pages.put_timer_unit(case.path, position, unit._replace(previous=to(position, strangers)))
    return Expected("A15", TIMER_TOPIC, None, position)


def unit_of_another_size(case: Case) -> Expected:
    """A unit says another size than its message has."""
    position, unit = pending_unit(case)
    pages.put_timer_unit(case.path, position, unit._replace(record_size=unit.record_size + 1))
    return Expected("A15", TIMER_TOPIC, None, position)


def slot_says(case: Case, change: Callable[[pages.WheelSlot], pages.WheelSlot]) -> Expected:
    """A slot of the wheel is not what its chain is."""
    position, unit = pending_unit(case)
    slots = pages.wheel_slots(case.path)
    slot_ms = unit.written_ms + unit.delay_ms
    for index, slot in slots.items():
        if slot.time and slot_ms % slot.time == 0 and slot.first_position <= position <= slot.last_position:
            pages.put_wheel_slot(case.path, index, change(slot))
            return Expected("A15", TIMER_TOPIC, None, slot_ms if change(slot).time else None)
    raise NothingFitsError("the wheel has no slot for it")


def message_without_unit(case: Case) -> Expected:
    """A message was brought into the wheel, says the checkpoint, and is not there."""
    waiting = case.store.find(lambda one: one.topic == TIMER_TOPIC and "TIMER_DEL_UNIQKEY" not in one.properties)
    far = max(waiting, key=lambda one: int(one.properties["TIMER_OUT_MS"]), default=None)
    if far is None or int(far.properties["TIMER_OUT_MS"]) < pages.read_timer_check(case.path).read_ms:
        raise NothingFitsError("no pending timer")
    key = far.properties["UNIQ_KEY"].encode()
    made = put(case, far, far.record.properties.replace(key, other(key.decode()).encode()))
    pages.edit_timer_check(case.path, queue_offset=made.record.queue_offset + 1)
    return at("A15", made)


def delivered_timers(store: PatchedStore) -> list[Placed]:
    """Messages that timers delivered once."""
    found = store.find(
        lambda one: (
            one.topic != TIMER_TOPIC
            and one.properties.get("REAL_TOPIC") == one.topic
            and "TIMER_DEQUEUE_MS" in one.properties
            and not one.topic.startswith("%")
        )
    )
    keys = [one.properties["UNIQ_KEY"] for one in found]
    return [one for one in found if keys.count(one.properties["UNIQ_KEY"]) == 1]


def undelivered(case: Case) -> Expected:
    """A slot is over, and one message of it was never delivered."""
    one = chosen(case, delivered_timers(case.store), "delivered timer")
    key = one.properties["UNIQ_KEY"]
    waiting = case.store.find(
        lambda other: (
            other.topic == TIMER_TOPIC
            and other.properties.get("UNIQ_KEY") == key
            and "TIMER_DEL_UNIQKEY" not in other.properties
        )
    )
    other_key(case.store, one)
    return at("A15", waiting[-1])


def timer_early(case: Case, by_ms: int) -> Expected:
    """A timer was delivered before its time."""
    one = chosen(case, delivered_timers(case.store), "delivered timer")
    case.store.rewrite(one, store_timestamp_ms=int(one.properties["TIMER_OUT_MS"]) - by_ms)
    return at("A15", one)


def stranger(position: int, others: list[int]) -> int:
    """A unit of another slot before this one."""
    found = [place for place in others if place < position]
    if not found:
        raise NothingFitsError("no other slot")
    return found[-1]


A15 = (
    Fault("A15", "chain_of_one_unit_turns", partial(unit_leads, to=lambda position, _: position)),
    Fault("A15", "chain_leads_ahead", partial(unit_leads, to=lambda position, _: position + 52)),
    Fault("A15", "chain_leads_to_another_slot", partial(unit_leads, to=stranger)),
    Fault("A15", "unit_of_another_size", unit_of_another_size),
    Fault("A15", "slot_counts_one_more", partial(slot_says, change=lambda slot: slot._replace(count=slot.count + 1))),
    Fault(
        "A15",
        "slot_ends_elsewhere",
        partial(slot_says, change=lambda slot: slot._replace(last_position=slot.last_position + 52)),
    ),
    Fault("A15", "slot_is_gone", partial(slot_says, change=lambda _: pages.WheelSlot(0, 0, 0, 0, 0))),
    Fault("A15", "message_without_unit", message_without_unit),
    Fault("A15", "due_and_not_delivered", undelivered),
    Fault("A15", "delivered_early", partial(timer_early, by_ms=1)),
)


# ---- A16: delay levels -----------------------------------------------------------------------------------------------


def identity(one: Placed) -> tuple[Any, ...]:
    """What a delayed message and its copy have in common."""
    target = (one.properties["REAL_TOPIC"], one.properties["REAL_QID"])
    return (one.properties["UNIQ_KEY"], one.record.born_timestamp_ms, one.record.reconsume_times, *target)


def delivered(store: PatchedStore) -> list[tuple[Placed, Placed]]:
    """Delayed messages and their copies, of those that were delivered once."""
    waiting = {identity(one): one for one in store.find(lambda one: one.topic == SCHEDULE_TOPIC)}
    copies = store.find(
        lambda one: (
            one.topic not in INNER
            and one.properties.get("REAL_TOPIC") == one.topic
            and int(one.properties.get("DELAY", "0")) > 0
        )
    )
    pairs = [(waiting[identity(one)], one) for one in copies if identity(one) in waiting]
    counts = [identity(one) for _, one in pairs]
    return [pair for pair in pairs if counts.count(identity(pair[1])) == 1]


def pair(case: Case) -> tuple[Placed, Placed]:
    """One of them."""
    found = delivered(case.store)
    if not found:
        raise NothingFitsError(f"{case.path}: nothing was delayed")
    return case.random.choice(found)


def copy_disguised(case: Case, name: str, value: str | None) -> Expected:
    """The delivered copy does not say any more that it is one: the message was never delivered."""
    waiting, copy = pair(case)
    was = copy.properties[name]
    case.store.set_property(copy, name, other(was) if value is None else value * len(was))
    return at("A16", waiting)


def pending_delays(case: Case) -> list[Placed]:
    """The first pending message of each level that has one."""
    table = case.store.config("delayOffset.json")["offsetTable"]
    waiting = case.store.find(lambda one: one.topic == SCHEDULE_TOPIC)
    return [one for one in waiting if one.record.queue_offset == table.get(one.record.queue_id + 1, 0)]


def level_passed(case: Case, file: str = "delayOffset.json") -> Expected:
    """A level's offset is beyond a message that waits."""
    one = chosen(case, pending_delays(case), "pending delayed message")

    def change(offsets: Any) -> None:
        offsets["offsetTable"][one.record.queue_id + 1] = one.record.queue_offset + 1

    case.store.edit_config(file, change)
    return at("A16", one)


def delivered_early(case: Case, by_ms: int) -> Expected:
    """A copy was stored before the message was due."""
    waiting, copy = pair(case)
    (due,) = [case.store.unit(*waiting.queue, waiting.record.queue_offset).tags_code]
    case.store.rewrite(copy, store_timestamp_ms=due - by_ms)
    return at("A16", copy)


def waits_longer(case: Case) -> Expected:
    """The waiting message was stored later than it says: its copy came too early."""
    waiting, copy = pair(case)
    case.store.rewrite(waiting, store_timestamp_ms=waiting.record.store_timestamp_ms + HOUR_MS)
    return at("A16", copy)


def higher_level(case: Case) -> Expected:
    """The waiting message asked for a longer delay than it got."""
    waiting, copy = pair(case)
    if len(waiting.properties["DELAY"]) != 1 or waiting.properties["DELAY"] == "9":
        raise NothingFitsError("no low level")
    case.store.set_property(waiting, "DELAY", "9")
    return at("A16", copy)


def never_waited(case: Case, **changes: Any) -> Expected:
    """A copy of a delayed message that never was one."""
    _, copy = pair(case)
    key = copy.properties["UNIQ_KEY"].encode()
    raw = copy.record.properties if changes else copy.record.properties.replace(key, other(key.decode()).encode())
    return at("A16", put(case, copy, raw, **changes))


def skipped(case: Case) -> Expected:
    """A message was passed over: a later one of its level was delivered, and the file knows nothing of either."""
    pairs = sorted(delivered(case.store), key=lambda both: both[0].record.queue_offset)
    levels = [both[0].record.queue_id for both in pairs]
    found = [both for both in pairs if levels.count(both[0].record.queue_id) > 1]
    firsts = [both for both in found if both[0].record.queue_id not in [one[0].record.queue_id for one in found[:1]]]
    if not found:
        raise NothingFitsError("no level with two deliveries")
    waiting, copy = (firsts or found)[0]
    level = waiting.record.queue_id + 1
    case.store.edit_config("delayOffset.json", lambda offsets: offsets["offsetTable"].update({level: 0}))
    case.store.set_property(copy, "REAL_TOPIC", other(copy.properties["REAL_TOPIC"]))
    return at("A16", waiting)


A16 = (
    Fault("A16", "copy_for_another_topic", partial(copy_disguised, name="REAL_TOPIC", value=None)),
    Fault("A16", "copy_for_another_queue", partial(copy_disguised, name="REAL_QID", value="9")),
    Fault("A16", "copy_without_a_level", partial(copy_disguised, name="DELAY", value="0")),
    Fault("A16", "level_has_passed_it", level_passed),
    Fault("A16", "a_millisecond_early", partial(delivered_early, by_ms=1)),
    Fault("A16", "never_failed_so_often", partial(never_waited, reconsume_times=9)),
    Fault("A16", "should_have_waited_longer", waits_longer),
    Fault("A16", "asked_for_a_higher_level", higher_level),
    Fault("A16", "never_waited", never_waited),
    Fault("A16", "passed_over", skipped),
)


# ---- A17: retries ----------------------------------------------------------------------------------------------------


def sent_back(case: Case) -> Placed:
    """A message that came back, waiting or delivered."""

    def is_one(one: Placed) -> bool:
        target = one.properties.get("REAL_TOPIC", "") if one.topic == SCHEDULE_TOPIC else one.topic
        return "ORIGIN_MESSAGE_ID" in one.properties and target.startswith((RETRY_PREFIX, DLQ_PREFIX))

    return chosen(case, case.store.find(is_one), "message that was sent back")


def origin_is(case: Case, place: Callable[[Case, Placed, int], int]) -> Expected:
    """ORIGIN_MESSAGE_ID names another place."""
    one = sent_back(case)
    name = one.properties["ORIGIN_MESSAGE_ID"]
    case.store.set_property(one, "ORIGIN_MESSAGE_ID", f"{name[:-16]}{place(case, one, int(name[-16:], 16)):016X}")
    return at("A17", one)


def another_record(case: Case, one: Placed, origin: int) -> int:
    """The place of a record that is another one's."""
    key = one.properties["UNIQ_KEY"]
    return case.store.pick(
        lambda other: other.offset < one.offset and other.properties.get("UNIQ_KEY") != key, case.random
    ).offset


def origin_unread(case: Case) -> Expected:
    """ORIGIN_MESSAGE_ID is no id."""
    one = sent_back(case)
    case.store.set_property(one, "ORIGIN_MESSAGE_ID", "Z" + one.properties["ORIGIN_MESSAGE_ID"][1:])
    return at("A17", one)


def returned_with(case: Case, name: str) -> Expected:
    """Another property than its origin has."""
    one = sent_back(case)
    case.store.set_property(one, name, other(one.properties[name]))
    return at("A17", one)


def returned_as(case: Case, change: Callable[[Placed], dict[str, Any]]) -> Expected:
    """Another field than a copy would have."""
    one = sent_back(case)
    case.store.rewrite(one, **change(one))
    return at("A17", one)


A17 = (
    Fault("A17", "origin_a_byte_later", partial(origin_is, place=lambda case, one, origin: origin + 1)),
    Fault("A17", "origin_is_itself", partial(origin_is, place=lambda case, one, origin: one.offset)),
    Fault("A17", "origin_is_another_message", partial(origin_is, place=another_record)),
    Fault("A17", "origin_unread", origin_unread),
    Fault("A17", "of_another_topic", partial(returned_with, name="RETRY_TOPIC")),
    Fault("A17", "of_another_key", partial(returned_with, name="UNIQ_KEY")),
    Fault("A17", "counts_no_delivery", partial(returned_as, change=lambda one: {"reconsume_times": 0})),
    Fault("A17", "counts_too_many", partial(returned_as, change=lambda one: {"reconsume_times": 4000})),
    Fault("A17", "another_body", partial(returned_as, change=lambda one: {"body": bytes(len(one.record.body))})),
    Fault(
        "A17",
        "born_later",
        partial(returned_as, change=lambda one: {"born_timestamp_ms": one.record.born_timestamp_ms + 1}),
    ),
)

FAULTS = (*A13, *A14, *A15, *A16, *A17)
