"""The golden files through the codec alone, without a store: decode, compare, encode, and get the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pymq import _scan
from tests.golden import golden_layout
from tests.golden.golden_layout import GoldenMessage

STRICT = _scan.Check.BODY_CRC | _scan.Check.OFFSET


@pytest.fixture(scope="module")
def log() -> bytes:
    """The whole commit log, its files joined: a byte's index is its physical offset."""
    return b"".join(path.read_bytes() for path in sorted((golden_layout.STORE / "commitlog").iterdir()))


def host_text(host: _scan.Host) -> str:
    """An IPv4 host as the ground truth writes it."""
    return f"{'.'.join(str(part) for part in host.address)}:{host.port}"


def decode(log: bytes, physical_offset: int) -> _scan.Record:
    """The record at *physical_offset*, checked in every way."""
    record = _scan.decode_record(log, at=physical_offset, checks=STRICT, physical_offset=physical_offset)
    assert isinstance(record, _scan.Record)
    return record


def test_every_record_decodes_to_what_apache_decoded(log: bytes):
    """Goal: our reading is Apache's. Method: each record against layout.json, all fields."""
    for message in golden_layout.messages():
        record = decode(log, message.physical_offset)
        host = record.store_host.address + record.store_host.port.to_bytes(4, "big")
        assert message == GoldenMessage(
            topic=record.topic.decode(),
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            physical_offset=record.physical_offset,
            store_size=record.total_size,
            message_id=(host + record.physical_offset.to_bytes(8, "big")).hex().upper(),
            flag=record.flag,
            sys_flag=record.sys_flag,
            body_crc=record.body_crc,
            born_timestamp_ms=record.born_timestamp_ms,
            born_host=host_text(record.born_host),
            store_timestamp_ms=record.store_timestamp_ms,
            store_host=host_text(record.store_host),
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=record.prepared_transaction_offset,
            body=record.body,
            properties=_scan.decode_properties(record.properties),
        )


def test_decode_then_encode_gives_the_same_bytes(log: bytes):
    """Goal: we write what Apache writes. Method: encode each decoded record and compare with the file."""
    for message in golden_layout.messages():
        begin, end = message.physical_offset, message.physical_offset + message.store_size
        assert _scan.encode_record(decode(log, begin)) == log[begin:end]


def test_properties_decode_then_encode_gives_the_same_bytes(log: bytes):
    """Goal: the property string survives both ways. Method: pairs in order, of every record.

    Brokers store properties with an empty value now and then, which no decoder returns; those pieces are taken out.
    """
    for message in golden_layout.messages():
        properties = decode(log, message.physical_offset).properties
        pieces = [piece for piece in properties.split(b"\x02") if piece and not piece.endswith(b"\x01")]
        kept = b"".join(piece + b"\x02" for piece in pieces)
        assert _scan.encode_properties(_scan.iterate_properties(properties)) == kept


def test_blank_tail_ends_the_first_file(log: bytes):
    """Goal: the end of a file is recognised. Method: the blank at 65366, whose size leads to the next file."""
    assert _scan.decode_record(log, at=65366) == _scan.BlankTail(golden_layout.COMMIT_LOG_FILE_SIZE - 65366)


def test_queue_files_hold_the_units_of_the_layout_and_then_zeros():
    """Goal: units as Apache wrote them, tag codes included. Method: all files of each queue, joined."""
    for (topic, queue_id), units in golden_layout.queue_units().items():
        directory = golden_layout.STORE / "consumequeue" / topic / str(queue_id)
        content = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
        columns = _scan.decode_queue(content)
        rows = list(zip(columns["physical_offset"], columns["size"], columns["tags_code"], strict=True))
        assert rows[: len(units)] == units, (topic, queue_id)
        assert set(rows[len(units) :]) <= {(0, 0, 0)}, (topic, queue_id)


def test_tags_codes_are_java_hashes_of_the_tags(log: bytes):
    """Goal: the hash is Java's, beyond ASCII too. Method: recompute each unit's code from the record's TAGS."""
    messages = {message.physical_offset: message for message in golden_layout.messages()}
    computed = {
        position: _scan.java_hash(messages[position].properties.get("TAGS", "").encode())
        for (topic, _), units in golden_layout.queue_units().items()
        if topic != "SCHEDULE_TOPIC_XXXX"
        for position, _, _ in units
    }
    stored = {
        position: code
        for (topic, _), units in golden_layout.queue_units().items()
        if topic != "SCHEDULE_TOPIC_XXXX"
        for position, _, code in units
    }
    assert computed == stored


def test_delay_units_hold_the_delivery_time():
    """Goal: the delay topic's exception. Method: store time + 1 s, 5 s, 10 s (levels 1 to 3) and 2 h (18) per queue."""
    delays_ms = {0: 1_000, 1: 5_000, 2: 10_000, 17: 7_200_000}
    messages = {message.physical_offset: message for message in golden_layout.messages()}
    found = {
        (queue_id, code - messages[position].store_timestamp_ms)
        for (topic, queue_id), units in golden_layout.queue_units().items()
        if topic == "SCHEDULE_TOPIC_XXXX"
        for position, _, code in units
    }
    assert found == set(delays_ms.items())


def index_paths() -> list[Path]:
    """The golden index files, oldest first."""
    return sorted((golden_layout.STORE / "index").iterdir())


def test_index_headers_are_those_of_the_layout():
    """Goal: all six header fields. Method: the five files against layout.json."""
    expected = [
        (
            header["beginTimestamp"],
            header["endTimestamp"],
            header["beginPhyOffset"],
            header["endPhyOffset"],
            header["hashSlotCount"],
            header["indexCount"],
        )
        for header in golden_layout.layout()["index"]
    ]
    found = [tuple(_scan.read_index(path, golden_layout.INDEX_SLOT_COUNT).header) for path in index_paths()]
    assert found == expected


def test_index_items_are_unique_key_then_keys_then_tags_of_each_message_in_order():
    """Goal: the order and hashes of docs/formats.md. Method: items of all files in a row, against the log's keys."""
    expected = [
        (message.physical_offset, _scan.index_key_hash(message.topic.encode(), key.encode()))
        for message in golden_layout.messages()
        for key in message.index_items
    ]
    found = []
    for path in index_paths():
        items = _scan.read_index(path, golden_layout.INDEX_SLOT_COUNT).items
        found += list(zip(items["physical_offset"], items["key_hash"], strict=True))
    assert found == expected
