"""A20 and A24, two logs that should be one: leaves first, records where they differ, and both ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audits import a20_replicas as a20
from spark_jobs.audits import a24_append_only as a24
from spark_jobs.audits.twins import Leaf, Stretch, judge
from spark_jobs.relations import Pair
from spark_jobs.tables import Tables
from tests.spark_jobs.audits.hand_made import found
from tests.spark_jobs.audits.test_a08 import left
from tests.spark_jobs.conftest import copy_golden
from tests.spark_jobs.faults.patch import PatchedStore

PAIR = Pair("one", "other", "replica")


def test_leaves_that_differ_make_stretches_inside_what_both_have():
    """Goal: neighbouring leaves are one stretch, and nothing beyond either log is looked at. Method: leaves by hand."""
    leaves = [
        Leaf(begin, begin + 1000, begin not in (2000, 3000, 7000, 9000, 12_000)) for begin in range(0, 14_000, 1000)
    ]
    own, other = left(), left()
    twins = judge(PAIR, own, other, leaves)
    assert twins.stretches == (Stretch(2000, 4000, 2), Stretch(7000, 8000, 1), Stretch(9000, 10_000, 1))
    assert (twins.begin, twins.end, twins.leaves) == (0, 10_000, 10)


@pytest.mark.spark
def test_changed_records_and_shorter_logs_are_named(spark: SparkSession, tmp_path: Path):
    """Goal: the first record that differs is named, a lag is none, and a lost tail is one for the same broker only.
    Method: copies of the golden store, changed in one place each, compared with an unchanged one."""
    master = copy_golden(tmp_path / "master")
    same, flipped, shorter = (copy_golden(tmp_path / name) for name in ("same", "flipped", "shorter"))
    store = PatchedStore(flipped)
    records = list(store.records())
    store.flip(records[40].offset + records[40].body_at)
    store.rewrite(records[100], flag=9)
    store.rewrite(records[101], flag=9)
    PatchedStore(shorter).write(records[-1].offset, bytes(records[-1].size))
    expected = [("flipped", records[at].topic, records[at].record.queue_id, records[at].offset) for at in (40, 100)]
    paths = [str(same), str(flipped), str(shorter)]
    replicas = Tables(spark, paths, against=Tables(spark, [str(master)]), relation="replica")
    assert found(a20.check(replicas)) == expected
    assert found(a24.check(replicas)) == []
    lags = {(row.store, row.value) for row in a20.metrics(replicas).where("name = 'lag_bytes'").collect()}
    assert lags == {("same", 0), ("flipped", 0), ("shorter", records[-1].size)}
    earlier = Tables(spark, paths, against=replicas.against, relation="earlier")
    assert found(a24.check(earlier)) == [*expected, ("shorter", None, None, records[-1].offset)]
