"""Commands: recorded frames both ways, frames that are none, and what an answer takes from its request."""

from __future__ import annotations

import struct

import pytest

from pymq.remoting.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from pymq.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE, REMOTING_VERSION, Command, next_opaque
from pymq.remoting.errors import CodecError
from tests.remoting.conftest import GoldenFrame
from tests.remoting.wire_build import Wire, read_by_python


def test_recorded_frames_are_read_as_their_index_says(golden: list[GoldenFrame]):
    """Goal: Apache's frames mean here what they meant there. Method: decode and compare with the recorded header."""
    for frame in golden:
        command = Command.decode(frame.data)
        expected = frame.header
        fields = {name: value for name, value in (expected.get("extFields") or {}).items() if value}
        if command.serialize_type == SerializeType.JSON:
            fields = dict(expected.get("extFields") or {})
        assert command.fields == fields, frame.name
        for name in ("code", "opaque", "flag", "version"):
            assert getattr(command, name) == expected[name], (frame.name, name)
        assert expected["language"] in (command.language, LanguageCode[command.language]), frame.name
        assert command.remark == expected.get("remark"), frame.name
    assert len(golden) > 500


def test_recorded_frames_are_written_again_byte_for_byte(golden: list[GoldenFrame], wire: Wire):
    """Goal: peers see what Apache would send. Method: decode and encode by both codecs; binary nulls are gone."""
    changed = []
    for frame in golden:
        command = Command.decode(frame.data)
        again = command.encode()
        assert Command.decode(again) == command, frame.name
        assert wire.encode(command) == again, frame.name
        if again != frame.data:
            changed.append(frame)
    assert all(frame.name.startswith("rocketmq/") for frame in changed)
    assert all(b"\x00\x00\x00\x00\x00" in frame.data[21:] for frame in changed)  # an empty value: null there
    assert len(changed) < 10


def test_recorded_frames_are_read_alike_by_both_codecs(golden: list[GoldenFrame], wire: Wire):
    """Goal: one meaning on both planes. Method: decode by C and by Python."""
    for frame in golden:
        assert wire.decode(frame.data) == read_by_python(frame.data), frame.name


def frame_of(mark: int, rest: bytes, size: int | None = None) -> bytes:
    """A frame by hand."""
    return struct.pack(">II", 4 + len(rest) if size is None else size, mark) + rest


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"", "0 bytes"),
        (b"\0\0\0\4\0\0\0", "7 bytes"),
        (frame_of(2, b"{}", size=5), "says 5 bytes and has 6"),
        (frame_of(3, b"{}"), "bad header length: 3"),
        (frame_of(0xFFFFFF, b"{}"), "bad header length"),
        (frame_of(2 << 24 | 2, b"{}"), "serialization type 2"),
        (frame_of(255 << 24 | 2, b"{}"), "serialization type 255"),
        (frame_of(0, b"{}"), "not JSON"),
        (frame_of(2, b"[]"), "not an object"),
        (frame_of(4, b"null"), "not an object"),
        (frame_of(1 << 24 | 2, b"{}"), "binary header of 2 bytes"),
    ],
)
def test_what_is_no_frame_is_refused_with_its_reason(frame: bytes, words: str):
    """Goal: a clear word for every lie. Method: one frame for each way to lie."""
    with pytest.raises(CodecError, match=words):
        Command.decode(frame)


@pytest.mark.parametrize("kind", list(SerializeType))
def test_an_answer_takes_number_and_serialization_of_its_request(kind: SerializeType):
    """Goal: the client finds its answer. Method: reply, encode, decode."""
    request = Command(
        RequestCode.PULL_MESSAGE, {"topic": "T"}, opaque=-9, flag=0, language="GO", version=317, serialize_type=kind
    )
    answer = Command.decode(request.reply(ResponseCode.PULL_NOT_FOUND, "nothing", {"a": "1"}, b"body").encode())
    assert answer.opaque == -9
    assert answer.serialize_type == kind
    assert answer.is_response
    assert not answer.is_oneway
    assert (answer.code, answer.remark, answer.fields, answer.body) == (19, "nothing", {"a": "1"}, b"body")
    assert (answer.language, answer.version) == ("JAVA", REMOTING_VERSION)


def test_fields_none_and_fields_empty_are_written_differently():
    """Goal: Apache's two kinds of answers without fields. Method: look at the bytes."""
    request = Command(1)
    assert b"extFields" not in request.reply(0).encode()
    assert b'"extFields":{}' in request.reply(0, fields={}).encode()
    assert Command.decode(request.reply(0, fields={}).encode()).empty_fields


def test_flags_say_response_and_oneway():
    """Goal: the two bits. Method: set each."""
    assert Command(1, flag=FLAG_RESPONSE).is_response
    assert Command(1, flag=FLAG_ONEWAY).is_oneway
    assert not Command(1).is_response


def test_numbers_that_do_not_fit_are_refused_before_they_are_sent():
    """Goal: no frame that means something else. Method: one beyond the edge, both codecs."""
    with pytest.raises(CodecError, match="opaque"):
        Command(1, opaque=2**31, serialize_type=SerializeType.ROCKETMQ).encode()
    with pytest.raises(CodecError, match="field name of 32768 bytes"):
        Command(1, {"n" * 32768: "v"}, serialize_type=SerializeType.ROCKETMQ).encode()
    with pytest.raises(CodecError, match="a frame holds"):
        Command(1, {"n": "v" * (1 << 24)}).encode()


def test_request_numbers_differ_and_are_not_negative():
    """Goal: an answer finds one request. Method: draw many."""
    numbers = [next_opaque() for _ in range(1000)]
    assert len(set(numbers)) == 1000
    assert min(numbers) >= 0
