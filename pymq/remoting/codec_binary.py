"""The ROCKETMQ header: numbers in fixed places, then lengths and UTF-8.

    code       2   signed: codes above 32767 (POP's) cannot be said in this header
    language   1   LanguageCode
    version    2   signed
    opaque     4
    flag       4
    remark     4 + n
    fields     4 + n   of: name 2 + n, value 4 + n, …

A length of 0 is null, so an empty value is no value. Compat: Apache reads bytes that are no UTF-8 as U+FFFD.
"""

from __future__ import annotations

import struct

from pymq.remoting.codes import LanguageCode
from pymq.remoting.errors import CodecError
from pymq.remoting.header_parts import HeaderParts

FIXED = struct.Struct(">hBhiiI")  # up to and with the remark's length
NAME_SIZE_MAX = 0x7FFF
LANGUAGES = {language.value: language.name for language in LanguageCode}
LANGUAGE_UNKNOWN = 255


def encode(parts: HeaderParts) -> bytes:
    """The header's bytes. Compat: code and version are cut to 16 bits, as Apache cuts them."""
    remark = text_bytes(parts.remark or "")
    pieces = []
    for name, value in parts.fields.items():
        name_bytes, value_bytes = text_bytes(name), text_bytes(value)
        if len(name_bytes) > NAME_SIZE_MAX:
            raise CodecError(f"a field name of {len(name_bytes)} bytes; the binary header holds {NAME_SIZE_MAX}")
        pieces.append(
            struct.pack(">H", len(name_bytes)) + name_bytes + struct.pack(">I", len(value_bytes)) + value_bytes
        )
    fields = b"".join(pieces)
    language = LanguageCode[parts.language] if parts.language in LanguageCode.__members__ else LANGUAGE_UNKNOWN
    try:
        head = FIXED.pack(short(parts.code), language, short(parts.version), parts.opaque, parts.flag, len(remark))
    except struct.error as error:
        raise CodecError(f"opaque {parts.opaque} or flag {parts.flag} does not fit in 32 bits") from error
    return head + remark + struct.pack(">I", len(fields)) + fields


def decode(header: bytes) -> HeaderParts:
    """Read a header.

    Raises:
        CodecError: a length that leads outside of it.
    """
    if len(header) < FIXED.size:
        raise CodecError(f"a binary header of {len(header)} bytes; it has at least {FIXED.size + 4}")
    code, language, version, opaque, flag, remark_size = FIXED.unpack_from(header)
    remark, position = text_at(header, FIXED.size, remark_size)
    fields_size, position = number_at(header, position, 4)
    end = position + fields_size
    if end != len(header):
        # Differs: Apache takes what stands behind the fields for the beginning of the body; nobody writes such.
        raise CodecError(f"fields of {fields_size} bytes in a header that has {len(header) - position} left for them")
    fields: dict[str, str] = {}
    while position < end:
        size, position = number_at(header, position, 2)
        name, position = text_at(header, position, size)
        size, position = number_at(header, position, 4)
        value, position = text_at(header, position, size)
        if name is not None:  # a null name is a key nobody can ask for
            fields.pop(name, None)
            if value is not None:
                fields[name] = value
    return HeaderParts(code, LANGUAGES.get(language, ""), version, opaque, flag, remark, fields, empty_fields=False)


def number_at(header: bytes, position: int, size: int) -> tuple[int, int]:
    """The length of *size* bytes at *position*, and where it ends."""
    end = position + size
    if end > len(header):
        raise CodecError(f"a binary header that ends in a length at byte {position}")
    return int.from_bytes(header[position:end], "big"), end


def text_at(header: bytes, position: int, size: int) -> tuple[str | None, int]:
    """The text of *size* bytes at *position*, None for none, and where it ends."""
    end = position + size
    if end > len(header):
        raise CodecError(f"string length exceed limit: {size} bytes at byte {position} of a header of {len(header)}")
    return header[position:end].decode("utf-8", "replace") if size else None, end


def text_bytes(text: str) -> bytes:
    """UTF-8 as Java writes it: half of a surrogate pair is a question mark."""
    return text.encode("utf-8", "replace")


def short(value: int) -> int:
    """The lower 16 bits, signed."""
    return (value & 0xFFFF) - (0x10000 if value & 0x8000 else 0)
