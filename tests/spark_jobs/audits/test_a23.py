"""A23, retention: whose messages went unread between two dumps."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.audits import a23_retention as a23
from spark_jobs.tables import Tables
from tests.spark_jobs.audits.frames import frame, places, table

pytestmark = pytest.mark.spark

BOUNDS = {"store": "string", "topic": "string", "queue_id": "int", "first": "long", "end": "long"}

# First message now and then, the group's offset now and then, what excuses it, and whether it is a finding.
CASES = {
    "read_all": (50, 0, 90, 40, {}, False),
    "reads_on": (50, 0, 50, 40, {}, False),
    "was_behind_already": (50, 30, 20, 20, {}, False),
    "new_group": (50, 0, 20, None, {}, False),
    "reset": (50, 0, 20, 40, {"reset": True}, False),
    "system_group": (50, 0, 20, 20, {"group": "CID_RMQ_SYS_TRANS"}, False),
    "stood_still": (50, 0, 20, 20, {}, True),
    "too_slow": (50, 0, 49, 20, {}, True),
    "was_just_in_time": (50, 20, 20, 20, {}, True),
}


def test_only_groups_that_were_in_time_then_and_are_not_now_are_found(spark):
    """Goal: one finding for each loss, none for what was known or is excused. Method: all cases, each a store."""
    now, before, offsets_now, offsets_before, resets = [], [], [], [], []
    for name, (first, first_before, offset, offset_before, more, _) in CASES.items():
        queue = {"store": name, "topic": "T", "queue_id": 1}
        group = queue | {"consumer_group": more.get("group", "g")}
        now.append(queue | {"first": first, "end": 100})
        before.append(queue | {"first": first_before, "end": 60})
        offsets_now.append(group | {"queue_offset": offset})
        if offset_before is not None:
            offsets_before.append(group | {"queue_offset": offset_before})
        if more.get("reset"):
            resets.append(group | {"queue_offset": offset})
    rows = a23.missed(
        a23.behind(table(spark, "offsets", offsets_now), frame(spark, BOUNDS, now)),
        table(spark, "offsets", offsets_before),
        frame(spark, BOUNDS, before),
        table(spark, "offset_resets", resets),
    )
    expected = sorted((name, "T", 1, case[2]) for name, case in CASES.items() if case[5])
    assert places([a23.judge(rows)]) == expected


def test_the_golden_store_against_itself_is_clean(spark, golden_shared: Path):
    """Goal: no false alarm where nothing was deleted. Method: Apache's store beside itself."""
    tables = Tables(spark, [str(golden_shared)], against=Tables(spark, [str(golden_shared)]), relation="earlier")
    assert a23.check(tables).collect() == []
    assert a23.AUDIT.metrics(tables).collect() == []
