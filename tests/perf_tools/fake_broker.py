"""A broker of a hundred lines for the load generator to talk to: topics are lists, nothing is durable.

It answers in the codec it was asked in, holds pulls, and can misbehave on purpose: refuse every n-th send, close the
connection after n sends, answer with fields in another order, spoil bodies, or never answer at all.
"""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

HOLD_S = 2.0
PORT_IN_RECORDS = 10911


@dataclass
class Stored:
    """A message the broker has."""

    queue_offset: int
    physical_offset: int
    body: bytes
    properties: str


@dataclass
class Behaviour:
    """What is wrong with it."""

    refuse_every: int = 0
    close_after: int = 0
    silent: bool = False
    reverse_answers: bool = False
    corrupt_bodies: bool = False


@dataclass
class Request:
    """A decoded frame."""

    code: int
    opaque: int
    codec: int
    fields: dict[str, str]
    body: bytes
    header: bytes = b""


def decode(frame: bytes) -> Request:
    """A frame without its length word."""
    word = struct.unpack_from(">I", frame)[0]
    codec, size = word >> 24, word & 0xFFFFFF
    header, body = frame[4 : 4 + size], frame[4 + size :]
    if codec == 0:
        document = json.loads(header)
        return Request(document["code"], document["opaque"], codec, document.get("extFields", {}), body, header)
    code, _, _, opaque, _, remark_size = struct.unpack_from(">hBHiiI", header)
    at, fields = 17 + remark_size + 4, {}
    while at < len(header):
        key_size = struct.unpack_from(">H", header, at)[0]
        key = header[at + 2 : at + 2 + key_size].decode()
        at += 2 + key_size
        value_size = struct.unpack_from(">I", header, at)[0]
        fields[key] = header[at + 4 : at + 4 + value_size].decode()
        at += 4 + value_size
    return Request(code, opaque, codec, fields, body, header)


def encode_answer(request: Request, code: int, fields: dict[str, Any], body: bytes = b"", remark: str = "") -> bytes:
    """The answer in the codec of the request."""
    texts = {name: str(value) for name, value in fields.items()}
    if request.codec == 0:
        document: dict[str, Any] = {"code": code, "extFields": texts, "flag": 1, "language": "JAVA"}
        document |= {"opaque": request.opaque} | ({"remark": remark} if remark else {})
        header = json.dumps(document | {"serializeTypeCurrentRPC": "JSON", "version": 513}).encode()
    else:
        packed = b"".join(
            struct.pack(">H", len(k)) + k.encode() + struct.pack(">I", len(v)) + v.encode() for k, v in texts.items()
        )
        header = struct.pack(">hBHiiI", code, 0, 513, request.opaque, 1, len(remark)) + remark.encode()
        header += struct.pack(">I", len(packed)) + packed
    return struct.pack(">II", 4 + len(header) + len(body), request.codec << 24 | len(header)) + header + body


def encode_record(topic: str, queue: int, stored: Stored, *, corrupt: bool) -> bytes:
    """A stored message as a pull carries it."""
    host = bytes([127, 0, 0, 1]) + struct.pack(">I", PORT_IN_RECORDS)
    body = stored.body[:-1] + b"\0" if corrupt else stored.body
    properties = stored.properties.encode()
    record = struct.pack(">IIIIqqIq", 0xDAA320A7, 0, queue, 0, stored.queue_offset, stored.physical_offset, 0, 0) + host
    record += struct.pack(">q", 0) + host + struct.pack(">IqI", 0, 0, len(body)) + body
    record += struct.pack(">B", len(topic)) + topic.encode() + struct.pack(">H", len(properties)) + properties
    return struct.pack(">I", 4 + len(record)) + record


def split_batch(body: bytes) -> list[tuple[bytes, str]]:
    """Bodies and properties of a SEND_BATCH_MESSAGE."""
    messages, at = [], 0
    while at < len(body):
        size, magic, crc, _, body_size = struct.unpack_from(">IIIII", body, at)
        assert (magic, crc) == (0, 0)
        properties_at = at + 20 + body_size
        properties_size = struct.unpack_from(">H", body, properties_at)[0]
        properties = body[properties_at + 2 : properties_at + 2 + properties_size].decode()
        messages.append((body[at + 20 : at + 20 + body_size], properties))
        assert at + size == properties_at + 2 + properties_size
        at += size
    assert at == len(body)
    return messages


@dataclass
class FakeBroker:
    """Used as a context manager: serves on its own thread from entry to exit."""

    behaviour: Behaviour = field(default_factory=Behaviour)
    queues: dict[tuple[str, int], list[Stored]] = field(default_factory=lambda: defaultdict(list))
    topics: dict[str, int] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    heartbeats: list[dict[str, Any]] = field(default_factory=list)
    sends: int = 0
    position: int = 0
    address: str = ""

    def __enter__(self) -> FakeBroker:
        """Start serving; `address` is set on return."""
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def messages(self, topic: str) -> list[Stored]:
        """All messages of a topic."""
        return [stored for (name, _), queue in sorted(self.queues.items()) if name == topic for stored in queue]

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._ended, self._arrival = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await self._ended.wait()
        for task in list(self._tasks):
            task.cancel()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = struct.unpack(">I", await reader.readexactly(4))[0]
                request = decode(await reader.readexactly(size))
                self.requests.append(request)
                if request.code == 11:
                    task = asyncio.create_task(self._pull(request, writer))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                    continue
                answer = self._answer(request)
                if answer is None:
                    writer.close()
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, request: Request) -> bytes | None:
        fields = request.fields
        if request.code == 17:
            self.topics[fields["topic"]] = int(fields["writeQueueNums"])
            return encode_answer(request, 0, {})
        if request.code == 30:
            return encode_answer(request, 0, {"offset": len(self.queues[fields["topic"], int(fields["queueId"])])})
        if request.code == 34:
            self.heartbeats.append(json.loads(request.body))
            return encode_answer(request, 0, {})
        if request.code in (310, 320):
            return self._send(request)
        return encode_answer(request, 3, {}, remark=f" request type {request.code} not supported")

    def _send(self, request: Request) -> bytes | None:
        self.sends += 1
        if self.behaviour.close_after and self.sends > self.behaviour.close_after:
            return None
        if self.behaviour.silent:
            return b""
        if self.behaviour.refuse_every and self.sends % self.behaviour.refuse_every == 0:
            return encode_answer(request, 2, {}, remark="[TIMEOUT_CLEAN_QUEUE]broker busy")
        queue = self.queues[request.fields["b"], int(request.fields["e"])]
        first = len(queue)
        single = [(request.body, request.fields["i"])]
        ids = []
        for body, properties in split_batch(request.body) if request.code == 320 else single:
            ids.append(f"7F000001{PORT_IN_RECORDS:08X}{self.position:016X}")
            queue.append(Stored(len(queue), self.position, body, properties))
            self.position += 100 + len(body)
        self._arrival.set()
        self._arrival = asyncio.Event()
        fields = {"queueId": request.fields["e"], "msgId": ",".join(ids), "queueOffset": first}
        return encode_answer(request, 0, dict(reversed(fields.items())) if self.behaviour.reverse_answers else fields)

    async def _pull(self, request: Request, writer: asyncio.StreamWriter) -> None:
        topic, queue_id = request.fields["topic"], int(request.fields["queueId"])
        offset, count = int(request.fields["queueOffset"]), int(request.fields["maxMsgNums"])
        queue = self.queues[topic, queue_id]
        deadline = self._loop.time() + HOLD_S
        while len(queue) <= offset and self._loop.time() < deadline:
            arrival = self._arrival
            try:
                await asyncio.wait_for(arrival.wait(), deadline - self._loop.time())
            except TimeoutError:
                break
        found = queue[offset : offset + count]
        corrupt = self.behaviour.corrupt_bodies
        body = b"".join(encode_record(topic, queue_id, stored, corrupt=corrupt) for stored in found)
        fields = {"nextBeginOffset": offset + len(found), "minOffset": 0, "maxOffset": len(queue)}
        writer.write(encode_answer(request, 0 if found else 19, fields, body, "FOUND" if found else "PULL_NOT_FOUND"))
