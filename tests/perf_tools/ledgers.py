"""Reading the generator's ledger: the format of perf/side_by_side/load/ledger.h, line by line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FIRST_LINE = "# pymq-ledger 1"
COLUMNS = ["kind", "topic", "queue", "queueOffset", "msgId", "sender", "sequence", "intendedNs", "sentNs", "doneNs"]


@dataclass(frozen=True)
class Entry:
    """One line; what was "-" is None."""

    kind: str
    topic: str
    queue: int
    queue_offset: int | None
    msg_id: str | None
    sender: int | None
    sequence: int | None
    intended_ns: int | None
    sent_ns: int | None
    done_ns: int | None


def read(path: Path) -> list[Entry]:
    """Every entry of a ledger; raises AssertionError when a line is not one."""
    head, names, *lines = path.read_text(encoding="utf-8").splitlines()
    assert head == FIRST_LINE
    assert names.removeprefix("# ").split("\t") == COLUMNS
    return [_entry(line) for line in lines]


def _entry(line: str) -> Entry:
    columns = line.split("\t")
    assert len(columns) == len(COLUMNS), line
    kind, topic, queue, offset, msg_id, *numbers = columns
    assert kind in "AFURC", line
    return Entry(
        kind,
        topic,
        int(queue),
        None if offset == "-" else int(offset),
        None if msg_id == "-" else msg_id,
        *(None if number == "-" else int(number) for number in numbers),
    )
