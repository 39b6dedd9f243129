"""Delayed and sent-back messages over SIGKILL: what was acknowledged is delivered, at least once and never early.

One broker's store lives on from kill to kill. Producers send delayed messages and send messages back without a pause:
at any moment some wait, some are being delivered, some have been since progress was last written down. After the last
kill the broker runs until everything is due, is stopped in order, and the store is read whole.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pymq._core._store import Store
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.store.config import StoreConfig
from tests.broker.sides import until
from tests.broker.wire import BrokerProcess, Wire, send_fields

pytestmark = pytest.mark.crash

RUNS = int(os.environ.get("PYMQ_KILL_RUNS", "4"))
TOPIC, GROUP = "DelayKill", "delay-kill"
SCHEDULE, RETRY = "SCHEDULE_TOPIC_XXXX", f"%RETRY%{GROUP}"
DELAYS_MS = (1_000, 0, 2_000)
LEVELS = "1s 0s 2s"
IN_FLIGHT = 16
LIVE_MS = (1_000, 3_000)
ARGUMENTS = ("--flushDiskType", "SYNC_FLUSH", "--messageDelayLevel", LEVELS, "--flushDelayOffsetInterval", "300")


@dataclass
class Ledger:
    """What was acknowledged: bodies of delayed messages with the level they wait in, and of messages sent back."""

    delayed: dict[bytes, int] = field(default_factory=dict)
    sent_back: set[bytes] = field(default_factory=set)
    refused: list[Command] = field(default_factory=list)


def send_delayed(port: int, run: int, level: int, ledger: Ledger) -> None:
    """Until the connection breaks."""
    waiting: dict[int, bytes] = {}
    sent = 0
    try:
        with Wire(port, timeout_s=20.0) as wire:
            while True:
                while len(waiting) < IN_FLIGHT:
                    body = b"%d-%d-%d" % (run, level, sent)
                    sent += 1
                    fields = send_fields(TOPIC, 0, f"DELAY\x01{level}\x02")
                    waiting[wire.post(Command(RequestCode.SEND_MESSAGE_V2, fields, body))] = body
                answer = wire.receive()
                body = waiting.pop(answer.opaque)
                if answer.code == ResponseCode.SUCCESS:
                    ledger.delayed[body] = level
                else:
                    ledger.refused.append(answer)
    except (OSError, EOFError):
        pass


def send_back(port: int, run: int, ledger: Ledger) -> None:
    """Send a message, send it back, and so on, until the connection breaks."""
    sent = 0
    try:
        with Wire(port, timeout_s=20.0) as wire:
            while True:
                body = b"back-%d-%d" % (run, sent)
                sent += 1
                answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("Originals", 0), body)
                assert answer.code == ResponseCode.SUCCESS, answer
                offset = int(answer.fields["msgId"][16:], 16)
                fields = {"group": GROUP, "offset": str(offset), "delayLevel": str(1 + sent % 3)}
                answer = wire.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
                if answer.code == ResponseCode.SUCCESS:
                    ledger.sent_back.add(body)
                else:
                    ledger.refused.append(answer)
    except (OSError, EOFError):
        pass


def run_and_kill(directory: Path, run: int, live_s: float, ledger: Ledger) -> None:
    """Producers and a consumer at work, until the broker is killed."""
    with BrokerProcess(directory, *ARGUMENTS) as broker:
        with Wire(broker.port) as wire:  # the topics' creation is not what is tested
            for topic in (TOPIC, "Originals"):
                answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic, 1), b"first")
                assert answer.code == ResponseCode.SUCCESS
        threads = [
            threading.Thread(target=send_delayed, args=(broker.port, run, level, ledger))
            for level in range(1, len(DELAYS_MS) + 1)
        ]
        threads.append(threading.Thread(target=send_back, args=(broker.port, run, ledger)))
        for thread in threads:
            thread.start()
        time.sleep(live_s)
        broker.stop(9)
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()


def all_delivered(wire: Wire) -> bool:
    """Whether every level is delivered up to its end, by the broker's own count."""
    table = json.loads(wire.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    levels = [value.split(",") for name, value in table.items() if name.startswith("scheduleMessageOffset_")]
    return len(levels) == len(DELAYS_MS) and all(delivered == stored for delivered, stored in levels)


def waiting_times(store: Store) -> dict[bytes, tuple[int, int]]:
    """(level, store time) of every message in the levels' queues, by body."""
    found: dict[bytes, tuple[int, int]] = {}
    for topic, queue_id, low, high in store.queues():
        if topic == SCHEDULE:
            for message in store.read(topic, queue_id, low, high - low):
                found.setdefault(message.body, (queue_id + 1, message.store_timestamp_ms))
    return found


def deliveries(store: Store, topic: str) -> dict[bytes, list[int]]:
    """Store times of every delivery, by body."""
    found = defaultdict(list)
    low, high = store.queue_range(topic, 0)
    for message in store.read(topic, 0, low, high - low):
        found[message.body].append(message.store_timestamp_ms)
    return found


@pytest.mark.timeout(180 + 30 * RUNS)
def test_a_killed_broker_delivers_every_acknowledged_delayed_message_and_none_early(tmp_path: Path) -> None:
    """Method: 4 kills (PYMQ_KILL_RUNS) under sync flush; repeats are allowed and counted."""
    seed = int(os.environ.get("PYMQ_KILL_SEED", str(random.randrange(1 << 32))))
    chance = random.Random(seed)
    print(f"delay kill: {RUNS} runs, seed {seed}")
    ledger = Ledger()
    for run in range(RUNS):
        run_and_kill(tmp_path, run, chance.uniform(*LIVE_MS) / 1000, ledger)
    with BrokerProcess(tmp_path, *ARGUMENTS) as broker:
        with Wire(broker.port) as wire:
            until(lambda: all_delivered(wire), timeout_s=60.0)
        assert broker.stop() == 0
    assert not ledger.refused, ledger.refused[0]
    config = StoreConfig(flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log=1 << 20, message_delay_level=LEVELS)
    store = Store(tmp_path / "store", config)
    try:
        waited = waiting_times(store)
        came, came_back = deliveries(store, TOPIC), deliveries(store, RETRY)
    finally:
        store.close()
    lost = [body for body in ledger.delayed if body not in came]
    lost += [body for body in ledger.sent_back if body not in came_back]
    assert not lost, f"{len(lost)} acknowledged messages never came, such as {lost[0]!r}"
    repeats = 0
    for body, times in (*came.items(), *came_back.items()):
        level, stored_ms = waited[body]
        assert min(times) >= stored_ms + DELAYS_MS[level - 1], f"{body!r} came early"
        repeats += len(times) - 1
    print(
        f"delay kill: {len(ledger.delayed)} delayed and {len(ledger.sent_back)} sent back acknowledged, 0 lost, "
        f"0 early, {repeats} repeated"
    )
    assert len(ledger.delayed) > RUNS * 20, "hardly anything was delayed"
    assert len(ledger.sent_back) > RUNS, "hardly anything was sent back"
