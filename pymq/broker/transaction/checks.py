"""Rounds that ask producers about half messages without an end (TransactionalMessageServiceImpl.check).

A round first looks at the half messages nobody has looked at yet, up to the first that is too young, then goes over
those that wait. Whatever is wrong with one of them, the next is reached: an unreadable record is counted and left
behind, one that cannot be asked about waits without being in the way.

Differs from Apache:
- a half of a group without a live producer is not counted as checked, so it is never given up unasked;
- a half older than `fileReservedTime` is asked about at least once before it is given up;
- a half within its own immunity time waits in memory instead of being put again each round, and without being counted;
- at most CHECKS_PER_CONNECTION checks go to one producer at a time: a Java producer drops what exceeds its queue of
  2,000.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from enum import IntEnum
from sys import intern
from typing import TYPE_CHECKING, NamedTuple

from pymq._core._serve import PutResult
from pymq._core._store import ReceivedMessage
from pymq.broker import names
from pymq.broker.topic_config import PERM_READ_WRITE
from pymq.broker.transaction import records
from pymq.broker.transaction.half import HALF_QUEUE, NO_QUEUE, Half, read_half
from pymq.broker.transaction.ledger import End
from pymq.errors import CorruptRecordError, NotFoundError, StoreError

if TYPE_CHECKING:
    from pymq.broker.controller import Broker
    from pymq.broker.transaction.service import TransactionService

ROUND_MS_MAX = 60_000
READ_COUNT = 32
CHECKS_PER_CONNECTION = 2000
# Half offsets between progress and cursor, which are kept in memory and read at a start. What waits below is put again,
# so many a round: where far more than that are pending, putting them again would gain nothing and fill the log.
SPAN_MAX = 100_000
CROWD_MAX = 1000
YIELD_COUNT = 200  # half messages that are decided about before the loop may serve somebody else
HOUR_MS = 3_600_000
GIVEN_UP_QUEUES = 1
RENEW_SHARE = 4  # a half that waits is put again when this part of the retention time has passed over its record

# What the store refuses because of the message itself: with another one it may be content.
UNREADABLE = frozenset({"PYMQ_ENOTFOUND", "PYMQ_ECORRUPT"})
ITS_OWN = UNREADABLE | {"PYMQ_ETOPIC", "PYMQ_EINVAL", "PYMQ_EPROPERTIES", "PYMQ_ETOOBIG", "PYMQ_EREMOVED"}

log = logging.getLogger("pymq.broker")


class Step(IntEnum):
    """What a round does with a half message."""

    WAIT = 0
    CHECK = 1
    RENEW = 2  # put it again, uncounted, because its record is in the way or would be removed
    GIVE_UP = 3


class Loaded(NamedTuple):
    """A half message with its record."""

    half: Half
    message: ReceivedMessage
    record: bytes


class CheckRounds:
    """Looks at pending half messages, round by round."""

    def __init__(self, broker: Broker, service: TransactionService) -> None:
        """No round yet."""
        self._broker = broker
        self._service = service
        self._turn = 0  # of producers, so that checks go round
        self._silent: set[str] = set()  # groups that have no producer in this round

    async def run(self, *, scan: bool = True) -> bool:
        """One round; without *scan* only over those that wait. Whether some wait for a producer to have room.

        Raises:
            StoreError: the store refuses; the next round goes on from here.
        """
        begin_ms = self._broker.clock.now_ms()
        if scan:
            self._silent.clear()
            await self._scan(begin_ms)
        more = await self._go_over(begin_ms)
        self._service.settle()
        return more

    # ---- looking at new ones -------------------------------------------------------------------------------------

    async def _scan(self, begin_ms: int) -> None:
        """Move the cursor to the first half that is too young, or was stored after the round began.

        Differs: Apache goes by store times for the latter, and finds nothing while a clock that went back catches up.
        """
        ledger = self._service.ledger
        _, end = self._service.queue_range(names.HALF_TOPIC)
        while not self._is_over(begin_ms):
            ledger.advance()
            low, _ = self._service.queue_range(names.HALF_TOPIC)
            if ledger.cursor < low:
                self._service.counts["removed"] += low - ledger.cursor
                log.error("half messages removed by retention from=%d to=%d", ledger.cursor, low)
                ledger.skip_to(low)
            if ledger.cursor >= end:
                return
            messages = await self._read(ledger.cursor)
            if messages is None:
                continue
            if not all(self._look_at(message) for message in messages if message.queue_offset < end):
                return

    async def _read(self, offset: int) -> list[ReceivedMessage] | None:
        """Half messages from *offset* on; None when there was none to be had there and the cursor has moved."""
        loop, store = asyncio.get_running_loop(), self._broker.store
        try:
            messages = await loop.run_in_executor(
                self._broker.executor, lambda: store.read(names.HALF_TOPIC, HALF_QUEUE, offset, READ_COUNT, False)
            )
        except CorruptRecordError as error:
            log.error("half message unreadable offset=%d error=%s", offset, error)
            messages = []
        except NotFoundError as error:  # retention was faster
            log.warning("half message gone offset=%d error=%s", offset, error)
            messages = []
        if not messages:
            self._service.counts["unreadable"] += 1
            self._service.ledger.unreadable(offset)
            return None
        return messages

    def _look_at(self, message: ReceivedMessage) -> bool:
        """Take note of one at the cursor; False when the round goes no further."""
        ledger = self._service.ledger
        offset = int(message.queue_offset)
        ledger.skip_to(offset)
        if ledger.is_done(offset):
            ledger.skip_to(offset + 1)
            return True
        half = read_half(message)
        if half is None:  # the queue names a record of another topic: damage
            self._service.counts["unreadable"] += 1
            ledger.unreadable(offset)
            return True
        if half.immunity_ms < 0 and self._is_immune(half):
            return False
        # What waits may be many: its key is in its record, and few groups and topics share their names.
        ledger.wait(half._replace(key="", group=intern(half.group), topic=intern(half.topic)))
        return True

    # ---- going over those that wait ------------------------------------------------------------------------------

    async def _go_over(self, begin_ms: int) -> bool:
        """Do what has to be done about those that wait. Whether some of them wait for a producer to have room."""
        ledger = self._service.ledger
        asked: Counter[int] = Counter()
        busy: set[str] = set()
        crowd_end, crowd = ledger.cursor - SPAN_MAX, 0
        batch: list[tuple[Half, Step, int]] = []
        for count, half in enumerate(list(ledger.waiting.values())):
            if count % YIELD_COUNT == 0:
                await asyncio.sleep(0)
                if self._is_over(begin_ms):
                    break
            if half.offset not in ledger.waiting:
                continue
            step, connection = self._decide(half, asked, busy)
            if step is Step.WAIT and half.offset < crowd_end and crowd < CROWD_MAX:
                step = Step.RENEW
                crowd += 1
            if step is not Step.WAIT:
                batch.append((half, step, connection))
            if len(batch) >= READ_COUNT:
                await self._act_on_each(batch)
                batch = []
        await self._act_on_each(batch)
        return bool(busy)

    def _decide(self, half: Half, asked: Counter[int], busy: set[str]) -> tuple[Step, int]:
        """What to do, and whom to ask; *busy* are groups whose producers have been asked enough."""
        config = self._broker.config
        age_ms = self._age_ms(half)
        retention_ms = config.store.file_reserved_time_hours * HOUR_MS
        if not half.whole or half.checks >= config.transaction_check_max:
            return Step.GIVE_UP, 0
        if half.checks > 0 and age_ms > retention_ms:
            return Step.GIVE_UP, 0
        old = self._broker.clock.now_ms() - half.store_ms > retention_ms // RENEW_SHARE
        idle = Step.RENEW if old else Step.WAIT
        if half.group in busy or self._is_immune(half):
            return idle, 0
        connection = None if half.group in self._silent else self._producer(half.group)
        if connection is None:
            self._service.counts["unanswered"] += 1
            return idle, 0
        if asked[connection] >= CHECKS_PER_CONNECTION:
            busy.add(half.group)
            return idle, 0
        asked[connection] += 1
        return Step.CHECK, connection

    def _age_ms(self, half: Half) -> int:
        """Since its birth; a producer's clock that is ahead of ours does not make it younger than its record."""
        return self._broker.clock.now_ms() - min(half.born_ms, half.store_ms)

    def _is_immune(self, half: Half) -> bool:
        """Whether it is too early to ask. A clock that went back (an age below 0) does not keep us from it."""
        timeout_ms = self._broker.config.transaction_time_out
        age_ms = self._age_ms(half)
        if half.immunity_ms >= 0:
            return age_ms <= half.immunity_ms
        return 0 <= age_ms <= timeout_ms

    def _producer(self, group: str) -> int | None:
        """A connection of a live producer of *group*, another one each time."""
        channels = self._broker.clients.producers(group)
        for step in range(len(channels)):
            channel = channels[(self._turn + step) % len(channels)]
            if self._broker.server.peer(channel.connection) is not None:
                self._turn += 1
                return channel.connection
        self._silent.add(group)
        log.warning("no live producer to ask about its transactions group=%s", group)
        return None

    async def _act_on_each(self, batch: list[tuple[Half, Step, int]]) -> None:
        """Act, and if something fails, act on one after the other: whatever one does, a bug included, all are reached.

        Raises:
            StoreError, OSError: the store refuses whatever it is given.
        """
        (outcome,) = await asyncio.gather(self._act(batch), return_exceptions=True)
        if isinstance(outcome, StoreError | OSError):
            raise outcome
        if outcome is None:
            return
        if len(batch) == 1:
            log.error("half message left to the next round offset=%d", batch[0][0].offset, exc_info=outcome)
            return
        for work in batch:
            await self._act_on_each([work])

    async def _act(self, batch: list[tuple[Half, Step, int]]) -> None:
        """Read the records of a batch, then do with each what was decided if it is still pending.

        Raises:
            StoreError: the store refuses whatever it is given.
        """
        if not batch:
            return
        if any(step is Step.GIVE_UP for _, step, _ in batch):
            await self._broker.topics.create_on_send_back(
                names.CHECK_MAX_TIME_TOPIC, GIVEN_UP_QUEUES, PERM_READ_WRITE, 0
            )
        loop = asyncio.get_running_loop()
        loaded = await loop.run_in_executor(self._broker.executor, self._load, [half for half, _, _ in batch])
        pending = []
        for (half, step, connection), found in zip(batch, loaded, strict=True):
            if found is None:
                if half.offset in self._service.ledger.waiting:
                    self._leave(half)
            elif half.offset in self._service.ledger.waiting and await self._is_pending(found):
                pending.append((found, step, connection))
        # From here on nothing else runs until what is put again is known to be.
        try:
            asked = self._do([work for work in pending if self._is_due(*work)])
        finally:
            for found, _, _ in pending:
                self._service.let_go(found.half)
        outcomes = await asyncio.gather(*(self._ask(*question) for question in asked), return_exceptions=True)
        for (found, _, _), outcome in zip(asked, outcomes, strict=True):
            if outcome is not None:
                log.error("producer not asked key=%s", found.half.key, exc_info=outcome)

    def _is_due(self, loaded: Loaded, step: Step, connection: int) -> bool:
        """Whether it is still pending and, if it is to be asked about, whoever is to be asked still there.

        A check counts when it is put down: one that nobody can get any more must not use up its number.
        """
        gone = step is Step.CHECK and self._broker.server.peer(connection) is None
        return not gone and loaded.half.offset in self._service.ledger.waiting

    async def _is_pending(self, loaded: Loaded) -> bool:
        """Whether it has not ended; where that cannot be told it waits."""
        try:
            return await self._service.is_pending(loaded.message, loaded.half)
        except StoreError as error:
            log.error("not known whether committed key=%s error=%s", loaded.half.key, error)
            return False

    def _leave(self, half: Half) -> None:
        """Nothing can be done about it: it must not be in the way."""
        self._service.counts["unreadable"] += 1
        self._service.ended(half, End.UNREADABLE)

    def _load(self, halves: list[Half]) -> list[Loaded | None]:
        """Their records; None for one that cannot be read. Waits for the disk."""
        found: list[Loaded | None] = []
        for half in halves:
            try:
                message = self._broker.store.read_record(half.physical_offset)
                record = self._broker.store.record(half.physical_offset)
            except (CorruptRecordError, NotFoundError) as error:
                log.error("half message unreadable offset=%d error=%s", half.offset, error)
                record = None
            found.append(None if record is None else Loaded(read_half(message) or half, message, record))
        return found

    def _do(self, works: list[tuple[Loaded, Step, int]]) -> list[tuple[Loaded, int, PutResult]]:
        """What was decided, for half messages that are pending: one call puts all of them again. Whom to ask then.

        Raises:
            StoreError: the store refuses whatever it is given; those it has taken are noted.
        """
        if not works:
            return []
        asked: list[tuple[Loaded, int, PutResult]] = []
        items = [
            records.given_up(loaded.half)
            if step is Step.GIVE_UP
            else records.half_again(loaded.half, checks_after(loaded.half, step))
            for loaded, step, _ in works
        ]
        refused = ""
        for (loaded, step, connection), result in zip(works, self._broker.serve.reput(items), strict=True):
            if not isinstance(result, str):
                self._done(loaded, step, result)
                if step is Step.CHECK:
                    asked.append((loaded, connection, result))
            elif result not in ITS_OWN:
                refused = result
            elif step is Step.GIVE_UP or result in UNREADABLE:
                log.error("half message cannot be put again key=%s status=%s", loaded.half.key, result)
                self._leave(loaded.half)
            else:
                # Of Apache's: our own leaves room for what a check adds. The next round gives it up.
                log.error("half message cannot be put again key=%s status=%s", loaded.half.key, result)
                self._service.ledger.waiting[loaded.half.offset] = loaded.half._replace(queue_id=NO_QUEUE)
        if refused:
            raise records.refusal(refused, "putting half messages again")
        return asked

    def _done(self, loaded: Loaded, step: Step, place: PutResult) -> None:
        """Note what was put again."""
        half, service = loaded.half, self._service
        if step is Step.GIVE_UP:
            service.ended(half, End.GIVEN_UP)
            service.counts["discarded"] += 1
            log.error(
                "transaction given up topic=%s key=%s group=%s checks=%d: see %s",
                half.topic, half.key, half.group, half.checks, names.CHECK_MAX_TIME_TOPIC,
            )  # fmt: skip
            return
        service.ledger.moved(half.offset, half.origin, place.queue_offset)
        if step is Step.RENEW:
            service.counts["renewed"] += 1

    async def _ask(self, loaded: Loaded, connection: int, place: PutResult) -> None:
        """Ask the producer at *connection* about the copy at *place*."""
        half, service = loaded.half, self._service
        marks = records.marks_of(half, checks_after(half, Step.CHECK))
        properties = records.edit(loaded.message.raw_properties, frozenset(), marks)
        command = records.check_command(self._broker, half, loaded.record, place, properties)
        if self._broker.server.push(connection, command):
            service.counts["checked"] += 1

    def _is_over(self, begin_ms: int) -> bool:
        """Whether the round has taken its time; the next goes on."""
        return self._broker.clock.now_ms() - begin_ms > ROUND_MS_MAX


def checks_after(half: Half, step: Step) -> int:
    """How often it has been asked about once *step* is done."""
    return half.checks + (step is Step.CHECK)
