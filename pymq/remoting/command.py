"""A command: one frame of RocketMQ's remoting protocol, as an object.

    size      4   of everything behind these 4 bytes
    mark      4   top byte: serialization type (0 JSON, 1 ROCKETMQ); lower 3 bytes: header size
    header    n   `codec_json` or `codec_binary`
    body      m

This is the patient twin of csrc/wire: whatever Apache's broker reads is read here, and the bytes written are those C
writes. A peer is answered in the serialization it used.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from pymq.remoting import codec_binary, codec_json
from pymq.remoting.codes import LanguageCode, SerializeType
from pymq.remoting.errors import CodecError
from pymq.remoting.header_parts import HeaderParts

FLAG_RESPONSE = 1 << 0
FLAG_ONEWAY = 1 << 1
REMOTING_VERSION = 513  # MQVersion.CURRENT_VERSION of 5.5.0, said by every answer
FRAME_SIZE_MAX = 16 * 1024 * 1024
PREFIX = struct.Struct(">II")
HEADER_SIZE_MASK = 0xFFFFFF
OPAQUE_MASK = 0x7FFFFFFF

_opaques = itertools.count()


def next_opaque() -> int:
    """A request number that no other request of this process has within 2**31 requests."""
    return next(_opaques) & OPAQUE_MASK


@dataclass(slots=True)
class Command:
    """One request or response.

    Attributes:
        code: a RequestCode in requests, a ResponseCode in responses.
        fields: the operation's header fields, strings as they are on the wire.
        opaque: the request's number, returned unchanged by its response.
        flag: FLAG_RESPONSE, FLAG_ONEWAY.
        language: LanguageCode's name of who speaks, "" when it is one we do not know.
        empty_fields: write `"extFields":{}` when there is no field. Compat: Apache does for answers that have a header
            class of which nothing is set, and writes no map for those that have none.
    """

    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    version: int = REMOTING_VERSION
    language: str = LanguageCode.JAVA.name
    serialize_type: SerializeType = SerializeType.JSON
    empty_fields: bool = False

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether nobody waits for an answer to this."""
        return self.flag & FLAG_ONEWAY != 0

    def reply(
        self,
        code: int = 0,
        remark: str | None = None,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Command:
        """The answer to this request: same number, same serialization. Fields {} are written, fields None are not."""
        return Command(
            code=code,
            fields=dict(fields) if fields else {},
            body=body,
            opaque=self.opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            serialize_type=self.serialize_type,
            empty_fields=fields is not None and not fields,
        )

    def encode(self) -> bytes:
        """The whole frame.

        Raises:
            CodecError: a number or a text that the header has no room for.
        """
        parts = HeaderParts(
            self.code,
            self.language,
            self.version,
            self.opaque,
            self.flag,
            self.remark,
            self.fields,
            self.empty_fields,
        )
        if self.serialize_type == SerializeType.JSON:
            header = codec_json.encode(parts)
        else:
            header = codec_binary.encode(parts)
        if len(header) > HEADER_SIZE_MASK:
            raise CodecError(
                f"the header of code {self.code} has {len(header)} bytes; a frame holds {HEADER_SIZE_MASK}"
            )
        mark = self.serialize_type << 24 | len(header)
        return PREFIX.pack(4 + len(header) + len(self.body), mark) + header + self.body

    @classmethod
    def decode(cls, frame: bytes) -> Command:
        """Read a whole frame, its size field included.

        Raises:
            CodecError: not a frame, or a header that Apache's broker would not read either.
        """
        if len(frame) < PREFIX.size:
            raise CodecError(f"a frame of {len(frame)} bytes; it begins with {PREFIX.size} of size and mark")
        size, mark = PREFIX.unpack_from(frame)
        if size != len(frame) - 4:
            raise CodecError(f"a frame that says {size} bytes and has {len(frame) - 4}")
        header_size = mark & HEADER_SIZE_MASK
        body_at = PREFIX.size + header_size
        if body_at > len(frame):
            raise CodecError(f"decode error, bad header length: {header_size}")
        kind = mark >> 24
        if kind == SerializeType.JSON:
            parts = codec_json.decode(frame[PREFIX.size : body_at])
        elif kind == SerializeType.ROCKETMQ:
            parts = codec_binary.decode(frame[PREFIX.size : body_at])
        else:
            raise CodecError(f"serialization type {kind}; known are 0 (JSON) and 1 (ROCKETMQ)")
        return cls(
            code=parts.code,
            fields=parts.fields,
            body=frame[body_at:],
            opaque=parts.opaque,
            flag=parts.flag,
            remark=parts.remark,
            version=parts.version,
            language=parts.language,
            serialize_type=SerializeType(kind),
            empty_fields=parts.empty_fields,
        )
