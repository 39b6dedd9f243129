"""Timers move with their store: pending ones that Apache wrote are delivered by pymq, and the other way round."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.store.config import StoreConfig
from tests.broker.test_admin import create_topic
from tests.broker.wire import Wire, send_fields
from tests.interop.apache_broker import running_broker
from tests.interop.apache_toolchain import Toolchain
from tests.interop.workloads import StoreSettings

SETTINGS = StoreSettings(commit_log_file_size=1 << 20, consume_queue_file_size=20 * 1000)
TIMER_LOG_FILE_SIZE = 52 * 10 + 20  # ten units and a blank: more than one file is filled
APACHE = SETTINGS.for_apache() | {
    "timerWheelEnable": "true",
    "mappedFileSizeTimerLog": str(TIMER_LOG_FILE_SIZE),
    "recallMessageEnable": "true",
}
TOPIC = "Moved"
COUNT = 25
SOON_MS, LATER_MS = 1500, 60_000  # delivered by the one who was asked; delivered by the other
SLOT_MS = 1000
WAIT_S = 240.0


def pymq_config(directory: Path) -> pymq.BrokerConfig:
    """A pymq broker over the same files."""
    return pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        broker_name="interop",
        store_path_root_dir=str(directory),
        mapped_file_size_timer_log=TIMER_LOG_FILE_SIZE,
        recall_message_enable=True,
        store=StoreConfig(
            flush_disk_type="ASYNC_FLUSH",
            mapped_file_size_commit_log=SETTINGS.commit_log_file_size,
            mapped_file_size_consume_queue=SETTINGS.consume_queue_file_size,
            max_hash_slot_num=SETTINGS.hash_slot_count,
            max_index_num=SETTINGS.index_item_count,
        ),
    )


def send_timers(wire: Wire) -> int:
    """One that is due soon, COUNT that are due later, two of which are recalled; when they are due."""
    create_topic(wire, TOPIC)
    begin_ms = int(time.time() * 1000)
    due_ms = begin_ms + LATER_MS
    for number in range(COUNT + 1):
        time_ms = begin_ms + SOON_MS if number == COUNT else due_ms
        properties = f"TIMER_DELIVER_MS\x01{time_ms}\x02UNIQ_KEY\x01{number:032d}\x02"
        answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC, 0, properties), str(number).encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        if number in (3, 4):
            fields = {"topic": TOPIC, "recallHandle": answer.fields["recallHandle"], "producerGroup": "P"}
            recalled = wire.call(RequestCode.RECALL_MESSAGE, fields)
            assert recalled.code == ResponseCode.SUCCESS, recalled.remark
    return due_ms


def wait_for(count: int, wire: Wire) -> None:
    """Until the queue of the topic holds so many messages."""
    fields = {"topic": TOPIC, "queueId": "0"}
    end_s = time.monotonic() + WAIT_S
    while int(wire.call(RequestCode.GET_MAX_OFFSET, fields).fields["offset"]) < count:
        assert time.monotonic() < end_s, f"{count} messages did not come in {WAIT_S} s"
        time.sleep(0.2)


def wait_noted(directory: Path, time_ms: int) -> None:
    """Until Apache's checkpoint of timers says that slots up to *time_ms* are over: what is not noted comes again after
    a kill. It is written once a second, and later on a machine that is busy."""
    path = directory / "config" / "timercheck"
    end_s = time.monotonic() + WAIT_S
    while struct.unpack_from(">q", path.read_bytes())[0] <= time_ms + SLOT_MS:
        assert time.monotonic() < end_s, f"{path} was not written in {WAIT_S} s"
        time.sleep(0.2)


def check(directory: Path, due_ms: int, *, in_order: bool) -> None:
    """Each that was not recalled came once, none before its time; those of one slot in their order, if asked for."""
    with pymq.open(directory) as store:
        found = store.read(TOPIC, max_count=1000)
    bodies = [int(message.body) for message in found]
    assert bodies[0] == COUNT
    expected = [number for number in range(COUNT) if number not in (3, 4)]
    assert (bodies[1:] if in_order else sorted(bodies[1:])) == expected
    assert all(message.store_timestamp_ms >= due_ms for message in found[1:])


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_pymq_delivers_the_timers_apache_left(apache: Toolchain, tmp_path: Path, end: str) -> None:
    """Goal: wheel, log and checkpoint of Apache's are understood. Method: send there, end it so or so, deliver here."""
    directory = tmp_path / "store"
    with running_broker(apache, directory, APACHE) as broker:
        with Wire(int(broker.address.rpartition(":")[2])) as wire:
            due_ms = send_timers(wire)
            wait_for(1, wire)
            wait_noted(directory, due_ms - LATER_MS + SOON_MS)
        leave: Callable[[], None] = broker.stop if end == "stop" else broker.kill
        leave()
    assert int(time.time() * 1000) < due_ms, "the machine was too slow for this test to show anything"
    with pymq.Broker(pymq_config(directory)).running() as running:
        assert running.timer is not None
        assert running.timer.store.metrics.count(TOPIC) == COUNT - 2
        with Wire(running.config.listen_port) as wire:
            wait_for(COUNT - 1, wire)
    check(directory, due_ms, in_order=True)


def test_apache_delivers_the_timers_pymq_left(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: Apache understands ours. Method: send and stop here, deliver there."""
    directory = tmp_path / "store"
    with pymq.Broker(pymq_config(directory)).running() as running, Wire(running.config.listen_port) as wire:
        due_ms = send_timers(wire)
        wait_for(1, wire)
    with running_broker(apache, directory, APACHE) as broker:
        with Wire(int(broker.address.rpartition(":")[2])) as wire:
            wait_for(COUNT - 1, wire)
        broker.stop()
    check(directory, due_ms, in_order=False)  # three threads of Apache's put them again
