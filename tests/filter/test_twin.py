"""Parser, compiler and the C evaluator against a plain evaluation of the tree."""

from __future__ import annotations

import math
import os
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pymq import errors
from pymq._scan import FilterProgram, Verdict, java_double, java_int
from pymq.filter import FilterError, compile_expression, compile_retry, compile_tags, parse
from tests.filter.strategies import EXPRESSIONS, PROPERTIES, SOUP, VALUES
from tests.reference import filter as reference

EXAMPLES = int(os.environ.get("PYMQ_FILTER_EXAMPLES", "2000"))
MANY = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SOME = settings(max_examples=max(100, EXAMPLES // 5), deadline=None)


@MANY
@given(EXPRESSIONS, st.lists(PROPERTIES, min_size=1, max_size=4))
def test_c_says_what_the_tree_says(expression: str, messages: list[dict[str, str]]) -> None:
    """Goal: one meaning. Method: random expressions over random properties, by both."""
    try:
        parsed = parse(expression)
    except FilterError:
        return
    program = FilterProgram(compile_expression(expression))
    for properties in messages:
        assert program.evaluate_pairs(properties).name == reference.verdict(parsed.root, properties), properties


@SOME
@given(SOUP | st.text(max_size=20))
def test_any_text_is_read_or_refused_at_a_place_in_it(text: str) -> None:
    """Goal: nothing but FilterError comes out, and it points into the text. Method: tokens and characters at random."""
    refused = None
    try:
        assert FilterProgram(compile_expression(text)).evaluate(b"") in Verdict
    except FilterError as error:
        refused = error
    if refused is not None:
        assert 0 <= refused.offset <= len(text)
        assert min(refused.line, refused.column) >= 1
        assert str(refused).startswith(f"line {refused.line}, column {refused.column}: ")


@SOME
@given(VALUES | st.from_regex(r"[ \t]?[+-]?[0-9]{0,25}\.?[0-9]{0,25}([eE][+-]?[0-9]{0,5})?[fFdDlL]?[ \n]?"))
def test_numbers_are_read_as_java_reads_them(text: str) -> None:
    """Goal: Integer, Long and Double. Method: the C functions against the plain ones."""
    for bits in (32, 64):
        try:
            wanted: int | None = reference.java_int(text, bits)
        except reference.Thrown:
            wanted = None
        assert java_int(text, bits) == wanted
    try:
        real: float | None = reference.java_double(text)
    except reference.Thrown:
        real = None
    got = java_double(text)
    if real is None or got is None:
        assert got is real
    else:
        assert (math.isnan(real) and math.isnan(got)) or reference.compare_doubles(got, real) == 0


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 900), st.integers(0, 900))
def test_a_double_with_many_digits_is_rounded_once(value: float, zeros: int, more: int) -> None:
    """Goal: beyond the digits that are kept, one sticky digit is enough. Method: exact expansions, padded."""
    whole, _, fraction = f"{abs(value):.1100f}".partition(".")
    text = "0" * zeros + whole + "." + fraction + "0" * more
    assert java_double(text) == abs(value)
    assert java_double(text + "1") == float(text + "1")


@given(st.lists(st.sampled_from(["a", "b", "tag c", "日本"]), min_size=1), st.sampled_from(["a", "b", "x", "日本", ""]))
def test_a_program_of_tags_wants_those_tags(tags: list[str], tag: str) -> None:
    """Goal: many tags are a program. Method: with and without the message's tag."""
    program = FilterProgram(compile_tags(tags))
    assert (program.evaluate_pairs({"TAGS": tag} if tag else {}) == Verdict.TRUE) == (tag in tags)


def test_a_retry_program_goes_by_the_original_topic() -> None:
    """Goal: each topic's own expression, everything of any other. Method: three topics."""
    trees = {"A": parse("a > 5").root, "B": parse("b NOT IN ('x')").root}
    program = FilterProgram(compile_retry("RETRY_TOPIC", trees))
    cases = {
        ("A", "a", "6"): Verdict.TRUE,
        ("A", "a", "5"): Verdict.FALSE,
        ("A", "a", "x"): Verdict.ERROR,
        ("A", "b", "x"): Verdict.NULL,
        ("B", "b", "y"): Verdict.TRUE,
        ("C", "a", "1"): Verdict.TRUE,
    }
    for (topic, name, value), wanted in cases.items():
        assert program.evaluate_pairs({"RETRY_TOPIC": topic, name: value}) == wanted
    assert program.evaluate_pairs({"a": "1"}) == Verdict.TRUE


@given(st.binary(max_size=60).map(lambda code: b"SQ\x01\x01\x01a" + code) | st.binary(max_size=20))
def test_bytes_that_are_no_program_are_refused(code: bytes) -> None:
    """Goal: whatever is published is looked at. Method: random bytes; what passes gives a verdict."""
    try:
        program = FilterProgram(code)
    except errors.StoreError:
        return
    assert program.evaluate(b"a\x015\x02") in Verdict


@given(EXPRESSIONS, st.data())
def test_a_damaged_program_is_refused_or_ends(expression: str, data: st.DataObject) -> None:
    """Goal: the verifier trusts nothing. Method: flip bytes of good programs."""
    try:
        program = bytearray(compile_expression(expression))
    except FilterError:
        return
    for _ in range(data.draw(st.integers(1, 3))):
        program[data.draw(st.integers(0, len(program) - 1))] = data.draw(st.integers(0, 255))
    try:
        checked = FilterProgram(bytes(program))
    except errors.StoreError:
        return
    assert checked.evaluate(b"a\x015\x02b\x01x\x02") in Verdict


def test_too_much_is_refused_by_name() -> None:
    """Goal: every limit speaks. Method: one beyond each."""
    assert compile_expression("(" * 199 + "a" + ")" * 199)
    for expression, text in {
        "(" * 300 + "a" + ")" * 300: "more than 200 parentheses",
        "a" + " = 1" * 300: "more than 250 operations",
        " OR ".join(f"p{i} = 1" for i in range(129)): "more than 128 different properties",
        "a IN (" + ", ".join(f"'{i:05d}日日'" for i in range(5500)) + ")": "the expression needs more",
        f"{'n' * 256} = 1": "a property's name of 256 bytes",
    }.items():
        with pytest.raises(FilterError, match=text):
            compile_expression(expression)
    assert compile_expression(" OR ".join(f"p = '{i}'" for i in range(3000)))


def test_a_short_expression_that_doubles_with_each_between_is_refused_at_once() -> None:
    """BETWEEN writes its left side twice: 40 of them within each other never ended, and took all memory."""
    expression = "a BETWEEN 1 AND 2"
    for _ in range(40):
        expression = f"-({expression}) BETWEEN 1 AND 2"
    began = time.process_time()
    with pytest.raises(FilterError, match="the expression needs more"):
        compile_expression(expression)
    assert time.process_time() - began < 5


def test_very_long_numbers_and_texts_are_refused_with_their_place() -> None:
    """More digits than Python's int() takes were a ValueError without a place; a text's length is bounded."""
    with pytest.raises(FilterError, match=r"line 1, column 5: 9+… is greater than 9223372036854775807"):
        compile_expression(f"a = {'9' * 5000}")
    assert compile_expression("a = 9223372036854775807")
    with pytest.raises(FilterError, match="65536 characters; 65535 at most"):
        compile_expression("a = 1" + " " * 65531)
    assert compile_expression("a = 1" + " " * 65530)
