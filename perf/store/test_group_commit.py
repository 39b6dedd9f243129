"""Sync flush: what a wait for the disk costs when many share it.

Promise: a message counts when its fdatasync has returned. Sketch: with a sync of 2 ms one sender at a time passes under
500 a second; 256 that wait together share one or two syncs, so some 60,000 a second but for waking 256 threads on two
cores. Senders parked by one thread, as a reactor parks them, need no wake-up each.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perf.store.native import NativeBench

SENDERS = 256
ROUNDS = 30
REPEATS = 4
EACH_COUNT = 60
RECORD_SIZE = 270
SYNCS_OF_ROUND_MAX = 3
RATIO_MIN = 50.0
SETTINGS = {"sync_flush": True, "log_file_size": 64 << 20, "queue_flush_interval_ms": 2**31 - 1}


@pytest.mark.parametrize("delay_us", [2000, 0], ids=["fsync-of-2-ms", "this-disk"])
@pytest.mark.benchmark(group="group commit, sync flush")
def test_group_commit_beside_one_sync_a_message(
    benchmark: Any, native: NativeBench, scratch: Path, say: Callable[[str], None], delay_us: int
) -> None:
    """Goal: at most 3 syncs a round and 50 times one sync a message. Method: count syncs, alternate, take the best."""
    path = scratch / "group"
    each: list[float] = []
    rates: dict[str, list[float]] = {"blocked": [], "parked": [], "one sender": []}
    syncs: list[int] = []
    syncs_per_round: list[float] = []

    def all_ways() -> None:
        each.append(native.plain_sync_each(path / "plain", EACH_COUNT, RECORD_SIZE).rate)
        rates["one sender"].append(store.sync_each(EACH_COUNT).rate)
        syncs.extend(store.group_commit(SENDERS, ROUNDS, in_step=True)[1])
        before = native.log_syncs()
        rates["blocked"].append(store.group_commit(SENDERS, ROUNDS, in_step=False)[0].rate)
        syncs_per_round.append((native.log_syncs() - before) / ROUNDS)
        rates["parked"].append(store.parked_commit(SENDERS, ROUNDS).rate)

    with native.counting_syncs(delay_us), native.abandoned(path, **SETTINGS) as store:
        store.append(1, 128, 1)
        benchmark.pedantic(all_ways, rounds=REPEATS)
    shutil.rmtree(path)
    best = {name: max(values) for name, values in rates.items()}
    single = max(each)
    median_syncs = statistics.median(syncs)
    ratios = {name: rate / single for name, rate in best.items()}
    benchmark.extra_info.update(
        one_sync_a_message_per_second=single,
        syncs_of_round_median=median_syncs,
        syncs_of_round_max=max(syncs),
        **{f"{name} per_second": rate for name, rate in best.items()},
    )
    disk = f"fsync of {delay_us / 1000:.0f} ms" if delay_us else "this disk's fsync"
    say(
        f"group commit, {disk}: {SENDERS} senders starting together cost {median_syncs:.0f} syncs a round (median of "
        f"{len(syncs)}, most {max(syncs)}); running free {min(syncs_per_round):.1f} per {SENDERS} messages"
    )
    say(
        f"sync flush, {disk}: {SENDERS} blocked threads {best['blocked']:.0f}/s = {ratios['blocked']:.0f} x one "
        f"fsync a message ({single:.0f}/s); {SENDERS} parked by one thread {best['parked']:.0f}/s = "
        f"{ratios['parked']:.0f} x; one sender {best['one sender']:.0f}/s"
    )
    if delay_us:
        assert median_syncs <= SYNCS_OF_ROUND_MAX
        assert max(ratios["blocked"], ratios["parked"]) >= RATIO_MIN
