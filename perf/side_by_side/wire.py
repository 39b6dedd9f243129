"""As much of the protocol as it takes to see whether a broker serves: one topic made, one message acknowledged."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Mapping

UPDATE_AND_CREATE_TOPIC = 17
SEND_MESSAGE_V2 = 310
SUCCESS = 0
RETRY_PAUSE_S = 0.002
PROBE_TOPIC = "SideBySideProbe"


class NotServingError(Exception):
    """The broker did not acknowledge a message in time, or its process ended."""


def call(connection: socket.socket, code: int, fields: Mapping[str, str], body: bytes = b"") -> int:
    """Make one request with a JSON header; the response code of its answer."""
    header = json.dumps(
        {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": code,
         "serializeTypeCurrentRPC": "JSON", "version": 513},
    ).encode()  # fmt: skip
    connection.sendall(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
    while True:
        size = struct.unpack(">I", _read(connection, 4))[0]
        frame = _read(connection, size)
        header_size = struct.unpack(">I", frame[:4])[0] & 0xFFFFFF
        answer = json.loads(frame[4 : 4 + header_size])
        if answer["flag"] & 1 and answer["opaque"] == code:
            return int(answer["code"])


def _read(connection: socket.socket, size: int) -> bytes:
    read = bytearray()
    while len(read) < size:
        some = connection.recv(size - len(read))
        if not some:
            raise ConnectionError("closed by the broker")
        read += some
    return bytes(read)


def _serves(host: str, port: int) -> bool:
    with socket.create_connection((host, port), timeout=2) as connection:
        topic = {
            "topic": PROBE_TOPIC, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        if call(connection, UPDATE_AND_CREATE_TOPIC, topic) != SUCCESS:
            return False
        send = {
            "a": "probe", "b": PROBE_TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0",
            "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        return call(connection, SEND_MESSAGE_V2, send, b"probe") == SUCCESS


def await_serving(address: str, timeout_s: float, is_alive: Callable[[], bool]) -> None:
    """Return with the first message the broker at *address* acknowledges.

    Raises:
        NotServingError: not within *timeout_s*, or *is_alive* said no.
    """
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + timeout_s
    last: str = "refused a request"
    while time.monotonic() < deadline:
        if not is_alive():
            raise NotServingError(f"the process of {address} ended before it served")
        try:
            if _serves(host, int(port)):
                return
        except OSError as problem:
            last = str(problem)
        time.sleep(RETRY_PAUSE_S)
    raise NotServingError(f"{address} did not acknowledge a message within {timeout_s:.0f} s: {last}")
