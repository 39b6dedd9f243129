"""Op messages: which half messages are done, in the log. Queue 0 of RMQ_SYS_TRANS_OP_HALF_TOPIC.

Layout as Apache's: tag `d`, body the half queue offsets in decimal, each followed by a comma. They are written in
batches: when `transactionOpMsgMaxSize` bytes have come together, every `transactionOpBatchInterval`, and at a stop.
What is not written because the store refuses stays here and is tried again. Until one is written, a kill forgets that
the transaction ended; the committed message itself is looked for then (`records.find_committed`).
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from pymq.broker import names
from pymq.broker.transaction.half import HALF_QUEUE, host_of
from pymq.broker.transaction.ledger import Ledger
from pymq.errors import StoreError

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

PROPERTIES = b"TAGS\x01d\x02"
SEPARATOR = ","
DONE_TAG = "d"
OFFSET = re.compile(r"[0-9]{1,18}")

log = logging.getLogger("pymq.broker")


class OpMessages:
    """What is to be written, and writing it."""

    def __init__(self, broker: Broker, ledger: Ledger) -> None:
        """Nothing to write yet."""
        self._broker = broker
        self._ledger = ledger
        self._offsets: list[int] = []
        self._size = 0
        self.end_offset = 0  # of the log, behind the last op message

    def add(self, offset: int) -> None:
        """The half at *offset* is done; written now if that fills a message."""
        self._offsets.append(offset)
        self._size += len(str(offset)) + 1
        if self._size >= self._broker.config.transaction_op_msg_max_size:
            self.write()

    @property
    def unwritten(self) -> int:
        """How many half messages are done without an op message in the log."""
        return len(self._offsets)

    def write(self) -> bool:
        """Put everything into the log; False when the store refused, and then the rest is kept. Waits for nothing."""
        while self._offsets:
            count = self._count_that_fits()
            chosen = self._offsets[:count]
            body = "".join(f"{offset}{SEPARATOR}" for offset in chosen).encode()
            try:
                result = self._broker.serve.put(
                    names.OP_HALF_TOPIC,
                    HALF_QUEUE,
                    body,
                    PROPERTIES,
                    born_host=host_of(self._broker.config.store.store_host),
                    born_timestamp_ms=self._broker.clock.now_ms(),
                )
            except StoreError as error:
                log.error("op message not written, tried again later count=%d error=%s", len(self._offsets), error)
                return False
            del self._offsets[:count]
            self._size -= len(body)
            self.end_offset = result.end_offset
            self._ledger.op_written(result.queue_offset, max(chosen))
        return True

    def _count_that_fits(self) -> int:
        """How many go into one message: as many as reach the limit, at least one."""
        size = 0
        for count, offset in enumerate(self._offsets):
            if size >= self._broker.config.transaction_op_msg_max_size:
                return count
            size += len(str(offset)) + 1
        return len(self._offsets)


def read_op(body: bytes, tags: str | None) -> list[int]:
    """The half queue offsets an op message names; nothing where it says nothing that can be understood.

    # Compat: Apache before 5.0 wrote one offset without a comma.
    """
    if tags != DONE_TAG:
        return []
    words = body.decode("ascii", "replace").split(SEPARATOR)
    return [int(word) for word in words if OFFSET.fullmatch(word)]
