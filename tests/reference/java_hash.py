"""Java's String.hashCode from UTF-8 bytes, with malformed input replaced as Java's decoder replaces it."""

from __future__ import annotations

REPLACEMENT = 0xFFFD

# Which second bytes may follow a lead byte of a three- or four-byte sequence; all others allow 0x80..0xBF.
SECOND_BYTES = {0xE0: range(0xA0, 0xC0), 0xF0: range(0x90, 0xC0), 0xF4: range(0x80, 0x90)}
CONTINUATION = range(0x80, 0xC0)


def decode_code_point(source: bytes, at: int) -> tuple[int, int]:
    """The code point at *at* (or U+FFFD) and how many bytes it takes.

    Malformed bytes are replaced by the longest prefix of a sequence that is there. A surrogate in three well-formed
    bytes is one replacement; Python's own decoder would make three.
    """
    lead = source[at]
    if lead < 0x80:
        return lead, 1
    if 0xC2 <= lead <= 0xDF:
        size = 2
    elif 0xE0 <= lead <= 0xEF:
        size = 3
    elif 0xF0 <= lead <= 0xF4:
        size = 4
    else:
        return REPLACEMENT, 1
    value = lead & (0x7F >> size)
    for index in range(1, size):
        allowed = SECOND_BYTES.get(lead, CONTINUATION) if index == 1 else CONTINUATION
        if at + index >= len(source) or source[at + index] not in allowed:
            return REPLACEMENT, index
        value = value << 6 | source[at + index] & 0x3F
    if 0xD800 <= value <= 0xDFFF:
        return REPLACEMENT, size
    return value, size


def utf16_units(source: bytes) -> list[int]:
    """The UTF-16 code units of Java's new String(source, UTF_8)."""
    units: list[int] = []
    at = 0
    while at < len(source):
        code_point, size = decode_code_point(source, at)
        at += size
        if code_point >= 0x10000:
            offset = code_point - 0x10000
            units += [0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF)]
        else:
            units.append(code_point)
    return units


def as_int32(value: int) -> int:
    """Wrap *value* as Java's int does."""
    return (value + 2**31) % 2**32 - 2**31


def java_hash(source: bytes) -> int:
    """String.hashCode: h = 31 * h + unit, in 32 bits."""
    value = 0
    for unit in utf16_units(source):
        value = as_int32(31 * value + unit)
    return value


def index_key_hash(topic: bytes, key: bytes) -> int:
    """The index file's hash of `topic#key`: Math.abs, and 0 for the one value that stays negative."""
    value = abs(java_hash(topic + b"#" + key))
    return 0 if value == 2**31 else value
