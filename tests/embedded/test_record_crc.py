"""enabledAppendPropCRC through the embedded API: what is stored, what is refused, what a crash leaves."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

import pymq
from pymq import _scan

CRC_SIZE = 20
PROPERTIES_SIZE_MAX = 32_767


def plain_crc(record: bytes) -> bytes:
    """The property as the format describes it, by zlib and string formatting."""
    return b"__CRC32#\x01%s\x02" % f"{zlib.crc32(record[:-CRC_SIZE]) & 0x7FFFFFFF:010d}"[::-1].encode()


def log_path(data: Path) -> Path:
    """The first log file."""
    return data / "commitlog" / f"{0:020d}"


def records_of(data: Path) -> list[bytes]:
    """Every record of the first log file."""
    log = log_path(data).read_bytes()
    walk = _scan.walk_log(log, checks=_scan.Check.BODY_CRC | _scan.Check.OFFSET)
    places = zip(walk.columns["record_position"], walk.columns["total_size"], strict=True)
    return [log[position : position + size] for position, size in places]


def test_every_record_ends_with_a_crc_over_all_of_it(open_store, data: Path):
    """Goal: RocketMQ's bytes, for singles, batches, long topics. Method: compare with zlib, look everything up."""
    with open_store(enabled_append_prop_crc=True) as mq:
        sent = [mq.send("t", b"one", keys="k", tags="tag"), mq.send("x" * 200, b"v2")]
        sent += mq.send_many("t", [b"a", pymq.Message(body=b"b", properties={"p": "v"})], together=True)
        sent += mq.send_many("t", [b"c"] * 3, unique_key=False)
        found = mq.query("t", "k")
        assert [message.body for message in found] == [b"one"]
        assert found[0].properties["__CRC32#"].isdigit()
        assert [result.store_size for result in sent] == [
            mq.get_by_offset(result.physical_offset).store_size for result in sent
        ]
    records = records_of(data)
    assert [len(record) for record in records] == [result.store_size for result in sent]
    assert [record[-CRC_SIZE:] for record in records] == [plain_crc(record) for record in records]
    assert {_scan.record_crc(record) for record in records} == {_scan.RecordCrc.MATCHES}
    assert _scan.verify_log(log_path(data)).record_mismatched_offsets == []


def test_without_the_setting_records_carry_none(mq, data: Path):
    """Goal: off by default, as in RocketMQ. Method: send, look at the bytes."""
    mq.send("t", b"one", keys="k")
    assert {_scan.record_crc(record) for record in records_of(data)} == {_scan.RecordCrc.ABSENT}


def test_a_message_passed_on_gets_a_crc_of_its_own(open_store, data: Path):
    """Goal: the old one is replaced, not kept beside. Method: send a message again with the properties it came with."""
    with open_store(enabled_append_prop_crc=True) as mq:
        mq.send("t", b"one", properties={"p": "v"})
        received = next(mq.iterate("t"))
        mq.send("t", b"other", properties=dict(received.properties))
    records = records_of(data)
    assert [record[-CRC_SIZE:] for record in records] == [plain_crc(record) for record in records]
    assert [record.count(b"__CRC32#") for record in records] == [1, 1]


@pytest.mark.parametrize(("crc", "room"), [(False, PROPERTIES_SIZE_MAX), (True, PROPERTIES_SIZE_MAX - CRC_SIZE)])
def test_properties_leave_room_for_the_crc(open_store, crc: bool, room: int):
    """Goal: the 20 bytes count. Method: -1, 0, +1 of the largest properties, which name their limit when refused."""
    mq = open_store(enabled_append_prop_crc=crc)
    overhead = len("p\x01\x02")
    for size in (room - 1, room):
        sent = mq.send("t", b"", properties={"p": "v" * (size - overhead)}, unique_key=False)
        assert len(mq.get_by_offset(sent.physical_offset).raw_properties) == size + crc * CRC_SIZE
    with pytest.raises(pymq.PropertiesTooLargeError, match=str(room)):
        mq.send("t", b"", properties={"p": "v" * (room + 1 - overhead)}, unique_key=False)


def test_the_largest_record_counts_the_crc(open_store, small):
    """Goal: a record that fits only without it is refused. Method: bodies around what fills a log file."""
    mq = open_store(enabled_append_prop_crc=True)
    overhead = mq.send("t", b"", unique_key=False).store_size
    fitting = small["mapped_file_size_commit_log"] - 8 - overhead
    assert mq.send("t", bytes(fitting), unique_key=False).store_size == overhead + fitting
    with pytest.raises(pymq.MessageTooLargeError):
        mq.send("t", bytes(fitting + 1), unique_key=False)


def crash_with_a_torn_record(data: Path, config: pymq.StoreConfig) -> None:
    """Two equal records, the process killed, and the second's properties torn: the first's lie behind the cut."""
    child = os.fork()
    if child == 0:
        mq = pymq.open(data, config)
        for value in ("old", "new"):
            mq.send("t", b"body", properties={"version": value, "filler": "f" * 40}, unique_key=False)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    content = bytearray(log_path(data).read_bytes())
    size = int.from_bytes(content[:4], "big")
    cut = bytes(content).rindex(b"version") + len(b"version\x01")
    content[cut : 2 * size] = content[cut - size : size]
    log_path(data).write_bytes(content)


@pytest.mark.parametrize("reopened_with", [False, True])
def test_a_record_with_an_older_ones_properties_is_torn(open_store, data: Path, small, reopened_with: bool):
    """Goal: with the CRC recovery cuts it, whatever the setting is now. Method: tear, reopen, read, send again."""
    crash_with_a_torn_record(data, pymq.StoreConfig(**small, enabled_append_prop_crc=True))
    with open_store(enabled_append_prop_crc=reopened_with) as mq:
        assert [message.properties["version"] for message in mq.iterate("t")] == ["old"]
        mq.send("t", b"again", properties={"version": "newer"})
        assert [message.properties["version"] for message in mq.iterate("t")] == ["old", "newer"]


def test_without_the_crc_an_older_ones_properties_pass_as_documented(open_store, data: Path, small):
    """Goal: docs/guarantees.md is true about what may pass. Method: the same tear without the setting."""
    crash_with_a_torn_record(data, pymq.StoreConfig(**small))
    with open_store() as mq:
        assert [message.properties["version"] for message in mq.iterate("t")] == ["old", "old"]


def test_records_without_a_crc_are_refused_when_it_is_forced(open_store, data: Path):
    """Goal: forceVerifyPropCRC neither believes nor drops them. Method: kill a store without, force, look again."""
    mq = open_store(flush_disk_type="SYNC_FLUSH")
    mq.send("t", b"one")
    mq.abandon()
    with pytest.raises(pymq.StoreMismatchError, match="forceVerifyPropCRC"):
        open_store(force_verify_prop_crc=True)
    assert [message.body for message in open_store().iterate("t")] == [b"one"]


def test_a_scan_names_the_crc_that_does_not_match():
    """Goal: a clear word. Method: spoil a property of an encoded record and ask with each check."""
    record = _scan.append_record_crc(
        _scan.encode_record(_scan.Record(topic=b"t", body=b"body", properties=b"color\x01red\x02"))
    )
    spoilt = record.replace(b"red", b"bed")
    _scan.decode_record(spoilt, checks=_scan.Check.BODY_CRC)
    with pytest.raises(pymq.CorruptRecordError, match=r"__CRC32#\) does not match"):
        _scan.decode_record(spoilt, checks=_scan.Check.RECORD_CRC)
    bare = _scan.encode_record(_scan.Record(topic=b"t", body=b"body"))
    _scan.decode_record(bare, checks=_scan.Check.RECORD_CRC)
    with pytest.raises(pymq.CorruptRecordError, match="carries no CRC"):
        _scan.decode_record(bare, checks=_scan.Check.RECORD_CRC_REQUIRED)
    walk = _scan.walk_log(record + spoilt + bare)
    assert list(walk.columns["record_crc_state"]) == [
        _scan.RecordCrc.MATCHES,
        _scan.RecordCrc.DIFFERS,
        _scan.RecordCrc.ABSENT,
    ]
    assert walk.record_crc_mismatch_count == 1
