"""The tables of small files: what the broker's JSON says, the checkpoint pages, removed topics, a dump's manifest.

Each reader gives plain rows, in the order of its table's columns and without the store. A JSON file that cannot be read
is read from the `.bak` beside it, as the broker would; when that cannot be read either, nothing is known, and that is
an error that names the file: no rows would say that there are none. The table `config` tells which files were damaged.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from pymq.remoting import json_dialect
from pymq.remoting.errors import CodecError
from spark_jobs.rocketmq_store.files import StoreFiles, StoreFilesError, open_store
from spark_jobs.rocketmq_store.schema import arrow_schema

OFFSETS_FILE: Final = "consumerOffset.json"
TOPICS_FILE: Final = "topics.json"
GROUPS_FILE: Final = "subscriptionGroup.json"
DELAY_FILE: Final = "delayOffset.json"
JSON_FILES: Final = (OFFSETS_FILE, TOPICS_FILE, GROUPS_FILE, DELAY_FILE)
RESETS_KEY: Final = "pymqResetTable"

PAGE_SIZE: Final = 4096
CHECKPOINT_LONGS: Final = struct.Struct(">6q")
OWN_BLOCK_AT: Final = 2048
OWN_BLOCK: Final = struct.Struct(">8sIi6q48s")  # magic, CRC, version, six positions, copy of the six longs
OWN_MAGIC: Final = b"PYMQCKP1"
OWN_CRC_FROM: Final = 12  # of the block: what follows the CRC
OWN_VERSION: Final = 2

TIMER_CHECK: Final = struct.Struct(">3q")  # read time, log flushed, queue offset
REMOVED_HEAD: Final = b"pymq removed topics 1\n"

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
INT_MIN, INT_MAX = -(2**31), 2**31 - 1

Rows = Iterator[tuple[Any, ...]]


class UnreadableFileError(StoreFilesError):
    """A small file from which nothing can be read, and neither from the copy beside it."""


# ---- JSON --------------------------------------------------------------------------------------------------------


def parse_json(data: bytes) -> tuple[dict[Any, Any], str]:
    """The object in *data*, and what is wrong with it: then the object is empty."""
    try:
        value = json_dialect.loads(data, forgiven_size_max=None)
    except CodecError as error:
        return {}, str(error)
    if not isinstance(value, dict):
        return {}, f"an object was expected, not {type(value).__name__}"
    return value, ""


def load_json(root: Path, name: str) -> dict[Any, Any]:
    """What config/*name* or its .bak says; empty when there is neither.

    Raises:
        UnreadableFileError: both are damaged, or one is and the other is not there.
    """
    trouble = ""
    for path in (root / "config" / name, root / "config" / f"{name}.bak"):
        data = content(path)
        if data is None:
            continue
        value, wrong = parse_json(data)
        if not wrong:
            return value
        trouble = trouble or f"{path}: {wrong}"
    if trouble:
        raise UnreadableFileError(f"{trouble}; nor is there a readable {name}.bak: put a good copy there")
    return {}


def content(path: Path) -> bytes | None:
    """A file's bytes; None when there is no file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def table_of(document: Mapping[Any, Any], name: str) -> dict[Any, Any]:
    """An object of *document*; empty when there is none or something else stands there."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def whole(value: Any, low: int, high: int) -> int | None:
    """A whole number within bounds, from a number or its digits; None for anything else."""
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 25:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high else None


def long(value: Any) -> int | None:
    """A number that fits in 64 bits."""
    return whole(value, LONG_MIN, LONG_MAX)


def integer(value: Any) -> int | None:
    """A number that fits in 32 bits."""
    return whole(value, INT_MIN, INT_MAX)


def text(value: Any) -> str | None:
    """Text that can be written; half a surrogate pair cannot."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


def boolean(value: Any) -> bool | None:
    """true or false."""
    return value if isinstance(value, bool) else None


# ---- the tables --------------------------------------------------------------------------------------------------


def offset_rows(document: Mapping[Any, Any], name: str) -> Rows:
    """`topic@group` to offsets by queue."""
    for key, queues in table_of(document, name).items():
        topic, separator, group = str(key).rpartition("@")
        for queue_id, offset in queues.items() if isinstance(queues, dict) else ():
            yield text(topic or str(key)), text(group) if separator else None, integer(queue_id), long(offset)


def offsets(store: StoreFiles) -> Rows:
    """Consumer offsets."""
    return offset_rows(load_json(store.root, OFFSETS_FILE), "offsetTable")


def offset_resets(store: StoreFiles) -> Rows:
    """Resets a group has not followed yet."""
    return offset_rows(load_json(store.root, OFFSETS_FILE), RESETS_KEY)


def topics(store: StoreFiles) -> Rows:
    """Topics as configured."""
    for name, entry in table_of(load_json(store.root, TOPICS_FILE), "topicConfigTable").items():
        values = entry if isinstance(entry, dict) else {}
        attributes = table_of(values, "attributes")
        yield (
            text(str(name)),
            integer(values.get("readQueueNums")),
            integer(values.get("writeQueueNums")),
            integer(values.get("perm")),
            boolean(values.get("order")),
            integer(values.get("topicSysFlag")),
            [(text(str(key)), text(str(value))) for key, value in attributes.items()],
        )


def groups(store: StoreFiles) -> Rows:
    """Consumer groups as configured."""
    for name, entry in table_of(load_json(store.root, GROUPS_FILE), "subscriptionGroupTable").items():
        values = entry if isinstance(entry, dict) else {}
        yield (
            text(str(name)),
            boolean(values.get("consumeEnable")),
            boolean(values.get("consumeBroadcastEnable")),
            integer(values.get("retryQueueNums")),
            integer(values.get("retryMaxTimes")),
            long(values.get("brokerId")),
            boolean(values.get("notifyConsumerIdsChangedEnable")),
            text(json_dialect.dumps(entry, standard=True).decode("utf-8", "replace")),
        )


def delay_offsets(store: StoreFiles) -> Rows:
    """How far each delay level has been delivered."""
    for level, offset in table_of(load_json(store.root, DELAY_FILE), "offsetTable").items():
        yield integer(level), long(offset)


def config(store: StoreFiles) -> Rows:
    """Which of the broker's files can be read."""
    for name in JSON_FILES:
        for path in (f"config/{name}", f"config/{name}.bak"):
            data = content(store.root / path)
            wrong = parse_json(data)[1] if data is not None else ""
            yield path, None if data is None else len(data), "missing" if data is None else bad(wrong), wrong or None


def bad(wrong: str) -> str:
    """The status of a JSON file."""
    return "bad_json" if wrong else "ok"


def checkpoint(store: StoreFiles) -> Rows:
    """The checkpoint page, and what else says how the store was left."""
    data = content(store.root / "checkpoint")
    longs, own, status = read_checkpoint(data)
    safe, flushed, clean_end, last_record, unit_total, index_end = own
    yield (
        *longs,
        safe,
        flushed,
        clean_end,
        (store.root / "abort").exists(),
        store.log_begin,
        store.files_end if store.log_end is None else store.log_end,
        status,
        last_record,
        unit_total,
        index_end,
        None if store.manifest is None else text(store.manifest.get("kind")),
    )


def read_checkpoint(data: bytes | None) -> tuple[tuple[int | None, ...], tuple[int | None, ...], str]:
    """The six longs, pymq's six positions (nulls unless pymq wrote the page last), and the status."""
    nothing = (None,) * 6
    if data is None:
        return nothing, nothing, "missing"
    if len(data) < CHECKPOINT_LONGS.size:
        return nothing, nothing, "bad_size"
    longs = CHECKPOINT_LONGS.unpack_from(data)
    if len(data) != PAGE_SIZE:
        return longs, nothing, "bad_size"
    magic, crc, version, *own, copy = OWN_BLOCK.unpack_from(data, OWN_BLOCK_AT)
    if magic != OWN_MAGIC:
        return longs, nothing, "ok"
    if zlib.crc32(data[OWN_BLOCK_AT + OWN_CRC_FROM : OWN_BLOCK_AT + OWN_BLOCK.size]) != crc:
        return longs, nothing, "bad_crc"
    ours = version == OWN_VERSION and copy == data[: CHECKPOINT_LONGS.size]
    return longs, tuple(own) if ours else nothing, "ok"


def timercheck(store: StoreFiles) -> Rows:
    """How far the timers have come."""
    data = content(store.root / "config" / "timercheck")
    if data is None:
        yield None, None, None, "missing"
    elif len(data) < TIMER_CHECK.size:
        yield None, None, None, "bad_size"
    else:
        yield *TIMER_CHECK.unpack_from(data), "ok" if len(data) == PAGE_SIZE else "bad_size"


def removed_topics(store: StoreFiles) -> Rows:
    """Topics removed while the log still holds their messages.

    Raises:
        UnreadableFileError: the file is no such list; nobody can tell then which topics are gone.
    """
    path = store.root / "removedTopics"
    data = content(path)
    if data is None:
        return
    if not data.startswith(REMOVED_HEAD):
        raise UnreadableFileError(f"{path}: not a list of removed topics; put a good copy there, or move it away")
    at = len(REMOVED_HEAD)
    while at < len(data):
        words = data[at : at + 64].split(b" ", 2)
        if len(words) < 3 or not (words[0].isdigit() and words[1].isdigit()):
            raise UnreadableFileError(f"{path}: damaged at byte {at}; put a good copy there, or move it away")
        begin = at + len(words[0]) + len(words[1]) + 2
        end = begin + int(words[1])
        if data[end : end + 1] != b"\n":
            raise UnreadableFileError(f"{path}: damaged at byte {at}; put a good copy there, or move it away")
        yield data[begin:end].decode("utf-8", "replace"), long(int(words[0]))
        at = end + 1


def manifest(store: StoreFiles) -> Rows:
    """The digests a dump's manifest states; none for a plain store."""
    if store.manifest is None:
        return
    leaf_size = store.manifest["leafSize"]
    for entry in store.manifest["files"]:
        written = entry["written"]
        for number, leaf in enumerate(entry["leaves"]):
            position = number * leaf_size
            yield text(entry["path"]), written, position, min(leaf_size, written - position), digest(leaf)


def digest(leaf: Any) -> int | None:
    """A digest in hexadecimal, as a signed long; None when it is none."""
    try:
        value = int(leaf, 16)
    except (TypeError, ValueError):
        return None
    return value - (1 << 64) if value >> 63 == 1 else long(value)


READERS: Final[dict[str, Callable[[StoreFiles], Rows]]] = {
    "offsets": offsets,
    "offset_resets": offset_resets,
    "topics": topics,
    "groups": groups,
    "delay_offsets": delay_offsets,
    "config": config,
    "checkpoint": checkpoint,
    "timercheck": timercheck,
    "removed_topics": removed_topics,
    "manifest": manifest,
}
FILES_OF: Final = {
    "offsets": OFFSETS_FILE,
    "offset_resets": OFFSETS_FILE,
    "topics": TOPICS_FILE,
    "groups": GROUPS_FILE,
    "delay_offsets": DELAY_FILE,
}


def check_readable(table: str, stores: Iterable[StoreFiles]) -> None:
    """Raise now, where the query is planned, what reading *table* would raise on an executor.

    Raises:
        UnreadableFileError: see `load_json` and `removed_topics`.
    """
    for store in stores:
        if table in FILES_OF:
            load_json(store.root, FILES_OF[table])
        elif table == "removed_topics":
            for _ in removed_topics(store):
                pass


def read_small(table: str, stores: Iterable[tuple[str, str]]) -> Iterator[pa.RecordBatch]:
    """The rows of a small table, a batch for each store (name, directory) that has any."""
    schema = arrow_schema(table)
    for name, root in stores:
        found = READERS[table](open_store(Path(root), name))
        rows = [(name, *row) for row in found]
        if rows:
            columns = [
                pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
