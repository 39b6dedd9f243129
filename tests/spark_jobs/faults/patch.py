"""A store under the knife: find a record or a unit, and change exactly that.

`PatchedStore` works on the files of a stopped store or a dump. It never opens it as a store, so nothing is recovered,
flushed or repaired behind the test's back. What it changes it changes in place, and keeps whole what the fault is not
about: a rewritten record has the same size and right CRCs, an appended one is right in itself.

    store = PatchedStore(copy_store(clean, tmp_path / "copy"))
    one = store.pick(lambda record: record.topic == b"Orders", random)
    store.rewrite(one, queue_offset=one.record.queue_offset + 1)

Pages with checksums of their own (checkpoint, timers) are in `pages`.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from pymq import _scan
from pymq.remoting.json_dialect import dumps, loads
from pymq.store.layout import OFFSET_NAME, find_commit_log_size, find_index_counts, find_queue_size, named_files

UNIT = struct.Struct(">qiq")  # physical offset, size, tags code
INDEX_ITEM = struct.Struct(">iqii")  # key hash, physical offset, seconds, previous
FIXED_SIZE = 88  # of a record with two IPv4 hosts, up to its body
IPV6_EXTRA = 12
RECORD_CRC_SIZE = 20
LEAF_SIZE = 1 << 20


class NothingFitsError(LookupError):
    """The store has nothing the fault could be seeded in; another one may."""


@dataclass(frozen=True)
class Placed:
    """A record and where it lies."""

    record: _scan.Record
    offset: int  # physical
    raw: bytes

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        return len(self.raw)

    @property
    def body_at(self) -> int:
        """Where the body begins, counted from the record's first byte."""
        hosts = (self.record.born_host, self.record.store_host)
        return FIXED_SIZE + sum(IPV6_EXTRA for host in hosts if len(host.address) == 16)

    @property
    def properties_at(self) -> int:
        """Where the properties begin, counted from the record's first byte."""
        return self.size - len(self.record.properties)

    @property
    def topic(self) -> str:
        """The topic as text."""
        return self.record.topic.decode("utf-8")

    @cached_property
    def properties(self) -> dict[str, str]:
        """The properties, decoded."""
        return _scan.decode_properties(self.record.properties)

    @property
    def queue(self) -> tuple[str, int]:
        """Topic and queue id."""
        return self.topic, self.record.queue_id


class Unit(NamedTuple):
    """A consume-queue unit."""

    physical_offset: int
    size: int
    tags_code: int


class Item(NamedTuple):
    """An index item."""

    key_hash: int
    physical_offset: int
    seconds: int
    previous: int


def copy_store(source: Path, target: Path) -> Path:
    """*source* as a directory of its own at *target*: holes stay holes, nothing is linked, a gzipped wheel unpacked."""
    for directory, _, names in os.walk(source):
        there = target / Path(directory).relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            path = Path(directory) / name
            if name == "timerwheel.gz":
                (there / "timerwheel").write_bytes(b"")
                put_sparse(there / "timerwheel", gzip.decompress(path.read_bytes()))
            else:
                copy_sparse(path, there / name)
    return target


def copy_sparse(source: Path, target: Path) -> None:
    """One file, without its holes, with its time: a dump's manifest speaks of times."""
    with source.open("rb") as reader, target.open("wb") as writer:
        size = os.fstat(reader.fileno()).st_size
        writer.truncate(size)
        at = 0
        while at < size:
            try:
                begin = os.lseek(reader.fileno(), at, os.SEEK_DATA)
            except OSError:  # nothing but a hole from here on
                break
            end = os.lseek(reader.fileno(), begin, os.SEEK_HOLE)
            os.lseek(writer.fileno(), begin, os.SEEK_SET)
            at = begin
            while at < end:
                at += os.sendfile(writer.fileno(), reader.fileno(), at, end - at)
    times = source.stat()
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))


def put_sparse(path: Path, data: bytes, step: int = 1 << 16) -> None:
    """*data* as the whole of *path*, zeros left out."""
    zeros = bytes(step)
    with path.open("r+b") as stream:
        stream.truncate(len(data))
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            if piece != zeros[: len(piece)]:
                stream.seek(at)
                stream.write(piece)


class PatchedStore:
    """The files of one store or dump."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log_file_size = find_commit_log_size(root / "commitlog") or 0
        self.queue_file_size = find_queue_size(root / "consumequeue") or 0

    # ---- the log ---------------------------------------------------------------------------------------------

    def log_files(self) -> list[Path]:
        """In order."""
        return named_files(self.root / "commitlog", OFFSET_NAME)

    def records(self) -> Iterator[Placed]:
        """Every record of the log in order, up to the first thing that is none."""
        for path in self.log_files():
            for walk in _scan.iterate_log(
                path, checks=_scan.Check.OFFSET, columns=("physical_offset", "record_position", "total_size")
            ):
                for row in range(walk.count):
                    at, size = walk.columns["record_position"][row], walk.columns["total_size"][row]
                    raw = bytes(walk.source[at : at + size])
                    record = _scan.decode_record(raw, checks=_scan.Check.STRUCTURE)
                    assert isinstance(record, _scan.Record)
                    yield Placed(record, walk.columns["physical_offset"][row], raw)

    def find(self, wanted: Callable[[Placed], Any] = lambda one: True) -> list[Placed]:
        """The records that *wanted* is true of."""
        return [one for one in self.records() if wanted(one)]

    def pick(self, wanted: Callable[[Placed], Any], random: Random, *, inner: bool = False) -> Placed:
        """One of those, by chance; with *inner* neither the first nor the last record of the log.

        Raises:
            NothingFitsError: there is none.
        """
        everything = list(self.records())
        found = [one for one in (everything[1:-1] if inner else everything) if wanted(one)]
        if not found:
            raise NothingFitsError(f"{self.root}: no record fits")
        return random.choice(found)

    def at(self, offset: int) -> Placed:
        """The record at a physical offset."""
        path, position = self.place(offset)
        with path.open("rb") as stream:
            stream.seek(position)
            (size,) = struct.unpack(">i", stream.read(4))
            stream.seek(position)
            raw = stream.read(size)
        record = _scan.decode_record(raw, checks=_scan.Check.STRUCTURE)
        assert isinstance(record, _scan.Record)
        return Placed(record, offset, raw)

    def place(self, offset: int) -> tuple[Path, int]:
        """The log file that holds physical *offset*, and the position in it."""
        path = max((file for file in self.log_files() if int(file.name) <= offset), default=None)
        if path is None or offset - int(path.name) >= self.log_file_size:
            raise NothingFitsError(f"{self.root}: the log has no byte {offset}")
        return path, offset - int(path.name)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the log."""
        path, position = self.place(offset)
        with path.open("rb") as stream:
            stream.seek(position)
            return stream.read(size)

    def write(self, offset: int, data: bytes) -> None:
        """Put bytes into the log, as they are."""
        path, position = self.place(offset)
        put(path, position, data)

    def flip(self, offset: int, bit: int = 0) -> None:
        """Turn one bit of the log's byte at physical *offset*."""
        path, position = self.place(offset)
        flip(path, position, bit)

    def rewrite(self, one: Placed, **changes: Any) -> Placed:
        """*one* with other fields, in place and of the same size; its CRCs are made right again.

        `physical_offset` is what the record says of itself; it stays where it is.
        """
        raw = encoded(replace(one.record, **changes), with_crc=carries_crc(one.raw))
        if len(raw) != one.size:
            raise ValueError(f"the record has {one.size} bytes, the changed one {len(raw)}")
        self.write(one.offset, raw)
        return replace_placed(one, raw)

    def set_property(self, one: Placed, name: str, value: str) -> Placed:
        """*one* with another value of a property, of as many bytes as the old one."""
        old = _scan.find_property(one.record.properties, name.encode())
        if old is None:
            raise NothingFitsError(f"the record at {one.offset} has no property {name}")
        new = value.encode()
        if len(new) != len(old):
            raise ValueError(f"{name}: {old!r} has {len(old)} bytes, {new!r} has {len(new)}")
        pieces = re.split(b"(?<=\x02)", one.record.properties)
        start = name.encode() + b"\x01"
        changed = [
            start + new + piece[len(start) + len(old) :] if piece.startswith(start) else piece for piece in pieces
        ]
        return self.rewrite(one, properties=b"".join(changed))

    def log_end(self) -> int:
        """Behind the last record; a blank tail is not counted."""
        last = None
        for one in self.records():
            last = one
        return 0 if last is None else last.offset + last.size

    def append(self, record: _scan.Record, *, unit: bool = False) -> Placed:
        """A record behind the last one, right in itself. Its queue hears of it only with *unit*, the index never."""
        offset = self.log_end()
        raw = encoded(replace(record, physical_offset=offset), with_crc=carries_crc_in(record))
        path, position = self.place(offset)
        if position + len(raw) + 8 > self.log_file_size:
            raise NothingFitsError(f"{path}: no room behind {offset} for {len(raw)} bytes")
        self.write(offset, raw)
        self._grow_manifest(path, position + len(raw), offset + len(raw))
        one = replace_placed(Placed(record, offset, raw), raw)
        if unit:
            self.put_unit(*one.queue, one.record.queue_offset, unit_of(one))
        return one

    # ---- consume queues --------------------------------------------------------------------------------------

    def queues(self) -> list[tuple[str, int]]:
        """Topic and queue id of every queue on disk."""
        found = []
        for topic in sorted((self.root / "consumequeue").iterdir()):
            found += [(topic.name, int(queue.name)) for queue in topic.iterdir() if queue.name.isdigit()]
        return sorted(found)

    def queue_files(self, topic: str, queue_id: int) -> list[Path]:
        """A queue's files in order."""
        return named_files(self.root / "consumequeue" / topic / str(queue_id), OFFSET_NAME)

    def units(self, topic: str, queue_id: int) -> dict[int, Unit]:
        """Queue offset to unit, of those that were written; fillers are left out."""
        found = {}
        for path in self.queue_files(topic, queue_id):
            first = int(path.name) // UNIT.size
            data = path.read_bytes()
            for index in range(len(data) // UNIT.size):
                unit = Unit(*UNIT.unpack_from(data, index * UNIT.size))
                if unit.size > 0 and unit.size != 2**31 - 1:
                    found[first + index] = unit
        return found

    def unit(self, topic: str, queue_id: int, queue_offset: int) -> Unit:
        """One unit, as it is."""
        path, position = self.unit_place(topic, queue_id, queue_offset)
        with path.open("rb") as stream:
            stream.seek(position)
            return Unit(*UNIT.unpack(stream.read(UNIT.size)))

    def unit_place(self, topic: str, queue_id: int, queue_offset: int) -> tuple[Path, int]:
        """The file of a unit, and the position in it."""
        at = queue_offset * UNIT.size
        base = at - at % self.queue_file_size
        return self.root / "consumequeue" / topic / str(queue_id) / f"{base:020d}", at - base

    def put_unit(self, topic: str, queue_id: int, queue_offset: int, unit: Unit) -> None:
        """Write one unit; its file must be there."""
        path, position = self.unit_place(topic, queue_id, queue_offset)
        if not path.exists():
            raise NothingFitsError(f"{path}: not there")
        put(path, position, UNIT.pack(*unit))

    def zero_unit(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """As if it had never been written."""
        self.put_unit(topic, queue_id, queue_offset, Unit(0, 0, 0))

    def cut_queue(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Zeros from a unit on to the end of the last file."""
        for number in self.units(topic, queue_id):
            if number >= queue_offset:
                self.zero_unit(topic, queue_id, number)

    def pick_queue(
        self, random: Random, *, units_min: int = 1, wanted: Callable[[str, int], Any] = lambda topic, queue: True
    ) -> tuple[str, int]:
        """A queue with at least so many units, by chance."""
        found = [one for one in self.queues() if wanted(*one) and len(self.units(*one)) >= units_min]
        if not found:
            raise NothingFitsError(f"{self.root}: no queue has {units_min} units")
        return random.choice(found)

    # ---- the index -------------------------------------------------------------------------------------------

    @cached_property
    def index_counts(self) -> tuple[int, int]:
        """Slots and items of an index file."""
        found = find_index_counts(self.root / "index")
        if found is None:
            raise NothingFitsError(f"{self.root}: no index")
        return found

    def index_files(self) -> list[Path]:
        """In order."""
        return sorted(path for path in (self.root / "index").iterdir() if path.name.isdigit())

    def index(self, path: Path) -> _scan.Index:
        """One index file, decoded."""
        return _scan.read_index(path, self.index_counts[0])

    def item(self, path: Path, number: int) -> Item:
        """Item *number*, from 1."""
        with path.open("rb") as stream:
            stream.seek(self.item_position(number))
            return Item(*INDEX_ITEM.unpack(stream.read(INDEX_ITEM.size)))

    def item_position(self, number: int) -> int:
        """Where item *number* stands in an index file."""
        return 40 + 4 * self.index_counts[0] + INDEX_ITEM.size * number

    def put_item(self, path: Path, number: int, item: Item) -> None:
        """Write one item."""
        put(path, self.item_position(number), INDEX_ITEM.pack(*item))

    def pick_item(self, random: Random, wanted: Callable[[Item], Any] = lambda item: True) -> tuple[Path, int, Item]:
        """An item by chance: its file, its number and itself."""
        found = []
        for path in self.index_files():
            items = self.index(path).items
            rows = zip(*(items[name] for name in _scan.INDEX_COLUMNS), strict=True)
            found += [(path, number, Item(*row)) for number, row in enumerate(rows, 1) if wanted(Item(*row))]
        if not found:
            raise NothingFitsError(f"{self.root}: no index item fits")
        return random.choice(found)

    # ---- configuration and manifest --------------------------------------------------------------------------

    def config(self, name: str) -> Any:
        """A file of config/, decoded; keys that are numbers are ints."""
        path = self.root / "config" / name
        if not path.exists():
            raise NothingFitsError(f"{path}: not there")
        return loads(path.read_bytes())

    def edit_config(self, name: str, change: Callable[[Any], None]) -> None:
        """Let *change* work on the decoded file, and write it back in RocketMQ's dialect."""
        decoded = self.config(name)
        change(decoded)
        (self.root / "config" / name).write_bytes(dumps(decoded, standard=False))

    def manifest(self) -> dict[str, Any] | None:
        """A dump's manifest; None for a plain store."""
        path = self.root / "manifest.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def edit_manifest(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Let *change* work on the manifest."""
        decoded = self.manifest()
        if decoded is None:
            raise NothingFitsError(f"{self.root}: no dump")
        change(decoded)
        (self.root / "manifest.json").write_text(json.dumps(decoded), encoding="utf-8")

    def _grow_manifest(self, path: Path, written: int, end: int) -> None:
        """A dump's word on its log, after a record was appended. Its leaves are left as they are."""
        if self.manifest() is None:
            return

        def change(manifest: dict[str, Any]) -> None:
            manifest["log"]["end"] = max(manifest["log"]["end"], end)
            for file in manifest["files"]:
                if file["path"] == str(path.relative_to(self.root)):
                    file["written"] = max(file["written"], written)

        self.edit_manifest(change)


def encoded(record: _scan.Record, *, with_crc: bool) -> bytes:
    """A record's bytes, with the CRC over it at its end if it had one."""
    raw = _scan.encode_record(record)
    return _scan.append_record_crc(raw) if with_crc else raw


def carries_crc(raw: bytes) -> bool:
    """Whether a record ends with the CRC over itself."""
    return _scan.record_crc(raw) is not _scan.RecordCrc.ABSENT


def carries_crc_in(record: _scan.Record) -> bool:
    """The same of a decoded one."""
    return record.properties[-RECORD_CRC_SIZE:].startswith(b"__CRC32#\x01")


def replace_placed(one: Placed, raw: bytes) -> Placed:
    """*one* with other bytes."""
    record = _scan.decode_record(raw, checks=_scan.Check.STRUCTURE)
    assert isinstance(record, _scan.Record)
    return Placed(record, one.offset, raw)


def unit_of(one: Placed) -> Unit:
    """The unit a record should have, delay levels and timers aside."""
    tags = one.properties.get("TAGS")
    return Unit(one.offset, one.size, _scan.java_hash(tags.encode()) if tags else 0)


def put(path: Path, position: int, data: bytes) -> None:
    """Overwrite bytes of a file."""
    with path.open("r+b") as stream:
        stream.seek(position)
        stream.write(data)


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Turn one bit of a file."""
    with path.open("r+b") as stream:
        stream.seek(position)
        (value,) = stream.read(1)
        stream.seek(position)
        stream.write(bytes([value ^ (1 << bit)]))
