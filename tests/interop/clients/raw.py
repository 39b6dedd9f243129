"""RocketMQ's frames, written by hand: what a test asks a server itself, without any client in between.

A frame is a 4-byte length of the rest, a byte for the header's serialization (0 is JSON), 3 bytes for the header's
length, the header, the body. One connection per question: questions here are few.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

JSON_HEADER = 0
BINARY_HEADER = 1

UPDATE_AND_CREATE_TOPIC = 17
GET_ALL_TOPIC_CONFIG = 21
GET_BROKER_RUNTIME_INFO = 28
GET_ALL_CONSUMER_OFFSET = 43
GET_KV_CONFIG = 101
GET_ROUTEINFO_BY_TOPIC = 105
GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201

SUCCESS = 0
TOPIC_NOT_EXIST = 17
QUERY_NOT_FOUND = 22

TIMEOUT_SECONDS = 10.0
ROUTE_TIMEOUT_SECONDS = 30.0
PERMISSION_READ_WRITE = 6


class RefusedError(Exception):
    """A server answered a question with something else than success."""


@dataclass(frozen=True)
class Answer:
    """A response: its code, what was remarked, its fields, its body."""

    code: int
    remark: str | None
    fields: dict[str, str]
    body: bytes


def ask(address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
    """Send one request to *address* ("host:port") and return the response to it."""
    opaque = 1
    header = {"code": code, "language": "OTHER", "version": 0, "opaque": opaque, "flag": 0}
    encoded = json.dumps({**header, "extFields": dict(fields or {})}).encode()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(struct.pack(">II", 4 + len(encoded) + len(body), len(encoded)) + encoded + body)
        response, response_body = read_frame(connection)
    if response["opaque"] != opaque:
        raise RefusedError(f"request {code} to {address}: the answer is for request {response['opaque']}")
    return Answer(response["code"], response.get("remark"), response.get("extFields") or {}, response_body)


def read_frame(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    """The next frame with a JSON header."""
    (size,) = struct.unpack(">I", read_exactly(connection, 4))
    frame = read_exactly(connection, size)
    (marked_size,) = struct.unpack(">I", frame[:4])
    if marked_size >> 24 != JSON_HEADER:
        raise RefusedError(f"asked in JSON, answered in serialization {marked_size >> 24}")
    header_size = marked_size & 0xFFFFFF
    return json.loads(frame[4 : 4 + header_size]), frame[4 + header_size :]


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """*size* bytes, however many reads they come in."""
    received = b""
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise RefusedError(f"the connection ended {size - len(received)} bytes early")
        received += chunk
    return received


def create_topic(broker: str, namesrv: str, topic: str, queue_count: int) -> None:
    """Create *topic* and return once the name server knows its route: clients may then start at once."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queue_count),
        "writeQueueNums": str(queue_count),
        "perm": str(PERMISSION_READ_WRITE),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    answer = ask(broker, UPDATE_AND_CREATE_TOPIC, fields)
    if answer.code != SUCCESS:
        raise RefusedError(f"creating topic {topic}: {answer.code}, {answer.remark}")
    await_route(namesrv, topic)


def route(namesrv: str, topic: str) -> dict[str, Any] | None:
    """TopicRouteData of *topic*, or None while the name server has no such topic."""
    answer = ask(namesrv, GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
    if answer.code == TOPIC_NOT_EXIST:
        return None
    if answer.code != SUCCESS:
        raise RefusedError(f"route of {topic}: {answer.code}, {answer.remark}")
    data: dict[str, Any] = json.loads(answer.body)
    return data


def await_route(namesrv: str, topic: str) -> dict[str, Any]:
    """The route of *topic*, as soon as there is one."""
    deadline = time.monotonic() + ROUTE_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = route(namesrv, topic)
        if found is not None:
            return found
        time.sleep(0.05)
    raise RefusedError(f"the name server {namesrv} has no route of {topic} after {ROUTE_TIMEOUT_SECONDS} s")


def committed(broker: str, group: str, topic: str) -> int:
    """The offsets a group has committed in all queues of a topic, added up.

    Asked for as a whole (43), not queue by queue (14): requests of that kind are counted elsewhere, as the clients'.
    """
    answer = ask(broker, GET_ALL_CONSUMER_OFFSET)
    if answer.code != SUCCESS:
        raise RefusedError(f"offsets of {broker}: {answer.code}, {answer.remark}")
    # RocketMQ's dialect: the queues' ids are bare numbers, which JSON does not allow as keys.
    found = re.search(rf'"{re.escape(topic)}@{re.escape(group)}":\s*{{([^}}]*)}}', answer.body.decode())
    return 0 if found is None else sum(int(offset) for offset in re.findall(r":\s*(-?\d+)", found[1]))


def names(broker: str, code: int, table: str) -> set[str]:
    """The names a broker has in one of its tables, of topics (21) or of groups (201)."""
    answer = ask(broker, code)
    if answer.code != SUCCESS:
        raise RefusedError(f"{table} of {broker}: {answer.code}, {answer.remark}")
    return set(json.loads(answer.body)[table])


def topics(broker: str) -> set[str]:
    """The topics a broker has."""
    return names(broker, GET_ALL_TOPIC_CONFIG, "topicConfigTable")


def groups(broker: str) -> set[str]:
    """The consumer groups a broker has."""
    return names(broker, GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable")


def runtime_info(broker: str) -> dict[str, str]:
    """The broker's runtime figures by name."""
    answer = ask(broker, GET_BROKER_RUNTIME_INFO)
    if answer.code != SUCCESS:
        raise RefusedError(f"runtime info of {broker}: {answer.code}, {answer.remark}")
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


def served(broker: str) -> dict[int, Counter[str]]:
    """How many requests pymq's broker served, by code, then by way: `native`, or why they went to Python."""
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for name, value in runtime_info(broker).items():
        if name.startswith("pymq.served."):
            code, way = name.removeprefix("pymq.served.").split(".", 1)
            counts[int(code)][way.removeprefix("python.")] += int(value)
    return counts


def served_totals(broker: str) -> dict[int, int]:
    """How many requests pymq's broker served, by code; empty for other brokers."""
    return {code: ways.total() for code, ways in served(broker).items()}
