"""What the golden store holds, as Apache's own decoder saw it: typed views of tests/data/golden-store/layout.json."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).resolve().parent.parent / "data" / "golden-store"
STORE = DIRECTORY / "store"

COMMIT_LOG_FILE_SIZE = 65536
CONSUME_QUEUE_FILE_SIZE = 400
INDEX_SLOT_COUNT = 100
INDEX_ITEM_COUNT_MAX = 200
TRANSACTION_MASK = 0xC
TRANSACTION_ROLLBACK = 0xC


@dataclass(frozen=True)
class GoldenMessage:
    """One record of the log, every field as layout.json has it, under pymq's names."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    message_id: str
    flag: int
    sys_flag: int
    body_crc: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties: dict[str, str]

    @property
    def is_rollback(self) -> bool:
        """Whether this is the mark of a transaction rolled back."""
        return self.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK

    @property
    def index_keys(self) -> list[str]:
        """Keys under which the index must answer with this message, in its order: none for a rollback mark."""
        if self.is_rollback:
            return []
        unique = self.properties.get("UNIQ_KEY")
        words = [word for word in self.properties.get("KEYS", "").split(" ") if word]
        return ([unique] if unique else []) + words

    @property
    def index_items(self) -> list[str]:
        """What is hashed behind `topic#` into the index, in its order: the keys, then the tags under `T#`."""
        tags = self.properties.get("TAGS")
        return self.index_keys + ([f"T#{tags}"] if tags and not self.is_rollback else [])


@cache
def layout() -> dict[str, Any]:
    """The whole of layout.json."""
    document: dict[str, Any] = json.loads((DIRECTORY / "layout.json").read_text(encoding="utf-8"))
    return document


@cache
def messages() -> list[GoldenMessage]:
    """Every message in log order; the blank tail is not a message."""
    return [
        GoldenMessage(
            topic=record["topic"],
            queue_id=record["queueId"],
            queue_offset=record["queueOffset"],
            physical_offset=record["commitLogOffset"],
            store_size=record["storeSize"],
            message_id=record["offsetMsgId"],
            flag=record["flag"],
            sys_flag=record["sysFlag"],
            body_crc=record["bodyCRC"],
            born_timestamp_ms=record["bornTimestamp"],
            born_host=record["bornHost"],
            store_timestamp_ms=record["storeTimestamp"],
            store_host=record["storeHost"],
            reconsume_times=record["reconsumeTimes"],
            prepared_transaction_offset=record["preparedTransactionOffset"],
            body=base64.b64decode(record["bodyBase64"]),
            properties=record["properties"],
        )
        for record in layout()["commitlog"]
        if "topic" in record
    ]


@cache
def queue_units() -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    """(topic, queue id) to its units (physical offset, size, tags code)."""
    table = layout()["consumequeue[phyOffset,size,tagsCode]"]
    units = {}
    for name, rows in table.items():
        topic, _, queue_id = name.rpartition("/")
        units[topic, int(queue_id)] = [(row[0], row[1], row[2]) for row in rows]
    return units
