"""What two brokers must agree on: answers without times, addresses and ids, and records by what clients see of them."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from typing import Any

from pymq.remoting import json_dialect
from tests.interop.differential.sequences import PULL, SEND, SEND_BATCH, SEND_V2, Step
from tests.interop.differential.wire import Reply

Normal = dict[str, Any]

# Never the same twice, or about the process and not about the messages.
VOLATILE_NAMES = frozenset(
    {
        "lastUpdateTimestamp", "lastTimestamp", "clientAddr", "dataVersion", "timestamp", "storeTimestamp",
        "consumeTps", "topicPutTps", "brokerAddr",
    }
)  # fmt: skip
ADDRESS = re.compile(r"/?\d+\.\d+\.\d+\.\d+:\d+")
IDENTITY = re.compile(r"@[0-9a-f]{4,}\b")
GENERATED_KEYS = frozenset({"UNIQ_KEY", "ORIGIN_MESSAGE_ID"})


def normal(step: Step, reply: Reply) -> Normal:
    """*reply* to *step*, without what may differ."""
    fields = dict(reply.fields)
    for name in ("msgId", "transactionId"):
        if name in fields:
            fields[name] = f"{fields[name].count(',') + 1} ids"
    return {
        "code": reply.code,
        "remark": remark_of(reply.remark),
        "fields": fields,
        "body": body_of(step, reply),
    }


def remark_of(text: str | None) -> str | None:
    """Addresses and object identities are each broker's own. An empty remark is none: the binary header cannot tell."""
    if not text:
        return None
    return IDENTITY.sub("@ID", ADDRESS.sub("ADDRESS", text))


def body_of(step: Step, reply: Reply) -> Any:
    """Records decoded, JSON parsed, anything else as it is."""
    if not reply.body:
        return None
    if step.code == PULL and reply.code == 0:
        return [record_of(record) for record in split_records(reply.body)]
    try:
        return without_volatile(json_dialect.loads(reply.body))
    except ValueError:
        return reply.body


def without_volatile(value: Any) -> Any:
    """The same tree with volatile members masked and sets in order; keys that are objects become text."""
    if isinstance(value, Mapping):
        return {
            key_text(key): "…" if key in VOLATILE_NAMES else without_volatile(item)
            for key, item in sorted(value.items(), key=lambda pair: key_text(pair[0]))
        }
    if isinstance(value, list):
        return sorted((without_volatile(item) for item in value), key=repr)
    return value


def key_text(key: Any) -> str:
    """A map's key as text; brokers are named alike."""
    return json.dumps(dict(key), sort_keys=True) if isinstance(key, Mapping) else str(key)


def split_records(body: bytes) -> list[bytes]:
    """The stored records of a pull's answer."""
    records, position = [], 0
    while position < len(body):
        (size,) = struct.unpack_from(">I", body, position)
        records.append(body[position : position + size])
        position += size
    return records


def record_of(record: bytes) -> Normal:
    """What a consumer sees of a stored record."""
    magic, body_crc, queue_id, flag, queue_offset = struct.unpack_from(">IIiiq", record, 4)
    (sys_flag, born_ms) = struct.unpack_from(">iq", record, 36)
    (times,) = struct.unpack_from(">i", record, 48 + 8 + 8 + 8)
    position = 48 + 8 + 8 + 8 + 4 + 8
    (size,) = struct.unpack_from(">I", record, position)
    body = record[position + 4 : position + 4 + size]
    position += 4 + size
    topic_size = record[position]
    topic = record[position + 1 : position + 1 + topic_size]
    position += 1 + topic_size
    (size,) = struct.unpack_from(">H", record, position)
    text = record[position + 2 : position + 2 + size].decode()
    pairs = dict(pair.split("\x01", 1) for pair in text.split("\x02") if "\x01" in pair)
    return {
        "magic": magic, "crc": body_crc, "queueId": queue_id, "flag": flag, "queueOffset": queue_offset,
        "sysFlag": sys_flag, "born": born_ms, "reconsumeTimes": times, "body": body, "topic": topic,
        "properties": {name: "…" if name in GENERATED_KEYS else value for name, value in pairs.items()},
    }  # fmt: skip


def is_send(step: Step) -> bool:
    """Whether *step* puts messages."""
    return step.code in (SEND, SEND_V2, SEND_BATCH)
