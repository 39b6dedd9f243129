"""One connection that speaks frames, in either header, without any code of pymq: what is compared must not share bugs.

Requests are sent one at a time and the answer with the same opaque is waited for; what a server sends on its own (a
notification to a consumer) is kept aside.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

JSON_HEADER = 0
BINARY_HEADER = 1
JAVA = 0
VERSION_5_5_0 = 513
RESPONSE = 1
TIMEOUT_S = 15.0


class ClosedError(Exception):
    """The server closed the connection instead of answering."""


@dataclass
class Reply:
    """An answer, header and body."""

    code: int
    remark: str | None
    fields: dict[str, str]
    body: bytes
    raw: bytes = field(repr=False, default=b"")


class Wire:
    """A connection to one server."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._opaques = count(1)
        self._aside_opaques = count(1_000_000)
        self.unasked: list[Reply] = []

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def ask(
        self,
        code: int,
        fields: Mapping[str, str | None],
        body: bytes = b"",
        *,
        binary: bool = False,
        aside: bool = False,
    ) -> Reply:
        """Send a request, return its answer; one *aside* does not count as part of the conversation.

        Raises:
            ClosedError: the server closed the connection.
        """
        opaque = next(self._aside_opaques if aside else self._opaques)
        present = {name: value for name, value in fields.items() if value is not None}
        header = binary_header(code, opaque, present) if binary else json_header(code, opaque, present)
        kind = BINARY_HEADER if binary else JSON_HEADER
        size = 4 + len(header) + len(body)
        try:
            self._socket.sendall(struct.pack(">II", size, kind << 24 | len(header)) + header + body)
            while True:
                answered, flag, reply = self._read()
                if flag & RESPONSE and answered == opaque:
                    return reply
                self.unasked.append(reply)
        except ConnectionError as failure:
            raise ClosedError(f"request {code}: {failure!r}") from failure

    def _read(self) -> tuple[int, int, Reply]:
        prefix = self._exactly(4)
        frame = self._exactly(struct.unpack(">I", prefix)[0])
        (mark,) = struct.unpack(">I", frame[:4])
        size = mark & 0xFFFFFF
        header, body = frame[4 : 4 + size], frame[4 + size :]
        parsed = read_binary(header) if mark >> 24 == BINARY_HEADER else json.loads(header)
        fields = {name: str(value) for name, value in (parsed.get("extFields") or {}).items()}
        return (
            parsed["opaque"],
            parsed["flag"],
            Reply(parsed["code"], parsed.get("remark"), fields, body, prefix + frame),
        )

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            if not chunk:
                raise ConnectionResetError("closed by the server")
            received += chunk
        return bytes(received)


def json_header(code: int, opaque: int, fields: Mapping[str, str]) -> bytes:
    """As a Java client of 5.5.0 writes it."""
    header: dict[str, Any] = {"code": code}
    if fields:
        header["extFields"] = dict(fields)
    header |= {"flag": 0, "language": "JAVA", "opaque": opaque, "serializeTypeCurrentRPC": "JSON"}
    return json.dumps({**header, "version": VERSION_5_5_0}, separators=(",", ":")).encode()


def binary_header(code: int, opaque: int, fields: Mapping[str, str]) -> bytes:
    """The ROCKETMQ header; the code has two bytes."""
    pairs = b"".join(
        struct.pack(">H", len(name.encode())) + name.encode() + struct.pack(">I", len(value.encode())) + value.encode()
        for name, value in fields.items()
    )
    fixed = struct.pack(">HBHiiI", code & 0xFFFF, JAVA, VERSION_5_5_0, opaque, 0, 0)
    return fixed + struct.pack(">I", len(pairs)) + pairs


def read_binary(header: bytes) -> dict[str, Any]:
    """A ROCKETMQ header as the JSON one would say it."""
    code, _language, _version, opaque, flag, remark_size = struct.unpack_from(">hBHiiI", header)
    position = 17
    remark = header[position : position + remark_size].decode() if remark_size else None
    position += remark_size
    (size,) = struct.unpack_from(">I", header, position)
    position += 4
    end, fields = position + size, {}
    while position < end:
        (length,) = struct.unpack_from(">H", header, position)
        name = header[position + 2 : position + 2 + length].decode()
        position += 2 + length
        (length,) = struct.unpack_from(">I", header, position)
        fields[name] = header[position + 4 : position + 4 + length].decode()
        position += 4 + length
    return {"code": code, "opaque": opaque, "flag": flag, "remark": remark, "extFields": fields}
