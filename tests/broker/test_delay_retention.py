"""Retention waits for delayed messages: their log files stay whatever their age, unless the disk is full."""

from __future__ import annotations

import logging

import pytest

import pymq
from pymq.broker.schedule.guard import DelayGuard, count_below
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.store.retention import AllGuards
from tests.broker.sides import age_log, until
from tests.broker.test_admin import create_topic
from tests.broker.test_delay import SCHEDULE, arrived, delay
from tests.broker.wire import send_fields

FILES = 4


@pytest.fixture
def broker(tmp_path, disk):
    """Small log files, and a level for now (1) and one for much later (2)."""
    config = pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        store_path_root_dir=str(tmp_path),
        timer_wheel_enable=False,
        flush_delay_offset_interval=50,
        store=pymq.StoreConfig(
            flush_disk_type="ASYNC_FLUSH",
            flush_interval_commit_log_ms=20,
            flush_commit_log_least_pages=0,
            mapped_file_size_commit_log=1 << 15,
            message_delay_level="2s 9h",
            delete_commit_log_files_interval_ms=1,
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
    for _ in range(FILES * 16):
        answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T", 1), b"x" * 2000)
        assert answer.code == ResponseCode.SUCCESS
    age_log(broker)


def test_log_files_with_delayed_messages_stay_until_those_are_delivered(broker, wire):
    """The message is in the first file, so nothing goes; once it is delivered and written down so, files do."""
    delay(wire, "T", 1)
    fill_and_age(broker, wire)
    assert broker.message_store.delete_expired().log_files == ()
    arrived(broker, "T")
    until(lambda: broker.delay_guard.needed_from() is None)
    assert len(broker.message_store.delete_expired().log_files) >= FILES - 1


def test_a_full_disk_takes_delayed_messages_and_says_how_many(broker, wire, disk, caplog):
    """Above diskSpaceCleanForciblyRatio files go by force; the level goes on behind what is gone."""
    for _ in range(3):
        delay(wire, "T", 2)
    fill_and_age(broker, wire)
    delay(wire, "T", 2, b"newest")
    assert broker.store.wait_dispatched(10_000)  # acknowledged does not say that it is in its queue
    assert count_below(broker.store, 2, 0, 1 << 15) == 3
    assert count_below(broker.store, 2, 1, 1 << 15) == 2
    assert count_below(broker.store, 2, 0, 1 << 40) == 4
    assert broker.message_store.delete_expired().log_files == ()
    disk.ratio = 0.89
    with caplog.at_level(logging.ERROR, "pymq.store"):
        assert broker.message_store.delete_expired().log_files
    assert "pending deliveries lost" in caplog.text
    assert "messages=3" in caplog.text
    low, high = broker.store.queue_range(SCHEDULE, 1)
    assert high - low == 1


def test_everything_is_needed_until_it_is_known_what_is():
    """A pass of retention while the broker starts removes nothing."""
    guard = DelayGuard()
    assert guard.needed_from() == 0
    assert AllGuards(guard).needed_from() == 0
    assert AllGuards().needed_from() is None
