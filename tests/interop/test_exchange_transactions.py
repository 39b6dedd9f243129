"""Transactions move with their store: what is pending at one broker is asked about by the other, nothing else is."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

import pymq
from pymq.clock import SystemClock
from pymq.remoting.codes import ResponseCode
from pymq.store.config import StoreConfig
from tests.broker.test_admin import create_topic
from tests.broker.transactions import COMMIT, ROLLBACK, Producer
from tests.interop.apache_broker import running_broker
from tests.interop.apache_toolchain import Toolchain
from tests.interop.workloads import StoreSettings
from tests.reference.record import decode_record

SETTINGS = StoreSettings(commit_log_file_size=1 << 20, consume_queue_file_size=20 * 1000)
QUIET = {"transactionTimeOut": "3600000", "transactionCheckInterval": "3600000", "transactionOpBatchInterval": "100"}
ASKING = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000", "transactionOpBatchInterval": "100"}
HALVES = 9
SETTLE_S, WAIT_S = 5.0, 60.0


def pymq_config(directory: Path, settings: dict[str, str]) -> pymq.BrokerConfig:
    """A pymq broker over the same files."""
    return pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        broker_name="interop",
        store_path_root_dir=str(directory),
        transaction_time_out=int(settings["transactionTimeOut"]),
        transaction_check_interval=int(settings["transactionCheckInterval"]),
        transaction_op_batch_interval=int(settings["transactionOpBatchInterval"]),
        store=StoreConfig(
            flush_disk_type="ASYNC_FLUSH",
            mapped_file_size_commit_log=SETTINGS.commit_log_file_size,
            mapped_file_size_consume_queue=SETTINGS.consume_queue_file_size,
            max_hash_slot_num=SETTINGS.hash_slot_count,
            max_index_num=SETTINGS.index_item_count,
        ),
    )


def producer_at(port: int) -> Producer:
    """A live producer of transactions at either broker, whose tables cannot be looked at."""
    no_clients = SimpleNamespace(producers=lambda _group: ())
    broker = SimpleNamespace(config=SimpleNamespace(listen_port=port), clients=no_clients)
    return Producer(SimpleNamespace(broker=broker, clock=SystemClock()))


def begin(producer: Producer) -> None:
    """Half messages: every third is committed, every third rolled back, every third left to the checks."""
    create_topic(producer, "T", queues=1)
    for number in range(HALVES):
        half = producer.half(b"%d" % number)
        assert half.code == ResponseCode.SUCCESS, half.remark
        if number % 3 < 2:
            assert producer.end(half, (COMMIT, ROLLBACK)[number % 3]).code == ResponseCode.SUCCESS


def answer_checks(producer: Producer) -> Counter[bytes]:
    """Commit whatever the broker asks about, until it has asked about all that is pending and a while longer."""
    asked: Counter[bytes] = Counter()
    end_s = time.monotonic() + WAIT_S
    producer.set_timeout(0.5)
    while time.monotonic() < end_s:
        try:
            check = producer.receive()
        except TimeoutError:
            if len(asked) >= HALVES // 3 and time.monotonic() < end_s - SETTLE_S:
                end_s = min(end_s, time.monotonic() + SETTLE_S)
            continue
        if not check.is_response:
            asked[decode_record(check.body).body] += 1
            producer.answer_oneway(check)
    return asked


def seen(directory: Path) -> Counter[bytes]:
    """What the topic holds."""
    with pymq.open(directory) as store:
        return Counter(message.body for message in store.read("T", max_count=1000))


def compare(directory: Path, asked: Counter[bytes]) -> None:
    """Asked about what was pending and nothing else; everything that was to be committed is there once."""
    assert set(asked) == {b"%d" % number for number in range(HALVES) if number % 3 == 2}
    assert seen(directory) == Counter(b"%d" % number for number in range(HALVES) if number % 3 != 1)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_pymq_asks_about_the_transactions_apache_left(apache: Toolchain, tmp_path: Path, end: str) -> None:
    """Goal: Apache's halves and op messages are understood, or its committed messages found. Method: begin there."""
    directory = tmp_path / "store"
    with running_broker(apache, directory, SETTINGS.for_apache() | QUIET) as broker:
        with producer_at(int(broker.address.rpartition(":")[2])) as producer:
            begin(producer)
        if end == "stop":
            broker.stop()
        else:
            time.sleep(1)  # a rollback's op message is all there is of it
            broker.kill()
    with (
        pymq.Broker(pymq_config(directory, ASKING)).running() as running,
        producer_at(running.config.listen_port) as producer,
    ):
        asked = answer_checks(producer)
    compare(directory, asked)


@pytest.mark.parametrize("checked", [False, True])
def test_apache_asks_about_the_transactions_pymq_left(apache: Toolchain, tmp_path: Path, checked: bool) -> None:
    """Goal: Apache understands ours, also those that were put again. Method: begin (and check) here, end there."""
    directory = tmp_path / "store"
    config = pymq_config(directory, ASKING if checked else QUIET)
    with pymq.Broker(config).running() as running, producer_at(running.config.listen_port) as producer:
        begin(producer)
        if checked:
            producer.checked(HALVES // 3)
    with running_broker(apache, directory, SETTINGS.for_apache() | ASKING) as broker:
        with producer_at(int(broker.address.rpartition(":")[2])) as producer:
            asked = answer_checks(producer)
        broker.stop()
    compare(directory, asked)
