"""Ledgers: what is written is read again, by Spark and by the reader of the load generator's tests; damage is a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.ledger import SCHEMA, LedgerWriter, message_host, message_offset, read_ledgers
from tests.perf_tools import ledgers as generator

OFFSET_ID = "7F00000100002A9F000000000000E25C"
NAMES = [part.split()[0] for part in SCHEMA.split(", ")]


def write(path: Path) -> Path:
    """One line of each kind a client writes."""
    with LedgerWriter(path, group="readers", subscriptions={"T": "red || green", "U": "*"}) as ledger:
        ledger.acknowledged("T", 1, 17, OFFSET_ID, sender=3, sequence=4, intended_ns=5, sent_ns=6, done_ns=7)
        ledger.refused("T", 1, 14, sender=3, sequence=5, sent_ns=8, done_ns=9)
        ledger.unknown("T", 1, sender=3, sequence=6, sent_ns=10)
        ledger.received("U", 0, 2, OFFSET_ID, done_ns=11)
    return path


def test_a_ledger_is_in_the_load_generators_format(tmp_path: Path):
    """Goal: one format for all clients. Method: its tests' reader, which is strict, reads ours but for its head."""
    path = write(tmp_path / "ledger.tsv")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[2:5] == ["# group readers", "# subscription T\tred || green", "# subscription U\t*"]
    path.write_text("\n".join(lines[:2] + lines[5:]) + "\n", encoding="utf-8")
    assert [entry.kind for entry in generator.read(path)] == ["A", "F", "U", "R"]
    assert generator.read(path)[0] == generator.Entry("A", "T", 1, 17, OFFSET_ID, 3, 4, 5, 6, 7)
    assert generator.read(path)[1].msg_id == "code:14"


def test_a_closed_ledger_may_be_closed_again(tmp_path: Path):
    """Goal: whoever ends first closes. Method: twice."""
    ledger = LedgerWriter(tmp_path / "ledger.tsv")
    ledger.close()
    ledger.close()
    assert (tmp_path / "ledger.tsv").read_text(encoding="utf-8").startswith("# pymq-ledger 1\n# kind\ttopic\t")


@pytest.mark.spark
def test_lines_become_rows_and_damage_too(spark, tmp_path: Path):
    """Goal: every line is accounted for. Method: a whole ledger, one with broken lines, and a file that is none."""
    write(tmp_path / "good.tsv")
    bad = (
        "# pymq-ledger 1",
        f"A\tT\t0\t1\t{OFFSET_ID}\t1\t1\t-\t2\t3",
        "",
        "A\tT\t0\t1\tcut",
        f"X\tT\t0\t1\t{OFFSET_ID}\t1\t1\t-\t2\t3",
        f"A\tT\tnine\t1\t{OFFSET_ID}\t1\t1\t-\t2\t3",
        f"A\tT\t0\t1\t{OFFSET_ID}\t1\t1\t-\t2\t{'9' * 30}",
    )
    (tmp_path / "bad.tsv").write_text("\n".join(bad), encoding="utf-8")
    (tmp_path / "none.tsv").write_text(f"A\tT\t0\t1\t{OFFSET_ID}\t1\t1\t-\t2\t3\n", encoding="utf-8")
    frame = read_ledgers(spark, [str(tmp_path)])
    assert frame.columns == NAMES
    rows = [row.asDict() | {"file": Path(row.file).name} for row in frame.collect()]
    good = [row for row in rows if row["file"] == "good.tsv"]
    assert [(row["kind"], row["subscription"]) for row in good] == [
        ("A", "red || green"), ("F", "red || green"), ("U", "red || green"), ("R", "*"),
    ]  # fmt: skip
    assert good[0] == dict.fromkeys(NAMES) | {
        "kind": "A", "topic": "T", "queue_id": 1, "queue_offset": 17, "message_id": OFFSET_ID, "sender": 3,
        "sequence": 4, "intended_ns": 5, "sent_ns": 6, "done_ns": 7, "file": "good.tsv", "consumer_group": "readers",
        "subscription": "red || green", "status": "ok",
    }  # fmt: skip
    broken = [row for row in rows if row["status"] == "bad_line"]
    assert sorted(row["line"] for row in broken) == sorted(line for line in bad[3:])
    assert all(row["kind"] is None and row["file"] == "bad.tsv" for row in broken)
    assert [row["file"] for row in rows if row["status"] == "bad_head"] == ["none.tsv"]
    assert [row["queue_offset"] for row in rows if row["file"] == "none.tsv" and row["status"] == "ok"] == [1]


@pytest.mark.spark
def test_a_head_that_is_there_twice_does_not_double_the_lines(spark, tmp_path: Path):
    """Goal: a line counts once. Method: files put together, of one group and of two, that ask for other tags."""
    text = write(tmp_path / "one.tsv").read_text(encoding="utf-8")
    other = text.replace("# group readers", "# group others").replace("red || green", "*")
    (tmp_path / "same.tsv").write_text(text + text, encoding="utf-8")
    (tmp_path / "mixed.tsv").write_text(text + other, encoding="utf-8")
    rows = [row.asDict() for row in read_ledgers(spark, [str(tmp_path)]).collect()]

    def of(name: str) -> list:
        return [row for row in rows if row["file"].endswith(f"/{name}.tsv")]

    assert [len([row for row in of(name) if row["status"] == "ok"]) for name in ("one", "same", "mixed")] == [4, 8, 8]
    assert {row["consumer_group"] for row in of("same")} == {"readers"}
    assert {row["consumer_group"] for row in of("mixed")} == {None}
    assert [row["line"] for row in of("mixed") if row["status"] == "bad_head"] == ["groups others, readers"]


@pytest.mark.spark
def test_message_ids_name_a_host_and_an_offset(spark):
    """Goal: what places a line. Method: an id of IPv4, one of IPv6, and what is none."""
    ipv6 = "00000000000000000000000000000001" + "00002A9F" + "0000000000000100"
    frame = spark.createDataFrame([(OFFSET_ID,), (OFFSET_ID.lower(),), (ipv6,), ("code:14",), (None,)], "id string")
    rows = frame.select(message_host(frame.id).alias("host"), message_offset(frame.id).alias("offset")).collect()
    assert [tuple(row) for row in rows] == [
        ("127.0.0.1:10911", 57_948), ("127.0.0.1:10911", 57_948), (None, 256), (None, None), (None, None),
    ]  # fmt: skip
