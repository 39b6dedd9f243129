"""The timer log and the timer wheel as rows: the golden store's, pymq's own, and damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from pymq.broker.timer.log import TimerLog, Unit
from pymq.broker.timer.wheel import Slot, TimerWheel
from spark_jobs.rocketmq_store.files import open_stores
from spark_jobs.rocketmq_store.planner import plan
from spark_jobs.rocketmq_store.timers import UNIT, find_precision_ms, read_timer_log, read_timer_wheel
from tests.golden import golden_layout
from tests.spark_jobs.dumps import write_manifest

FILE_SIZE = 52 * 5 + 16 + 3  # five units, a blank, and three bytes more of it


def log_rows(root: Path) -> list[dict[str, Any]]:
    """All rows of the timer log."""
    parts = plan("timerlog", open_stores([root]))
    return [row for part in parts for batch in read_timer_log(*part) for row in batch.to_pylist()]


def wheel_rows(root: Path) -> list[dict[str, Any]]:
    """All rows of the timer wheel."""
    return [row for batch in read_timer_wheel([("here", str(root))]) for row in batch.to_pylist()]


def unit(number: int) -> Unit:
    """A unit to be told from others."""
    return Unit(
        previous=-1, magic=1, written_ms=1000 * number, delay_ms=500, offset=100 * number, size=91, topic_hash=-number
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a timer log of twelve units in three files, as pymq writes it."""
    (tmp_path / "commitlog").mkdir()
    log = TimerLog(tmp_path / "timerlog", FILE_SIZE)
    log.cut(0)
    units, after = [], 0
    for number in range(1, 13):
        position = log.place(after)
        units.append((position, unit(number)))
        after = position + UNIT.size
    log.write(units)
    log.close()
    return tmp_path


def test_timer_log_of_the_golden_store(golden_shared: Path):
    """Goal: Apache's units. Method: each leads to a record of the timer topic, in order, in the slot it says."""
    messages = {message.physical_offset: message for message in golden_layout.messages()}
    found = log_rows(golden_shared)
    assert len(found) == 57
    for number, row in enumerate(found):
        message = messages[row["physical_offset"]]
        assert (message.topic, message.queue_offset, message.store_size) == ("rmq_sys_wheel_timer", number, row["size"])
        assert row["slot_timestamp"] == int(message.properties["TIMER_OUT_MS"])
        assert (row["log_position"], row["status"]) == (52 * number, "ok")


def test_timer_wheel_of_the_golden_store_leads_into_its_log(golden_shared: Path):
    """Goal: Apache's slots. Method: each ends with a unit of its own time; chains have as many units as the count."""
    units = {row["log_position"]: row for row in log_rows(golden_shared)}
    found = wheel_rows(golden_shared)
    assert len(found) == 9
    for row in found:
        assert units[row["last_position"]]["slot_timestamp"] == row["slot_timestamp"]
        assert row["precision_ms"] == 1000
        position, count = row["last_position"], 0
        while position != -1:
            count += -1 if units[position]["magic"] & 4 else 1
            first, position = position, units[position]["previous"]
        assert (first, count) == (row["first_position"], row["count"])


def test_units_of_pymq_are_read_over_files_and_blanks(store: Path):
    """Goal: positions count over files. Method: twelve units in files of five, the last file partly written."""
    found = log_rows(store)
    assert [row["physical_offset"] for row in found] == [100 * number for number in range(1, 13)]
    assert [row["log_position"] // FILE_SIZE for row in found] == [0] * 5 + [1] * 5 + [2] * 2
    assert [row["slot_timestamp"] for row in found] == [1000 * number + 500 for number in range(1, 13)]
    assert {row["status"] for row in found} == {"ok"}


@pytest.mark.parametrize(("file", "number", "bad_at"), [(0, 2, 104), (1, 0, FILE_SIZE), (2, 1, 2 * FILE_SIZE + 52)])
def test_damaged_unit_is_one_row_and_the_others_are_found_again(store: Path, file: int, number: int, bad_at: int):
    """Goal: one fault, one row. Method: overwrite a unit in the middle, at a file's beginning, at the log's end."""
    path = store / "timerlog" / f"{file * FILE_SIZE:020d}"
    data = bytearray(path.read_bytes())
    data[52 * number : 52 * number + 20] = b"\xee" * 20
    path.write_bytes(data)
    found = log_rows(store)
    (bad,) = [row for row in found if row["status"] == "bad_unit"]
    assert (bad["log_position"], bad["file"]) == (bad_at, f"timerlog/{path.name}")
    assert bad["physical_offset"] is None
    assert len([row for row in found if row["status"] == "ok"]) == 11


def test_zeroed_unit_before_others_is_damage_and_not_the_end(store: Path):
    """Goal: a lost sector is seen. Method: zeros over the second unit of the last file, and over its first."""
    path = store / "timerlog" / f"{2 * FILE_SIZE:020d}"
    whole = path.read_bytes()
    path.write_bytes(bytes(52) + whole[52:])
    assert [row["status"] for row in log_rows(store)][-2:] == ["bad_unit", "ok"]
    path.write_bytes(whole[:52] + bytes(len(whole) - 52))
    assert [row["status"] for row in log_rows(store)][-1:] == ["ok"]
    assert len(log_rows(store)) == 11


def test_damaged_blank_is_a_row(store: Path):
    """Goal: a file's end is checked too. Method: another length in the blank, zeros instead of it."""
    path = store / "timerlog" / f"{0:020d}"
    whole = path.read_bytes()
    for blank in (struct.pack(">iqi", 18, 0, 0xCBD43194 - (1 << 32)) + b"\0\0\0", bytes(19)):
        path.write_bytes(whole[:-19] + blank)
        found = log_rows(store)
        assert [(row["log_position"], row["size"]) for row in found if row["status"] == "bad_unit"] == [(260, 19)]
        assert len(found) == 13


def test_precision_is_found_from_a_slot_and_its_unit(store: Path):
    """Goal: the wheel does not say what a slot stands for. Method: a wheel of 100 ms slots over the log."""
    wheel = TimerWheel(store / "timerwheel", 100)
    wheel.put(1500, Slot(0, 0, 1))
    wheel.put(2500, Slot(52, 52, 1))
    wheel.close()
    assert find_precision_ms(open_stores([store])[0]) == 100
    found = [(row["slot_timestamp"], row["first_position"], row["precision_ms"]) for row in wheel_rows(store)]
    assert found == [(1500, 0, 100), (2500, 52, 100)]


def test_precision_without_a_unit_is_the_dumps_or_apaches(store: Path):
    """Goal: a wheel whose log is gone is still read. Method: a slot that leads nowhere; a dump that says it."""
    wheel = TimerWheel(store / "timerwheel", 500)
    wheel.put(3000, Slot(10**9, 10**9, 1))
    wheel.close()
    assert [row["slot_timestamp"] for row in wheel_rows(store)] == [6000]
    write_manifest(store, log_end=0, configuration={"timerPrecisionMs": "500"})
    assert [row["slot_timestamp"] for row in wheel_rows(store)] == [3000]


def test_store_without_timers_has_no_rows(tmp_path: Path):
    """Goal: nothing is needed. Method: an empty log, then a wheel that is too short to have a slot."""
    (tmp_path / "commitlog").mkdir()
    assert log_rows(tmp_path) == []
    (tmp_path / "timerwheel").write_bytes(b"short")
    assert wheel_rows(tmp_path) == []
