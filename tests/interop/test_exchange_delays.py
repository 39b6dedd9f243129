"""Delayed messages move with their store: what waits in Apache's levels is delivered by pymq, and the other way round.

A broker of one make takes messages of two levels and delivers the first of them; a broker of the other make goes on in
the same directory, by `delayOffset.json` and the queues' delivery times, and delivers the rest: each once, none early.
"""

from __future__ import annotations

import time
from pathlib import Path

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.store.config import StoreConfig
from tests.broker.test_admin import create_topic
from tests.broker.wire import Wire, send_fields
from tests.interop.apache_broker import running_broker
from tests.interop.apache_toolchain import Toolchain
from tests.interop.workloads import StoreSettings

SETTINGS = StoreSettings(commit_log_file_size=1 << 20, consume_queue_file_size=20 * 1000)
LEVELS, LATER_MS = "1s 70s", 70_000
APACHE = SETTINGS.for_apache() | {"messageDelayLevel": LEVELS, "flushDelayOffsetInterval": "500"}
TOPIC, GROUP = "Delayed", "delayed-group"
COUNT = 25
WAIT_S = 240.0


def pymq_config(directory: Path) -> pymq.BrokerConfig:
    """A pymq broker over the same files."""
    return pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        broker_name="interop",
        store_path_root_dir=str(directory),
        store=StoreConfig(
            flush_disk_type="ASYNC_FLUSH",
            message_delay_level=LEVELS,
            mapped_file_size_commit_log=SETTINGS.commit_log_file_size,
            mapped_file_size_consume_queue=SETTINGS.consume_queue_file_size,
            max_hash_slot_num=SETTINGS.hash_slot_count,
            max_index_num=SETTINGS.index_item_count,
        ),
    )


def send_delayed(wire: Wire) -> int:
    """Five for now, COUNT for later, and one sent back for later; when the first of those is due."""
    create_topic(wire, TOPIC)
    begin_ms = int(time.time() * 1000)
    for number in range(COUNT + 5):
        level = 1 if number < 5 else 2
        fields = send_fields(TOPIC, 0, f"DELAY\x01{level}\x02TAGS\x01t\x02")
        answer = wire.call(RequestCode.SEND_MESSAGE_V2, fields, str(number).encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        if number == 0:
            answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC, 1), b"again")
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            back = {"group": GROUP, "offset": str(int(answer.fields["msgId"][16:], 16)), "delayLevel": "2"}
            assert wire.call(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == ResponseCode.SUCCESS
    return begin_ms + LATER_MS


def wait_for(count: int, wire: Wire, topic: str = TOPIC) -> None:
    """Until the first queue of *topic* holds so many messages."""
    fields = {"topic": topic, "queueId": "0"}
    end_s = time.monotonic() + WAIT_S
    while int(wire.call(RequestCode.GET_MAX_OFFSET, fields).fields["offset"]) < count:
        assert time.monotonic() < end_s, f"{count} messages of {topic} did not come in {WAIT_S} s"
        time.sleep(0.2)


def finish(wire: Wire) -> None:
    """Until everything has come, and a little longer: nothing may come twice."""
    wait_for(COUNT + 5, wire)
    wait_for(1, wire, f"%RETRY%{GROUP}")
    time.sleep(2)


def check(directory: Path, due_ms: int) -> None:
    """Each came once and in order, with its properties; those of the second level not before their time."""
    with pymq.open(directory) as store:
        found = store.read(TOPIC, 0, max_count=1000)
        (retried,) = store.read(f"%RETRY%{GROUP}", max_count=10)
    assert [int(message.body) for message in found] == list(range(COUNT + 5))
    assert all(message.store_timestamp_ms >= due_ms for message in (*found[5:], retried))
    for message in found:
        assert message.properties["REAL_TOPIC"] == TOPIC
        assert message.properties["DELAY"] == ("1" if int(message.body) < 5 else "2")
    assert retried.properties["RETRY_TOPIC"] == TOPIC
    assert retried.reconsume_times == 1
    assert retried.body == b"again"


def test_pymq_delivers_what_apache_left_waiting(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: Apache's offsets and delivery times are understood. Method: send and stop there, deliver here."""
    directory = tmp_path / "store"
    with running_broker(apache, directory, APACHE) as broker:
        with Wire(int(broker.address.rpartition(":")[2])) as wire:
            due_ms = send_delayed(wire)
            wait_for(5, wire)
        broker.stop()
    assert int(time.time() * 1000) < due_ms, "the machine was too slow for this test to show anything"
    with pymq.Broker(pymq_config(directory)).running() as running, Wire(running.config.listen_port) as wire:
        finish(wire)
    check(directory, due_ms)


def test_apache_delivers_what_pymq_left_waiting(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: Apache understands ours. Method: send and stop here, deliver there."""
    directory = tmp_path / "store"
    with pymq.Broker(pymq_config(directory)).running() as running, Wire(running.config.listen_port) as wire:
        due_ms = send_delayed(wire)
        wait_for(5, wire)
    with running_broker(apache, directory, APACHE) as broker:
        with Wire(int(broker.address.rpartition(":")[2])) as wire:
            finish(wire)
        broker.stop()
    check(directory, due_ms)
