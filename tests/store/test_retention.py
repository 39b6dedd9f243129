"""The retention policy as a pure function: every rule, at its edge, without a disk or a clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pymq.message import PhysicalOffset
from pymq.store.config import StoreConfig
from pymq.store.retention import DiskUse, Lag, LogFile, decide, lost_by

NOW = datetime(2026, 3, 5, 12, 30, tzinfo=UTC)
AT_FOUR = NOW.replace(hour=4)
ROOMY = DiskUse(0.10, 0.10)
CONFIG = StoreConfig(file_reserved_time_hours=72)


def files(*ages_h: float, now: datetime = NOW) -> list[LogFile]:
    """Log files of these ages in hours, oldest first; the last one is being written."""
    made = []
    for number, age in enumerate(ages_h):
        modified = int((now - timedelta(hours=age)).timestamp() * 1000)
        made.append(LogFile(PhysicalOffset(number * 1024), 1024, modified, 0, number == len(ages_h) - 1))
    return made


def bases(plan) -> tuple[list[int], list[int]]:
    """Which files a plan removes, by number."""
    return [file.base_offset // 1024 for file in plan.expired], [file.base_offset // 1024 for file in plan.forced]


def test_nothing_goes_outside_the_hour():
    """Goal: EXP-4. Method: expired files at noon, with room on the disk."""
    assert bases(decide(NOW, files(100, 90, 0), ROOMY, CONFIG)) == ([], [])


def test_expired_files_go_at_the_hour_of_deletion():
    """Goal: EXP-1, EXP-4. Method: the first and the last minute of the hour, and one minute before and after."""
    for minute, hour, expected in ((0, 4, [0, 1]), (59, 4, [0, 1]), (59, 3, []), (0, 5, [])):
        now = NOW.replace(hour=hour, minute=minute)
        assert bases(decide(now, files(100, 90, 1, 0, now=now), ROOMY, CONFIG))[0] == expected
    several = CONFIG.replace(delete_when="04;12")
    plan = decide(NOW, files(100, 0), ROOMY, several)
    assert bases(plan)[0] == [0]
    assert plan.reason == "delete_when 04;12"


@pytest.mark.parametrize(("age_h", "gone"), [(71.999, False), (72, True), (72.001, True)])
def test_age_is_exact(age_h, gone):
    """Goal: EXP-1 at its edge. Method: just below, at, just above the reserved time."""
    assert bool(decide(AT_FOUR, files(age_h, 0, now=AT_FOUR), ROOMY, CONFIG).expired) is gone


def test_the_file_being_written_never_goes():
    """Goal: EXP-10. Method: everything old, the disk full, forced."""
    plan = decide(AT_FOUR, files(500, 500, now=AT_FOUR), DiskUse(0.99, 0.99), CONFIG)
    assert bases(plan) == ([0], [])
    assert bases(decide(AT_FOUR, files(500, now=AT_FOUR), DiskUse(0.99, 0.99), CONFIG)) == ([], [])


def test_a_young_file_ends_the_pass():
    """Goal: EXP-10, no holes. Method: old, young, old: only the first goes."""
    assert bases(decide(AT_FOUR, files(100, 1, 100, 0, now=AT_FOUR), ROOMY, CONFIG)) == ([0], [])


def test_a_pass_is_bounded():
    """Goal: MFILE-15. Method: fourteen expired files."""
    plan = decide(AT_FOUR, files(*[100] * 14, 0, now=AT_FOUR), ROOMY, CONFIG)
    assert bases(plan) == (list(range(10)), [])
    full = decide(NOW, files(100, *[1] * 14, 0), DiskUse(0.95, 0.1), CONFIG)
    assert bases(full) == ([0], list(range(1, 10)))


def test_a_manual_request_removes_expired_files_at_any_hour_and_no_others():
    """Goal: EXP-5. Method: at noon, one expired and one young file."""
    plan = decide(NOW, files(100, 1, 0), ROOMY, CONFIG, manual=True)
    assert bases(plan) == ([0], [])
    assert plan.reason == "requested"


@pytest.mark.parametrize(
    ("use", "expired", "forced", "writable"),
    [
        (DiskUse(0.75, 0.1), [], [], True),
        (DiskUse(0.751, 0.1), [0], [], True),
        (DiskUse(0.1, 0.751), [0], [], True),
        (DiskUse(0.85, 0.1), [0], [], True),
        (DiskUse(0.851, 0.1), [0], [1], True),
        (DiskUse(0.1, 0.851), [0], [1], True),
        (DiskUse(0.90, 0.1), [0], [1], True),
        (DiskUse(0.901, 0.1), [0], [1], False),
        (DiskUse(0.1, 0.901), [0], [1], False),
        (DiskUse(None, 0.1), [0], [], True),
        (DiskUse(0.1, None), [0], [], True),
        (DiskUse(None, None), [0], [], True),
        (DiskUse(None, 0.95), [0], [1], False),
    ],
)
def test_disk_levels(use, expired, forced, writable):
    """Goal: EXP-7 on both partitions, CONF-23. Method: at and just above each level; unknown use."""
    plan = decide(NOW, files(100, 1, 0), use, CONFIG)
    assert bases(plan) == (expired, forced)
    assert plan.writable is writable


def test_without_permission_nothing_young_goes():
    """Goal: EXP-9. Method: a full disk, cleaning forcibly off: refuse, remove only what expired."""
    plan = decide(NOW, files(100, 1, 0), DiskUse(0.99, 0.99), CONFIG.replace(clean_file_forcibly_enable=False))
    assert bases(plan) == ([0], [])
    assert plan.writable is False


def test_losses_name_only_those_who_had_not_read():
    """Goal: what is dropped is told with whose lag it was. Method: behind, partly, at the edge, ahead, elsewhere."""
    committed = [
        ("behind", "t", 0, 5),
        ("half", "t", 0, 90),
        ("edge", "t", 0, 100),
        ("ahead", "t", 0, 150),
        ("never", "t", 0, 0),
        ("other", "u", 0, 0),
    ]
    losses = lost_by(committed, {("t", 0): 10, ("u", 0): 0}, {("t", 0): 100, ("u", 0): 0})
    assert losses == [Lag("behind", "t", 0, 90), Lag("half", "t", 0, 10), Lag("never", "t", 0, 90)]
