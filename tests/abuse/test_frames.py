"""Frames that lie, overflow or mean nothing: answered where possible, dropped where not; the others are served."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tests.abuse.conftest import EchoServer
from tests.abuse.peer import CODE_ECHO, Answer, frame
from tests.abuse.test_connections import well_behaved

FRAME_SIZE_MAX = 16 * 1024 * 1024
REQUEST_CODE_NOT_SUPPORTED = 3

LYING = {
    "a negative size": b"\xff\xff\xff\xff\0\0\0\1{}",
    "one byte above the maximum": struct.pack(">II", FRAME_SIZE_MAX + 1, 2) + b"{}",
    "too small for a header mark": struct.pack(">I", 3) + b"abc",
    "an empty frame": struct.pack(">I", 0),
    "a header longer than the frame": struct.pack(">II", 6, 3) + b"{}",
    "a header of 16 MiB - 1 in a frame of 6": struct.pack(">II", 6, 0xFFFFFF) + b"{}",
    "an unknown serialization": frame(CODE_ECHO, 1, serialize_type=2),
    "serialization 255": frame(CODE_ECHO, 1, serialize_type=255),
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("lie", LYING.values(), ids=LYING.keys())
def test_a_frame_that_cannot_be_trusted_ends_its_connection_only(server: EchoServer, lie: bytes) -> None:
    """Goal: what cannot be cut into frames is dropped. Method: a good request, the lie, a good request behind it."""
    with well_behaved(server), server.connect() as peer:
        peer.echo(1)
        peer.write(lie + frame(CODE_ECHO, 2))
        assert peer.read() is None
    stats = server.until(lambda stats: stats["open"] == 0, "it is closed")
    assert stats["broken_frames"] == 1
    assert stats["buffer_bytes"] == 0


def test_announced_bytes_that_never_come_cost_nothing(server: EchoServer) -> None:
    """Goal: a length alone reserves no memory. Method: 500 connections that announce 16 MiB each and send 8 bytes."""
    before = server.stats()["anonymous_bytes"]
    peers = [server.connect() for _ in range(500)]
    for peer in peers:
        peer.write(struct.pack(">II", FRAME_SIZE_MAX, 100))
    stats = server.until(lambda stats: stats["bytes_in"] == 8 * 500, "all was read")
    assert stats["buffer_bytes"] <= 500 * 64
    assert stats["anonymous_bytes"] - before < FRAME_SIZE_MAX
    with server.connect() as other:
        other.echo(1)
    for peer in peers:
        peer.socket.close()
    server.until(lambda stats: stats["buffer_bytes"] == 0, "memory returns")


def exchange(server: EchoServer, request: bytes) -> Answer | None:
    """The server's answer to *request* on a connection of its own, None when it closed instead; others are served."""
    with well_behaved(server), server.connect() as peer:
        peer.write(request)
        answer = peer.read()
        if answer is not None:
            peer.echo(99)
    server.until(lambda stats: stats["open"] == 0 and stats["buffer_bytes"] == 0, "memory returns")
    return answer


def header_with(field: bytes) -> bytes:
    """An echo's JSON header with one more field, as raw bytes."""
    return b'{"code":10,"flag":0,"language":"JAVA","opaque":5,"version":513,"extFields":{"a":"' + field + b'"}}'


def test_a_header_of_sixteen_mebibytes_is_answered(server: EchoServer) -> None:
    """Goal: the largest header is only large. Method: one field that fills the frame, plain and all escapes."""
    room = FRAME_SIZE_MAX - 4 - len(header_with(b""))
    for field in (b"x" * room, b"\\n" * (room // 2)):
        answer = exchange(server, frame(0, 0, header=header_with(field)))
        assert answer is not None
        assert (answer.code, answer.opaque) == (0, 5)


def test_a_header_of_very_many_fields_does_not_hold_up_the_control_loop(server: EchoServer) -> None:
    """Goal: no header costs seconds. Method: more fields than C reads, below and far above what Python is given."""
    fields = b",".join(b'"f%d":"v"' % number for number in range(100_000))
    small = fields[: 200 * 1024].rpartition(b",")[0]
    answer = exchange(server, frame(0, 0, header=header_with(b'",' + small + b',"z":"')))
    assert answer is not None
    assert (answer.code, answer.opaque) == (0, 5)
    assert exchange(server, frame(0, 0, header=header_with(b'",' + fields + b',"z":"'))) is None


@pytest.mark.parametrize(
    "field", [b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"abc\xe4\xb8", b"\\ud83d", b"\\u0000"], ids=repr
)
def test_text_that_is_no_utf8_is_answered_or_ends_its_connection(server: EchoServer, field: bytes) -> None:
    """Goal: bad text is nobody else's problem. Method: an echo with it in a field; either answered, or closed."""
    answer = exchange(server, frame(0, 0, header=header_with(field)))
    assert answer is None or answer.opaque == 5


@pytest.mark.parametrize(
    "header",
    [b"", b"{", b"null", b"[]", b'"text"', b'{"code":"ten"}', b'{"code":1e400}', b"[" * 100_000, b"{}" + b" " * 1000],
    ids=lambda header: repr(header[:20]),
)
def test_headers_that_mean_nothing_are_answered_or_end_their_connection(server: EchoServer, header: bytes) -> None:
    """Goal: no header breaks the server. Method: frames with senseless headers, an orderly client beside them."""
    with well_behaved(server), server.connect() as peer:
        peer.write(frame(0, 0, header=header))
        peer.socket.shutdown(1)
        while peer.read() is not None:
            pass
    stats = server.until(lambda stats: stats["open"] == 0, "it is closed")
    assert stats["buffer_bytes"] == 0


@pytest.mark.parametrize("code", [0, -1, 99_999, 2**31 - 1, -(2**31)])
def test_unknown_codes_are_answered_and_the_connection_stays(server: EchoServer, code: int) -> None:
    """Goal: an unknown code is an ordinary mistake. Method: ask, read the answer, go on with the same connection."""
    answer = exchange(server, frame(code, 3))
    assert answer is not None
    assert (answer.code, answer.opaque) == (REQUEST_CODE_NOT_SUPPORTED, 3)
    assert answer.header["remark"] == f" request type {code} not supported"


def test_bodies_of_nothing_and_of_all_there_is_are_echoed_and_one_byte_more_is_not(
    start_server: Callable[..., EchoServer],
) -> None:
    """Goal: the edges hold. Method: bodies of 0, of exactly the maximum, and of one byte more."""
    server = start_server(frame_size_max=100_000)
    header_size = len(frame(CODE_ECHO, 1)) - 8
    largest = 100_000 - 4 - header_size
    with server.connect() as peer:
        peer.echo(1, b"")
        peer.echo(1, b"x" * largest)
    assert exchange(server, frame(CODE_ECHO, 1, b"x" * (largest + 1))) is None
