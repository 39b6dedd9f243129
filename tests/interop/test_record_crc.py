"""The CRC over the record: both sides write the same bytes, verify each other's, and leave alone what they must."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pymq
from pymq import _scan
from tests.interop.answers import acknowledged
from tests.interop.apache import ApacheStore
from tests.interop.apache_toolchain import Toolchain
from tests.interop.pymq_side import PymqStore, store_config
from tests.interop.workloads import TRANSACTION_PREPARED, WORKLOADS, OutMessage, Send, SendBatch, Step, StoreSettings

SETTINGS = StoreSettings(record_crc=True)
PLAIN = OutMessage("crc", 0, b"payload", keys=("k",), properties={"color": "red"})
STALE = replace(PLAIN, properties={"color": "red", "__CRC32#": "0123456789"})
"""A message passed on with the properties it was received with."""


def log_of(directory: Path) -> bytes:
    """The first log file."""
    return (directory / "commitlog" / f"{0:020d}").read_bytes()


def test_apaches_crc_is_the_one_pymq_computes(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: same bytes, for every kind of record. Method: have Apache write them, take its CRC off, put ours on."""
    steps: list[Step] = [
        Send(PLAIN),
        Send(replace(PLAIN, keys=(), properties={})),
        Send(replace(PLAIN, topic="t" * 200)),
        Send(replace(PLAIN, born_host="[2001:db8::7]:4567", store_host="[::1]:10911")),
        Send(replace(PLAIN, sys_flag=TRANSACTION_PREPARED)),
        Send(replace(PLAIN, body=b"")),
        Send(STALE),
        SendBatch((PLAIN, replace(PLAIN, keys=(), properties={}), PLAIN)),
    ]
    theirs = ApacheStore(apache, tmp_path / "store", SETTINGS.for_apache())
    theirs.write(steps)
    log = log_of(theirs.directory)
    walk = _scan.walk_log(log, checks=_scan.Check.BODY_CRC | _scan.Check.OFFSET | _scan.Check.RECORD_CRC_REQUIRED)
    assert walk.count == 10
    positions = zip(walk.columns["record_position"], walk.columns["total_size"], strict=True)
    for position, size in positions:
        record = _scan.decode_record(log, at=position)
        assert isinstance(record, _scan.Record)
        bare = _scan.encode_record(replace(record, properties=record.properties[:-20]))
        assert len(bare) == size - 20
        assert _scan.append_record_crc(bare) == log[position : position + size]
        assert record.properties.count(b"__CRC32#") == 1


def test_apache_cuts_its_log_where_a_record_of_pymq_is_wrong(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: Apache's own verification takes our CRC seriously. Method: kill pymq, spoil one property, open there."""
    workload = next(workload for workload in WORKLOADS if workload.settings.record_crc)
    ours = PymqStore(tmp_path / "store", workload.settings)
    written = acknowledged(workload.messages(), ours.write_and_kill(workload))
    victim = written[-3].put.physical_offset
    file_size = workload.settings.commit_log_file_size
    path = ours.directory / "commitlog" / f"{victim // file_size * file_size:020d}"
    content = bytearray(path.read_bytes())
    end = victim % file_size + int.from_bytes(content[victim % file_size :][:4], "big")
    content[end - 24] ^= 1
    path.write_bytes(content)
    theirs = ApacheStore(apache, ours.directory, workload.settings.for_apache())
    with theirs.open_reader() as reader:
        assert reader.max_physical_offset == victim
        assert [message.physical_offset for message in reader.messages()] == [
            one.put.physical_offset for one in written[:-3]
        ]


def test_pymq_drops_nothing_that_apache_wrote_without_the_setting(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: what one run promised of its records is not demanded of the next writer's. Method: pymq with the CRC is
    killed, Apache without it goes on (and passes on a message that carries another record's CRC) and is killed, pymq
    with the CRC recovers.
    """
    workload = next(workload for workload in WORKLOADS if workload.settings.record_crc)
    ours = PymqStore(tmp_path / "store", workload.settings)
    ours.write_and_kill(workload)
    assert "record CRC from" in (ours.directory / "abort").read_text()

    plain = replace(workload.settings, record_crc=False)
    theirs = ApacheStore(apache, ours.directory, plain.for_apache(index_safe=True))
    more = [replace(PLAIN, topic="after"), replace(STALE, topic="after"), replace(PLAIN, topic="after")]
    puts = theirs.write_and_kill([Send(message) for message in more])
    assert "record CRC from" not in (ours.directory / "abort").read_text()

    with pymq.open(ours.directory, config=store_config(plain).replace(enabled_append_prop_crc=True)) as mq:
        found = [message.physical_offset for message in mq.iterate("after", 0)]
    assert found == [put.physical_offset for put in puts]
