"""Statistics: counters that count, rates from a given clock, RocketMQ's names."""

from __future__ import annotations

import pymq
from pymq.store.stats import LATENCY_LABELS, RateSampler, format_runtime

SMALL = {
    "mapped_file_size_commit_log": 65_537,
    "mapped_file_size_consume_queue": 1_020,
    "max_hash_slot_num": 101,
    "max_index_num": 307,
    "flush_disk_type": "ASYNC_FLUSH",
}


def counters(put=0, found=0, missed=0):
    """The counters that have rates."""
    return {"put_count": put, "get_count": found, "get_missed": missed}


def test_rates_are_differences_over_time():
    """Goal: messages per second over each window. Method: a clock in numbers: 100 a second for 30 s, then nothing."""
    sampler = RateSampler(0.0)
    for second in range(1, 31):
        sampler.sample(float(second), counters(put=100 * second))
    assert sampler.rates(30.0, counters(put=3000)).put == (100.0, 100.0, 100.0)
    for second in range(31, 41):
        sampler.sample(float(second), counters(put=3000))
    ten, sixty, six_hundred = sampler.rates(40.0, counters(put=3000)).put
    assert (ten, sixty, six_hundred) == (0.0, 75.0, 75.0)


def test_samples_are_bounded_and_not_closer_than_a_second():
    """Goal: constant memory. Method: a sample every tenth of a second for twenty minutes."""
    sampler = RateSampler(0.0)
    for tenth in range(12_000):
        sampler.sample(tenth / 10, counters(put=tenth))
    assert len(sampler._samples) <= 602
    assert all(9.9 <= rate <= 10.2 for rate in sampler.rates(1200.0, counters(put=12_000)).put)


def test_rates_of_no_time_are_zero():
    """Goal: no division by nothing. Method: ask at the moment of the open."""
    assert RateSampler(5.0).rates(5.0, counters(put=10)).put == (0.0, 0.0, 0.0)


def test_counters_watermarks_and_names(tmp_path):
    """Goal: statistics describe what happened. Method: known sends and reads, then the flat table."""
    with pymq.open(tmp_path, pymq.StoreConfig(**SMALL)) as mq:
        for _ in range(3):
            mq.send("t", b"x" * 100)
        results = mq.send_many("t", [b"y"] * 7)
        assert len(mq.read("t", 0, 0, max_count=10)) == 10
        mq.flush()
        stats = mq.stats()
        info = stats.runtime_info()
    assert stats.put_count == 10
    assert stats.put_bytes == results.end_offset
    assert stats.get_count == 10
    assert stats.recovered_clean
    assert stats.failed_status == ""
    assert stats.watermarks.flushed == stats.watermarks.written == results.end_offset
    assert stats.dispatch_behind_bytes == 0
    assert (stats.pool_free, stats.pool_size) == (None, None)
    assert list(stats.latency_buckets) == list(LATENCY_LABELS)
    assert sum(stats.put_latency) == 4, "three sends and one send_many"
    assert stats.disk.log_ratio is not None
    assert 0 < stats.disk.log_ratio < 1
    assert info["putMessageTimesTotal"] == "10"
    assert info["commitLogMaxOffset"] == str(results.end_offset)
    assert info["commitLogMinOffset"] == "0"
    assert info["dispatchBehindBytes"] == info["remainHowManyDataToFlush"] == "0"
    assert info["putMessageDistributeTime"].startswith("[<=0ms]:")
    assert len(info["putTps"].split()) == 3
    assert info["remainTransientStoreBufferNumbs"] == "unknown"
    assert all(isinstance(value, str) for value in info.values())


def test_runtime_is_printed_as_rocketmq_prints_it():
    """Goal: tools that parse it go on working. Method: one of each unit."""
    assert format_runtime(90_061.9) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
