"""A client that can misbehave: raw sockets, frames written by hand, blocking calls with a time-out."""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 30.0
CODE_ECHO = 10


def frame(code: int, opaque: int, body: bytes = b"", *, header: bytes | None = None, serialize_type: int = 0) -> bytes:
    """A whole frame; *header* replaces the JSON header of (code, opaque)."""
    if header is None:
        fields = {"code": code, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 513}
        header = json.dumps({**fields, "serializeTypeCurrentRPC": "JSON"}).encode()
    return struct.pack(">II", 4 + len(header) + len(body), serialize_type << 24 | len(header)) + header + body


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    header: dict[str, Any]
    body: bytes

    @property
    def code(self) -> int:
        """The response code."""
        return int(self.header["code"])

    @property
    def opaque(self) -> int:
        """The number of the request."""
        return int(self.header["opaque"])


class Peer:
    """One connection."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE_S)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def write(self, data: bytes) -> None:
        """All of it."""
        self.socket.sendall(data)

    def read_exactly(self, size: int) -> bytes:
        """*size* bytes; fewer only at the end of the stream."""
        parts = []
        while size > 0:
            try:
                part = self.socket.recv(min(size, 1 << 20))
            except ConnectionError:
                part = b""
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def read(self) -> Answer | None:
        """The next frame; None when the server has ended the connection."""
        prefix = self.read_exactly(8)
        if len(prefix) < 8:
            return None
        size, mark = struct.unpack(">II", prefix)
        rest = self.read_exactly(size - 4)
        assert len(rest) == size - 4, "the server ended the connection in the middle of a frame"
        header_size = mark & 0xFFFFFF
        return Answer(json.loads(rest[:header_size]), rest[header_size:])

    def echo(self, opaque: int, body: bytes = b"ping") -> None:
        """One round trip that must work."""
        self.write(frame(CODE_ECHO, opaque, body))
        answer = self.read()
        assert answer is not None, "a well-behaved connection was closed"
        assert (answer.code, answer.opaque, answer.body) == (0, opaque, body)
