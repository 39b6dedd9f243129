"""The generator's own codec against frames of the real thing."""

from __future__ import annotations

import ctypes
import json
import re
import struct
from pathlib import Path

import pytest

from tests.perf_tools.generator import library

FRAMES = Path(__file__).resolve().parent.parent / "data" / "golden-frames"
CODECS = {"json": 0, "rocketmq": 1}
UNKNOWN = -(1 << 63)
REQUESTS = [
    "SEND_MESSAGE_V2",
    "SEND_BATCH_MESSAGE",
    "PULL_MESSAGE",
    "GET_MAX_OFFSET",
    "HEART_BEAT",
    "UPDATE_AND_CREATE_TOPIC",
]


class Text(ctypes.Structure):
    """`struct text`."""

    _fields_ = (("bytes", ctypes.c_void_p), ("size", ctypes.c_size_t))

    def decode(self) -> str:
        """As Python text."""
        return ctypes.string_at(self.bytes, self.size).decode() if self.size else ""


class Answer(ctypes.Structure):
    """`struct answer`."""

    _fields_ = (
        ("code", ctypes.c_int32),
        ("flag", ctypes.c_int32),
        ("opaque", ctypes.c_int32),
        ("queue_id", ctypes.c_int64),
        ("queue_offset", ctypes.c_int64),
        ("next_begin_offset", ctypes.c_int64),
        ("min_offset", ctypes.c_int64),
        ("max_offset", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("msg_id", Text),
        ("transaction_id", Text),
        ("remark", Text),
        ("body", ctypes.c_void_p),
        ("body_size", ctypes.c_size_t),
    )


class Field(ctypes.Structure):
    """`struct field`."""

    _fields_ = (("key", ctypes.c_char_p), ("value", ctypes.c_char_p))


class Request(ctypes.Structure):
    """`struct request`."""

    _fields_ = (
        ("code", ctypes.c_int),
        ("fields", ctypes.POINTER(Field)),
        ("field_count", ctypes.c_size_t),
        ("body", ctypes.c_char_p),
        ("body_size", ctypes.c_size_t),
    )


def test_the_mirror_of_an_answer_is_as_large_as_the_answer():
    """Symptom: a crash in the garbage collector, tests later, because C wrote behind a mirror that lacked a member."""
    size = library().answer_size
    size.restype = ctypes.c_size_t
    assert ctypes.sizeof(Answer) == size()


def golden(codec: str, kind: str) -> list[dict]:
    """Index entries of one codec and kind."""
    entries = json.loads((FRAMES / codec / "index.json").read_text(encoding="utf-8"))["frames"]
    return [entry for entry in entries if entry["kind"] == kind]


def decoded(frame: bytes, shapes: ctypes.Array | None = None) -> tuple[Answer, ctypes.Array]:
    """The answer, and the memory its texts point into."""
    memory = ctypes.create_string_buffer(frame, len(frame))
    answer = Answer()
    if shapes is None:
        function, arguments = library().decode_answer, (memory, ctypes.c_size_t(len(frame)), ctypes.byref(answer))
    else:
        function = library().decode_answer_shaped
        arguments = (memory, ctypes.c_size_t(len(frame)), shapes, ctypes.byref(answer))
    function.restype = ctypes.c_bool
    assert function(*arguments), frame[:200]
    return answer, memory


def encode(
    codec: int, code: int, fields: dict[str, str], body: bytes, capacity: int = 1 << 20
) -> tuple[bytearray, int]:
    """`encode_request`: the frame (empty when it did not fit) and where the opaque stands."""
    function = library().encode_request
    function.restype = ctypes.c_size_t
    pairs = (Field * len(fields))(*(Field(key.encode(), value.encode()) for key, value in fields.items()))
    request = Request(code, pairs, len(fields), body, len(body))
    target, position = ctypes.create_string_buffer(capacity), ctypes.c_size_t()
    size = function(target, ctypes.c_size_t(capacity), codec, ctypes.byref(request), ctypes.byref(position))
    return bytearray(target.raw[:size]), position.value


@pytest.mark.parametrize("codec", CODECS)
def test_every_recorded_answer_is_read_as_it_was_recorded(codec: str):
    """Goal: what a broker says is understood. Method: all golden answers; the fields we use, the body."""
    entries = golden(codec, "resp")
    assert len(entries) > 100
    names = {"queueId": "queue_id", "queueOffset": "queue_offset", "nextBeginOffset": "next_begin_offset"}
    names |= {"minOffset": "min_offset", "maxOffset": "max_offset", "offset": "offset"}
    for entry in entries:
        frame, header = (FRAMES / codec / entry["file"]).read_bytes(), entry["header"]
        answer, _memory = decoded(frame)
        assert (answer.code, answer.flag, answer.opaque) == (header["code"], header["flag"], header["opaque"])
        assert answer.body_size == entry["bodyLength"]
        fields = header.get("extFields") or {}
        for name, member in names.items():
            expected = int(fields[name]) if re.fullmatch(r"-?\d+", str(fields.get(name, ""))) else UNKNOWN
            assert getattr(answer, member) == expected, (entry["file"], name)
        assert answer.msg_id.decode() == fields.get("msgId", "")


@pytest.mark.parametrize("codec", CODECS)
def test_the_short_way_by_shapes_reads_the_same_as_the_long_way(codec: str):
    """Goal: a remembered shape never misreads. Method: all golden answers through one set of shapes, thrice."""
    shapes = ctypes.create_string_buffer(4096)
    for _ in range(3):
        for entry in golden(codec, "resp"):
            frame = (FRAMES / codec / entry["file"]).read_bytes()
            answer, _memory = decoded(frame, shapes)
            header = entry["header"]
            assert (answer.code, answer.flag, answer.opaque) == (header["code"], header["flag"], header["opaque"])
            assert answer.body_size == entry["bodyLength"]


def test_a_shape_is_not_trusted_when_the_keys_moved():
    """Goal: an answer of the same length with another order of keys is read right. Method: two such headers in turn."""
    shapes = ctypes.create_string_buffer(4096)
    headers = [
        b'{"code":7,"flag":1,"opaque":1000001,"version":513}',
        b'{"opaque":1000002,"flag":1,"code":8,"version":513}',
    ]
    assert len(headers[0]) == len(headers[1])
    for _ in range(2):
        for header, expected in zip(headers, [(7, 1000001), (8, 1000002)], strict=True):
            answer, _memory = decoded(struct.pack(">II", 4 + len(header), len(header)) + header, shapes)
            assert (answer.code, answer.opaque) == expected


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b'{"code":0,"opaque":}',
        b'{"code":0}',
        b'{"opaque":1,"remark":"open',
        b'{"opaque":99999999999}',
        b'{"opaque":1,"extFields":{"a":',
        b"[1]",
    ],
)
def test_what_is_no_header_is_refused(header: bytes):
    """Goal: nonsense ends a run instead of being counted. Method: broken headers through both readers."""
    frame = struct.pack(">II", 4 + len(header), len(header)) + header
    memory, answer = ctypes.create_string_buffer(frame, len(frame)), Answer()
    shapes = ctypes.create_string_buffer(4096)
    library().decode_answer.restype = library().decode_answer_shaped.restype = ctypes.c_bool
    size = ctypes.c_size_t(len(frame))
    assert not library().decode_answer(memory, size, ctypes.byref(answer))
    assert not library().decode_answer_shaped(memory, size, shapes, ctypes.byref(answer))


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("codec", CODECS)
def test_requests_are_byte_for_byte_those_of_a_java_client(codec: str, name: str):
    """Goal: the load is what clients send. Method: encode the fields of golden requests again, compare."""
    entries = [entry for entry in golden(codec, "req") if entry["requestName"] == name]
    assert entries
    for entry in entries:
        frame, header = (FRAMES / codec / entry["file"]).read_bytes(), entry["header"]
        body = frame[len(frame) - entry["bodyLength"] :]
        made, position = encode(CODECS[codec], header["code"], header.get("extFields", {}), body)
        if codec == "rocketmq":
            struct.pack_into(">i", made, position, header["opaque"])
            assert bytes(made) == frame
        else:
            text = bytes(made[8 : len(made) - len(body)]).replace(b"1000000", str(header["opaque"]).encode(), 1)
            assert text == frame[8 : len(frame) - len(body)]
            assert struct.unpack_from(">II", made) == (len(made) - 4, len(made) - 8 - len(body))


def test_a_frame_that_does_not_fit_is_refused_at_every_size():
    """Goal: no byte beyond the buffer. Method: every capacity below the frame's size gives nothing."""
    whole, _ = encode(0, 310, {"a": "group", "i": "K\x01v\x02"}, b"body")
    for capacity in range(len(whole)):
        assert encode(0, 310, {"a": "group", "i": "K\x01v\x02"}, b"body", capacity)[0] == b""
    assert encode(0, 310, {"a": "group", "i": "K\x01v\x02"}, b"body", len(whole))[0] == whole
