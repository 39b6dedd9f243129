"""A store's files, read without any store: the log is decoded by `tests/reference`, the rest must follow from it.

Queues and index are functions of the log, byte for byte. So the check is not "can be read" but "is what the log
makes of it", whoever wrote the files. It holds for stores at rest: after a clean stop, or once recovered; only the
index of a recovered store is looser, see `assert_files_follow_from_the_log`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.answers import DELAY_LEVEL_SECONDS, Acknowledged
from tests.interop.workloads import DELAY_TOPIC, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, StoreSettings
from tests.reference.cq_unit import Unit, encode_unit
from tests.reference.index_file import IndexFile
from tests.reference.java_hash import java_hash
from tests.reference.properties import decode_properties
from tests.reference.record import Record, decode_record, encode_record


def read_log(directory: Path, file_size: int) -> list[Record]:
    """Every record of the log; each must encode to the bytes it was read from, and each file end in a blank tail."""
    paths = sorted((directory / "commitlog").iterdir())
    records: list[Record] = []
    for number, path in enumerate(paths):
        content, position = path.read_bytes(), 0
        assert len(content) == file_size, path
        while content[position : position + 8] != bytes(8):
            record = decode_record(content[position:], physical_offset=int(path.name) + position)
            if isinstance(record, int):
                assert position + record == file_size, path
                position = file_size
                break
            assert encode_record(record) == content[position : position + record.total_size], record
            records.append(record)
            position += record.total_size
        if position < file_size:
            assert not any(content[position:]), f"stale bytes after the last record of {path}"
            assert number == len(paths) - 1 or not any(map(any, (later.read_bytes() for later in paths[number + 1 :])))
            break
    return records


def tags_code_of(record: Record) -> int:
    """What the queue unit's tag field must hold."""
    properties = decode_properties(record.properties)
    level = int(properties.get(b"DELAY", b"0"))
    if record.topic.decode() == DELAY_TOPIC and level > 0:
        return record.store_timestamp_ms + 1000 * DELAY_LEVEL_SECONDS[min(level, len(DELAY_LEVEL_SECONDS)) - 1]
    return java_hash(properties.get(b"TAGS", b""))


def expected_queue_files(records: Sequence[Record], file_size: int) -> dict[str, bytes]:
    """Path below `consumequeue` to content, for every queue file the log calls for."""
    queues: dict[str, bytearray] = {}
    for record in records:
        if record.sys_flag & TRANSACTION_ROLLBACK in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            continue
        content = queues.setdefault(f"{record.topic.decode()}/{record.queue_id}", bytearray())
        unit = encode_unit(Unit(record.physical_offset, record.total_size, tags_code_of(record)))
        assert record.queue_offset * len(unit) == len(content), record
        content += unit
    return {
        f"{queue}/{start:020d}": bytes(content[start : start + file_size]).ljust(file_size, b"\0")
        for queue, content in queues.items()
        for start in range(0, len(content), file_size)
    }


def expected_index_files(records: Sequence[Record], settings: StoreSettings) -> list[bytes]:
    """The contents of the index files in order. Their names are times and do not follow from the log."""
    files: list[IndexFile] = []
    for record in records:
        if record.sys_flag & TRANSACTION_ROLLBACK == TRANSACTION_ROLLBACK:
            continue
        for key in _index_keys(record):
            # Java makes room before it looks whether there is anything to put, so a file follows a full one at once.
            if not files or not files[-1].put(record.topic, key, record.physical_offset, record.store_timestamp_ms):
                files.append(_index_file_after(files, settings))
                assert files[-1].put(record.topic, key, record.physical_offset, record.store_timestamp_ms)
    return [file.to_bytes() for file in files]


def _index_keys(record: Record) -> list[bytes]:
    """In the order 5.5.0 puts them: the unique key, each word of KEYS, then the tags under a name of their own."""
    properties = decode_properties(record.properties)
    keys = [properties[b"UNIQ_KEY"]] if b"UNIQ_KEY" in properties else []
    keys += [word for word in properties.get(b"KEYS", b"").split(b" ") if word]
    if properties.get(b"TAGS"):
        keys.append(b"T#" + properties[b"TAGS"])
    return keys


def _index_file_after(files: Sequence[IndexFile], settings: StoreSettings) -> IndexFile:
    """A new file begins with its predecessor's end, until its first item replaces that."""
    made = IndexFile(settings.hash_slot_count, settings.index_item_count)
    if files:
        made.begin_timestamp_ms = made.end_timestamp_ms = files[-1].end_timestamp_ms
        made.begin_offset = made.end_offset = files[-1].end_offset
    return made


def assert_files_follow_from_the_log(
    directory: Path, settings: StoreSettings, written: Sequence[Acknowledged], *, recovered: bool = False
) -> list[Record]:
    """The log holds what was acknowledged; queue and index files are, byte for byte, what the log makes them.

    With *recovered* the index need only hold the right entries: Apache keeps the files its checkpoint vouches for and
    indexes the last message of the last one again, so entries repeat and files begin elsewhere.
    """
    records = read_log(directory, settings.commit_log_file_size)
    assert [(record.physical_offset, record.topic.decode(), record.body) for record in records] == [
        (one.put.physical_offset, one.message.topic, one.message.body) for one in written
    ]

    queues = directory / "consumequeue"
    found = {path.relative_to(queues).as_posix(): path.read_bytes() for path in queues.rglob("*") if path.is_file()}
    expected = expected_queue_files(records, settings.consume_queue_file_size)
    # A writer may have made a queue's next file before it has anything to put there.
    assert {name: content for name, content in found.items() if name in expected or any(content)} == expected

    index = [path.read_bytes() for path in sorted((directory / "index").iterdir())]
    index_expected = expected_index_files(records, settings)
    if recovered:
        assert _index_entries(index, settings) == _index_entries(index_expected, settings)
    else:
        assert index == index_expected
    return records


def _index_entries(files: Sequence[bytes], settings: StoreSettings) -> set[tuple[int, int]]:
    """Key hash and physical offset of every item."""
    parsed = [IndexFile.from_bytes(content, settings.hash_slot_count) for content in files]
    return {(item.key_hash, item.physical_offset) for file in parsed for item in file.items}
