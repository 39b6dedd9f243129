"""What clients do to a broker so that its store holds every kind of message there is.

One `Story` goes on over several brokers of one store (killed, restarted, dumped in between): each call of a chapter
adds to it, with names of topics and groups that stay. `tell` is the whole of it, in a few seconds: what has to be
waited for (a second's delay, a check of a transaction) is begun first and looked for last. `storm` is for brokers that
will be killed: clients on several threads, who go on until they are cut off.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import lz4.frame
import zstandard

from pymq.remoting.codes import RequestCode
from pymq.remoting.command import Command
from spark_jobs.ledger import LedgerWriter
from tests.broker.wire import send_fields
from tests.spark_jobs.stores.client import COMMIT, ROLLBACK, UNKNOWN, Client, Sent, text_of

PLAIN, ORDERED, BATCHED, PRICES, PACKED = "Plain", "Ordered", "Batched", "Prices", "Packed"
DELAYED, TIMED, TRANSACTED, FAILING = "Delayed", "Timed", "Transacted", "Failing"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
REPLIES = "DefaultCluster_REPLY_TOPIC"
LONG_TOPIC = "%DLQ%" + "long-" * 30  # beyond 127 bytes a record has its second form
QUEUES = 4
FAST_LEVEL, SLOW_LEVEL = 1, 18  # a second, two hours
COMPRESSED = 1
COMPRESSIONS = {
    "zlib": (3 << 8, zlib.compress),
    "old zlib": (0, zlib.compress),
    "lz4": (1 << 8, lz4.frame.compress),
    "zstd": (2 << 8, zstandard.ZstdCompressor().compress),
}
STORM_PRODUCERS = "storm"  # nobody of that group answers checks
PAUSE_S = 0.012  # between what a client of a storm does: a store of some thousand records says as much as a large one

# What a broker must be told for the story to take seconds.
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 15),
    "mappedFileSizeConsumeQueue": str(20 * 64),
    "maxHashSlotNum": "499",
    "maxIndexNum": "2000",
    "mappedFileSizeTimerLog": str(1 << 15),
    "maxMessageSize": str(1 << 13),
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
    "transactionTimeOut": "300",
    "transactionCheckInterval": "200",
    "transactionOpBatchInterval": "50",
    "transactionCheckMax": "3",
    "flushConsumerOffsetInterval": "500",
    "flushDelayOffsetInterval": "500",
    "brokerFastFailureEnable": "false",  # a slow machine is not what is looked at
}


class Story:
    """Clients of one store, over all its brokers. Ledgers go to *books*: one for each producer, one for each group."""

    def __init__(self, books: Path, seed: int) -> None:
        self.random = Random(seed)
        books.mkdir(parents=True, exist_ok=True)
        self.books = books
        self.senders = 0
        self.writers: dict[str, LedgerWriter] = {}

    @property
    def ledgers(self) -> tuple[Path, ...]:
        """Every ledger there is, closed: the story is over."""
        for writer in self.writers.values():
            writer.close()
        return tuple(sorted(self.books.glob("*.tsv")))

    def producer(self, port: int, timeout_s: float = 20.0) -> Client:
        """A connection that sends."""
        self.senders += 1
        writer = self.writers[str(self.senders)] = LedgerWriter(self.books / f"sent-{self.senders}.tsv")
        return Client(port, writer, self.senders, Random(self.random.getrandbits(64)), timeout_s)

    def consumer(self, port: int, group: str, **subscriptions: str) -> Client:
        """A connection that is a member of *group*."""
        if group not in self.writers:
            path = self.books / f"handled-{group}.tsv"
            self.writers[group] = LedgerWriter(path, group=group, subscriptions=subscriptions)
        client = Client(port, self.writers[group], 0, Random(0))
        client.beat(group=group, **subscriptions)
        return client

    # ---- chapters --------------------------------------------------------------------------------------------

    def tell(self, port: int, scale: int = 1) -> None:
        """Everything, about 300 messages times *scale*."""
        with self.producer(port) as client:
            self.create(client)
            due = {(topic, queue): client.range(topic, queue)[1] for topic in (DELAYED, TIMED) for queue in range(4)}
            self.delays(client, 4 * scale)
            self.timers(client, 3 * scale)
            for queue in (1, 3):
                due[DELAYED, queue] += scale
            due[TIMED, 0] += 3 * scale
            self.plain(client, 60 * scale)
            self.ordered(client, 24 * scale)
            self.batches(client, 2 * scale)
            self.packed(client)
            self.prices(client, 20 * scale)
            self.long_topic(client)
            self.failing(client, 6)
        with self.producer(port) as client:
            self.transactions(client, 4 * scale)
        self.replies(port)
        self.consume(port)
        self.fail(port)
        with self.producer(port) as client:
            self.await_delivery(client, due)
            self.pending(client)

    def create(self, client: Client) -> None:
        """Topics and groups."""
        for topic in (PLAIN, BATCHED, PRICES, PACKED, DELAYED, TIMED, TRANSACTED, FAILING):
            client.create_topic(topic, QUEUES)
        client.create_topic(ORDERED, QUEUES, order="true")
        client.create_topic(LONG_TOPIC, 1)
        for group in ("readers", "half-way", "tagged", "sql", "in-order", "failing", "transacted"):
            client.create_group(group, retryMaxTimes=3 if group == "failing" else 16)

    def plain(self, client: Client, count: int) -> None:
        """Keys, tags, properties of users, flags, bodies of a byte to a few KiB, every queue."""
        for number in range(count):
            properties: dict[str, Any] = {}
            if number % 2:
                properties["KEYS"] = f"order-{number}" + (f" customer-{number % 7}" if number % 4 == 1 else "")
            if number % 3:
                properties["TAGS"] = ("red", "green", "größer", "标签")[number % 4]
            if number % 5 == 0:
                properties |= {"colour": "blue", "größe": "ä" * (1 + number % 20)}
            size = client.random.choice((1, 60, 300, 3000)) if number % 6 == 0 else 60
            client.send(PLAIN, client.body(size)[:size], number % QUEUES, properties, h=number)

    def ordered(self, client: Client, count: int) -> None:
        """Messages of a sharding key go to one queue, one after the other."""
        for number in range(count):
            key = number % 6
            client.send(ORDERED, client.body(), key % QUEUES, {"__SHARDINGKEY": f"account-{key}", "KEYS": f"{number}"})

    def batches(self, client: Client, count: int) -> None:
        """Several in one request."""
        for number in range(count):
            bodies = [b"batch %d item %d" % (number, item) for item in range(1 + 7 * (number % 2))]
            client.send_batch(BATCHED, bodies, number % QUEUES, TAGS="batch", KEYS=f"batch-{number}")

    def packed(self, client: Client) -> None:
        """Each compression."""
        for flag, compress in COMPRESSIONS.values():
            client.send(PACKED, compress(b"again and again " * 300), 0, {"TAGS": "packed"}, f=flag | COMPRESSED)

    def prices(self, client: Client, count: int) -> None:
        """For a group that filters by SQL."""
        for _ in range(count):
            client.send(PRICES, client.body(), 0, {"price": client.random.randrange(10), "TAGS": "price"})

    def long_topic(self, client: Client) -> None:
        """A topic of 155 bytes: only those of retries and dead letters may be that long."""
        for _ in range(2):
            client.send(LONG_TOPIC, client.body(), 0, {"TAGS": "long"})

    def failing(self, client: Client, count: int) -> None:
        """What a group will not be able to handle."""
        for number in range(count):
            client.send(FAILING, client.body(), 0, {"KEYS": f"failing-{number}", "TAGS": "failing"})

    def delays(self, client: Client, count: int) -> None:
        """Half of a second, half of two hours."""
        for number in range(count):
            level = FAST_LEVEL if number % 2 else SLOW_LEVEL
            properties = {"DELAY": level, "TAGS": "later", "KEYS": f"d-{number}"}
            client.send(DELAYED, client.body(), number % QUEUES, properties)

    def timers(self, client: Client, count: int) -> None:
        """Soon, in an hour, and recalled."""
        for number in range(count):
            client.send(TIMED, client.body(), 0, {"TIMER_DELAY_MS": 400 + 300 * number, "TAGS": "timed"})
            client.send(TIMED, client.body(), 1, {"TIMER_DELAY_SEC": 3600 + number})
            taken_back = client.send(TIMED, client.body(), 2, {"TIMER_DELAY_SEC": 3})
            client.ask(RequestCode.RECALL_MESSAGE, {"topic": TIMED, "recallHandle": taken_back.recall_handle})
        client.send(TIMED, client.body(), 3, {"TIMER_DELIVER_MS": 1000})  # long past: at once

    def transactions(self, client: Client, count: int) -> None:
        """Committed, rolled back, committed when asked, given up."""
        group = f"producers-{client.sender}"
        client.beat(producers=[group])
        for number in range(count):
            half = client.half(TRANSACTED, group, client.body(), number % QUEUES)
            client.end(group, half, ROLLBACK if number % 3 == 2 else COMMIT)
        asked = client.half(TRANSACTED, group, client.body(), 0)
        (check,) = client.checked()
        assert check.fields["transactionId"] == asked.transaction_id, check
        client.answer(group, check, COMMIT)
        given_up = client.range(GIVEN_UP, 0)[1]
        client.half(TRANSACTED, group, client.body(), 0)  # this one is never decided
        for check in client.checked(2):
            client.answer(group, check, UNKNOWN)
        client.until_held(GIVEN_UP, 0, given_up + 1)

    def pending(self, client: Client) -> Sent:
        """A transaction that nobody has decided yet."""
        return client.half(TRANSACTED, f"producers-{client.sender}", client.body(), 1)

    def replies(self, port: int) -> None:
        """A request's answer goes back through the broker, which keeps it."""
        with self.producer(port) as asker, self.producer(port) as replier:
            asker.beat(producers=["askers"])
            properties = {
                "MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "TTL": 3000,
                "REPLY_TO_CLIENT": f"client-{asker.sender}-", "UNIQ_KEY": replier.unique_key(),
            }  # fmt: skip
            fields = send_fields(REPLIES, 0, text_of(properties))
            number = replier.post(Command(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b"the answer"))
            asker.take_push()
            assert replier.wait(number).code == 0

    def consume(self, port: int) -> None:
        """Groups that have read all, half, what they filter for."""
        with self.consumer(port, "readers", **{PLAIN: "*", BATCHED: "*", PACKED: "*"}) as client:
            for topic in (PLAIN, BATCHED, PACKED):
                for queue_id in range(QUEUES):
                    client.consume("readers", topic, queue_id)
        with self.consumer(port, "half-way", **{PLAIN: "*"}) as client:
            for queue_id in range(QUEUES):
                low, high = client.range(PLAIN, queue_id)
                client.consume("half-way", PLAIN, queue_id, upto=(low + high) // 2)
        with self.consumer(port, "tagged", **{PLAIN: "red || green"}) as client:
            client.consume("tagged", PLAIN, 0)
        with self.consumer(port, "sql", **{PRICES: "sql:price > 5"}) as client:
            client.consume("sql", PRICES, 0)
        with self.consumer(port, "in-order", **{ORDERED: "*"}) as client:
            for queue_id in range(QUEUES):
                client.consume("in-order", ORDERED, queue_id)
        with self.consumer(port, "transacted", **{TRANSACTED: "*"}) as client:
            for queue_id in range(QUEUES):
                client.consume("transacted", TRANSACTED, queue_id)

    def fail(self, port: int) -> None:
        """Of what the group reads some fails: one message comes again, and again; one waits; one is given up."""
        retry = "%RETRY%failing"
        with self.consumer(port, "failing", **{FAILING: "*", retry: "*"}) as client:
            handled = client.consume("failing", FAILING, 0)
            held = client.range(retry, 0)[1]
            client.send_back("failing", handled[0], FAST_LEVEL)
            client.send_back("failing", handled[1], -1)
            client.send_back("failing", handled[2], SLOW_LEVEL)
            client.until_held(retry, 0, held + 1)
            again = client.consume("failing", retry, 0)
            client.send_back("failing", again[-1], FAST_LEVEL)
            client.until_held(retry, 0, held + 2)
            client.consume("failing", retry, 0)

    def await_delivery(self, client: Client, ends: dict[tuple[str, int], int]) -> None:
        """Until what was due soon is in its queues."""
        for (topic, queue_id), end in ends.items():
            client.until_held(topic, queue_id, end)

    # ---- under fire ------------------------------------------------------------------------------------------

    def storm(self, port: int, kill: Callable[[], None], seconds: float) -> None:
        """Clients at work on several threads, then *kill*; each goes on until it is cut off."""
        problems: list[BaseException] = []

        def run(work: Callable[[Client], None], client: Client) -> None:
            try:
                with client:
                    while True:
                        work(client)
                        time.sleep(PAUSE_S)
            except (OSError, EOFError):
                pass
            except (AssertionError, IndexError, KeyError) as problem:
                problems.append(problem)

        works = (
            (lambda client: self.plain(client, 8), self.producer(port)),
            (lambda client: self.batches(client, 2), self.producer(port)),
            (lambda client: self.delays(client, 4), self.producer(port)),
            (lambda client: self.timers(client, 1), self.producer(port)),
            (self.decide, self.producer(port)),
            (self.send_back, self.consumer(port, "failing", **{FAILING: "*", PLAIN: "*"})),
        )
        threads = [threading.Thread(target=run, args=work) for work in works]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        kill()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        if problems:
            raise problems[0]

    def decide(self, client: Client) -> None:
        """Half messages and their ends; one in four is left to the checks, which nobody answers."""
        half = client.half(TRANSACTED, STORM_PRODUCERS, client.body(), client.sequence % QUEUES)
        if client.sequence % 4:
            client.end(STORM_PRODUCERS, half, ROLLBACK if client.sequence % 3 == 0 else COMMIT)

    def send_back(self, client: Client) -> None:
        """Read a little, and fail with the first of it."""
        handled = client.consume("failing", PLAIN, 0)
        if handled:
            client.send_back("failing", handled[0], FAST_LEVEL)
