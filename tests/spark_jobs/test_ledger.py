"""Ledgers: what is written is read again, by Spark and by the reader of the load generator's tests; damage is a row."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pymq.errors import ConfigError
from spark_jobs.ledger import SCHEMA, LedgerWriter, ledger_files, message_host, message_offset, read_ledgers
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


def test_files_are_told_apart_from_what_would_be_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Goal: no ledger is left out in silence. Method: files, twice, of a directory; and what Spark would not read."""
    (tmp_path / "books").mkdir()
    good = [write(tmp_path / "books" / name) for name in ("a.tsv", "b[1].tsv")]
    assert ledger_files([good[1], tmp_path / "books", good[1]]) == [str(good[1]), str(good[0])]
    monkeypatch.chdir(tmp_path)
    assert ledger_files(["books/../books/a.tsv"]) == [str(good[0])]
    for name in ("_hidden.tsv", ".hidden.tsv", "half.tsv._COPYING_"):
        hidden = write(tmp_path / name)
        with pytest.raises(ConfigError, match=rf"{name}: Spark takes a file of such a name for a hidden one; rename"):
            ledger_files([good[0], hidden])
    with pytest.raises(ConfigError, match=r"10:15.tsv: Spark does not open a file with a colon in its name"):
        ledger_files([write(tmp_path / "10:15.tsv")])
    (tmp_path / "of many machines" / "one").mkdir(parents=True)
    with pytest.raises(ConfigError, match="of many machines/one: not a file"):
        ledger_files([tmp_path / "of many machines"])
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match="none: a directory without a ledger in it"):
        ledger_files([tmp_path / "none"])
    with pytest.raises(FileNotFoundError):
        ledger_files([tmp_path / "books/*.tsv"])
    odd = os.fsencode(tmp_path / "not utf8 ") + b"\xff"
    write(Path(os.fsdecode(odd)))
    with pytest.raises(ConfigError, match="a name that is not UTF-8"):
        ledger_files([os.fsdecode(odd)])


@pytest.mark.spark
@pytest.mark.parametrize("name", ["lost[1].tsv", "{a,b}*?.tsv", "back\\slash.tsv", "a b+c%41#d~é.tsv"])
def test_a_ledger_is_read_whatever_its_name(spark, tmp_path: Path, name: str):
    """Goal: a name is no pattern and no address. Method: characters that mean something to Hadoop, beside a decoy."""
    write(tmp_path / "lost1.tsv")
    rows = read_ledgers(spark, [str(write(tmp_path / name))]).collect()
    assert [(row.file, row.status) for row in rows] == [(str(tmp_path / name), "ok")] * 4


@pytest.mark.spark
def test_an_empty_file_is_no_ledger(spark, tmp_path: Path):
    """Goal: a file without the head is a finding, lines or not. Method: empty ones, alone and beside a good one."""
    empty = [tmp_path / "empty.tsv", tmp_path / "blank.tsv"]
    empty[0].touch()
    empty[1].write_text("\n\n", encoding="utf-8")
    rows = read_ledgers(spark, [str(empty[0])]).collect()
    assert [(row.file, row.status) for row in rows] == [(str(empty[0]), "bad_head")]
    rows = read_ledgers(spark, [str(write(tmp_path / "good.tsv")), *map(str, empty)]).collect()
    assert {row.file for row in rows if row.status == "bad_head"} == set(map(str, empty))
    assert [row.status for row in rows].count("ok") == 4


@pytest.mark.spark
def test_a_line_that_does_not_say_where_its_message_is_is_damage(spark, tmp_path: Path):
    """Goal: no row without what its kind must have. Method: "-" in turn, and a last character that ends a line."""
    good = ["A", "T", "0", "1", OFFSET_ID, "1", "1", "-", "2", "3"]
    bad = ["\t".join([*good[:at], "-", *good[at + 1 :]]) for at in range(1, 5)]
    bad += [line.replace("A", kind, 1) for kind in "RC" for line in bad]
    bad += ["U\t-\t0\t-\t-\t1\t1\t-\t2\t-", "F\t-\t0\t-\tcode:2\t1\t1\t-\t2\t3", "\t".join(good) + "\u2028"]
    fine = ["\t".join(good), "U\tT\t0\t-\t-\t1\t2\t-\t2\t-", "F\tT\t0\t-\tcode:2\t1\t3\t-\t2\t3"]
    fine += ["\t".join([*good[:5], *"-----"])]
    path = tmp_path / "ledger.tsv"
    path.write_text("\n".join(["# pymq-ledger 1", *bad, *fine]), encoding="utf-8")
    rows = read_ledgers(spark, [str(path)]).collect()
    assert sorted(row.line for row in rows if row.status == "bad_line") == sorted(bad)
    assert [(row.kind, row.topic) for row in rows if row.status == "ok"] == [(kind, "T") for kind in "AUFA"]


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
    """Goal: what places a line. Method: an id of IPv4, one of IPv6, and what is none: a UNIQ_KEY is as long as one."""
    ipv6 = "00000000000000000000000000000001" + "00002A9F" + "0000000000000100"
    none = ["code:14", None, "7F00000100002A9F8000000000000000", "7F0000012A9F18B4AAC28F3B0D1C0000", OFFSET_ID + "\n"]
    frame = spark.createDataFrame([(one,) for one in (OFFSET_ID, OFFSET_ID.lower(), ipv6, *none)], "id string")
    rows = frame.select(message_host(frame.id).alias("host"), message_offset(frame.id).alias("offset")).collect()
    assert [tuple(row) for row in rows] == [
        ("127.0.0.1:10911", 57_948), ("127.0.0.1:10911", 57_948), (None, 256), *[(None, None)] * len(none),
    ]  # fmt: skip
