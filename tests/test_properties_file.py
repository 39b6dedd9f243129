"""Operators' files: what an edit leaves as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pymq import java_properties
from pymq.properties_file import edit_file, edit_properties


def test_a_file_keeps_its_comments_and_other_lines() -> None:
    """Goal: an administrator's file stays his. Method: comments, repeated keys, continued lines, escapes."""
    text = "# head\nbrokerName=a\n\nlistenPort = 1 \\\n  2\n! note\nbrokerName : b\nlast=1"
    edited = edit_properties(text, {"listenPort": "99", "brokerName": "c", "new": " lead\\slash"})
    assert edited == "# head\n\nlistenPort=99\n! note\nbrokerName=c\nlast=1\nnew=\\ lead\\\\slash\n"
    assert java_properties.to_dict(edited) == {
        "listenPort": "99",
        "brokerName": "c",
        "last": "1",
        "new": " lead\\slash",
    }


def test_a_character_that_only_python_takes_for_a_line_end_does_not_shift_the_edit() -> None:
    """Goal: the right line is changed. Method: a form feed and a Unicode line separator in a comment."""
    text = "# a\x0cb\u2028c\ntraceOn=true\nbrokerName=x\n"
    assert edit_properties(text, {"traceOn": "false"}) == text.replace("true", "false")


def test_line_ends_stay_as_they_are() -> None:
    """A file written on Windows stays one."""
    assert edit_properties("a=1\r\nb=2\r\n", {"a": "3"}) == "a=3\r\nb=2\r\n"


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1"])
def test_a_file_stays_in_its_encoding(tmp_path: Path, encoding: str) -> None:
    """Goal: Java's files can be changed. Method: a comment with an accent, and a value that ISO-8859-1 has not."""
    path = tmp_path / "broker.conf"
    path.write_bytes("# \u00e9t\u00e9\na=1\n".encode(encoding))
    edit_file(path, {"a": "\u20ac"})
    text = path.read_bytes().decode(encoding)
    assert text.startswith("# \u00e9t\u00e9\n")
    assert java_properties.to_dict(text) == {"a": "\u20ac"}
