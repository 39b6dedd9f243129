"""Consume queues as rows: Apache's golden queues unit by unit, fillers, holes, and what was never written."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.rocketmq_store.queues import read_units
from spark_jobs.rocketmq_store.schema import arrow_schema
from tests.golden import golden_layout
from tests.reference import cq_unit

QUEUE_FILES = sorted((golden_layout.STORE / "consumequeue").glob("*/*/*"))
FILLER = cq_unit.Unit(0, 0x7FFFFFFF, 0)
NOTHING = cq_unit.Unit(0, 0, 0)


def units_file(path: Path, *units: cq_unit.Unit, size: int = 400) -> Path:
    """A queue file of some units and zeros behind them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(cq_unit.encode_unit(unit) for unit in units).ljust(size, b"\0"))
    return path


def rows_of(path: Path, *, is_last: bool = True, size: int | None = None) -> list[dict]:
    """The rows of one file."""
    size = path.stat().st_size if size is None else size
    found = read_units("made", path.parts[-3], int(path.parts[-2]), path, int(path.name), size, is_last)
    return [row for batch in found for row in batch.to_pylist()]


def test_golden_units_are_the_plain_decoders() -> None:
    """Goal: the table says what the queue says. Method: every golden file, both readers."""
    count = 0
    for path in QUEUE_FILES:
        expected = [unit for unit in cq_unit.decode_units(path.read_bytes()) if unit.size > 0]
        rows = rows_of(path)
        assert [(row["physical_offset"], row["size"], row["tags_code"]) for row in rows] == [
            tuple(one) for one in expected
        ]
        first = int(path.name) // 20
        assert [row["queue_offset"] for row in rows] == list(range(first, first + len(rows)))
        assert [row["position"] for row in rows] == list(range(0, 20 * len(rows), 20))
        assert {row["status"] for row in rows} <= {"ok"}
        count += len(rows)
    assert count > 300


def test_the_schema_is_the_tables(tmp_path: Path) -> None:
    """Goal: Spark gets what it was told. Method: compare, and let Arrow validate."""
    path = units_file(tmp_path / "T" / "0" / "00000000000000000400", cq_unit.Unit(5, 100, 7))
    for batch in read_units("made", "T", 0, path, 400, 400, True):
        assert batch.schema.equals(arrow_schema("consumequeue"))
        batch.validate(full=True)
        assert batch.column("file")[0].as_py().endswith("T/0/00000000000000000400")


def test_fillers_and_holes_have_their_status(tmp_path: Path) -> None:
    """Goal: a unit that is none is told as what it is. Method: a filler, a unit, zeros, a unit."""
    path = units_file(
        tmp_path / "T" / "0" / "00000000000000000000", FILLER, cq_unit.Unit(5, 100, 7), NOTHING, cq_unit.Unit(9, 100, 7)
    )
    assert [row["status"] for row in rows_of(path)] == ["filler", "ok", "hole", "ok"]


def test_zeros_at_the_end_are_rows_only_before_a_later_file(tmp_path: Path) -> None:
    """Goal: not written is not a hole. Method: the same file as a queue's last and as one before it."""
    path = units_file(tmp_path / "T" / "0" / "00000000000000000000", cq_unit.Unit(5, 100, 7), size=60)
    assert [row["status"] for row in rows_of(path)] == ["ok"]
    assert [row["status"] for row in rows_of(path, is_last=False)] == ["ok", "hole", "hole"]


def test_a_unit_with_a_size_of_nothing_is_a_hole_even_at_the_end(tmp_path: Path) -> None:
    """Goal: a damaged last unit is not taken for unwritten. Method: an offset without a size."""
    path = units_file(tmp_path / "T" / "0" / "00000000000000000000", cq_unit.Unit(5, 100, 7), cq_unit.Unit(105, 0, 0))
    assert [row["status"] for row in rows_of(path)] == ["ok", "hole"]


def test_odd_bytes_at_the_end_and_a_missing_file_are_no_rows(tmp_path: Path) -> None:
    """Goal: nothing raises. Method: a file cut inside a unit, and one that is gone."""
    path = units_file(tmp_path / "T" / "0" / "00000000000000000000", cq_unit.Unit(5, 100, 7), cq_unit.Unit(9, 100, 7))
    path.write_bytes(path.read_bytes()[:33])
    assert len(rows_of(path)) == 1
    assert rows_of(tmp_path / "T" / "0" / "00000000000000000400", size=400) == []


def test_many_units_come_in_batches(tmp_path: Path) -> None:
    """Goal: batches of bounded size. Method: more units than one holds."""
    units = [cq_unit.Unit(100 * number, 100, 1) for number in range(20_000)]
    path = units_file(tmp_path / "T" / "0" / "00000000000000000000", *units, size=6_000_000)
    batches = list(read_units("made", "T", 0, path, 0, 6_000_000, True))
    assert [batch.num_rows for batch in batches] == [8192, 8192, 3616]
    assert batches[2].column("queue_offset")[0].as_py() == 16384
