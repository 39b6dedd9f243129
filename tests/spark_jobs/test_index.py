"""Index files as rows: Apache's golden ones item by item, and one fault for one damaged number."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.rocketmq_store.index import IndexFile, read_items
from spark_jobs.rocketmq_store.schema import arrow_schema
from tests.golden import golden_layout
from tests.reference import index_file

GOLDEN_FILES = sorted((golden_layout.STORE / "index").iterdir())
SLOTS, ITEMS = 100, 200  # of the golden broker.conf
MADE_SLOTS, MADE_ITEMS = 5, 40
NAME = "20261117200000000"


def made_file(path: Path, count: int = 30) -> bytearray:
    """An index file with several items in every slot."""
    made = index_file.IndexFile(MADE_SLOTS, MADE_ITEMS)
    for number in range(count):
        assert made.put(b"topic", b"key%d" % number, 100 * number, 1_794_794_160_000 + 500 * number)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = bytearray(made.to_bytes())
    path.write_bytes(data)
    return data


def rows_of(path: Path, slots: int = MADE_SLOTS, items: int = MADE_ITEMS) -> list[dict]:
    """The rows of one file."""
    return [row for batch in read_items("made", path, slots, items) for row in batch.to_pylist()]


def test_golden_items_are_the_plain_decoders() -> None:
    """Goal: the table says what the index says. Method: every golden file, both readers; all chains hold."""
    for path in GOLDEN_FILES:
        plain = index_file.IndexFile.from_bytes(path.read_bytes(), SLOTS)
        rows = rows_of(path, SLOTS, ITEMS)
        assert [(row["key_hash"], row["physical_offset"], row["seconds"], row["previous"]) for row in rows] == [
            tuple(item) for item in plain.items
        ]
        assert [row["item"] for row in rows] == list(range(1, len(rows) + 1))
        assert all(row["slot"] == row["key_hash"] % SLOTS and row["status"] == "ok" for row in rows)
        assert all(row["store_timestamp"] == plain.begin_timestamp_ms + 1000 * row["seconds"] for row in rows)
        assert all(batch.schema.equals(arrow_schema("index")) for batch in read_items("made", path, SLOTS, ITEMS))


def item_at(number: int, part: int) -> int:
    """The position of a field of an item."""
    return 40 + 4 * MADE_SLOTS + 20 * number + part


def change(position: int, value: int) -> Callable[[bytearray], None]:
    """Put a number."""

    def spoil(data: bytearray) -> None:
        struct.pack_into(">i", data, position, value)

    return spoil


@pytest.mark.parametrize("value", [0, 3, 17, 18, 500, -1])
@pytest.mark.parametrize("item", [1, 17, 30])
def test_a_wrong_previous_is_one_fault_at_its_item(tmp_path: Path, item: int, value: int) -> None:
    """Goal: one number, one fault. Method: change an item's previous to nothing, another, itself, beyond."""
    path = tmp_path / NAME
    data = made_file(path)
    before = struct.unpack_from(">i", data, item_at(item, 16))[0]
    change(item_at(item, 16), value if value != before else 99)(data)
    path.write_bytes(data)
    assert [row["item"] for row in rows_of(path) if row["status"] != "ok"] == [item]


@pytest.mark.parametrize("item", range(1, 31))
@pytest.mark.parametrize("step", [1, 2])
def test_a_wrong_hash_is_one_fault_at_its_item(tmp_path: Path, item: int, step: int) -> None:
    """Goal: as above, though it breaks two chains. Method: change each item's hash so that it says another slot."""
    path = tmp_path / NAME
    data = made_file(path)
    change(item_at(item, 0), struct.unpack_from(">i", data, item_at(item, 0))[0] + step)(data)
    path.write_bytes(data)
    assert [row["item"] for row in rows_of(path) if row["status"] != "ok"] == [item]


@pytest.mark.parametrize("slot", range(MADE_SLOTS))
@pytest.mark.parametrize("value", [1, 2, 35, -7])
def test_a_wrong_slot_is_one_fault_at_its_newest_item(tmp_path: Path, slot: int, value: int) -> None:
    """Goal: as above. Method: let a slot point to another item, to one that is not there, to nonsense."""
    path = tmp_path / NAME
    data = made_file(path)
    newest = struct.unpack_from(">i", data, 40 + 4 * slot)[0]
    change(40 + 4 * slot, value)(data)
    path.write_bytes(data)
    opened = IndexFile(path, MADE_SLOTS, MADE_ITEMS)
    faults = opened.faults()
    opened.close()
    assert [(fault.item, fault.slot) for fault in faults] == [(newest, slot)]


@pytest.mark.parametrize(
    ("position", "value"), [(36, 30), (36, 32), (36, 2_000_000), (36, -1), (36, 0), (32, 4), (20, 1), (28, 2)]
)
def test_a_wrong_header_is_one_row_of_its_own(tmp_path: Path, position: int, value: int) -> None:
    """Goal: the items are read whatever the header says. Method: change count, slots used, begin and end offset."""
    path = tmp_path / NAME
    data = made_file(path)
    change(position, value)(data)
    path.write_bytes(data)
    rows = rows_of(path)
    assert [row["item"] for row in rows if row["status"] != "ok"] == [0]
    assert (rows[0]["status"], len(rows)) == ("bad_header", 31)


def test_short_files_and_missing_ones_have_a_bad_header(tmp_path: Path) -> None:
    """Goal: nothing raises. Method: cut inside the header, the slots and the items; remove the file."""
    path = tmp_path / NAME
    data = made_file(path)
    for size in (0, 39, 45):
        path.write_bytes(data[:size])
        assert [row["status"] for row in rows_of(path)] == ["bad_header"]
    path.write_bytes(data[: item_at(12, 0)])
    rows = rows_of(path)
    assert rows[0]["status"] == "bad_header"
    assert [row["item"] for row in rows] == list(range(12))
    path.unlink()
    assert [row["status"] for row in rows_of(path)] == ["bad_header"]


def test_a_file_without_items_is_whole(tmp_path: Path) -> None:
    """Goal: a new file is no damage. Method: none put yet; and as Apache makes it, with the last file's end."""
    path = tmp_path / NAME
    data = made_file(path, 0)
    assert rows_of(path) == []
    struct.pack_into(">qq", data, 16, 777, 777)
    path.write_bytes(data)
    assert rows_of(path) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.integers(0, 300), st.integers(-1, 9))
def test_nothing_raises_for_any_bytes(tmp_path: Path, noise: bytes, at: int, slots: int) -> None:
    """Goal: bad input is rows. Method: noise over a file, and wrong numbers of slots."""
    path = tmp_path / NAME
    data = made_file(path)
    data[at : at + len(noise)] = noise
    path.write_bytes(data)
    rows = rows_of(path, slots)
    assert all(row["status"] in ("ok", "bad_chain", "bad_header") for row in rows)
