"""A half message, as its record tells it."""

from __future__ import annotations

import re
from typing import NamedTuple

from pymq._core._store import ReceivedMessage
from pymq.broker import names

PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_ID = "__transactionId__"
UNIQUE_KEY = "UNIQ_KEY"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
# The queue offset of the half message this one was put again for. Apache writes it when it puts a half back within
# its own immunity time; pymq writes it whenever it puts a half again, so that all of its copies are known to be one
# transaction.
ORIGIN = "TRAN_PREPARED_QUEUE_OFFSET"
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"

COMMIT_FLAG = 2 << 2  # of sysFlag
ROLLBACK_FLAG = 3 << 2
FLAG_MASK = 3 << 2

HALF_QUEUE = 0
NO_QUEUE = -1
NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
QUEUE_ID_MAX = 65_535
IMMUNITY_MAX_S = 10**9  # keeps milliseconds within what Java's long and our clock hold


class Half(NamedTuple):
    """What has to be known of a half message to end it, or to ask about it."""

    offset: int  # in the half queue
    physical_offset: int
    origin: int  # offset of the first of its copies; its own if it was never put again
    group: str
    key: str  # the transaction's id
    topic: str  # it was sent to
    queue_id: int  # NO_QUEUE: none that can be
    born_ms: int
    store_ms: int
    immunity_ms: int  # its own, -1 when it has none
    checks: int

    @property
    def whole(self) -> bool:
        """Whether it says enough to be committed or asked about; a client's is always, see `redirect`."""
        return bool(self.group and self.topic) and self.queue_id != NO_QUEUE


def number(text: str | None, default: int = -1) -> int:
    """A whole number, *default* where there is none."""
    return int(text) if text is not None and NUMBER.fullmatch(text) else default


def host_of(text: str) -> tuple[str, int]:
    """Address and port of "1.2.3.4:5" or "[::1]:5"."""
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)


def read_half(message: ReceivedMessage) -> Half | None:
    """The half message of a record; None when it is none."""
    if message.topic != names.HALF_TOPIC:
        return None
    properties = message.properties
    immunity_s = number(properties.get(IMMUNITY))
    queue_id = number(properties.get(REAL_QUEUE_ID))
    origin = number(properties.get(ORIGIN))
    return Half(
        offset=message.queue_offset,
        physical_offset=message.physical_offset,
        origin=origin if 0 <= origin <= message.queue_offset else message.queue_offset,
        group=properties.get(PRODUCER_GROUP, ""),
        key=properties.get(UNIQUE_KEY, ""),
        topic=properties.get(REAL_TOPIC, ""),
        queue_id=queue_id if 0 <= queue_id <= QUEUE_ID_MAX else NO_QUEUE,
        born_ms=message.born_timestamp_ms,
        store_ms=message.store_timestamp_ms,
        immunity_ms=-1 if immunity_s < 0 else min(immunity_s, IMMUNITY_MAX_S) * 1000,
        checks=max(0, number(properties.get(CHECK_TIMES), 0)),
    )
