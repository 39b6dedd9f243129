"""The tools that seed faults change what they are told to change and nothing else."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from pymq import _scan
from pymq._core._store import Store
from pymq.store.layout import config_for
from tests.golden.golden_layout import STORE as GOLDEN
from tests.golden.golden_layout import messages, queue_units
from tests.spark_jobs.faults import Case, Expected, pages
from tests.spark_jobs.faults.patch import NothingFitsError, PatchedStore, Unit, copy_store, flip, unit_of


@pytest.fixture
def store(tmp_path: Path) -> PatchedStore:
    """A copy of the golden store."""
    return PatchedStore(copy_store(GOLDEN, tmp_path / "copy"))


def files(root: Path) -> dict[str, bytes]:
    """Every file's bytes."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_copy_is_the_same_bytes_and_takes_no_more_room(tmp_path: Path, store: PatchedStore):
    """Goal: a fault is the only difference. Method: compare all files; the wheel of 38 MB stays a hole."""
    original, copy = files(GOLDEN), files(store.root)
    del original["timerwheel.gz"]
    wheel = copy.pop("timerwheel")
    assert copy == original
    assert len(wheel) == 38_707_200
    assert (store.root / "timerwheel").stat().st_blocks * 512 < 4 << 20
    again = copy_store(store.root, tmp_path / "again")
    assert (again / "timerwheel").read_bytes() == wheel
    assert (again / "checkpoint").stat().st_ino != (store.root / "checkpoint").stat().st_ino


def test_records_and_units_are_all_found(store: PatchedStore):
    """Goal: a fault may be seeded anywhere. Method: against what Apache's own decoder saw in the golden store."""
    placed = [(one.offset, one.topic, one.record.queue_offset) for one in store.records()]
    assert placed == [(one.physical_offset, one.topic, one.queue_offset) for one in messages()]
    found = {queue: list(store.units(*queue).values()) for queue in store.queues()}
    assert found == {queue: [Unit(*row) for row in rows] for queue, rows in queue_units().items()}


def test_a_rewritten_record_is_whole_and_as_large(store: PatchedStore):
    """Goal: a fault in one field is no bad CRC. Method: rewrite as it is, then with another key, and decode."""
    before = files(store.root)
    for one in store.find():
        store.rewrite(one)
    assert files(store.root) == before
    one = store.pick(lambda one: "KEYS" in one.properties, Random(1))
    key = "z" * len(one.properties["KEYS"].encode())
    store.set_property(one, "KEYS", key)
    changed = _scan.decode_record(store.read(one.offset, one.size), physical_offset=one.offset)
    assert _scan.decode_properties(changed.properties) == one.properties | {"KEYS": key}
    with pytest.raises(ValueError, match="bytes"):
        store.rewrite(one, body=one.record.body + b"!")
    with pytest.raises(NothingFitsError):
        store.set_property(one, "NO_SUCH", "")


def test_a_record_with_a_crc_over_it_gets_a_new_one(tmp_path: Path):
    """Goal: the same with enabledAppendPropCRC. Method: a log of one record."""
    raw = _scan.append_record_crc(
        _scan.encode_record(_scan.Record(topic=b"T", body=b"hello", properties=b"a\x01b\x02"))
    )
    log = tmp_path / "commitlog" / f"{0:020d}"
    log.parent.mkdir()
    log.write_bytes(raw.ljust(4096, b"\0"))
    store = PatchedStore(tmp_path)
    (one,) = store.records()
    store.rewrite(one, queue_offset=7)
    assert _scan.record_crc(store.read(0, len(raw))) is _scan.RecordCrc.MATCHES
    assert store.at(0).record.queue_offset == 7


def test_an_appended_record_is_the_last_of_the_log(store: PatchedStore):
    """Goal: a log that has more than its queues. Method: append, with and without a unit."""
    end = store.log_end()
    last = store.find()[-1]
    one = store.append(last.record)
    assert (one.offset, store.log_end()) == (end, end + one.size)
    assert one.record.physical_offset == end
    queue = next(queue for queue in store.queues() if len(store.units(*queue)) % 20)  # its last file has room
    queue_offset = max(store.units(*queue)) + 1
    model = store.at(store.units(*queue)[queue_offset - 1].physical_offset)
    appended = store.append(replace(model.record, queue_offset=queue_offset), unit=True)
    assert store.unit(*queue, queue_offset) == unit_of(appended)


def test_one_bit_is_one_bit(store: PatchedStore):
    """Goal: the smallest damage. Method: flip it there and back."""
    before = files(store.root)
    one = store.pick(lambda one: one.record.body, Random(3))
    store.flip(one.offset + one.body_at, 5)
    with pytest.raises(Exception, match="at byte 0"):
        _scan.decode_record(store.read(one.offset, one.size))
    store.flip(one.offset + one.body_at, 5)
    flip(store.root / "checkpoint", 3)
    flip(store.root / "checkpoint", 3)
    assert files(store.root) == before


def test_pages_keep_their_sums(store: PatchedStore):
    """Goal: a changed page is still taken for pymq's. Method: one of pymq's own, changed, its sum computed again."""
    Store(store.root, config_for(store.root)).close()
    before = pages.read_checkpoint(store.root)
    pages.edit_checkpoint(store.root, flushed_offset=before["flushed_offset"] + 1, logics_msg_timestamp=5)
    after = pages.read_checkpoint(store.root)
    assert after == before | {"flushed_offset": before["flushed_offset"] + 1, "logics_msg_timestamp": 5}
    page = (store.root / "checkpoint").read_bytes()
    assert int.from_bytes(page[2056:2060], "big") == zlib.crc32(page[2060:2160])
    with pytest.raises(NothingFitsError):
        pages.edit_checkpoint(GOLDEN, safe_offset=1)
    units = pages.timer_units(store.root)
    assert len(units) * 52 == pages.read_timer_check(store.root).log_flushed
    assert sum(slot.count for slot in pages.wheel_slots(store.root).values()) == 55


def test_config_is_written_back_in_rocketmqs_dialect(store: PatchedStore):
    """Goal: Apache could read it still. Method: keys that are numbers stay without quotes."""
    store.edit_config("delayOffset.json", lambda config: config["offsetTable"].update({1: 77}))
    assert b"1:77" in (store.root / "config/delayOffset.json").read_bytes().replace(b" ", b"")
    assert store.config("delayOffset.json")["offsetTable"][1] == 77


def test_expectations_say_as_much_as_they_know(tmp_path: Path):
    """Goal: a finding elsewhere is no hit. Method: each column that is named must agree."""
    finding = {"check": "A4", "topic": "T", "queue": 1, "offset": 5}
    assert Expected("A4").fits(finding)
    assert Expected("A4", "T", 1, 5).fits(finding)
    assert not Expected("A4", "T", 1, 6).fits(finding)
    assert not Expected("A5").fits(finding)
    with pytest.raises(NothingFitsError):
        assert Case(tmp_path).other
