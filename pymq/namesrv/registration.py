"""The body of REGISTER_BROKER: every topic of a broker, plain or compressed.

Plain it is JSON. Compressed it is a zlib stream of length-prefixed pieces: the data version (JSON), the number of
topics and each as a line of six words, the filter servers (JSON), and from 5.0 on the queue mappings (JSON each).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pymq.remoting import json_dialect

VERSION_5_0_0 = 413  # ordinal of MQVersion.Version.V5_0_0: from here on compressed bodies end with queue mappings
INFLATED_SIZE_MAX = 256 * 1024 * 1024  # a body can claim to be anything; a million topics need about half of this

EMPTY_VERSION: Mapping[str, int] = {"counter": 0, "stateVersion": 0, "timestamp": 0}


@dataclass(slots=True)
class TopicConfig:
    """What a registration says about one topic."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_sys_flag: int = 0


@dataclass(slots=True)
class BrokerRegistration:
    """One broker's registration, header and body together."""

    cluster: str
    addr: str
    broker_name: str
    broker_id: int
    ha_server_addr: str | None = None
    zone_name: str | None = None
    heartbeat_timeout_ms: int | None = None
    enable_acting_master: bool | None = None  # None: a broker too old to say
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: dict[str, Any] = field(default_factory=lambda: dict(EMPTY_VERSION))
    filter_servers: list[str] | None = None
    queue_mappings: dict[str, dict[str, Any]] = field(default_factory=dict)


def read_body(target: BrokerRegistration, body: bytes, *, compressed: bool, version: int) -> None:
    """Fill *target* from *body*.

    Raises:
        ValueError, TypeError: not such a body.
    """
    if not body:
        return
    if compressed:
        read_compressed(target, body, version)
        return
    value = json_dialect.loads(body)
    if not isinstance(value, dict):
        raise TypeError("the body of a registration is a JSON object")
    # Compat: brokers before 3.0.11 sent the wrapper itself, without filter servers.
    wrapper = value.get("topicConfigSerializeWrapper", value if "topicConfigTable" in value else {}) or {}
    target.data_version = dict(wrapper.get("dataVersion") or EMPTY_VERSION)
    servers = value.get("filterServerList")
    target.filter_servers = None if servers is None else [str(server) for server in servers]
    for name, config in (wrapper.get("topicConfigTable") or {}).items():
        target.topics[name] = TopicConfig(
            str(config.get("topicName") or name),
            int(config.get("readQueueNums", 16)),
            int(config.get("writeQueueNums", 16)),
            int(config.get("perm", 6)),
            int(config.get("topicSysFlag", 0)),
        )
    target.queue_mappings = dict(wrapper.get("topicQueueMappingInfoMap") or {})


def read_compressed(target: BrokerRegistration, body: bytes, version: int) -> None:
    """Fill *target* from a compressed body."""
    reader = PieceReader(inflate(body))
    target.data_version = dict(json_dialect.loads(reader.piece()))
    for _ in range(reader.number()):
        topic = topic_from_words(reader.piece().decode("utf-8"))
        target.topics[topic.topic_name] = topic
    servers = json_dialect.loads(reader.piece())
    target.filter_servers = None if servers is None else [str(server) for server in servers]
    if version >= VERSION_5_0_0:
        for _ in range(reader.number()):
            mapping = dict(json_dialect.loads(reader.piece()))
            target.queue_mappings[str(mapping.get("topic"))] = mapping


def topic_from_words(line: str) -> TopicConfig:
    """`name read write perm filterType {attributes}`, as TopicConfig.encode writes it."""
    words = line.split(" ", 5)
    if len(words) < 5:
        raise ValueError(f"topic {line!r}: five words at least were expected")
    return TopicConfig(words[0], int(words[1]), int(words[2]), int(words[3]))


def write_compressed(
    data_version: Mapping[str, Any], topics: Mapping[str, Mapping[str, Any]], filter_servers: list[str]
) -> bytes:
    """The compressed body of a 5.x broker without queue mappings; *topics* as in topics.json."""
    pieces = [compact(dict(data_version)).encode()]
    parts = [number(len(pieces[0])) + pieces[0], number(len(topics))]
    for name, config in topics.items():
        words = (
            f"{name} {config['readQueueNums']} {config['writeQueueNums']} {config['perm']} "
            f"{config.get('topicFilterType', 'SINGLE_TAG')} {compact(config.get('attributes') or {})}"
        ).encode()
        parts.append(number(len(words)) + words)
    servers = compact(filter_servers).encode()
    parts += [number(len(servers)) + servers, number(0)]
    return zlib.compress(b"".join(parts), 9)


def compact(value: object) -> str:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def number(value: int) -> bytes:
    """A 4-byte big-endian number."""
    return value.to_bytes(4, "big", signed=True)


def inflate(body: bytes) -> bytes:
    """The zlib stream in *body*, bounded."""
    engine = zlib.decompressobj()
    try:
        inflated = engine.decompress(body, INFLATED_SIZE_MAX)
    except zlib.error as failure:
        raise ValueError(f"a compressed registration that does not inflate: {failure}") from failure
    if engine.unconsumed_tail:
        raise ValueError(f"a compressed registration above {INFLATED_SIZE_MAX} bytes")
    return inflated


class PieceReader:
    """Numbers and length-prefixed pieces, one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self) -> int:
        """The next 4-byte number."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def piece(self) -> bytes:
        """The next length-prefixed piece."""
        return self._take(self.number())

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"a compressed registration ends at byte {len(self._data)}, {end} were announced")
        taken = self._data[self._position : end]
        self._position = end
        return taken
