"""What a store's directory is taken for: names, sizes, positions; a dump beside a plain store."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from spark_jobs.rocketmq_store.files import find_index_counts, names, open_stores, plain_path
from tests.golden import golden_layout
from tests.spark_jobs.dumps import write_manifest


def test_sizes_and_files_of_the_golden_store_are_found(golden: Path):
    """Goal: no setting has to be told. Method: the store Apache wrote, its configuration as the oracle."""
    (store,) = open_stores([golden])
    assert (store.name, store.root, store.manifest, store.log_end) == ("golden", golden, None, None)
    assert store.log_file_size == golden_layout.COMMIT_LOG_FILE_SIZE
    assert store.queue_file_size == golden_layout.CONSUME_QUEUE_FILE_SIZE
    assert (store.index_slots, store.index_items) == (
        golden_layout.INDEX_SLOT_COUNT,
        golden_layout.INDEX_ITEM_COUNT_MAX,
    )
    assert [(file.base, file.size) for file in store.log_files] == [(0, 65536), (65536, 65536)]
    assert [path.name for path in store.index_files] == [one["file"] for one in golden_layout.layout()["index"]]


def test_queue_files_come_by_topic_queue_number_and_position(golden: Path):
    """Goal: a queue's files stand together, in order. Method: the golden store's, and queue 17 behind queue 2."""
    (store,) = open_stores([golden])
    found = [(file.topic, file.queue_id, file.base) for file in store.queue_files()]
    assert found == sorted(found)
    assert [queue for topic, queue, _ in found if topic == "SCHEDULE_TOPIC_XXXX"] == [0, 1, 2, 17]
    assert {(topic, queue) for topic, queue, _ in found} == set(golden_layout.queue_units())


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/a/store"], ["store"]),
        (["/a/store", "/b/store"], ["a/store", "b/store"]),
        (["/x/a/store", "/y/a/store", "/y/b"], ["x/a/store", "y/a/store", "b"]),
        (["/a/store", "/b/store", "/c"], ["a/store", "b/store", "c"]),
        (["/a/store/", "/a/../a/store"], ["store", "store#2"]),
        (["/store", "/a/store"], ["/store", "a/store"]),
        (["file:///a/one", "/a/two"], ["one", "two"]),
        ([], []),
    ],
)
def test_names_are_short_and_unique(paths: list[str], expected: list[str]):
    """Goal: the `store` column tells stores apart. Method: equal names, equal parents, one path twice, the root."""
    assert names(paths) == expected


def test_symbolic_link_keeps_the_name_it_was_given_by(golden: Path, tmp_path: Path):
    """Goal: "latest" stays "latest" in a report. Method: open a store through a link."""
    (tmp_path / "latest").symlink_to(golden)
    (store,) = open_stores([tmp_path / "latest"])
    assert (store.name, len(store.log_files)) == ("latest", 2)


def test_relative_path_is_made_absolute(monkeypatch: pytest.MonkeyPatch, golden: Path):
    """Goal: executors may run elsewhere. Method: a relative path from the directory above."""
    monkeypatch.chdir(golden.parent)
    assert plain_path("./golden/") == golden


def test_dump_says_where_its_log_ends(golden: Path):
    """Goal: what lies behind a dump's position is not the dump's. Method: a manifest beside the golden store."""
    write_manifest(golden, log_end=98_765)
    (store,) = open_stores([golden])
    assert store.log_end == 98_765
    assert store.manifest is not None
    listed = {path for path, _, _ in store.all_files()}
    assert "commitlog/00000000000000065536" in listed
    assert "manifest.json" not in listed


def test_plain_store_lists_all_its_files(golden: Path):
    """Goal: replicas can be compared without a dump. Method: the walk of the directory."""
    (store,) = open_stores([golden])
    expected = {str(path.relative_to(golden)): path.stat().st_size for path in golden.rglob("*") if path.is_file()}
    assert {path: size for path, size, written in store.all_files() if written == size} == expected


def test_store_without_queues_index_or_records_is_a_store(tmp_path: Path):
    """Goal: a broker that was never used can be audited. Method: an empty commitlog/."""
    (tmp_path / "new" / "commitlog").mkdir(parents=True)
    (store,) = open_stores([tmp_path / "new"])
    assert (store.log_files, store.index_files, list(store.queue_files())) == ((), (), [])
    assert (store.log_begin, store.files_end, store.log_file_size, store.index_slots) == (0, 0, 0, 0)


def test_last_log_file_may_be_cut_short(golden: Path):
    """Goal: a crash while a file was made is no mixture of sizes. Method: cut the last file."""
    os.truncate(golden / "commitlog" / "00000000000000065536", 4099)
    (store,) = open_stores([golden])
    assert (store.log_file_size, store.files_end) == (65536, 65536 + 4099)


def test_names_that_are_no_offsets_are_passed_over(golden: Path):
    """Goal: a stray file changes nothing. Method: a copy, a hidden file and a directory among queues and log files."""
    (golden / "commitlog" / "00000000000000065536.bak").write_bytes(b"x")
    (golden / "consumequeue" / "GoldenA" / "0" / ".nfs0001").write_bytes(b"x")
    (golden / "consumequeue" / "GoldenA" / "lost+found").mkdir()
    (store,) = open_stores([golden])
    assert len(store.log_files) == 2
    assert len(list(store.queue_files())) == 33


@pytest.mark.parametrize("item", [1, 50, 199])
def test_damaged_item_does_not_hide_the_layout_of_the_index(golden: Path, item: int):
    """Goal: one wrong item is a finding and not an unreadable index. Method: overwrite it in the first file."""
    (first, *_) = sorted((golden / "index").iterdir())
    data = bytearray(first.read_bytes())
    struct.pack_into(">iqii", data, 40 + 4 * 100 + 20 * item, 0x7ABCDEF0, -5, 9, 198)
    first.write_bytes(data)
    assert find_index_counts([first]) == (100, 200)


@pytest.mark.parametrize("count", [0, -7, 201 + 1, 2**31 - 1])
def test_damaged_count_of_one_file_does_not_hide_the_layout_of_the_others(golden: Path, count: int):
    """Goal: a wrong header is that file's finding. Method: a count below and above what can be, in the first file."""
    (first, *others) = sorted((golden / "index").iterdir())
    data = bytearray(first.read_bytes())
    struct.pack_into(">i", data, 36, count)
    first.write_bytes(data)
    assert find_index_counts([first, *others]) == (100, 200)


def test_dump_states_the_layout_of_its_index(golden: Path):
    """Goal: what the broker said needs no guess. Method: every item damaged; stated counts that fit, and not."""
    for path in (golden / "index").iterdir():
        path.write_bytes(path.read_bytes()[:440] + b"\x55" * 4000)
    found = []
    for slots in ("100", "99", "many"):
        write_manifest(golden, log_end=131_072, configuration={"maxHashSlotNum": slots, "maxIndexNum": "200"})
        (store,) = open_stores([golden])
        found.append((store.index_slots, store.index_items))
    assert found == [(100, 200), (0, 0), (0, 0)]


def test_index_without_items_has_the_usual_counts(tmp_path: Path):
    """Goal: a fresh index is no error. Method: a file of zeros, of the embedded store's default length."""
    path = tmp_path / "20261116015600332"
    path.write_bytes(bytes(40 + 4 * 50_000 + 20 * 200_000))
    assert find_index_counts([path]) == (50_000, 200_000)


def test_index_that_tells_nothing_has_no_counts(tmp_path: Path):
    """Goal: garbage is the readers' business, as rows. Method: random-looking bytes of a size that fits no pair."""
    path = tmp_path / "20261116015600332"
    path.write_bytes(struct.pack(">qqqqii", 1, 2, 3, 4, 5, 50) + bytes(range(256)) * 7)
    assert find_index_counts([path]) == (0, 0)
    path.write_bytes(b"short")
    assert find_index_counts([path]) == (0, 0)


def test_manifest_may_have_more_than_is_known_here(golden: Path):
    """Goal: a later minor addition is no obstacle. Method: a field nobody knows."""
    write_manifest(golden, log_end=131_072)
    path = golden / "manifest.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"colour": "green"}))
    (store,) = open_stores([golden])
    assert store.log_end == 131_072
