"""Configuration files of operators: read as Java reads them, and changed without touching what nobody changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pymq import java_properties
from pymq.durable_file import replace_file


def read_text(path: Path) -> tuple[str, str]:
    """The file's text and its encoding.

    Java reads properties as ISO-8859-1; a file with other bytes than UTF-8's is taken so.

    Raises:
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    try:
        return content.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return content.decode("iso-8859-1"), "iso-8859-1"


def edit_file(path: Path, changes: Mapping[str, str]) -> None:
    """Write *changes* into the file, which is made if there is none. Waits for the disk.

    Raises:
        OSError: it cannot be read or written. ValueError: it is not what Java's properties look like.
    """
    text, encoding = read_text(path) if path.exists() else ("", "utf-8")
    replace_file(path, edit_properties(text, changes).encode(encoding))


def edit_properties(text: str, changes: Mapping[str, str]) -> str:
    """*text* with the values of *changes* in place of its own; new keys behind it, everything else untouched."""
    lines = java_properties.LINE_END.split(text)
    if not lines[-1]:
        lines.pop()
    last = {item.key: item.line - 1 for item in java_properties.parse(text)}
    doomed: set[int] = set()
    for item in java_properties.parse(text):
        if item.key in changes:
            number = item.line - 1
            doomed.add(number)
            while continues(lines[number]) and number + 1 < len(lines):
                number += 1
                doomed.add(number)
    for key, value in changes.items():
        if key in last:
            doomed.discard(last[key])
            lines[last[key]] = f"{key}={escape_value(value)}"
    kept = [line for number, line in enumerate(lines) if number not in doomed]
    kept += [f"{key}={escape_value(value)}" for key, value in changes.items() if key not in last]
    end = "\r\n" if "\r\n" in text else "\n"
    return end.join([*kept, ""])


def continues(line: str) -> bool:
    """Whether the next line belongs to this one."""
    return bool((len(line) - len(line.rstrip("\\"))) % 2)


def escape_value(value: str) -> str:
    """A value that is read back as it is, whatever the file's encoding."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    escaped = "".join(letter if letter.isascii() else unicode_escapes(letter) for letter in escaped)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def unicode_escapes(letter: str) -> str:
    r"""\uXXXX, twice for what Java has two characters for."""
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
