"""The transactions of one broker: ending them, and the state they need. Lives on the control loop.

Order of writing, which is what "exactly once" rests on:

0. Reactors end plain half messages of this run by themselves; whoever ends or moves one claims it first, in one table
   that both use (csrc/serve/transactions.c), and what reactors have ended is noted here before it matters.
1. A commit puts the message into the log, and at once, without giving the loop to anybody else in between, marks the
   transaction as ended in memory. A second END_TRANSACTION of any copy of the half finds that mark.
2. The op message follows. A kill between the two leaves a committed message without one: half messages of an earlier
   run are therefore looked up among the committed messages before they are committed or asked about.
3. A half that is put again names its origin, so that a start knows its copies for one transaction, however far the
   saved progress lags behind.
4. Progress is published only when the log is flushed as far as it was written when the progress was made.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pymq._core._serve import PutResult
from pymq._core._store import ReceivedMessage
from pymq.broker import names
from pymq.broker.transaction import records
from pymq.broker.transaction.checks import CheckRounds
from pymq.broker.transaction.half import COMMIT_FLAG, HALF_QUEUE, Half, read_half
from pymq.broker.transaction.ledger import End, Ledger
from pymq.broker.transaction.ops import OpMessages, read_op
from pymq.errors import CorruptRecordError, NotFoundError, StoreError

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

GROUP = "CID_RMQ_SYS_TRANS"  # MixAll.CID_SYS_RMQ_TRANS: whose consumer offsets the progress is
HOT_BYTES = 4 << 20  # of the log's end: read on the loop, it is in memory; older records are read in the small pool
LOAD_COUNT = 256
VISIBLE_POLL_S = 0.002
VISIBLE_WAIT_S = 3.0  # a half that is answered but not yet readable (transient pool) becomes so within this time
FLUSH_POLL_S = 0.01
NATIVE_ENDS_S = 0.1
CLAIM_TRIES, CLAIM_POLL_S = 500, 0.002  # between a reactor's claim and its word lies one turn of it

log = logging.getLogger("pymq.broker")


class TransactionService:
    """Half messages from their commit, rollback or neglect to their end."""

    def __init__(self, broker: Broker) -> None:
        """Not started."""
        self._broker = broker
        self.ledger = Ledger()
        self.ops = OpMessages(broker, self.ledger)
        self.checks = CheckRounds(broker, self)
        self.counts: Counter[str] = Counter()
        self.begin_offset = 0  # of the log at this start: half messages below it are an earlier run's
        self._natives_busy = False  # whether reactors have ended any lately
        self._candidate: tuple[int, int, int] | None = None  # half and op progress, and what must be flushed for them

    # ---- start and stop ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Learn from both queues which half messages are pending. Before anybody is served."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._broker.executor, self._load)
        self._broker.serve.transactions_begin(self.ledger.progress, self.begin_offset)

    def _load(self) -> None:
        offsets = self._broker.offsets
        self.begin_offset = int(self._broker.store.watermarks()["written"])
        low, _ = self.queue_range(names.HALF_TOPIC)
        op_low, _ = self.queue_range(names.OP_HALF_TOPIC)
        self.ledger.progress = self.ledger.cursor = max(low, offsets.loaded(GROUP, names.HALF_TOPIC, HALF_QUEUE))
        self.ledger.op_progress = max(op_low, offsets.loaded(GROUP, names.OP_HALF_TOPIC, HALF_QUEUE))
        self._show(self.ledger.progress, self.ledger.op_progress)
        halves = filter(None, map(read_half, self._messages(names.HALF_TOPIC, self.ledger.progress)))
        ops = (
            (int(message.queue_offset), read_op(message.body, message.tags))
            for message in self._messages(names.OP_HALF_TOPIC, self.ledger.op_progress)
        )
        self.ledger.load(halves, ops)
        self.ledger.advance()

    def _messages(self, topic: str, offset: int) -> Iterator[ReceivedMessage]:
        """Everything readable of a queue from *offset* on. Waits for the disk."""
        _, end = self.queue_range(topic)
        while offset < end:
            try:
                found = self._broker.store.read(topic, HALF_QUEUE, offset, LOAD_COUNT, settle=False)
            except CorruptRecordError as error:
                log.error("record left out topic=%s offset=%d error=%s", topic, offset, error)
                found = []
            yield from found
            offset = found[-1].queue_offset + 1 if found else offset + 1

    def queue_range(self, topic: str) -> tuple[int, int]:
        """First offset and end of queue 0 of *topic*; 0 and 0 when it has none."""
        try:
            low, end = self._broker.store.queue_range(topic, HALF_QUEUE, settle=False)
        except NotFoundError:
            return 0, 0
        return int(low), int(end)

    async def run(self) -> None:
        """Write op messages and ask producers until cancelled. One failure is logged; the next pass tries again."""
        clock, config = self._broker.clock, self._broker.config
        next_round_s = clock.monotonic_s() + config.transaction_check_interval / 1000
        whole = True
        while True:
            config = self._broker.config
            until_s = min(config.transaction_op_batch_interval / 1000, max(0.0, next_round_s - clock.monotonic_s()))
            await self._wait(until_s)
            is_round = clock.monotonic_s() >= next_round_s
            # Whatever it is that failed, a bug included, must not end the checks: transactions would wait for ever.
            (more,) = await asyncio.gather(self._pass(is_round=is_round, scan=whole), return_exceptions=True)
            delay_s = config.transaction_check_interval / 1000
            if isinstance(more, BaseException):
                next_round_s = clock.monotonic_s() + delay_s
                known = isinstance(more, StoreError | OSError)
                log.error("transaction check failed, tried again later error=%s", more, exc_info=not known and more)
            elif is_round:
                whole = not more
                next_round_s = clock.monotonic_s() + (min(1.0, delay_s) if more else delay_s)

    async def _pass(self, *, is_round: bool, scan: bool) -> bool:
        """Write op messages, and if it is time, go one round; whether that has to go on soon."""
        self.settle()
        return is_round and await self.checks.run(scan=scan)

    async def _wait(self, seconds: float) -> None:
        """Wait; while reactors end transactions, note them now and then: a heap of them would hold up the loop."""
        while True:
            step_s = min(seconds, NATIVE_ENDS_S) if self._natives_busy else seconds
            await asyncio.sleep(step_s)
            self._natives_busy = self.take_native_ends() > 0
            seconds -= step_s
            if seconds <= 0:
                return

    async def stop(self) -> None:
        """Write what is known into the log and the table of offsets. Nobody is served any more."""
        self.take_native_ends()
        if not self.ops.write():
            return
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._broker.executor, self._broker.store.flush)
        self._candidate = None
        self.settle()

    # ---- progress ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Write op messages; move the progress on and publish it as far as the log is flushed for it."""
        self.take_native_ends()
        self.ops.write()
        self.ledger.advance()
        self._broker.serve.transactions_forget(self.ledger.progress)
        self.publish()

    def publish(self) -> None:
        """Let the consumer offsets say the progress, once what it vouches for is on stable storage."""
        marks = self._broker.store.watermarks()
        if self._candidate is None:
            self._candidate = (self.ledger.progress, self.ledger.op_progress, int(marks["written"]))
        progress, op_progress, needed = self._candidate
        if int(marks["flushed"]) < needed:
            return
        self._candidate = None
        self._show(progress, op_progress)

    def _show(self, progress: int, op_progress: int) -> None:
        """Let tools see the progress, and the file keep it. What anybody else commits for this group counts nothing."""
        self._broker.offsets.keep_own(GROUP, names.HALF_TOPIC, HALF_QUEUE, progress)
        self._broker.offsets.keep_own(GROUP, names.OP_HALF_TOPIC, HALF_QUEUE, op_progress)

    # ---- ending --------------------------------------------------------------------------------------------------

    async def find(self, physical_offset: int) -> tuple[ReceivedMessage, Half] | None:
        """The half message whose record begins there; waits for one that is answered but not yet readable."""
        store, clock = self._broker.store, self._broker.clock
        end_s = clock.monotonic_s() + VISIBLE_WAIT_S
        while True:
            marks = store.watermarks()
            if not marks["min"] <= physical_offset < marks["written"]:
                return None
            if physical_offset < marks["visible"] or clock.monotonic_s() > end_s:
                break
            await asyncio.sleep(VISIBLE_POLL_S)
        try:
            if physical_offset >= marks["visible"] - HOT_BYTES:
                message = store.read_record(physical_offset)
            else:
                loop = asyncio.get_running_loop()
                message = await loop.run_in_executor(self._broker.executor, store.read_record, physical_offset)
        except StoreError as error:
            log.warning("no half message physical_offset=%d because=%s", physical_offset, error)
            return None
        half = read_half(message)
        return None if half is None else (message, half)

    async def is_pending(self, message: ReceivedMessage, half: Half) -> bool:
        """Whether the transaction has not ended; looks for its committed message if an earlier run may have put it.

        Then it is the caller's until let_go(): the reactors leave it alone.

        Raises:
            StoreError: that cannot be told.
        """
        self.take_native_ends()
        if self.ledger.head(half.offset, half.origin) is None:
            return False
        if half.physical_offset < self.begin_offset and await self.was_committed(message, half):
            if self.ledger.head(half.offset, half.origin) is not None:
                self.ended(half, End.COMMITTED)
            return False
        return await self._claim(half)

    async def _claim(self, half: Half) -> bool:
        """Keep the reactors from ending it meanwhile; False when it has ended, perhaps just now.

        What was put again is never theirs, nor is the half it was put again for, which was claimed for that.
        """
        serve = self._broker.serve
        for _ in range(CLAIM_TRIES):
            head = self.ledger.head(half.offset, half.origin)
            if head is None or not self._may_be_theirs(half) or serve.transaction_claim(half.offset):
                return head is not None
            await asyncio.sleep(CLAIM_POLL_S)  # a reactor is about to say how it ended
            self.take_native_ends()
        raise StoreError(f"the half message at {half.offset} is neither ended nor free", status="PYMQ_ETIMEDOUT")

    def let_go(self, half: Half) -> None:
        """The caller is done with what is_pending() gave it; if nothing came of it, it may be ended by anybody."""
        if self._may_be_theirs(half):
            self._broker.serve.transaction_release(half.offset)

    def _may_be_theirs(self, half: Half) -> bool:
        """Whether reactors may end it: it is pending and was never put again."""
        return half.origin == half.offset and self.ledger.head(half.offset, half.origin) == half.offset

    def take_native_ends(self) -> int:
        """Note what the reactors have committed (it is in the log) and rolled back; how many."""
        ends = self._broker.serve.transactions_ended()
        for offset, flag in ends:
            committed = flag == COMMIT_FLAG
            self.ops.add(self.ledger.end(offset, End.COMMITTED if committed else End.ROLLED_BACK, offset))
            self.counts["committed" if committed else "rolled_back"] += 1
        return len(ends)

    async def was_committed(self, message: ReceivedMessage, half: Half) -> bool:
        """Whether the log has the committed message of this transaction.

        Raises:
            StoreError: that cannot be told.
        """
        targets = records.targets_of(self._broker, message, half)
        indexed = self._broker.config.store.message_index_enable
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._broker.executor,
            lambda: records.find_committed(self._broker.store, half, targets, indexed=indexed),
        )

    def commit(self, message: ReceivedMessage, half: Half) -> PutResult:
        """Commit a pending transaction.

        Raises:
            StoreError: the store refuses; it stays pending.
            SendRefused: its delivery time cannot be had; it stays pending.
        """
        result = records.commit(self._broker, message, half)
        self.ended(half, End.COMMITTED)
        self.counts["committed"] += 1
        return result

    def roll_back(self, half: Half) -> None:
        """Roll a pending transaction back."""
        self.ended(half, End.ROLLED_BACK)
        self.counts["rolled_back"] += 1

    def ended(self, half: Half, how: End) -> None:
        """A transaction has ended; its op message will follow."""
        self.ops.add(self.ledger.end(half.origin, how, half.offset))

    # ---- looking -------------------------------------------------------------------------------------------------

    def info(self) -> dict[str, str]:
        """For GET_BROKER_RUNTIME_INFO."""
        self.take_native_ends()
        _, end = self.queue_range(names.HALF_TOPIC)
        table = {name: self.counts[name] for name in COUNTS}
        table["pending"] = self.ledger.pending_count(end)
        table["waiting"] = len(self.ledger.waiting)
        table["op_unwritten"] = self.ops.unwritten
        return {f"pymq.transaction.{name}": str(value) for name, value in sorted(table.items())}


COUNTS = (
    "committed",
    "rolled_back",
    "checked",
    "discarded",
    "repeated",
    "renewed",
    "unanswered",
    "unreadable",
    "removed",
)
