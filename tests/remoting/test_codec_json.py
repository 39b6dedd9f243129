"""The JSON header, held to what Apache's reader made of the same bytes.

Every row below was given to RemotingSerializable.decode of 5.5.0 (fastjson2 2.0.59), and says what came out.
"""

from __future__ import annotations

import pytest

from pymq.remoting import codec_json
from pymq.remoting.errors import CodecError
from pymq.remoting.header_parts import HeaderParts
from pymq.remoting.json_dialect import FORGIVEN_HEADER_SIZE_MAX
from tests.remoting.wire_build import UNSUPPORTED, Decoded, Wire, read_by_python


def parts(text: str | bytes) -> HeaderParts:
    """What the Python codec reads."""
    return codec_json.decode(text.encode() if isinstance(text, str) else text)


def frame_of(header: bytes) -> bytes:
    """A frame around a JSON header."""
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


NUMBERS = [
    ("10", 10), ('"10"', 10), ("010", 10), ("+5", 5), ("-0", 0), ("1e3", 1000), ("1.9", 1), ("true", 1), ("null", 0),
    ('""', 0), ("-2147483648", -(2**31)), ("2147483647", 2**31 - 1), ("1L", 1), ("5 ", 5),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code"), NUMBERS)
def test_numbers_of_the_header_are_read_as_apache_reads_them(text: str, code: int):
    """Goal: the same code for the same bytes. Method: the table."""
    assert parts(f'{{"code":{text},"opaque":1}}').code == code


@pytest.mark.parametrize(
    "text", ["2147483648", "-2147483649", "4294967296", '"x"', '" x"', "{}", "--1", "1a", "0x10", "tru"]
)
def test_numbers_that_are_none_are_refused(text: str):
    """Goal: nothing is guessed. Method: what Apache refuses, and nested values, which it takes for 0."""
    with pytest.raises(CodecError):
        parts(f'{{"code":{text},"opaque":1}}')


VALUES = [
    ('"x"', "x"), ("1", "1"), ("-2", "-2"), ("01", "1"), ("+2", "2"), ("-0", "0"), ("00", "0"), ("1.50", "1.50"),
    ("1e3", "1000.0"), ("1E-7", "1.0E-7"), ("0.0", "0.0"), ("5.", "5"), ("true", "true"), ("false", "false"),
    ("null", None), ("12345678901234567890", "12345678901234567890"), ("1L", "1"), ("'s'", "s"), ('""', ""),
    ('{"x":[1,"2"]}', '{"x":[1,"2"]}'), ('[1,{"y":null}]', "[1,{}]"), ('{"$ref":"$"}', '{"$ref":"$"}'),
    (r'"\u0041\ud83d\ude00\n\t\b\f\r\/\\\""', "A\U0001f600\n\t\b\f\r/\\\""), (r'"\'\v\0\x41"', "'\v\0A"),
    ('"tab\tnl\nx\x01\x1a"', "tab\tnl\nx\x01\x1a"), ('"\u00e9\U0001f600"', "\u00e9\U0001f600"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_field_values_of_any_kind_become_the_text_java_makes_of_them(text: str, value: str | None, wire: Wire):
    """Goal: the same field for the same bytes. Method: the table; what C accepts, it reads the same."""
    header = f'{{"code":1,"opaque":2,"extFields":{{"a":{text}}}}}'.encode()
    assert parts(header).fields == ({} if value is None else {"a": value})
    by_c = wire.decode(frame_of(header))
    assert by_c in (UNSUPPORTED, read_by_python(frame_of(header)))


@pytest.mark.parametrize(
    "text", [".5", "NaN", "Infinity", "truex", "nullx", r'"\q"', r'"\u00zz"', '"open', "'open", "-", "["]
)
def test_field_values_that_are_none_are_refused(text: str):
    """Goal: nothing is guessed. Method: what Apache refuses."""
    with pytest.raises(CodecError):
        parts(f'{{"code":1,"opaque":2,"extFields":{{"a":{text}}}}}')


LANGUAGES = [
    ('"GO"', "GO"),
    ('"java"', "JAVA"),
    ('"NOPE"', ""),
    ("null", ""),
    ('""', ""),
    ("3", "PYTHON"),
    ('"NODE_JS"', "NODE_JS"),
]


@pytest.mark.parametrize(("text", "name"), LANGUAGES)
def test_languages_by_name_and_number(text: str, name: str):
    """Goal: unknown languages are served. Method: the table."""
    assert parts(f'{{"code":1,"opaque":2,"language":{text}}}').language == name


def test_a_language_number_beyond_the_last_is_refused():
    """Goal: as Apache. Method: 99."""
    with pytest.raises(CodecError, match="language 99"):
        parts('{"code":1,"language":99}')


DIALECT = [
    "\f{ 'code' : 7 , /* why */ \"opaque\" : 2 , }",
    '{"code":7 "opaque":2}',
    '{"code":1,"opaque":1,"opaque":2,"code":7}',
    '{"code":7,"opaque":2} \n',
    '{"unknown":{"a":[1,{"b":null}],"c":"x"},"code":7,"@type":"java.lang.Object","opaque":2,"suspended":true,"body":[]}',
]


@pytest.mark.parametrize("text", DIALECT)
def test_loose_json_is_read_as_apache_reads_it(text: str, wire: Wire):
    """Goal: old and odd clients are served. Method: what fastjson forgives; C hands it over or reads it the same."""
    header = text.encode()
    read = parts(header)
    assert (read.code, read.opaque) == (7, 2)
    assert wire.decode(frame_of(header)) in (UNSUPPORTED, read_by_python(frame_of(header)))


@pytest.mark.parametrize(
    "text", ['{"code":1}x', '{"code":1}{}', "{", '{"code"', '{"code":', '{"code":1,"extFields":{"a"', "{,}", ""]
)
def test_what_is_no_json_is_refused(text: str):
    """Goal: a broken header ends its connection. Method: what Apache refuses."""
    with pytest.raises(CodecError):
        parts(text)


def test_remarks_of_any_kind():
    """Goal: as Apache. Method: text, empty, null, number, object."""
    assert parts('{"code":1,"remark":"r"}').remark == "r"
    assert parts('{"code":1,"remark":""}').remark == ""
    assert parts('{"code":1,"remark":null}').remark is None
    assert parts('{"code":1,"remark":5}').remark == "5"
    assert parts('{"code":1,"remark":{"a":1}}').remark == '{"a":1}'


def test_bytes_that_are_no_utf8_become_replacement_characters(wire: Wire):
    """Goal: a request with a broken name is answered, not dropped. Method: C hands it over, Python replaces."""
    header = b'{"code":1,"opaque":2,"extFields":{"a":"x\xff\xedy","b":"1"}}'
    assert parts(header).fields == {"a": "x\ufffd\ufffdy", "b": "1"}
    assert wire.decode(frame_of(header)) == UNSUPPORTED


def test_half_of_a_surrogate_pair_is_kept_and_written_as_a_question_mark(wire: Wire):
    """Goal: as Java: a String holds it, its UTF-8 does not. Method: decode, then encode."""
    header = rb'{"code":1,"opaque":2,"extFields":{"a":"x\ud83dy"}}'
    read = parts(header)
    assert read.fields == {"a": "x\ud83dy"}
    assert b'"a":"x?y"' in codec_json.encode(read)
    assert wire.decode(frame_of(header)) == UNSUPPORTED


@pytest.mark.parametrize("unit", ["'%d':'a'", '"%d":1.5', '"%d":[]', '"%d":{"a":1}', "%d:1"])
def test_a_long_header_in_the_dialect_is_refused_at_once(unit: str):
    """Symptom: 250 KiB of single quotes cost the control loop 264 ms, twenty such frames everybody's heartbeat 5 s."""
    fields = ",".join(unit % index for index in range(FORGIVEN_HEADER_SIZE_MAX // 4))
    with pytest.raises(CodecError, match=r"the limit is 16384|in a header of"):
        parts(f'{{"code":34,"opaque":7,"extFields":{{{fields}}}}}')
    assert parts(f'{{"code":34,"opaque":7,"extFields":{{{unit % 5}}}}}').fields.keys() == {"5"}


def test_a_long_header_of_texts_and_whole_numbers_is_read():
    """Goal: the longest properties there are go through. Method: 192 KiB of escapes, and as much of many fields."""
    assert parts(r'{"code":310,"extFields":{"i":"%s"}}' % (r"\u0001" * 32767)).fields == {"i": "\x01" * 32767}
    fields = {str(index): "1" for index in range(20_000)}
    text = ",".join(f'"{name}":{value}' for name, value in fields.items())
    assert parts(f'{{"code":310,"extFields":{{{text}}}}}').fields == fields


def test_java_s_doubles():
    """Goal: Double.toString. Method: the edges of its plain range."""
    assert [codec_json.java_double(value) for value in (1e-3, 9.999e-4, 9999999.0, 1e7, -1.25e10, 123456.789, 0.0)] == [
        "0.001", "9.999E-4", "9999999.0", "1.0E7", "-1.25E10", "123456.789", "0.0",
    ]  # fmt: skip


def test_the_writer_s_bytes(wire: Wire):
    """Goal: Apache's order and escapes. Method: what RemotingSerializable.encode wrote for the same values."""
    nasty = "".join(map(chr, range(0x30))) + "\\/<>&'\"\x7f\x80\u00e9\u2028\u2029\ufeff\U0001f600"
    written = codec_json.encode(HeaderParts(1, "JAVA", 0, -5, 0, nasty, {"e": "", "k": nasty}, empty_fields=False))
    escaped = (
        r"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f\u0010\u0011\u0012\u0013\u0014"
        r"\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f !\"#$%&'()*+,-./\\/<>&'\""
        "\x7f\x80\u00e9\u2028\u2029\ufeff\U0001f600"
    )
    expected = (
        f'{{"code":1,"extFields":{{"e":"","k":"{escaped}"}},"flag":0,"language":"JAVA","opaque":-5,'
        f'"remark":"{escaped}","serializeTypeCurrentRPC":"JSON","version":0}}'
    )
    assert written == expected.encode()
    assert wire.decode(frame_of(written)) == Decoded(1, "JAVA", 0, -5, 0, nasty, {"e": "", "k": nasty}, b"")
