"""What is written in an exchange: seeded workloads, the same for both writers.

A workload is a list of steps (send one, send a batch, pause) and the file sizes of the store that takes them. Sizes
are small, so that logs, queues and index files all roll many times in a second of work. Pauses move the store time
on, so that a look-up by time has something to find.
"""

from __future__ import annotations

import os
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

SEED = 20_250_301
BORN_TIMESTAMP_MS = 1_700_000_000_000

# System flags, as Apache's MessageSysFlag numbers them.
COMPRESSED_FLAG = 0x1
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC

CHECKPOINT_OFTEN_MS = 20

DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"


@dataclass(frozen=True)
class OutMessage:
    """A message to be written, before any store has seen it."""

    topic: str
    queue_id: int
    body: bytes
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = BORN_TIMESTAMP_MS
    # None is the writer's own idea of its address; only Apache's harness lets a test choose.
    born_host: str | None = None
    store_host: str | None = None

    @property
    def stored_properties(self) -> dict[str, str]:
        """What the record must hold at least: a writer may add its own, never change these."""
        stored = dict(self.properties)
        if self.keys:
            stored["KEYS"] = " ".join(self.keys)
        if self.tags is not None:
            stored["TAGS"] = self.tags
        return stored

    @property
    def queued(self) -> bool:
        """Prepared and rolled-back transaction messages are in the log and in no queue."""
        return self.sys_flag & TRANSACTION_ROLLBACK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


@dataclass(frozen=True)
class Send:
    """Append one message."""

    message: OutMessage


@dataclass(frozen=True)
class SendBatch:
    """Append several messages of one topic and queue at once: contiguous, in one log file, one store time."""

    messages: tuple[OutMessage, ...]


@dataclass(frozen=True)
class Pause:
    """Let the clock move."""

    milliseconds: int


Step = Send | SendBatch | Pause


@dataclass(frozen=True)
class StoreSettings:
    """The settings both sides must agree on to read each other's files."""

    commit_log_file_size: int = 32 * 1024
    consume_queue_file_size: int = 20 * 64
    hash_slot_count: int = 97
    index_item_count: int = 400
    flush_disk_type: str = "ASYNC_FLUSH"
    # Write the checkpoint every few milliseconds instead of once a minute, so that a kill finds it anywhere.
    checkpoint_often: bool = False
    # Every record carries a CRC over itself, and whoever recovers demands it.
    record_crc: bool = False

    def for_apache(self, *, index_safe: bool = False) -> dict[str, str]:
        """By their broker.conf names.

        With *index_safe* Apache starts its recovery early enough to rebuild the index files it drops. It is off by
        default there: after a kill of its own, a recovery may leave messages without their keys.
        """
        settings = {
            "mappedFileSizeCommitLog": str(self.commit_log_file_size),
            "mappedFileSizeConsumeQueue": str(self.consume_queue_file_size),
            "maxHashSlotNum": str(self.hash_slot_count),
            "maxIndexNum": str(self.index_item_count),
            "flushDiskType": self.flush_disk_type,
            # After a kill Apache looks at no more than this many log files from the end, and drops the index files
            # it does not trust: with small files the default of 10 would leave older messages without their keys.
            "commitLogRecoverMaxNum": "100000",
            "messageIndexSafe": str(index_safe).lower(),
        }
        if self.record_crc:
            settings["enabledAppendPropCRC"] = settings["forceVerifyPropCRC"] = "true"
        if self.checkpoint_often:
            settings["flushIntervalConsumeQueue"] = str(CHECKPOINT_OFTEN_MS)
            settings["flushConsumeQueueThoroughInterval"] = str(CHECKPOINT_OFTEN_MS)
        return settings


@dataclass(frozen=True)
class Workload:
    """A named, reproducible sequence of steps and the store sizes it is meant for."""

    name: str
    settings: StoreSettings
    generate: Callable[[random.Random], Iterator[Step]]

    def steps(self, round_number: int = 0) -> list[Step]:
        """The steps of one round; rounds differ, and each is the same every time."""
        return list(self.generate(random.Random(f"{SEED}/{self.name}/{round_number}")))

    def messages(self, round_number: int = 0) -> list[OutMessage]:
        """The messages of one round in the order they are appended."""
        return messages_of(self.steps(round_number))


def messages_of(steps: list[Step]) -> list[OutMessage]:
    """Every message of *steps* in append order."""
    found: list[OutMessage] = []
    for step in steps:
        if isinstance(step, Send):
            found.append(step.message)
        elif isinstance(step, SendBatch):
            found.extend(step.messages)
    return found


def _unique_key(randomness: random.Random) -> str:
    return f"{randomness.getrandbits(128):032X}"


def rolling_files(randomness: random.Random) -> Iterator[Step]:
    """Bodies from none to an eighth of a log file, over few topics and many queues: everything rolls, often."""
    for number in range(900):
        size = randomness.choice(
            (0, 1, randomness.randrange(64), randomness.randrange(600), randomness.randrange(4096))
        )
        yield Send(
            OutMessage(
                topic=f"rolling-{randomness.randrange(3)}",
                queue_id=randomness.randrange(4),
                body=randomness.randbytes(size),
                keys=(f"order-{number}",) if number % 3 == 0 else (),
                properties={"UNIQ_KEY": _unique_key(randomness)} if number % 2 == 0 else {},
                flag=randomness.randrange(-(2**31), 2**31),
                born_timestamp_ms=BORN_TIMESTAMP_MS + number,
            )
        )
        if number % 30 == 29:
            yield Pause(randomness.randrange(1, 5))


def _topic_of_length(length: int) -> str:
    letters = string.ascii_lowercase + string.digits
    return ("long-" + letters * (length // len(letters) + 1))[:length]


def batches_and_long_topics(randomness: random.Random) -> Iterator[Step]:
    """Batches of 1 to 24, and topics on both sides of the 127 bytes where the record's second version begins."""
    topics = ["batch", *(_topic_of_length(length) for length in (126, 127, 128, 200, 255))]
    for number in range(120):
        topic, queue_id = randomness.choice(topics), randomness.randrange(2)
        count = randomness.choice((1, 1, 2, randomness.randrange(3, 25)))
        # One envelope per batch: Apache stores one born time and one set of system flags for all of it.
        messages = tuple(
            OutMessage(
                topic=topic,
                queue_id=queue_id,
                body=randomness.randbytes(randomness.randrange(300)),
                tags=randomness.choice((None, "even", "odd")),
                keys=(f"batch-{number}", f"item-{number}-{index}"),
                properties={"UNIQ_KEY": _unique_key(randomness), "index": str(index)},
                flag=randomness.randrange(1000),
                born_timestamp_ms=BORN_TIMESTAMP_MS + number,
            )
            for index in range(count)
        )
        yield Send(messages[0]) if count == 1 and number % 2 else SendBatch(messages)
        if number % 10 == 9:
            yield Pause(randomness.randrange(1, 5))


def keys_and_tags(randomness: random.Random) -> Iterator[Step]:
    """Keys that repeat, that share a hash, that are not ASCII; tags of every kind; delay and transaction records."""
    # "Aa" and "BB" have one hash in Java, so their index entries share a chain and even the stored hash.
    keys = ["Aa", "BB", "AaAa", "BBBB", "AaBB", "schlüssel", "鍵", "🔑", *(f"key-{n}" for n in range(40))]
    tags = [None, "TagA", "TagB", "polygenelubricants", "étiquette", "标签", "🏷"]
    for number in range(700):
        sys_flag = randomness.choice((0, 0, 0, 0, COMPRESSED_FLAG, TRANSACTION_PREPARED, TRANSACTION_COMMIT,
                                      TRANSACTION_ROLLBACK))  # fmt: skip
        delayed = number % 25 == 0
        properties = {"UNIQ_KEY": _unique_key(randomness), "größe": "ä" * randomness.randrange(1, 20)}
        if delayed:
            properties["DELAY"] = str(randomness.randrange(1, 25))
        # One key on every third message: more hits than one query may return, spread over many index files.
        chosen = [*randomness.sample(keys, randomness.randrange(4)), *(["hot"] if number % 3 == 0 else [])]
        tag = randomness.choice(tags)
        yield Send(
            OutMessage(
                topic=DELAY_TOPIC if delayed else f"keys-{randomness.randrange(2)}",
                queue_id=randomness.randrange(3),
                body=randomness.randbytes(randomness.randrange(200)),
                tags=tag,
                keys=tuple(chosen),
                properties=properties,
                sys_flag=0 if delayed else sys_flag,
                born_timestamp_ms=BORN_TIMESTAMP_MS + number,
            )
        )
        if number % 35 == 34:
            yield Pause(randomness.randrange(1, 5))


WORKLOADS = (
    Workload("rolling_files", StoreSettings(), rolling_files),
    Workload("batches_and_long_topics", StoreSettings(commit_log_file_size=64 * 1024), batches_and_long_topics),
    Workload("keys_and_tags", StoreSettings(hash_slot_count=13, index_item_count=300), keys_and_tags),
    Workload(
        "sync_flush_and_checkpoints", StoreSettings(flush_disk_type="SYNC_FLUSH", checkpoint_often=True), rolling_files
    ),
    Workload(
        "crc_over_the_record",
        StoreSettings(commit_log_file_size=64 * 1024, record_crc=True),
        batches_and_long_topics,
    ),
)

# Every exchange takes three of the five in CI, each beginning with another one, so that all are in every run and meet
# most kinds of exchange; all of them with PYMQ_FULL=1 (`make interop-exchange`). Each costs several virtual machines.
SAMPLED_COUNT = 3
FULL = os.environ.get("PYMQ_FULL", "0") not in ("", "0")


def taken(exchange: int, count: int = SAMPLED_COUNT) -> list[Workload]:
    """The workloads of the *exchange*-th kind of exchange in this run."""
    return list(WORKLOADS) if FULL else [WORKLOADS[(exchange + step) % len(WORKLOADS)] for step in range(count)]
