"""How tables are cut into parts: whole, without overlap, few for many small files, and fewer where less is wanted."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.rocketmq_store import planner
from spark_jobs.rocketmq_store.files import StoreFiles, open_stores
from spark_jobs.rocketmq_store.planner import merged, pack, plan
from spark_jobs.rocketmq_store.pushdown import Wanted
from spark_jobs.rocketmq_store.records import DELAY_LEVELS, read_records
from tests.golden import golden_layout
from tests.spark_jobs.dumps import write_manifest


@pytest.fixture
def store(golden: Path) -> StoreFiles:
    """The golden store."""
    return open_stores([golden])[0]


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of some ten records, so that files are cut."""
    monkeypatch.setattr(planner, "LOG_RANGE_SIZE", 4099)
    monkeypatch.setattr(planner, "SMALL_FILE_COST", 0)


def ranges_of(parts: list) -> list:
    """The ranges of log parts, in order."""
    return [one for part in parts for one in part.ranges]


def offsets_of(parts: list) -> list[int]:
    """Physical offsets of all rows of log parts."""
    return [
        offset
        for one in ranges_of(parts)
        for batch in read_records(one)
        for offset in batch["physical_offset"].to_pylist()
    ]


ALL_OFFSETS = [message.physical_offset for message in golden_layout.messages()]


@pytest.mark.usefixtures("small_ranges")
def test_log_is_cut_at_records_and_nothing_is_read_twice(store: StoreFiles):
    """Goal: parts together are the log. Method: ranges of 4,099 bytes, their bounds and their rows."""
    parts = plan("commitlog", [store])
    ranges = ranges_of(parts)
    assert len(ranges) > 20
    assert all(one.begin in ALL_OFFSETS for one in ranges)
    assert all(one.begin == one.base or one.begin == before.end for before, one in itertools.pairwise(ranges))
    assert offsets_of(parts) == ALL_OFFSETS


def test_small_files_share_a_part(store: StoreFiles):
    """Goal: a task is worth its start. Method: a store of small files, and fifty of it, are a part a kind."""
    assert len(plan("commitlog", [store])) == 1
    assert [len(part.ranges) for part in plan("popck", [store] * 50)] == [100]
    assert [len(part.files) for part in plan("index", [store] * 50)] == [250]
    assert len(plan("scan", [store] * 25)) == 3
    (part,) = plan("consumequeue", [store])
    assert len(part.files) == 33


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize(("begin", "end"), [(0, 1), (1, 301), (300, 65_536), (65_535, 65_537), (70_000, 2**40), (5, 5)])
def test_offsets_that_are_asked_for_are_all_that_is_read(store: StoreFiles, begin: int, end: int):
    """Goal: a look at one place costs one place. Method: spans at and between records, over files, and none."""
    expected = [offset for offset in ALL_OFFSETS if begin <= offset < end]
    assert offsets_of(plan("commitlog", [store], Wanted(begin=begin, end=end))) == expected
    assert offsets_of(plan("commitlog", [store], spans=[("golden", begin, end)])) == expected
    assert offsets_of(plan("commitlog", [store], spans=[("golden", begin, end), ("golden", begin, end)])) == expected


def test_spans_of_another_store_are_not_this_ones(store: StoreFiles):
    """Goal: ranges name their store. Method: a span of an unknown store, and no span at all."""
    assert plan("commitlog", [store], spans=[("other", 0, 100)]) == []
    assert plan("commitlog", [store], spans=[]) == []


def test_nothing_behind_a_dumps_position_is_planned(golden: Path):
    """Goal: a dump ends where it says. Method: positions inside the first file, at its end, and beyond it."""
    for log_end in (29_046, 65_536, 70_354):
        write_manifest(golden, log_end=log_end)
        parts = plan("commitlog", open_stores([golden]))
        assert max(one.end for one in ranges_of(parts)) == log_end
        assert {one.log_end for one in ranges_of(parts)} == {log_end}
        assert offsets_of(parts) == [offset for offset in ALL_OFFSETS if offset < log_end]


def test_queue_files_are_chosen_by_topic_queue_and_offset(store: StoreFiles):
    """Goal: directories and names say what can be left out. Method: one queue of three files of 20 units."""

    def bases(wanted: Wanted) -> list[tuple[str, int, int]]:
        return [
            (one.topic, one.queue_id, one.base) for part in plan("consumequeue", [store], wanted) for one in part.files
        ]

    topic = frozenset({"GoldenA"})
    assert bases(Wanted(topics=topic, queue_ids=frozenset({1}))) == [("GoldenA", 1, base) for base in (0, 400, 800)]
    assert [
        base for _, _, base in bases(Wanted(topics=topic, queue_ids=frozenset({1}), queue_begin=20, queue_end=21))
    ] == [400]
    assert [
        base for _, _, base in bases(Wanted(topics=topic, queue_ids=frozenset({1}), queue_begin=19, queue_end=20))
    ] == [0]
    assert bases(Wanted(topics=frozenset())) == []


def test_only_files_without_a_begun_successor_are_last(store: StoreFiles, golden: Path):
    """Goal: zeros at a queue's end are no holes. Method: the golden queues, then a file of zeros made ahead."""

    def last(parts: list) -> list[int]:
        return [
            one.base
            for part in parts
            for one in part.files
            if (one.topic, one.queue_id) == ("GoldenA", 1) and one.is_last
        ]

    assert last(plan("consumequeue", [store])) == [800]
    (golden / "consumequeue/GoldenA/1/00000000000000001200").write_bytes(bytes(400))
    assert last(plan("consumequeue", [store])) == [800, 1200]


def test_stores_are_chosen_by_name(store: StoreFiles):
    """Goal: one of many can be looked at alone. Method: every table, with its name and with another."""
    for table in ("commitlog", "consumequeue", "index", "scan", "leaves", "timerlog", "offsets", "half", "timerwheel"):
        assert plan(table, [store], Wanted(stores=frozenset({"golden"})))
        assert plan(table, [store], Wanted(stores=frozenset({"other"}))) == []


def test_delay_levels_come_from_the_option_the_dump_or_rocketmq(golden: Path):
    """Goal: due times are the broker's. Method: a plain store, a dump with levels, one with nonsense, an option."""

    def levels(option: str | None = None) -> str:
        return plan("commitlog", open_stores([golden]), delay_levels=option)[0].delay_levels

    assert levels() == DELAY_LEVELS
    write_manifest(golden, log_end=131_072, configuration={"messageDelayLevel": "7s 9m"})
    assert levels() == "7s 9m"
    assert levels("1d") == "1d"
    write_manifest(golden, log_end=131_072, configuration={"messageDelayLevel": "soon"})
    assert levels() == DELAY_LEVELS


def test_store_without_pop_is_not_read_for_it(tmp_path: Path):
    """Goal: no pass over a log for nothing. Method: a store without any revive topic."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / f"{0:020d}").write_bytes(bytes(4099))
    stores = open_stores([tmp_path / "store"])
    assert plan("popck", stores) == []
    assert plan("half", stores)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8))
def test_merged_spans_hold_the_same_offsets_once(spans: list[tuple[int, int]]):
    """Goal: no row comes twice. Method: random spans, empty and reversed ones among them, as sets."""
    whole = merged(spans)
    listed = [offset for begin, end in whole for offset in range(begin, end)]
    assert len(listed) == len(set(listed))
    assert set(listed) == {offset for begin, end in spans for offset in range(begin, end)}


@given(st.lists(st.integers(0, 200 << 20), max_size=30))
def test_packing_keeps_order_and_limit(sizes: list[int]):
    """Goal: parts are bounded. Method: random sizes: all in order, no part but of one above the limit."""
    packed = list(pack(list(range(len(sizes))), sizes, planner.QUEUE_PART_SIZE))
    assert [item for part in packed for item in part] == list(range(len(sizes)))
    for part in packed:
        cost = sum(sizes[item] + planner.SMALL_FILE_COST for item in part)
        assert len(part) == 1 or cost <= planner.QUEUE_PART_SIZE


def test_a_part_has_a_limited_number_of_files():
    """Goal: a hundred thousand tiny queues are shared by tasks. Method: that many without any size."""
    sizes = [0] * 3 * planner.ITEMS_PER_PART_MAX
    packed = list(pack(sizes, sizes, 1 << 50))
    assert [len(part) for part in packed] == [planner.ITEMS_PER_PART_MAX] * 3
