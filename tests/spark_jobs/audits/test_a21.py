"""A21, acknowledged sends: lines beside records, every way they can disagree."""

from __future__ import annotations

import pytest

from spark_jobs.audits import a21_acknowledged as a21
from spark_jobs.audits import meaning
from spark_jobs.audits.ledgers import HOSTS, beside, nowhere, placed
from spark_jobs.ledger import SCHEMA
from tests.spark_jobs.audits.frames import RECORD, frame, marked, moments, places

pytestmark = pytest.mark.spark

NAMES = [part.split()[0] for part in SCHEMA.split(", ")]
AT = 4096  # where every case's message was said to be
HERE = ("T", 1, 5)


def line(at=AT, sequence=1, **more):
    """An acknowledged line."""
    known = {
        "kind": "A", "topic": "T", "queue_id": 1, "queue_offset": 5, "message_id": f"7F00000100002A9F{at:016X}",
        "sender": 1, "sequence": sequence, "sent_ns": 1, "done_ns": 2, "file": "file:/sent.tsv", "status": "ok",
    } | more  # fmt: skip
    return tuple(known.get(name) for name in NAMES)


def record(**more):
    """What lies there."""
    return {"topic": "T", "queue_id": 1, "queue_offset": 5, "physical_offset": AT} | more


HALF = {"topic": meaning.HALF_TOPIC, "queue_id": 0}

# Lines, records, which topic a waiting one is for, how the store was dumped, and where the one finding stands.
CASES = {
    "there": ([line()], [record()], None, None, None),
    "waits": ([line()], [record(**HALF)], "T", None, None),
    "damaged_and_there": ([line()], [record(status="bad_crc")], None, None, None),
    "expired": ([line(at=10)], [], None, None, None),
    "behind_a_running_dump": ([line(at=9000)], [], None, "running", None),
    "nameless": ([line(message_id="code:1")], [], None, None, None),
    "a_clients_own_id": ([line(message_id="7F0000012A9F18B4AAC28F3B0D1C0000")], [], None, None, None),
    "lost": ([line()], [], None, None, HERE),
    "behind_a_stopped_dump": ([line(at=9000)], [], None, "stopped", HERE),
    "another_topic": ([line()], [record(topic="U")], None, None, HERE),
    "another_queue": ([line()], [record(queue_id=2)], None, None, HERE),
    "another_offset": ([line()], [record(queue_offset=6)], None, None, HERE),
    "waits_for_another": ([line()], [record(**HALF)], "U", None, HERE),
    "waits_elsewhere": ([line()], [record(**HALF | {"queue_offset": 6})], "T", None, HERE),
    "told_twice": ([line(), line(sequence=2)], [record()], None, None, HERE),
}


def test_each_disagreement_is_one_finding(spark):
    """Goal: loss, a wrong place and a shared place are told apart from what is legal. Method: a store for each case."""
    found = None
    for name, (lines, _, _, dump, _) in CASES.items():
        stores = moments(spark, [name], log_begin=100, log_end=8000, dump=dump)
        one = placed(spark.createDataFrame(lines, SCHEMA), stores, None)
        found = one if found is None else found.unionByName(one)
    records = [row | {"store": name} for name, (_, rows, _, _, _) in CASES.items() for row in rows]
    both = beside(found, frame(spark, RECORD, records))
    waiting = marked(
        spark,
        [
            row | {"store": name, "real_topic": target}
            for name, (_, rows, target, _, _) in CASES.items()
            for row in rows
            if target
        ],
    )
    expected = sorted((name, *place) for name, (_, _, _, _, place) in CASES.items() if place is not None)
    assert places([a21.lost(both), a21.another(both, waiting), a21.shared(both)]) == expected


def test_a_line_speaks_of_the_stores_of_its_host(spark):
    """Goal: ledgers of several brokers at once. Method: two stores, one line of the first one's host, one of none."""
    lines = spark.createDataFrame([line(), line(at=200, message_id="00" * 20 + f"{200:016X}")], SCHEMA)
    hosts = frame(
        spark,
        {"store": "string", "host": "string"},
        [{"store": "a", "host": "127.0.0.1:10911"}, {"store": "b", "host": "127.0.0.2:10911"}],
    )
    found = placed(lines, moments(spark, ["a", "b"]), hosts).collect()
    assert sorted((row.store, row.physical_offset) for row in found) == [("a", 200), ("a", AT), ("b", 200)]


def test_lines_that_speak_of_no_store_are_findings(spark):
    """Goal: what could not be judged is said. Method: lines of a known host, of two unknown ones, and of no place."""
    ids = ["7F000001", "7F000001", "0A000002", "0A000002", "0A000003"]
    rows = [line(message_id=f"{host}00002A9F{at:016X}", sequence=at) for at, host in enumerate(ids)]
    rows += [line(message_id="7F0000012A9F18B4AAC28F3B0D1C0000"), line(message_id="00" * 20 + f"{200:016X}")]
    lines = spark.createDataFrame(rows, SCHEMA)

    def said(hosts):
        found = nowhere(lines, hosts, "A21", "first").collect()
        assert {(row.store, row.severity) for row in found} == {("first", "warning")}
        return sorted((row.actual, row.evidence) for row in found)

    nameless = ("1 with another id, not judged", "ledger sent.tsv, for one 7F0000012A9F18B4AAC28F3B0D1C0000")
    assert said(None) == [nameless]  # of one store alone every line speaks
    assert said(spark.createDataFrame([("a", "127.0.0.1:10911"), ("b", "127.0.0.1:10912")], HOSTS)) == [
        ("1 of 10.0.0.3:10911, not judged", f"ledger sent.tsv, for one 0A00000300002A9F{4:016X}"),
        nameless,
        ("2 of 10.0.0.2:10911, not judged", f"ledger sent.tsv, for one 0A00000200002A9F{2:016X}"),
    ]


def test_lines_that_cannot_be_read_are_findings(spark):
    """Goal: damage of a ledger is said, and of which. Method: a bad line, a file that is none, and a good line."""
    rows = [line(), line(status="bad_line", line="A\tcut"), line(status="bad_head")]
    found = a21.unreadable(spark.createDataFrame(rows, SCHEMA), "first").collect()
    assert sorted((row.store, row.severity, row.actual, row.evidence) for row in found) == [
        ("first", "warning", "A\tcut", "ledger sent.tsv"),
        ("first", "warning", "a file without it", "ledger sent.tsv"),
    ]
