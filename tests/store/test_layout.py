"""Sizes read off the files: ours of every shape, Apache's golden store, and crash leftovers."""

from __future__ import annotations

import pytest

import pymq
from pymq.errors import StoreMismatchError
from pymq.store.layout import (
    SMALL_COMMIT_LOG_SIZE,
    config_for,
    find_commit_log_size,
    find_index_counts,
    find_queue_size,
    find_sizes,
)


def test_a_new_directory_gets_small_files(tmp_path):
    """Goal: an embedded store does not begin with a gigabyte. Method: the settings for nothing."""
    config = config_for(tmp_path / "nothing")
    assert config.mapped_file_size_commit_log == SMALL_COMMIT_LOG_SIZE == 64 * 1024**2
    assert (config.max_hash_slot_num, config.max_index_num) == (50_000, 200_000)
    assert config.flush_disk_type == "SYNC_FLUSH"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("log", "units", "slots", "items"),
    [
        (65_536, 20, 100, 200),
        (49_999, 31, 53, 211),
        (100_003, 300, 7, 1000),
        (65_537, 51, 1000, 3),
        (70_001, 13, 64, 256),
    ],
)
def test_sizes_of_our_own_stores_are_found(tmp_path, log, units, slots, items):
    """Goal: open without settings finds them. Method: odd pairs of slots and keys, several index files, then reopen."""
    sizes = {
        "mapped_file_size_commit_log": log,
        "mapped_file_size_consume_queue": units * 20,
        "max_hash_slot_num": slots,
        "max_index_num": items,
    }
    with pymq.open(tmp_path, pymq.StoreConfig(flush_disk_type="ASYNC_FLUSH", **sizes)) as mq:
        mq.send_many("t", [pymq.Message(body=b"x" * 300, keys=f"k{n} l{n}") for n in range(400)])
    found = config_for(tmp_path)
    assert {name: getattr(found, name) for name in sizes} == sizes
    with pymq.open(tmp_path) as mq:
        assert [m.queue_offset for m in mq.query("t", "l399")] == [399]
        assert mq.max_offset("t") == 400


def test_sizes_of_apache_s_store_are_found(golden_store):
    """Goal: their store opens without settings. Method: the golden store: 64 KiB, 20 units, 100 slots, 200 keys."""
    found = find_sizes(golden_store)
    assert (found.commit_log, found.consume_queue, found.index) == (65_536, 400, (100, 200))
    with pymq.open(golden_store) as mq:
        assert "GoldenA" in mq.topics()
        assert sum(queue.max_offset for queue in mq.queues("GoldenA")) == 136


def test_a_short_last_log_file_does_not_mislead(tmp_path):
    """Goal: a crash while a file was made is normal. Method: names 1,000 apart, the last file short or empty."""
    for base, size in ((5000, 1000), (6000, 1000), (7000, 12)):
        (tmp_path / f"{base:020d}").write_bytes(b"\0" * size)
    (tmp_path / "notes.txt").write_text("not a log file")
    assert find_commit_log_size(tmp_path) == 1000
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / f"{0:020d}").touch()
    assert find_commit_log_size(empty) is None
    assert find_commit_log_size(tmp_path / "missing") is None


def test_queue_sizes_ignore_what_is_no_queue(tmp_path):
    """Goal: strangers in the directory do no harm. Method: files where directories belong, an empty queue."""
    (tmp_path / "t" / "0").mkdir(parents=True)
    (tmp_path / "stray").write_text("x")
    (tmp_path / "t" / "stray").write_text("x")
    assert find_queue_size(tmp_path) is None
    (tmp_path / "t" / "0" / f"{0:020d}").write_bytes(b"\0" * 400)
    (tmp_path / "t" / "0" / f"{400:020d}").write_bytes(b"\0" * 40)
    assert find_queue_size(tmp_path) == 400


def test_an_index_whose_counts_cannot_be_told_is_refused_with_the_way_out(tmp_path):
    """Goal: never guess. Method: an index file whose items hang on no chain."""
    data = bytearray(40 + 100 * 4 + 200 * 20)
    data[36:40] = (50).to_bytes(4, "big")
    for position in range(440, len(data)):
        data[position] = position * 7 % 251
    (tmp_path / "20260101000000000").write_bytes(data)
    with pytest.raises(StoreMismatchError, match="max_hash_slot_num and max_index_num"):
        find_index_counts(tmp_path)


def test_given_counts_skip_the_search(tmp_path):
    """Goal: the way out works. Method: the same index with both counts given."""
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20260101000000000").write_bytes(b"\xff" * 4440)
    config = config_for(tmp_path, max_hash_slot_num=100, max_index_num=200, flush_disk_type="ASYNC_FLUSH")
    assert (config.max_hash_slot_num, config.max_index_num, config.flush_disk_type) == (100, 200, "ASYNC_FLUSH")
