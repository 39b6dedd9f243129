"""What transactions put into the log, and what they look for in it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pymq._core._serve import PutResult, Reput
from pymq._core._store import ReceivedMessage, Store
from pymq.broker import names
from pymq.broker.redirect import TIMER_ASKED, Redirected, by_time
from pymq.broker.schedule.levels import DELAY
from pymq.broker.transaction.half import (
    CHECK_TIMES,
    COMMIT_FLAG,
    FLAG_MASK,
    HALF_QUEUE,
    ORIGIN,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    Half,
    number,
    read_half,
)
from pymq.errors import NotFoundError, StoreError
from pymq.remoting.codes import RequestCode
from pymq.remoting.command import Command, next_opaque

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

CRC = "__CRC32#"  # the store writes it again
NOT_COMMITTED = (REAL_TOPIC, REAL_QUEUE_ID, ORIGIN, CRC)  # properties that belong to the half alone
GIVEN_UP_QUEUE = 0
LOOK_COUNT = 64  # records with the key of one transaction that are looked at
SCAN_COUNT = 256
MAGIC_V1, MAGIC_V2 = -626843481, -626843477
TOPIC_V1_SIZE_MAX = 127
BORN_HOST_V6, STORE_HOST_V6 = 1 << 4, 1 << 5
# Places in a record; the hosts make the rest move.
TOTAL_SIZE_AT, MAGIC_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, BORN_HOST_AT = 0, 4, 12, 20, 28, 48


# ---- putting -----------------------------------------------------------------------------------------------------


def edit(raw: bytes, remove: frozenset[str], add: Mapping[str, str]) -> bytes:
    """Properties as stored, without those of *remove* and with those of *add*; all others byte for byte."""
    gone = {name.encode() for name in (*remove, *add, CRC)}
    kept = [piece for piece in raw.split(b"\x02") if piece and piece.partition(b"\x01")[0] not in gone]
    kept += [f"{name}\x01{value}".encode() for name, value in add.items()]
    return b"".join(piece + b"\x02" for piece in kept)


def pairs(properties: Mapping[str, str]) -> bytes:
    """Properties as a record has them."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


def refusal(status: str, what: str) -> StoreError:
    """The error of a record that was not put again."""
    return StoreError(f"{what}: {status}", status=status)


def target_of(broker: Broker, message: ReceivedMessage, half: Half) -> Redirected:
    """Where a half message goes when it is committed: where it was sent to, or where it waits for its time.

    Raises:
        SendRefused: its time cannot be had.
    """
    sys_flag = message.sys_flag & ~FLAG_MASK | COMMIT_FLAG
    properties = message.properties
    for name in NOT_COMMITTED:
        properties.pop(name, None)
    plain = Redirected(half.topic, half.queue_id, properties, sys_flag)
    return by_time(broker, plain, broker.clock.now_ms())


def targets_of(broker: Broker, message: ReceivedMessage, half: Half) -> set[tuple[str, int]]:
    """Topic and queue of every place an earlier commit of *half* may have put it, whatever its time was then."""
    targets = {(half.topic, half.queue_id)}
    properties = message.properties
    if not properties.keys().isdisjoint(TIMER_ASKED):
        targets.add((names.TIMER_TOPIC, 0))
    level = number(properties.get(DELAY), 0)
    if level > 0:
        targets.add((names.SCHEDULE_TOPIC, broker.delay_levels.queue_of(level)))
    return targets


def commit(broker: Broker, message: ReceivedMessage, half: Half) -> PutResult:
    """Put a half message where it was meant to go. TRAN_MSG and PGROUP stay on it, as Apache leaves them.

    Raises:
        StoreError: the store refuses.
        SendRefused: its delivery time cannot be had.
    """
    target = target_of(broker, message, half)
    before = message.properties
    added = {name: value for name, value in target.properties.items() if before.get(name) != value}
    removed = before.keys() - target.properties.keys()
    (result,) = broker.serve.reput(
        [
            Reput(
                half.physical_offset,
                target.topic,
                target.queue_id,
                remove="".join(f"{name}\x02" for name in removed).encode(),
                set=pairs(added),
                sys_flag_clear=FLAG_MASK,
                sys_flag_set=COMMIT_FLAG,
                prepared_transaction_offset=half.physical_offset,
            )
        ]
    )
    if isinstance(result, str):
        raise refusal(result, f"committing {half.key}")
    return result


def marks_of(half: Half, checks: int) -> dict[str, str]:
    """The properties a half message gets when it is put again."""
    return {ORIGIN: str(half.origin)} | ({CHECK_TIMES: str(checks)} if checks else {})


def half_again(half: Half, checks: int) -> Reput:
    """A half message at its queue's end, with *checks* as its count."""
    return Reput(half.physical_offset, names.HALF_TOPIC, HALF_QUEUE, set=pairs(marks_of(half, checks)))


def given_up(half: Half) -> Reput:
    """A half message that nobody ends, where an administrator finds it. The topic must be there."""
    return Reput(half.physical_offset, names.CHECK_MAX_TIME_TOPIC, GIVEN_UP_QUEUE)


def resumed(physical_offset: int) -> Reput:
    """What was given up as a half message of its own, not asked about yet."""
    marks = pairs({CHECK_TIMES: "0"})
    return Reput(physical_offset, names.HALF_TOPIC, HALF_QUEUE, remove=f"{ORIGIN}\x02".encode(), set=marks)


# ---- asking a producer -------------------------------------------------------------------------------------------


def check_command(broker: Broker, half: Half, record: bytes, place: PutResult, properties: bytes) -> Command:
    """CHECK_TRANSACTION_STATE: the half message with its own topic and queue, at the place it was put again.

    *record* is the copy before, *properties* those of the new one.
    """
    offset_id = f"{broker.serve.host_hex}{place.physical_offset:016X}"
    fields = {
        "topic": names.HALF_TOPIC,
        "tranStateTableOffset": str(place.queue_offset),
        "commitLogOffset": str(place.physical_offset),
        "msgId": half.key,
        "transactionId": half.key,
        "offsetMsgId": offset_id,
        "bname": broker.config.broker_name,
    }
    body = check_body(record, half, place, properties)
    return Command(RequestCode.CHECK_TRANSACTION_STATE, fields, body, opaque=next_opaque())


def check_body(record: bytes, half: Half, place: PutResult, properties: bytes) -> bytes:
    """*record* as the message its producer sent, with its new places (MessageDecoder.encode)."""
    (sys_flag,) = struct.unpack_from(">i", record, 36)
    born, store = 20 if sys_flag & BORN_HOST_V6 else 8, 20 if sys_flag & STORE_HOST_V6 else 8
    body_at = BORN_HOST_AT + born + 8 + store + 4 + 8
    (body_size,) = struct.unpack_from(">i", record, body_at)
    topic = half.topic.encode()
    short = len(topic) <= TOPIC_V1_SIZE_MAX
    head = bytearray(record[: body_at + 4 + body_size])
    tail = struct.pack(">b" if short else ">h", len(topic)) + topic + struct.pack(">h", len(properties)) + properties
    struct.pack_into(">ii", head, TOTAL_SIZE_AT, len(head) + len(tail), MAGIC_V1 if short else MAGIC_V2)
    struct.pack_into(">i", head, QUEUE_ID_AT, half.queue_id)
    struct.pack_into(">qq", head, QUEUE_OFFSET_AT, place.queue_offset, place.physical_offset)
    return bytes(head) + tail


# ---- looking -----------------------------------------------------------------------------------------------------


def find_committed(store: Store, half: Half, targets: set[tuple[str, int]], *, indexed: bool) -> bool:
    """Whether the transaction of *half* is in the log as a committed message, in one of *targets* (topic, queue).

    For half messages of an earlier run: a kill may have come between the committed message and its op message. By
    the index, where that has the half itself (it may have been off then) and not too much else under its key;
    otherwise by reading the queues from the half's time on. Waits for the disk.

    Raises:
        StoreError: it cannot be told.
    """
    trusted = indexed and bool(half.key) and is_indexed(store, half)
    for topic, queue_id in targets:
        found = store.query(topic, half.key, half.store_ms, max_count=LOOK_COUNT) if trusted else []
        if any(is_commit_of(store, half, message) for message in found):
            return True
        is_all = trusted and len(found) < LOOK_COUNT
        if not is_all and any(is_commit_of(store, half, m) for m in scan(store, topic, queue_id, half.store_ms)):
            return True
    return False


def is_indexed(store: Store, half: Half) -> bool:
    """Whether the index knows the half message, and so was kept when its commit may have been stored."""
    found = store.query(names.HALF_TOPIC, half.key, half.store_ms, max_count=LOOK_COUNT)
    return any(message.physical_offset == half.physical_offset for message in found)


def scan(store: Store, topic: str, queue_id: int, since_ms: int) -> list[ReceivedMessage]:
    """The committed messages of a queue from a time on."""
    found: list[ReceivedMessage] = []
    try:
        offset = store.offset_by_time(topic, queue_id, since_ms)
        while messages := store.read(topic, queue_id, offset, SCAN_COUNT, settle=False):
            found += [message for message in messages if message.sys_flag & FLAG_MASK == COMMIT_FLAG]
            offset = type(offset)(messages[-1].queue_offset + 1)
    except NotFoundError:
        pass
    return found


def is_commit_of(store: Store, half: Half, message: ReceivedMessage) -> bool:
    """Whether *message* is what some copy of *half* was committed to."""
    if message.sys_flag & FLAG_MASK != COMMIT_FLAG:
        return False
    if message.prepared_transaction_offset == half.physical_offset:
        return True
    try:
        copy = read_half(store.read_record(message.prepared_transaction_offset))
    except StoreError:
        return False
    return copy is not None and (copy.origin, copy.key) == (half.origin, half.key)
