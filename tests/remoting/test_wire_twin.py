"""The C codec and the Python codec: the same bytes written, the same meaning read, or handed over."""

from __future__ import annotations

import json
import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pymq.remoting.codes import LanguageCode, SerializeType
from pymq.remoting.command import Command
from pymq.remoting.errors import CodecError
from tests.remoting.conftest import GoldenFrame
from tests.remoting.wire_build import CORRUPT, UNSUPPORTED, Decoded, Wire, read_by_python

EXAMPLES = 10_000 if os.environ.get("PYMQ_HYPOTHESIS_PROFILE") == "full" else 400
many = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
CHARACTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from(
    '"\\/\x00\x01\x02\x1f\x7f\u2028\ufeff\U0001f600'
)
TEXT = st.text(CHARACTERS, max_size=40)
NAMES = st.sampled_from(["a", "b", "i", "topic", "consumerGroup", "code", "$ref", "@type"]) | TEXT
LANGUAGES = st.sampled_from([language.name for language in LanguageCode])
COMMANDS = st.builds(
    Command,
    code=INT16,
    fields=st.dictionaries(NAMES, TEXT, max_size=20),
    body=st.binary(max_size=40),
    opaque=INT32,
    flag=INT32,
    remark=st.none() | TEXT,
    version=INT16,
    language=LANGUAGES,
    serialize_type=st.sampled_from(SerializeType),
)


@many
@given(COMMANDS)
def test_both_write_the_same_bytes(wire: Wire, command: Command):
    """Goal: one encoding. Method: encode any command by both."""
    assert wire.encode(command) == command.encode()


@many
@given(COMMANDS)
def test_what_python_writes_c_reads(wire: Wire, command: Command):
    """Goal: the fast path takes what peers of this kind send. Method: encode, decode by C; only names that a header
    cannot say, or that mean something to fastjson, may go to Python."""
    frame = command.encode()
    expected = read_by_python(frame)
    read = wire.decode(frame)
    special = "$ref" if command.serialize_type == SerializeType.JSON else ""
    assert read == (UNSUPPORTED if special in command.fields else expected)


SPACES = st.text(" \t\n\r", max_size=2)
RAW = st.sampled_from(
    [
        "1", "0", "-1", "-0", "01", "+1", "1.5", "1e3", "1e999", "true", "false", "null", '""', "{}", "[]", "[1,{}]",
        '{"a":[]}', "2147483647", "2147483648", '"\\u0041"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\n"', '"\\q"', "'x'",
        '"\u00e9"', '"a b"', "nul", "1L", '{"$ref":"$"}', '" 5"', '"7"',
    ]
)  # fmt: skip
KEYS = st.sampled_from(
    [
        "code",
        "opaque",
        "flag",
        "version",
        "language",
        "remark",
        "extFields",
        "serializeTypeCurrentRPC",
        "body",
        "x",
        "suspended",
    ]
)


@st.composite
def loose_object(draw: st.DrawFn, keys: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> str:
    """An object's text with any order, repeated names, space, and at times a comma too many or too few."""
    items = draw(st.lists(st.tuples(keys, values), max_size=6))
    comma = draw(st.sampled_from([",", ",", ",", ",", ",,", " "]))
    pieces = [
        f"{draw(SPACES)}{json.dumps(key)}{draw(SPACES)}:{draw(SPACES)}{value}{draw(SPACES)}" for key, value in items
    ]
    return "{" + comma.join(pieces) + draw(st.sampled_from(["}", "}", "}", ",}", ""]))


HEADERS = st.tuples(
    SPACES,
    loose_object(KEYS, RAW | loose_object(NAMES, RAW | TEXT.map(json.dumps)) | LANGUAGES.map(json.dumps)),
    SPACES | st.just("x"),
).map("".join)
CERTAIN = st.tuples(INT32, INT32, loose_object(NAMES, RAW | TEXT.map(json.dumps))).map(
    lambda drawn: f'{{"code":{drawn[0]},"extFields":{drawn[2]},"opaque":{drawn[1]}}}'
)


def check_alike(wire: Wire, frame: bytes) -> bool:
    """C hands it over, or reads what Python reads; whether it read."""
    read = wire.decode(frame)
    if isinstance(read, Decoded):
        assert read == read_by_python(frame)
        return True
    if read == CORRUPT:
        with pytest.raises(CodecError):
            Command.decode(frame)
    else:
        assert read == UNSUPPORTED
    return False


@many
@given(HEADERS | CERTAIN)
def test_c_accepts_no_json_that_python_reads_otherwise(wire: Wire, text: str):
    """Goal: never guessed. Method: loose JSON, half of it with all a header needs; C reads it alike or not."""
    header = text.encode("utf-8", "replace")
    check_alike(wire, (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)


@many
@given(st.integers(0, 2**32))
def test_mutated_frames_are_read_alike_or_handed_over(wire: Wire, golden: list[GoldenFrame], seed: int):
    """Goal: as above, from Apache's own frames. Method: change a few bytes at random; the seed is in the example."""
    draw = random.Random(seed)
    frame = bytearray(draw.choice(golden).data[:2000])
    frame[0:4] = (len(frame) - 4).to_bytes(4, "big")
    for _ in range(draw.randrange(4)):
        place = draw.randrange(4, min(len(frame), 600))
        frame[place] = draw.choice(
            [draw.randrange(256), frame[draw.randrange(len(frame))], ord('"'), ord("\\"), ord("}")]
        )
    check_alike(wire, bytes(frame))


@many
@given(
    st.binary(max_size=300)
    | st.tuples(HEADERS, st.binary(max_size=3)).map(lambda drawn: drawn[0].encode("utf-8", "replace") + drawn[1])
)
def test_the_python_codec_reads_anything_or_says_why_not(header: bytes):
    """Goal: no input breaks the control loop. Method: any bytes as a header of both kinds; only CodecError may come."""
    for kind in SerializeType:
        frame = (4 + len(header)).to_bytes(4, "big") + bytes([kind]) + len(header).to_bytes(3, "big") + header
        try:
            command = Command.decode(frame)
        except CodecError:
            continue
        assert Command.decode(command.encode()).opaque == command.opaque


def test_most_recorded_frames_stay_readable_after_a_change_of_one_letter(wire: Wire, golden: list[GoldenFrame]):
    """Goal: the two tests above test something. Method: count how many mutated frames C reads; some and not all."""
    draw = random.Random(1)
    read = 0
    for frame in golden:
        changed = bytearray(frame.data)
        place = draw.randrange(8, len(changed))
        changed[place] = draw.randrange(32, 127)
        read += check_alike(wire, bytes(changed))
    assert len(golden) // 4 < read < len(golden)
