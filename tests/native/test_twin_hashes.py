"""CRC-32, Java's hash and the index key hash: native, reference and zlib agree."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymq import _scan
from tests.native.strategies import FLAWED_UTF8, TEXT
from tests.reference import java_hash as reference

Guard = Callable[[bytes], memoryview]


@given(st.binary(max_size=2000), st.integers(0, 2**32 - 1))
def test_crc32_equals_zlib(guarded: Guard, guarded_start: Guard, source: bytes, seed: int) -> None:
    """Goal: RocketMQ's checksum. Method: zlib on the same bytes and seed; guarded on both sides."""
    expected = zlib.crc32(source, seed)
    assert _scan.crc32(guarded(source), seed) == expected
    assert _scan.crc32(guarded_start(source), seed) == expected
    assert _scan.crc32_table(guarded(source), seed) == expected


@pytest.mark.parametrize("size", [*range(70), 127, 128, 129, 255, 256, 257, 383, 384, 4095, 65536])
def test_crc32_equals_zlib_at_every_change_of_path(guarded: Guard, size: int) -> None:
    """Goal: no size is special. Method: sizes around each step of the folding, guarded."""
    source = bytes(index * 167 % 251 for index in range(size))
    assert _scan.crc32(guarded(source)) == zlib.crc32(source)
    assert _scan.crc32_table(source) == zlib.crc32(source)


@given(TEXT | FLAWED_UTF8 | st.binary(max_size=60))
def test_java_hash_agrees_on_any_bytes(guarded: Guard, source: bytes) -> None:
    """Goal: tags hash as in Java, flaws included. Method: both on text, lone surrogates and malformed UTF-8."""
    assert _scan.java_hash(guarded(source)) == reference.java_hash(source)


@given(st.text(max_size=40))
def test_java_hash_is_the_rule_over_utf16(text: str) -> None:
    """Goal: the reference itself is right on well-formed text. Method: the rule over Python's own UTF-16."""
    encoded = text.encode("utf-16-be")
    units = [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]
    assert reference.utf16_units(text.encode()) == units
    value = 0
    for unit in units:
        value = reference.as_int32(31 * value + unit)
    assert _scan.java_hash(text.encode()) == value


@pytest.mark.parametrize(
    ("source", "units"),
    [
        (b"\xed\xa0\x80", [0xFFFD]),
        (b"\xed\xa0\x80\xed\xb0\x80", [0xFFFD, 0xFFFD]),
        (b"\xc0\x80", [0xFFFD, 0xFFFD]),
        (b"\xe0\x80\x80", [0xFFFD, 0xFFFD, 0xFFFD]),
        (b"\xf0\x9f\x98", [0xFFFD]),
        (b"\xf0\x9f\x98A", [0xFFFD, ord("A")]),
        (b"\xf4\x90\x80\x80", [0xFFFD] * 4),
        (b"\xf0\x9f\x98\x80", [0xD83D, 0xDE00]),
    ],
)
def test_malformed_utf8_is_replaced_as_java_replaces_it(source: bytes, units: list[int]) -> None:
    """Goal: the reference follows Java, not Python. Method: cases whose units OpenJDK 17 printed."""
    assert reference.utf16_units(source) == units
    expected = 0
    for unit in units:
        expected = reference.as_int32(31 * expected + unit)
    assert _scan.java_hash(source) == expected


@given(TEXT, TEXT)
def test_index_key_hash_agrees_and_is_never_negative(guarded: Guard, topic: bytes, key: bytes) -> None:
    """Goal: keys land in Apache's slots. Method: both on any topic and key."""
    found = _scan.index_key_hash(topic, guarded(key))
    assert found == reference.index_key_hash(topic, key)
    assert found >= 0


def test_index_key_hash_of_the_smallest_int_is_zero() -> None:
    """Goal: Math.abs's one exception. Method: a key whose hash is -2**31."""
    assert reference.java_hash(b"#wga1ABD") == -(2**31)
    assert _scan.index_key_hash(b"", b"wga1ABD") == reference.index_key_hash(b"", b"wga1ABD") == 0
