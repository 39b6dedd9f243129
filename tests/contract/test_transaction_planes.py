"""Transactions on both planes: one random story played to each, the same answers and the same records.

Half messages and plain ends are served natively where they can be; everything else about them is Python's. Whoever
serves them, a producer must not be able to tell.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pymq.broker import names
from pymq.remoting.command import Command
from tests.broker.transactions import COMMIT, ROLLBACK, SMALL, DrivenBroker, Producer

STEPS = 120
HOST_DIGITS = 16  # address and port, at the begin of a message id
PROPERTIES = (
    "",
    "TAGS\x01a\x02KEYS\x01k1 k2\x02",
    "WAIT\x01false\x02MIN\x011\x02",
    "REAL_TOPIC\x01X\x02REAL_QID\x019\x02",
    "TRAN_PREPARED_QUEUE_OFFSET\x010\x02TRANSACTION_CHECK_TIMES\x017\x02",
    "CHECK_IMMUNITY_TIME_IN_SECONDS\x01600\x02",
    "CHECK_IMMUNITY_TIME_IN_SECONDS\x01soon\x02",
    "DELAY\x012\x02",
    "DELAY\x010\x02",
    "TRAN_MSG\x01false\x02",
    "TRAN_MSG\x01TRUE\x02",
    "__transactionId__\x01mine\x02",
    "PGROUP\x01Other\x02",
    "MSG_REGION\x01moon\x02",
    "\u6c49\x01\u5b57\x02",
)
WRONG = (
    {"producerGroup": "Q"},
    {"tranStateTableOffset": "77"},
    {"transactionId": "X"},
    {"commitLogOffset": "3"},
    {"commitLogOffset": "99999999999"},
    {"commitLogOffset": "-5"},
    {"commitOrRollback": "4"},
    {"commitOrRollback": "x"},
    {"transactionId": ""},
    {"fromTransactionCheck": "true"},
)


@dataclass
class Story:
    """What one broker answered, and what it stored."""

    answers: list[tuple[object, ...]] = field(default_factory=list)
    records: dict[str, list[tuple[object, ...]]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)


def answer_of(answer: Command) -> tuple[object, ...]:
    """An answer without what depends on the broker's port."""
    fields = {name: value[HOST_DIGITS:] if name == "msgId" else value for name, value in answer.fields.items()}
    return answer.code, answer.remark, tuple(fields.items()), answer.body


def play(directory: Path, plane: str, seed: int, flush: str) -> Story:
    """The story of *seed* on one plane."""
    chance = random.Random(seed)
    story = Story()
    with DrivenBroker(directory, data_plane=plane, store=SMALL.replace(flush_disk_type=flush)) as driven:
        driven.clock.advance(1.0)
        born = "1700000000000"
        with Producer(driven) as producer:
            halves: list[Command] = []
            for number in range(STEPS):
                if not halves or chance.random() < 0.5:
                    properties = f"UNIQ_KEY\x01{number:032X}\x02" + chance.choice(PROPERTIES)
                    answer = producer.half(b"%d" % number, chance.randrange(3), properties, g=born, h=str(number))
                    if answer.code == 0:
                        halves.append(answer)
                elif chance.random() < 0.2:
                    answer = producer.end(chance.choice(halves), COMMIT, **chance.choice(WRONG))
                else:
                    answer = producer.end(chance.choice(halves), chance.choice((COMMIT, ROLLBACK)))
                story.answers.append(answer_of(answer))
            driven.progress()
            for topic, queue_id in ((names.HALF_TOPIC, 0), ("T", 0), ("T", 1), ("T", 2), (names.SCHEDULE_TOPIC, 1)):
                story.records[f"{topic} {queue_id}"] = [
                    (one.body, one.raw_properties, one.sys_flag, one.flag, one.born_timestamp_ms, one.reconsume_times)
                    for one in driven.messages(topic, queue_id)
                ]
            for op in driven.messages(names.OP_HALF_TOPIC):
                story.ended |= {int(word) for word in op.body.split(b",") if word}
    return story


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_producer_cannot_tell_the_planes_apart(tmp_path: Path, flush: str) -> None:
    """Goal: the native way means what Python's means. Method: answers and records of a story; PYMQ_SEED repeats one."""
    seed = int(os.environ.get("PYMQ_SEED", str(random.randrange(1 << 32))))
    print(f"transaction planes: seed {seed}")
    native, python = (play(tmp_path / plane, plane, seed, flush) for plane in ("native", "python"))
    for number, (one, other) in enumerate(zip(native.answers, python.answers, strict=True)):
        assert one == other, f"step {number}, seed {seed}"
    assert native.records == python.records
    assert native.ended == python.ended
    assert any(native.records[f"T {queue_id}"] for queue_id in range(3)), "nothing was committed"
