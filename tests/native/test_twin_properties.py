"""Properties: the native codec and the plain-Python reference agree."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymq import _scan, errors
from tests.native.strategies import PLAIN_PAIRS, PROPERTIES, TEXT
from tests.reference import properties as reference

Guard = Callable[[bytes], memoryview]


@given(PROPERTIES | st.binary(max_size=80))
def test_the_same_pairs_are_found_in_any_bytes(guarded: Guard, source: bytes) -> None:
    """Goal: one reading, inside the bytes. Method: iterate by both, next to a page that may not be touched."""
    assert list(_scan.iterate_properties(guarded(source))) == reference.decode_pairs(source)


@given(PROPERTIES, st.sampled_from([b"TAGS", b"a", b"b", b"ab", b""]) | TEXT)
def test_the_last_value_of_a_name_is_found(guarded: Guard, source: bytes, name: bytes) -> None:
    """Goal: equal names resolve alike. Method: look up by both."""
    assert _scan.find_property(guarded(source), name) == reference.decode_properties(source).get(name)


@given(PLAIN_PAIRS)
def test_encoded_pairs_are_the_same_bytes(pairs: list[tuple[bytes, bytes]]) -> None:
    """Goal: one writing. Method: encode by both; what has a name and a value comes back."""
    encoded = _scan.encode_properties(pairs)
    assert encoded == reference.encode_properties(pairs)
    assert list(_scan.iterate_properties(encoded)) == [(name, value) for name, value in pairs if name and value]


@given(PROPERTIES | st.binary(max_size=40))
def test_well_formedness_is_judged_alike(guarded: Guard, source: bytes) -> None:
    """Goal: one verdict. Method: judge by both."""
    assert _scan.properties_are_well_formed(guarded(source)) == reference.are_well_formed(source)


@given(PLAIN_PAIRS.filter(bool))
def test_what_a_writer_writes_is_well_formed(pairs: list[tuple[bytes, bytes]]) -> None:
    """Goal: nothing legal is refused. Method: any pairs, with and without the final separator."""
    encoded = reference.encode_properties(pairs)
    assert _scan.properties_are_well_formed(encoded)
    assert _scan.properties_are_well_formed(encoded[:-1])


@pytest.mark.parametrize("pair", [(b"a\x01", b"b"), (b"a", b"b\x02"), (b"\x02", b"b"), (b"a", b"\x01")])
def test_separators_inside_are_refused_by_both(pair: tuple[bytes, bytes]) -> None:
    """Goal: our writer never makes a string that reads back differently. Method: each separator in each part."""
    with pytest.raises(errors.InvalidArgumentError):
        _scan.encode_properties([pair])
    with pytest.raises(ValueError, match="separator"):
        reference.encode_properties([pair])


def test_the_largest_string_fits_and_one_byte_more_does_not() -> None:
    """Goal: the bound is 32,767. Method: one below, at, and above it."""
    assert len(_scan.encode_properties([(b"n", b"v" * 32763)])) == 32766
    assert len(_scan.encode_properties([(b"n", b"v" * 32764)])) == 32767
    with pytest.raises(errors.PropertiesTooLargeError):
        _scan.encode_properties([(b"n", b"v" * 32765)])
