"""Whole tables beside plain Python: XXH3 beside its package, texts, hosts, properties, and the next record."""

from __future__ import annotations

import ipaddress
import random
from array import array
from collections.abc import Callable
from itertools import pairwise

import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pymq import _scan
from tests.native.strategies import FLAWED_UTF8, HOSTS, INT32, INT64, PROPERTIES, RECORDS, TEXT
from tests.reference import properties as reference_properties
from tests.reference import record as reference

Guard = Callable[[bytes], memoryview]
MASK = (1 << 64) - 1
LENGTHS = (
    st.integers(0, 300) | st.sampled_from([1023, 1024, 1025, 1087, 1088, 1089, 2048, 2049]) | st.integers(0, 40000)
)


@given(LENGTHS, st.integers(0, 2**32))
def test_xxh3_is_that_of_the_package(guarded: Guard, size: int, seed: int) -> None:
    """Goal: one digest everywhere. Method: bytes of every length class, beside a page that may not be touched."""
    source = random.Random(seed).randbytes(size)
    assert _scan.xxh3_64(guarded(source)) == xxhash.xxh3_64_intdigest(source)


def plain_mix(*words: int) -> int:
    """The mixer as pymq/scan_digest.h writes it down."""
    state = 0x9E3779B97F4A7C15
    for word in words:
        state = (state ^ (word & MASK)) * 0xBF58476D1CE4E5B9 & MASK
        state ^= state >> 32
    state = state * 0x94D049BB133111EB & MASK
    return state ^ (state >> 29)


@given(st.lists(INT64, max_size=5))
def test_mix_is_the_one_written_down(words: list[int]) -> None:
    """Goal: digests that others can compute. Method: the formula of the header, in Python."""
    assert _scan.mix(*words) == plain_mix(*words)


def placed(pieces: list[bytes | None]) -> tuple[bytes, array[int], array[int]]:
    """Pieces one after the other, with a byte between; their positions and sizes, -1 for None."""
    source, positions, sizes = b"", array("q"), array("i")
    for piece in pieces:
        positions.append(len(source))
        sizes.append(-1 if piece is None else len(piece))
        source += (piece or b"") + b"|"
    return source, positions, sizes


@given(st.lists(st.none() | TEXT | FLAWED_UTF8, max_size=12), st.integers(0, 12))
def test_pieces_are_gathered_as_they_are(guarded: Guard, pieces: list[bytes | None], first: int) -> None:
    """Goal: no byte lost or made up. Method: take the column apart again; what is no UTF-8 is named, and no more."""
    source, positions, sizes = placed(pieces)
    first = min(first, len(pieces))
    found = _scan.gather(guarded(source), positions, sizes, len(pieces), first)
    kept = pieces[first:]
    offsets = array("i", bytes(found.offsets))
    parts = [bytes(found.data[begin:end]) for begin, end in pairwise(offsets)]
    validity = [bool(found.validity[row // 8] >> row % 8 & 1) if found.validity else True for row in range(len(kept))]
    assert [part if valid else None for part, valid in zip(parts, validity, strict=True)] == kept
    assert found.absent == kept.count(None)
    assert _scan.not_utf8(found) == [row for row, piece in enumerate(kept) if piece is not None and not is_utf8(piece)]


def is_utf8(source: bytes) -> bool:
    """Python's opinion."""
    try:
        source.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@given(st.binary(max_size=80) | FLAWED_UTF8 | st.text(max_size=60).map(str.encode))
def test_utf8_is_told_as_python_tells_it(guarded: Guard, source: bytes) -> None:
    """Goal: Arrow's strings are valid. Method: edges of the encoding, both opinions."""
    assert _scan.is_utf8(guarded(source)) == is_utf8(source)


@given(st.lists(st.tuples(HOSTS, HOSTS), max_size=6), st.booleans())
def test_hosts_are_written_as_people_write_them(
    hosts: list[tuple[reference.Host, reference.Host]], store: bool
) -> None:
    """Goal: readable hosts, IPv4 and IPv6. Method: encode records, compare with the ipaddress module."""
    source, positions, flags = b"", array("q"), array("i")
    for born, stored in hosts:
        made = _scan.encode_record(
            _scan.Record(
                topic=b"T",
                body=b"",
                born_host=_scan.Host(born.address, born.port),
                store_host=_scan.Host(stored.address, stored.port),
            )
        )
        positions.append(len(source))
        flags.append(int.from_bytes(made[36:40], "big"))
        source += made
    found = _scan.host_texts(source, positions, flags, len(hosts), store=store)
    offsets = array("i", bytes(found.offsets))
    texts = [found.data[begin:end].decode() for begin, end in pairwise(offsets)]
    for text, pair in zip(texts, hosts, strict=True):
        host = pair[1] if store else pair[0]
        address, _, port = text.rpartition(":")
        assert ipaddress.ip_address(address.strip("[]")).packed == host.address
        assert int(port) == host.port


@given(st.lists(PROPERTIES, max_size=6))
def test_properties_of_many_rows_are_those_of_each(guarded: Guard, rows: list[bytes]) -> None:
    """Goal: one reading of properties. Method: pairs and named values of all rows at once, beside the reference."""
    source, positions, sizes = placed(list(rows))
    view = guarded(source)
    pairs = _scan.property_pairs(view, positions, sizes, len(rows))
    bounds = array("i", bytes(pairs.row_offsets))

    def texts(pieces: _scan.Pieces) -> list[bytes]:
        offsets = array("i", bytes(pieces.offsets))
        return [bytes(pieces.data[begin:end]) for begin, end in pairwise(offsets)]

    names, values = texts(pairs.names), texts(pairs.values)
    for row, text in enumerate(rows):
        found = list(zip(names, values, strict=True))[bounds[row] : bounds[row + 1]]
        assert dict(found) == reference_properties.decode_properties(text)
        assert len(found) == len(dict(found))
    at, lengths = _scan.find_properties(view, positions, sizes, len(rows), b"TAGS")
    for row, text in enumerate(rows):
        wanted = reference_properties.decode_properties(text).get(b"TAGS")
        begin, size = array("q", bytes(at))[row], array("i", bytes(lengths))[row]
        assert (None if size < 0 else source[begin : begin + size]) == wanted


@given(st.lists(RECORDS, min_size=1, max_size=3), st.binary(max_size=30), INT32, st.integers(0, 1 << 40))
def test_the_next_record_is_the_first_that_says_its_offset(
    guarded: Guard, records: list[reference.Record], noise: bytes, lie: int, base: int
) -> None:
    """Goal: resynchronise at truth. Method: noise, then records of which the first says another offset."""
    encoded = [bytearray(reference.encode_record(record)) for record in records]
    offset = base + len(noise)
    for index, record in enumerate(encoded):
        own = offset + lie if index == 0 else offset
        record[28:36] = own.to_bytes(8, "big", signed=True)
        offset += len(record)
    source = noise + b"".join(encoded)
    found = _scan.find_record(guarded(source), base_offset=base, limit=base + len(source), file_end=base + len(source))
    skipped = 1 if lie else 0
    if skipped == len(encoded):
        assert found.kind is _scan.FindKind.NOTHING
    else:
        assert found.kind is _scan.FindKind.RECORD
        assert found.position == len(noise) + sum(map(len, encoded[:skipped]))
