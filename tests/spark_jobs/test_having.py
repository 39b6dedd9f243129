"""Reading less of the log: records by the properties they have (option `having`), and only some columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.rocketmq_store.options import OptionError, parse_options
from spark_jobs.rocketmq_store.records import LogRange, RowFilter, read_records
from tests.golden.golden_layout import STORE


def offsets(wanted: RowFilter | None, names: set[str]) -> list[int]:
    """Physical offsets of the golden store's records that have one of *names*."""
    found = []
    for path in sorted((STORE / "commitlog").iterdir()):
        base, size = int(path.name), path.stat().st_size
        one = LogRange("golden", str(path), base, base, base + size, base + size, -1)
        for batch in read_records(one, properties="map", row_filter=wanted):
            rows = batch.select(["physical_offset", "properties"]).to_pylist()
            found += [
                row["physical_offset"] for row in rows if not names or names & dict(row["properties"] or ()).keys()
            ]
    return found


@pytest.mark.parametrize("names", [("TRAN_MSG",), ("REAL_TOPIC", "ORIGIN_MESSAGE_ID"), ("no such",), ()], ids=str)
def test_a_reader_leaves_out_what_has_none_of_the_properties(names: tuple[str, ...]):
    """Goal: never fewer rows than asked for, and here no others. Method: the golden store, filtered by hand as well."""
    expected = offsets(None, set(names)) if names else []
    assert offsets(RowFilter(having=names), set()) == expected
    assert names in (("no such",), ()) or expected


def test_the_option_is_a_list_of_names(tmp_path: Path):
    """Goal: an option that cannot be read is refused in one line. Method: a list, and what is none."""
    given = {"path": str(tmp_path), "having": '["a", "b"]'}
    assert parse_options(given).having == ("a", "b")
    with pytest.raises(OptionError, match=r"having: .* is not a JSON list"):
        parse_options(given | {"having": "a"})


def test_only_the_columns_asked_for_are_made():
    """Goal: a narrow query costs little. Method: some columns of the golden log, beside the same ones of all."""
    path = STORE / "commitlog" / f"{0:020d}"
    size = path.stat().st_size
    one = LogRange("golden", str(path), 0, 0, size, size, -1)
    columns = ["store", "physical_offset", "topic", "uniq_key", "store_host"]
    narrow = [row for batch in read_records(one, columns=columns) for row in batch.to_pylist()]
    whole = [row for batch in read_records(one) for row in batch.to_pylist()]
    assert narrow == [{name: row[name] for name in columns} for row in whole]
    assert len(narrow) > 100
