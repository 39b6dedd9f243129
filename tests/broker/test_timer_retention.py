"""Retention waits for pending timers: their log files stay whatever their age, unless the disk is full."""

from __future__ import annotations

import logging
import time

import pytest

import pymq
from pymq.remoting.codes import RequestCode
from pymq.store.config import StoreConfig
from tests.broker.sides import age_log
from tests.broker.test_admin import create_topic
from tests.broker.test_timer import send, wait_for
from tests.broker.wire import send_fields

FILES = 4


@pytest.fixture
def broker(tmp_path, disk):
    """A broker with log files of 20 KB and timers of 100 ms."""
    config = pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        broker_name="a",
        store_path_root_dir=str(tmp_path),
        broker_fast_failure_enable=False,
        timer_precision_ms=100,
        timer_flush_interval_ms=50,
        store=StoreConfig(
            flush_disk_type="ASYNC_FLUSH",
            mapped_file_size_commit_log=20_000,
            max_hash_slot_num=1000,
            max_index_num=4000,
            delete_commit_log_files_interval_ms=0,
            flush_commit_log_thorough_interval_ms=100,
        ),
    )
    with pymq.Broker(config, disk_probe=disk).running() as running:
        yield running


@pytest.fixture
def wire(wire):
    """With a topic to send to."""
    create_topic(wire, "T")
    return wire


def fill_and_age(broker, wire):
    """FILES files of log behind what is there, all of them old."""
    for _ in range(FILES * 10):
        wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T", 1), b"x" * 2000)
    age_log(broker)


def test_log_files_with_pending_timers_stay(broker, wire):
    """The timer's is the first file, so nothing goes; once it is delivered and known to be, they do."""
    send(wire, "T", {"TIMER_DELAY_MS": 4000}, b"later")
    fill_and_age(broker, wire)
    assert broker.message_store.delete_expired().log_files == ()
    assert broker.timer.store.needed_from() is not None
    wait_for(broker, "T")
    end_s = time.monotonic() + 20
    while broker.timer.store.needed_from() is not None and time.monotonic() < end_s:
        time.sleep(0.05)
    removed = broker.message_store.delete_expired().log_files
    assert len(removed) >= FILES - 1
    assert broker.timer.store.stats.lost == 0


def test_a_full_disk_takes_pending_timers_and_says_how_many(broker, wire, disk, caplog):
    """Above diskSpaceCleanForciblyRatio files go by force; the loss is an error in the log with a count."""
    for number in range(3):
        send(wire, "T", {"TIMER_DELAY_SEC": 3600}, key=f"{number:032d}")
    fill_and_age(broker, wire)
    assert broker.message_store.delete_expired().log_files == ()
    disk.ratio = 0.89
    with caplog.at_level(logging.ERROR, "pymq.store"):
        assert broker.message_store.delete_expired().log_files
    assert "pending deliveries lost" in caplog.text
    assert "messages=3" in caplog.text


def test_a_message_still_in_the_timer_topic_is_waited_for_too(broker, wire):
    """With timerStopEnqueue it is in no slot, and needed all the same."""
    wire.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"timerStopEnqueue=true\n")
    send(wire, "T", {"TIMER_DELAY_MS": 100})
    fill_and_age(broker, wire)
    assert broker.message_store.delete_expired().log_files == ()
    wire.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"timerStopEnqueue=false\n")
    wait_for(broker, "T")
    assert broker.timer.store.stats.lost == 0
