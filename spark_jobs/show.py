"""Show the bytes a finding is about: `python -m spark_jobs.show DUMP --physical-offset N`.

A place is named by whichever offset is known:

    --physical-offset N             a byte of the commit log
    --queue TOPIC QUEUE OFFSET      a unit of a queue, and the record it leads to
    --timer-log N                   a unit of the timer log, and the record it leads to
    --index-item PATH NUMBER        an item of an index file, and the record it leads to
    --file PATH --position N        a byte of any file below the store: index, checkpoint, configuration, …

A record is shown field by field with its bytes, then body and properties as a hex dump; damage is shown as far as it
can be read, with the reason why it is no record and where the next one begins. Needs no Spark and changes nothing.
Exit code: 0 shown, 2 there is nothing to show.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from pymq import _scan
from pymq.errors import ConfigError, PymqError, StoreError
from pymq.store.layout import INDEX_HEADER_SIZE, INDEX_NAME, INDEX_SLOT_SIZE, OFFSET_NAME, named_files
from spark_jobs.report.summary import printable
from spark_jobs.report.svg import time_text
from spark_jobs.rocketmq_store.files import find_index_counts

LINE = 16  # bytes of a line of the dump
SHOWN_DEFAULT = 256
HEADER_SIZE = 88  # of a record with two IPv4 hosts, up to its body
RECORD_SIZE_MAX = 64 * 1024 * 1024
SEARCH_SIZE = 16 * 1024 * 1024  # how far the next record is looked for
MAGICS = {_scan.MAGIC_V1: "v1", _scan.MAGIC_V2: "v2", _scan.MAGIC_BLANK: "blank tail"}
UNIT = struct.Struct(">qiq")  # physical offset, size, tags code
ITEM = struct.Struct(">iqii")  # key hash, physical offset, seconds, previous item
FILLER_SIZE = 0x7FFFFFFF
# size, previous, magic, written at, delay, physical offset, size of the record, hash of the topic, zero
TIMER_UNIT = struct.Struct(">iqiqiqiiq")
BORN_IPV6, STORE_IPV6 = 1 << 4, 1 << 5


class Piece(NamedTuple):
    """Some bytes of one file."""

    path: Path
    position: int
    data: bytes


class Field(NamedTuple):
    """A field of a record: where it stands in it, what it is, and a remark when something is wrong with it."""

    position: int
    size: int
    name: str
    value: str


# ---- finding the bytes ---------------------------------------------------------------------------------------


def read_log(root: Path, physical_offset: int, size: int) -> Piece:
    """Up to *size* bytes of the log, from one file.

    Raises:
        ConfigError: the log has no such byte.
    """
    if not named_files(root / "commitlog", OFFSET_NAME):
        raise ConfigError(f"{root}: no log file in it; give the directory that has commitlog/")
    return read_named(root / "commitlog", physical_offset, size)


def read_named(directory: Path, position: int, size: int) -> Piece:
    """Up to *size* bytes from the file, named by the position of its first byte, that holds *position*.

    Raises:
        ConfigError: there is none.
    """
    files = named_files(directory, OFFSET_NAME)
    for path in reversed(files):
        base = int(path.name)
        if base <= position < base + path.stat().st_size:
            return read_file(path, position - base, size)
    if not files:
        raise ConfigError(f"{directory}: no files in it")
    last = int(files[-1].name) + files[-1].stat().st_size
    raise ConfigError(f"{directory}: no byte {position} in it, its files hold {int(files[0].name)} to {last - 1}")


def read_file(path: Path, position: int, size: int) -> Piece:
    """Up to *size* bytes of *path*."""
    with path.open("rb") as file:
        file.seek(position)
        return Piece(path, position, file.read(size))


def read_unit(root: Path, topic: str, queue_id: int, queue_offset: int) -> Piece:
    """The 20 bytes of a queue's unit.

    Raises:
        ConfigError: the queue has no such unit.
    """
    directory = root / "consumequeue" / topic / str(queue_id)
    if not is_below(directory, root / "consumequeue"):
        raise ConfigError(f"topic {topic!r}: no name a queue is filed under")
    position = queue_offset * UNIT.size
    for path in named_files(directory, OFFSET_NAME):
        base = int(path.name)
        if base <= position and position + UNIT.size <= base + path.stat().st_size:
            return read_file(path, position - base, UNIT.size)
    raise ConfigError(f"{directory}: no unit {queue_offset} in its files")


def is_below(path: Path, root: Path) -> bool:
    """Whether *path* lies in *root*: what a finding names may come from damaged bytes."""
    return path.resolve().is_relative_to(root.resolve())


# ---- saying what they are ------------------------------------------------------------------------------------


def fields_of(data: bytes) -> Iterator[Field]:
    """The fixed fields of a record, as far as *data* goes, whether or not they make sense."""
    flags = int.from_bytes(data[36:40], "big") if len(data) >= 40 else 0
    born = 20 if flags & BORN_IPV6 else 8
    stored = 20 if flags & STORE_IPV6 else 8
    position = 0
    for size, name, show in (
        (4, "total size", number_text),
        (4, "magic", magic_text),
        (4, "body CRC", hex_text),
        (4, "queue id", number_text),
        (4, "flag", number_text),
        (8, "queue offset", number_text),
        (8, "physical offset", number_text),
        (4, "system flag", hex_text),
        (8, "born at", moment_text),
        (born, "born host", host_text),
        (8, "stored at", moment_text),
        (stored, "store host", host_text),
        (4, "reconsume times", number_text),
        (8, "prepared transaction", number_text),
        (4, "body size", number_text),
    ):
        piece = data[position : position + size]
        if len(piece) < size:
            return
        yield Field(position, size, name, show(piece))
        position += size


def number_text(piece: bytes) -> str:
    """A signed number."""
    return str(int.from_bytes(piece, "big", signed=True))


def hex_text(piece: bytes) -> str:
    """Bits."""
    return f"0x{piece.hex()}"


def magic_text(piece: bytes) -> str:
    """Which kind of record it says to be."""
    return MAGICS.get(int.from_bytes(piece, "big"), "none of a record")


def moment_text(piece: bytes) -> str:
    """A time: the number, and the minute it is in."""
    value = int.from_bytes(piece, "big", signed=True)
    text = time_text(value)
    return f"{value} ({text} UTC)" if text != str(value) else text


def host_text(piece: bytes) -> str:
    """Address and port."""
    address, port = ipaddress.ip_address(piece[:-4]), int.from_bytes(piece[-4:], "big", signed=True)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def hex_dump(data: bytes, first: int, shown_max: int, mark: int = -1) -> Iterator[str]:
    """Lines of 16 bytes: position, hexadecimal, and what is printable of it; the one with byte *mark* is marked."""
    for start in range(0, min(len(data), shown_max), LINE):
        line = data[start : min(start + LINE, shown_max)]
        left, right = line[:8].hex(" "), line[8:].hex(" ")
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        sign = ">" if first + start <= mark < first + start + LINE else " "
        yield f"{sign} {first + start:>12}  {left:<23}  {right:<23}  |{text}|"
    if len(data) > shown_max:
        yield f"  {'…':>12}  {len(data) - shown_max:,} more bytes; --size {len(data)} shows them"


def show_log(root: Path, physical_offset: int, size: int) -> Iterator[str]:
    """What stands at a byte of the log."""
    head = read_log(root, physical_offset, 4).data
    total = min(max(int.from_bytes(head, "big", signed=True), size, HEADER_SIZE), RECORD_SIZE_MAX)
    piece = read_log(root, physical_offset, total)
    yield f"{piece.path}, byte {piece.position} (physical offset {physical_offset})"
    yield from beyond_dump(root, physical_offset)
    yield ""
    try:
        found = _scan.decode_record(piece.data, checks=_scan.Check.STRUCTURE)
    except StoreError:
        yield from show_damage(root, piece, physical_offset, size)
        return
    if isinstance(found, _scan.BlankTail):
        left = piece.path.stat().st_size - piece.position
        legal = "the rest of its file" if found.size == left else f"but {left:,} are left of the file"
        yield f"blank tail of {found.size:,} bytes, {legal}"
        yield from hex_dump(piece.data, piece.position, min(size, 64))
        return
    yield from show_record(found, piece, physical_offset, size)


def show_record(record: _scan.Record, piece: Piece, physical_offset: int, size: int) -> Iterator[str]:
    """A record whose structure holds."""
    data = piece.data[: record.total_size]
    remarks = {}
    crc = _scan.crc32(record.body) & 0x7FFFFFFF
    if crc != record.body_crc:
        remarks["body CRC"] = f"WRONG: the body has 0x{crc:08x}"
    if record.physical_offset != physical_offset:
        remarks["physical offset"] = f"WRONG: it stands at {physical_offset}"
    if _scan.record_crc(data) is _scan.RecordCrc.DIFFERS:
        remarks["total size"] = "the CRC over the record (__CRC32#) does not match"
    yield f"record of {record.total_size:,} bytes, " + ("as it should be" if not remarks else "damaged")
    yield from field_lines(data, remarks)
    body = len(data) - len(record.properties) - 2 - len(record.topic) - len(record.body)
    body -= 2 if record.magic == _scan.MAGIC_V2 else 1
    yield ""
    yield f"  topic         {printable(record.topic.decode('utf-8', 'replace'))}"
    for name, value in _scan.iterate_properties(record.properties):
        shown = printable(value.decode("utf-8", "replace"))
        yield f"  property      {printable(name.decode('utf-8', 'replace'))} = {shown}"
    yield ""
    yield f"body, {len(record.body):,} bytes, at byte {piece.position + body} of the file"
    yield from hex_dump(record.body, piece.position + body, size)
    tail = body + len(record.body)
    yield ""
    yield f"topic and properties, {len(data) - tail:,} bytes"
    yield from hex_dump(data[tail:], piece.position + tail, size)


def field_lines(data: bytes, remarks: dict[str, str]) -> Iterator[str]:
    """The fixed fields, one a line, with their bytes."""
    for field in fields_of(data):
        raw = data[field.position : field.position + field.size].hex()
        remark = f"   <- {remarks[field.name]}" if field.name in remarks else ""
        yield f"  {field.position:>4}  {raw:<16}  {field.name:<20}  {field.value}{remark}"


def reason_of(piece: Piece) -> str:
    """Why these bytes are no record."""
    if len(piece.data) < 8:
        return "the file ends before the first fields of one"
    total, magic = (int.from_bytes(piece.data[at : at + 4], "big", signed=at == 0) for at in (0, 4))
    left = piece.path.stat().st_size - piece.position
    if magic not in MAGICS:
        return f"0x{magic:08x} is no record's magic"
    if total < HEADER_SIZE or total > left:
        return f"a total size of {total:,} cannot be, the file has {left:,} bytes left"
    return "its sizes, topic and properties contradict each other"


def show_damage(root: Path, piece: Piece, physical_offset: int, size: int) -> Iterator[str]:
    """Bytes that are no record."""
    if not any(piece.data):
        yield f"zeros, {len(piece.data):,} bytes of them at least: nothing was written here, or it is gone"
    else:
        yield f"no record: {reason_of(piece)}"
        yield "read as one it would say"
        yield from field_lines(piece.data, {})
    yield ""
    yield from hex_dump(piece.data[: max(size, LINE)], piece.position, size)
    following = next_record(root, physical_offset)
    yield ""
    yield (
        f"no whole record within {SEARCH_SIZE // 2**20} MiB behind it in this file"
        if following is None
        else f"the next whole record begins at physical offset {following}, {following - physical_offset:,} bytes on"
    )


def next_record(root: Path, physical_offset: int) -> int | None:
    """Where the next record begins that is whole and says so itself; in the same file."""
    piece = read_log(root, physical_offset, SEARCH_SIZE)
    checks = _scan.Check.STRUCTURE | _scan.Check.OFFSET | _scan.Check.BODY_CRC
    magics = [magic.to_bytes(4, "big") for magic in (_scan.MAGIC_V1, _scan.MAGIC_V2)]
    at = 5  # a magic stands four bytes behind a record's start, and not at the start asked about
    while True:
        places = [place for place in (piece.data.find(magic, at) for magic in magics) if place >= 0]
        if not places:
            return None
        start = min(places) - 4
        try:
            _scan.decode_record(piece.data, at=start, checks=checks, physical_offset=physical_offset + start)
        except StoreError:
            at = start + 5
        else:
            return physical_offset + start


def beyond_dump(root: Path, physical_offset: int) -> Iterator[str]:
    """A line when a dump says that it ends before this byte."""
    try:
        end = json.loads((root / "manifest.json").read_bytes())["log"]["end"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return
    if isinstance(end, int) and physical_offset >= end:
        yield f"the dump ends at {end}: this does not belong to it"


def show_queue(root: Path, topic: str, queue_id: int, queue_offset: int, size: int) -> Iterator[str]:
    """A unit, and the record it leads to."""
    piece = read_unit(root, topic, queue_id, queue_offset)
    physical_offset, record_size, tags_code = UNIT.unpack(piece.data)
    yield f"{piece.path}, byte {piece.position} (queue offset {queue_offset})"
    yield from hex_dump(piece.data, piece.position, UNIT.size)
    yield f"  unit: physical offset {physical_offset}, size {record_size}, tags code {tags_code}"
    yield ""
    if record_size <= 0:
        yield "not written: a unit counts when its size is above 0"
    elif (physical_offset, record_size) == (0, FILLER_SIZE):
        yield "filler: it stands for an offset without a message"
    else:
        yield from show_log(root, physical_offset, size)


def show_timer(root: Path, position: int, size: int) -> Iterator[str]:
    """A unit of the timer log, and the record it leads to."""
    piece = read_named(root / "timerlog", position, TIMER_UNIT.size)
    yield f"{piece.path}, byte {piece.position} (position {position} of the timer log)"
    yield from hex_dump(piece.data, piece.position, TIMER_UNIT.size)
    yield ""
    if len(piece.data) < TIMER_UNIT.size or not any(piece.data):
        yield "no unit: the file ends, or zeros stand here"
        return
    own, previous, magic, written, delay, physical_offset, record_size, topic_hash, _ = TIMER_UNIT.unpack(piece.data)
    for name, value in (
        ("unit size", f"{own}" + ("" if own == TIMER_UNIT.size else f"   <- WRONG: a unit has {TIMER_UNIT.size}")),
        ("previous", str(previous)),
        ("magic", str(magic)),
        ("written at", f"{written} ({time_text(written)} UTC)"),
        ("delay", f"{delay} ms, so its slot is {written + delay} ({time_text(written + delay)} UTC)"),
        ("physical offset", str(physical_offset)),
        ("record size", str(record_size)),
        ("topic hash", str(topic_hash)),
    ):
        yield f"  {name:<16}  {value}"
    yield ""
    yield from show_log(root, physical_offset, size)


def show_item(root: Path, name: str, number: int, size: int) -> Iterator[str]:
    """An item of an index file, and the record it leads to."""
    path = file_below(root, name)
    slots, items = find_index_counts(named_files(root / "index", INDEX_NAME))
    if not 0 < number < items:
        raise ConfigError(
            f"{path}: no item {number}, " + (f"they go to {items - 1}" if items else "nothing tells where")
        )
    piece = read_file(path, INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * slots + ITEM.size * number, ITEM.size)
    key_hash, physical_offset, seconds, previous = ITEM.unpack(piece.data)
    slot = read_file(path, INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * (key_hash % slots), INDEX_SLOT_SIZE)
    yield f"{path}, byte {piece.position} (item {number})"
    yield from hex_dump(piece.data, piece.position, ITEM.size)
    yield f"  item: key hash {key_hash}, physical offset {physical_offset}, {seconds} s, previous item {previous}"
    yield f"  slot {key_hash % slots}, at byte {slot.position}, begins with item {int.from_bytes(slot.data, 'big')}"
    yield ""
    yield from show_log(root, physical_offset, size)


def file_below(root: Path, name: str) -> Path:
    """The file called *name* in the store.

    Raises:
        ConfigError: there is none.
    """
    path = root / name
    if not is_below(path, root) or not path.is_file():
        raise ConfigError(f"{root}: no file {name} in it")
    return path


def show_file(root: Path, name: str, position: int, size: int) -> Iterator[str]:
    """Bytes of any file; those of the log and of queues as what they are."""
    path = file_below(root, name)
    parts = Path(name).parts
    if parts[0] == "commitlog" and parts[-1].isdecimal():
        yield from show_log(root, int(parts[-1]) + position, size)
        return
    if parts[0] == "consumequeue" and len(parts) == 4 and parts[-1].isdecimal() and parts[2].isdecimal():
        yield from show_queue(root, parts[1], int(parts[2]), (int(parts[3]) + position) // UNIT.size, size)
        return
    start = max(position - position % LINE - 2 * LINE, 0)
    piece = read_file(path, start, size)
    if not piece.data or position >= path.stat().st_size:
        raise ConfigError(f"{path}: has {path.stat().st_size} bytes, and none at {position}")
    yield f"{path}, byte {position}"
    yield from hex_dump(piece.data, start, size, position)


# ---- the command ---------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Exit with 2."""
        self.exit(2, f"show: {message} (--help shows how)\n")


def parser() -> Parser:
    """The options."""
    options = Parser(prog="python -m spark_jobs.show", description="Show the bytes of a store that a finding is about.")
    options.add_argument("store", type=Path, metavar="DUMP", help="a dump, or the directory of a store")
    place = options.add_mutually_exclusive_group(required=True)
    place.add_argument("--physical-offset", type=int, metavar="N", help="a byte of the commit log")
    place.add_argument("--queue", nargs=3, metavar=("TOPIC", "QUEUE", "OFFSET"), help="a unit and its record")
    place.add_argument("--timer-log", type=int, metavar="N", help="a unit of the timer log and its record")
    place.add_argument("--index-item", nargs=2, metavar=("PATH", "NUMBER"), help="an index file's item and its record")
    place.add_argument("--file", metavar="PATH", help="a file below the store, with --position")
    options.add_argument("--position", type=int, default=0, metavar="N", help="a byte of --file")
    options.add_argument("--size", type=int, default=SHOWN_DEFAULT, metavar="BYTES", help="how much of it (256)")
    return options


def whole_numbers(option: str, words: Sequence[str]) -> list[int]:
    """*words* of *option* as numbers.

    Raises:
        ConfigError: one is none.
    """
    try:
        return [int(word) for word in words]
    except ValueError:
        raise ConfigError(f"{option}: {' '.join(words)} should be whole numbers") from None


def lines_for(options: argparse.Namespace) -> Iterator[str]:
    """What was asked for."""
    if not options.store.is_dir():
        raise ConfigError(f"{options.store}: no such directory")
    if options.physical_offset is not None:
        yield from show_log(options.store, options.physical_offset, options.size)
    elif options.timer_log is not None:
        yield from show_timer(options.store, options.timer_log, options.size)
    elif options.queue is not None:
        topic, *numbers = options.queue
        yield from show_queue(options.store, topic, *whole_numbers("--queue", numbers), options.size)
    elif options.index_item is not None:
        name, *numbers = options.index_item
        yield from show_item(options.store, name, *whole_numbers("--index-item", numbers), options.size)
    else:
        yield from show_file(options.store, options.file, options.position, options.size)


def main(arguments: Sequence[str] | None = None) -> int:
    """Show it; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        for line in lines_for(options):
            print(line)
    except BrokenPipeError:  # as in `show … | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - what is left to flush goes nowhere, at exit
    except (PymqError, OSError) as error:
        print(f"show: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
