"""Java's properties, as Java reads them."""

from __future__ import annotations

import pytest

from pymq import java_properties


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a : b ", "a", "b "),
        ("  a b", "a", "b"),
        ("a", "a", ""),
        ("a=b=c", "a", "b=c"),
        (r"a\=b=c", "a=b", "c"),
        (r"a=\u4e2d\n", "a", "中\n"),
        ("a=1,\\\n   2", "a", "1,2"),
        ("a=b\\\\", "a", "b\\"),
        ("a=1\r\na=2", "a", "2"),
        ("a=b # no comment", "a", "b # no comment"),
    ],
)
def test_one_property(text: str, key: str, value: str) -> None:
    """One property."""
    assert java_properties.to_dict(text) == {key: value}


def test_lines_are_counted_from_the_first_of_a_continued_one() -> None:
    """Lines are counted from the first of a continued one."""
    found = java_properties.parse("# c\n\na=1\\\n2\n! c\nb=3\n")
    assert found == [("a", "12", 3), ("b", "3", 6)]


def test_a_broken_escape_names_its_line() -> None:
    """A broken escape names its line."""
    with pytest.raises(ValueError, match="line 2"):
        java_properties.parse("a=1\nb=\\u12x4")


def test_rendering_is_sorted_lines() -> None:
    """Rendering is sorted lines."""
    assert java_properties.render({"b": "2", "a": "1"}) == "a=1\nb=2\n"
