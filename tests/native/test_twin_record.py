"""Records and batches: the native codec and the plain-Python reference agree byte for byte."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymq import _scan, errors
from tests.native.strategies import BATCH_ITEMS, RECORDS, damaged
from tests.reference import properties as reference_properties
from tests.reference import record as reference

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden-store"
Guard = Callable[[bytes], memoryview]


def native_of(record: reference.Record) -> _scan.Record:
    """The same record as `_scan` takes it."""
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    fields["born_host"] = _scan.Host(record.born_host.address, record.born_host.port)
    fields["store_host"] = _scan.Host(record.store_host.address, record.store_host.port)
    return _scan.Record(**fields)


def reference_outcome(source: bytes, *, check_crc: bool, offset: int | None) -> object:
    """What the reference makes of *source*: a record, a blank tail, or the kind of refusal."""
    try:
        found = reference.decode_record(source, check_crc=check_crc, physical_offset=offset)
    except reference.TruncatedError:
        return "truncated"
    except reference.CorruptError:
        return "corrupt"
    return _scan.BlankTail(found) if isinstance(found, int) else native_of(found)


def native_outcome(source: memoryview, *, check_crc: bool, offset: int | None) -> object:
    """The same by the native codec."""
    checks = _scan.Check.BODY_CRC if check_crc else _scan.Check.STRUCTURE
    if offset is not None:
        checks |= _scan.Check.OFFSET
    try:
        return _scan.decode_record(source, checks=checks, physical_offset=offset or 0)
    except errors.TruncatedRecordError:
        return "truncated"
    except errors.CorruptRecordError:
        return "corrupt"


@given(RECORDS)
def test_encoded_records_are_the_same_bytes(record: reference.Record) -> None:
    """Goal: one format. Method: encode by both and compare."""
    assert _scan.encode_record(native_of(record)) == reference.encode_record(record)


@given(RECORDS)
def test_decoding_what_was_encoded_gives_the_record_back(record: reference.Record) -> None:
    """Goal: nothing is lost. Method: encode natively, decode by both under every check, compare all fields."""
    encoded = _scan.encode_record(native_of(record))
    checks = _scan.Check.BODY_CRC | _scan.Check.OFFSET
    decoded = _scan.decode_record(encoded, checks=checks, physical_offset=record.physical_offset)
    expected = reference.decode_record(encoded, physical_offset=record.physical_offset)
    assert isinstance(expected, reference.Record)
    assert decoded == native_of(expected)
    assert isinstance(decoded, _scan.Record)
    assert _scan.encode_record(decoded) == encoded


@given(damaged(RECORDS.map(reference.encode_record)), st.booleans(), st.booleans())
def test_damaged_records_get_the_same_verdict(guarded: Guard, source: bytes, check_crc: bool, check_offset: bool):
    """Goal: both refuse the same bytes for the same reason. Method: damage an encoding, decode by both, guarded."""
    offset = int.from_bytes(source[28:36], "big", signed=True) if check_offset else None
    expected = reference_outcome(source, check_crc=check_crc, offset=offset)
    assert native_outcome(guarded(source), check_crc=check_crc, offset=offset) == expected


@given(st.binary(max_size=200))
def test_arbitrary_bytes_get_the_same_verdict(guarded: Guard, guarded_start: Guard, source: bytes) -> None:
    """Goal: no input is read outside its bytes. Method: decode next to pages that may not be touched."""
    expected = reference_outcome(source, check_crc=True, offset=None)
    assert native_outcome(guarded(source), check_crc=True, offset=None) == expected
    assert native_outcome(guarded_start(source), check_crc=True, offset=None) == expected


@given(st.sampled_from([0xDAA320A7, 0xDAA320AB, 0xCBD43194]), st.integers(-1, 200), st.binary(max_size=200))
def test_bytes_behind_a_valid_magic_get_the_same_verdict(guarded: Guard, magic: int, size: int, rest: bytes) -> None:
    """Goal: as above, past the first check. Method: put a real magic and a plausible size before the bytes."""
    source = size.to_bytes(4, "big", signed=True) + magic.to_bytes(4, "big") + rest
    expected = reference_outcome(source, check_crc=False, offset=None)
    assert native_outcome(guarded(source), check_crc=False, offset=None) == expected


@given(st.lists(BATCH_ITEMS, max_size=5))
def test_batches_are_the_same_bytes_and_come_back(items: list[reference.BatchItem]) -> None:
    """Goal: one batch format. Method: encode by both, compare, decode by both."""
    native_items = [_scan.BatchItem(item.flag, item.body, item.properties) for item in items]
    encoded = _scan.encode_batch(native_items)
    assert encoded == reference.encode_batch(items)
    assert _scan.decode_batch(encoded) == native_items
    assert reference.decode_batch(encoded) == items


@given(damaged(st.lists(BATCH_ITEMS, max_size=4).map(reference.encode_batch)) | st.binary(max_size=120))
def test_damaged_batches_get_the_same_verdict(guarded: Guard, source: bytes) -> None:
    """Goal: both step alike or refuse alike. Method: damage an encoding, decode by both, guarded."""
    try:
        expected = [_scan.BatchItem(item.flag, item.body, item.properties) for item in reference.decode_batch(source)]
    except reference.CorruptError:
        with pytest.raises(errors.CorruptRecordError):
            _scan.decode_batch(guarded(source))
    else:
        assert _scan.decode_batch(guarded(source)) == expected


def test_topics_and_properties_beyond_the_format_are_refused() -> None:
    """Goal: limits have names. Method: one beyond each bound, and the hosts' sizes."""
    with pytest.raises(errors.InvalidTopicError):
        _scan.encode_record(_scan.Record(topic=b"t" * 32768, body=b""))
    for topic in (b"", b".", b"..", b"a/b", b"a\x00b"):
        with pytest.raises(errors.InvalidTopicError):
            _scan.encode_record(_scan.Record(topic=topic, body=b""))
    with pytest.raises(errors.PropertiesTooLargeError):
        _scan.encode_record(_scan.Record(topic=b"t", body=b"", properties=b"\x01" * 32768))
    with pytest.raises(errors.InvalidArgumentError):
        _scan.encode_record(_scan.Record(topic=b"t", body=b"", born_host=_scan.Host(b"12345", 1)))


def test_every_golden_record_is_read_field_for_field_and_written_back() -> None:
    """Goal: Apache's bytes are ours. Method: both codecs over the golden log, beside what its broker reported."""
    layout = json.loads((GOLDEN / "layout.json").read_text(encoding="utf-8"))["commitlog"]
    expected = [facts for facts in layout if facts["magic"] != "BLANK"]
    logs = {int(path.name): path.read_bytes() for path in sorted((GOLDEN / "store" / "commitlog").iterdir())}
    assert len(expected) == 325
    for facts in expected:
        offset = facts["commitLogOffset"]
        base = max(start for start in logs if start <= offset)
        source = memoryview(logs[base])[offset - base : offset - base + facts["size"]]
        checks = _scan.Check.BODY_CRC | _scan.Check.OFFSET | _scan.Check.HOLES
        record = _scan.decode_record(source, checks=checks, physical_offset=offset)
        twin = reference.decode_record(bytes(source), physical_offset=offset)
        assert isinstance(record, _scan.Record)
        assert isinstance(twin, reference.Record)
        assert record == native_of(twin)
        assert _scan.encode_record(record) == bytes(source) == reference.encode_record(twin)
        assert record.topic.decode() == facts["topic"]
        assert (record.queue_id, record.queue_offset, record.flag, record.sys_flag) == (
            facts["queueId"],
            facts["queueOffset"],
            facts["flag"],
            facts["sysFlag"],
        )
        assert (record.body_crc, record.born_timestamp_ms, record.store_timestamp_ms, record.reconsume_times) == (
            facts["bodyCRC"],
            facts["bornTimestamp"],
            facts["storeTimestamp"],
            facts["reconsumeTimes"],
        )
        assert record.body == base64.b64decode(facts["bodyBase64"])
        assert _scan.decode_properties(record.properties) == facts["properties"]
        assert reference_properties.decode_properties(twin.properties) == {
            name.encode(): value.encode() for name, value in facts["properties"].items()
        }
