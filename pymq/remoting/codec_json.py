"""The JSON header: `{"code":…,"extFields":{…},"flag":…,"language":…,"opaque":…,"remark":…,…,"version":…}`.

Written in Apache's order, byte for byte as csrc/wire writes it: no fields and no remark are left out, not null. Read as
Apache's reader (fastjson2 2.0.59) was seen to read it: numbers in quotes, true for 1, null for 0 or absent, any order,
the last of equal names, values of any kind as the text Java makes of them; but in a long header only texts and whole
numbers, which are all that clients send, for the rest takes a microsecond a byte.
"""

from __future__ import annotations

import math
import re
from typing import Any

from pymq.remoting import json_dialect
from pymq.remoting.codes import LanguageCode
from pymq.remoting.errors import CodecError
from pymq.remoting.header_parts import HeaderParts

DIGITS = re.compile(r"[+-]?[0-9]+")
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
# Java writes a double without exponent in this range.
PLAIN_DOUBLE_MIN, PLAIN_DOUBLE_MAX = 1e-3, 1e7


def encode(parts: HeaderParts) -> bytes:
    """The header's bytes."""
    quote = json_dialect.quote
    pieces = [f'{{"code":{parts.code}']
    if parts.fields:
        fields = ",".join(f"{quote(name)}:{quote(value)}" for name, value in parts.fields.items())
        pieces.append(f',"extFields":{{{fields}}}')
    elif parts.empty_fields:
        pieces.append(',"extFields":{}')
    pieces.append(f',"flag":{parts.flag}')
    if parts.language:
        pieces.append(f',"language":"{parts.language}"')
    pieces.append(f',"opaque":{parts.opaque}')
    if parts.remark is not None:
        pieces.append(f',"remark":{quote(parts.remark)}')
    pieces.append(f',"serializeTypeCurrentRPC":"JSON","version":{parts.version}}}')
    return "".join(pieces).encode("utf-8", "replace")


def decode(header: bytes) -> HeaderParts:
    """Read a header.

    Raises:
        CodecError: not an object, or a value that cannot be what its name says.
    """
    values = json_dialect.loads_header(header)
    if not isinstance(values, dict):
        raise CodecError(f"a header that is {type(values).__name__} and not an object")
    fields = values.get("extFields")
    if fields is None or fields == "":
        fields = {}
    if not isinstance(fields, dict):
        raise CodecError("extFields that are not an object")
    remark = values.get("remark")
    if len(header) > json_dialect.FORGIVEN_HEADER_SIZE_MAX and has_structure([remark, *fields.values()]):
        raise CodecError(f"lists or maps as values in a header of {len(header)} bytes")
    return HeaderParts(
        code=integer(values, "code"),
        language=language(values.get("language", LanguageCode.JAVA.name)),
        version=integer(values, "version"),
        opaque=integer(values, "opaque"),
        flag=integer(values, "flag"),
        remark=None if remark is None else java_text(remark),
        fields={field_name(name): java_text(value) for name, value in fields.items() if value is not None},
        empty_fields=fields == {} and isinstance(values.get("extFields"), dict),
    )


def has_structure(values: list[Any]) -> bool:
    """Whether any is a list or a map, of which text would be made slowly."""
    return any(isinstance(value, list | dict) for value in values)


def field_name(name: Any) -> str:
    """A field's name; bare numbers, which Apache refuses, are taken for their text."""
    if isinstance(name, str):
        return name
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    raise CodecError("a field whose name is no text")


def integer(values: dict[Any, Any], name: str) -> int:
    """An int of the header: absent and null are 0, fractions are cut, digits in quotes count."""
    value = values.get(name)
    if value is None or value == "":
        return 0
    if isinstance(value, str) and DIGITS.fullmatch(value) is None:
        raise CodecError(f"{name} is {value!r} and not a number")
    if isinstance(value, str | int | float):
        try:
            number = int(value)
        except (ValueError, OverflowError):  # too many digits, or beyond every double
            raise CodecError(f"integer overflow: {name}") from None
        if INT32_MIN <= number <= INT32_MAX:
            return number
        raise CodecError(f"integer overflow: {name} is {number}")
    raise CodecError(f"{name} is {type(value).__name__} and not a number")


def language(value: Any) -> str:
    """A language by its name in any case, or by its number; "" for one nobody knows."""
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return LanguageCode(value).name
        except ValueError:
            raise CodecError(f"language {value}; the last known is {max(LanguageCode).value}") from None
    name = value.upper() if isinstance(value, str) else ""
    return name if name in LanguageCode.__members__ else ""


def java_text(value: Any) -> str:
    """The text Java makes of a value where it wants a string."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, json_dialect.ExactFloat):
        return value.text if "e" not in value.text.lower() else java_double(float(value))
    if isinstance(value, int):
        return str(value)
    return json_dialect.dumps(value, standard=False).decode()


def java_double(value: float) -> str:
    """Double.toString: plain between a thousandth and ten million, otherwise one digit before the point and E."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or PLAIN_DOUBLE_MIN <= abs(value) < PLAIN_DOUBLE_MAX:
        text = repr(value)
        return text if "e" not in text else f"{value:f}"
    mantissa, _, exponent = f"{value:e}".partition("e")
    digits = repr(float(f"{value!r}")).replace("-", "").partition("e")[0].replace(".", "").strip("0") or "0"
    mantissa = digits[0] + "." + (digits[1:] or "0")
    return f"{'-' if value < 0 else ''}{mantissa}E{int(exponent)}"
