"""Small logs, made record by record, for tests that spoil them: a file's bytes, and where its records begin."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pymq import _scan
from spark_jobs.rocketmq_store.walk import LogRange

BASE = 65536  # of the file: not zero, so that an offset and a position are never taken for each other
FILE_SIZE = 4096
TOPICS = (b"orders", b"stock", b"orders")
BORN_MS = 1_794_794_160_000


@dataclass
class MadeLog:
    """A log file in the making."""

    base: int = BASE
    file_size: int = FILE_SIZE
    data: bytearray = field(default_factory=bytearray)
    starts: list[int] = field(default_factory=list)  # positions in the file
    blank_at: int | None = None

    def add(self, *, crc: bool = False, **fields: object) -> None:
        """Append a record; *crc* puts the CRC over the record behind it."""
        number = len(self.starts)
        made = _scan.encode_record(
            _scan.Record(
                **{
                    "topic": TOPICS[number % len(TOPICS)],
                    "body": b"body of %d" % number,
                    "properties": _scan.encode_properties(
                        [
                            (b"UNIQ_KEY", b"ID%d" % number),
                            (b"KEYS", b"a%d b" % number),
                            (b"TAGS", b"t%d" % (number % 2)),
                        ]
                    ),
                    "queue_id": number % 2,
                    "queue_offset": number,
                    "physical_offset": self.base + len(self.data),
                    "born_timestamp_ms": BORN_MS + number,
                    "store_timestamp_ms": BORN_MS + 40_000 * number,
                    "born_host": _scan.Host(b"\x7f\0\0\1", 40000),
                    "store_host": _scan.Host(bytes(15) + b"\1", 10911),
                    **fields,
                }
            )
        )
        self.starts.append(len(self.data))
        self.data += _scan.append_record_crc(made) if crc else made

    def fill(self, room: int = 600) -> MadeLog:
        """Records up to *room* bytes before the file's end, then the blank tail."""
        while self.file_size - len(self.data) > room:
            self.add()
        self.blank_at = len(self.data)
        left = self.file_size - len(self.data)
        self.data += left.to_bytes(4, "big") + _scan.MAGIC_BLANK.to_bytes(4, "big") + bytes(left - 8)
        return self

    def unfinished(self, count: int) -> MadeLog:
        """*count* records and zeros behind them."""
        for _ in range(count):
            self.add()
        self.data += bytes(self.file_size - len(self.data))
        return self

    def write(self, directory: Path) -> Path:
        """The file, named by its base."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.base:020d}"
        path.write_bytes(self.data)
        return path


def whole_range(path: Path, *, log_end: int = -1) -> LogRange:
    """All that begins in a file."""
    base, size = int(path.name), path.stat().st_size
    return LogRange("made", str(path), base, base, base + size, base + size, log_end)
