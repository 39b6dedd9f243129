"""`config/delayOffset.json`: how far each delay level has been delivered, in RocketMQ's dialect.

    {"dataVersion":{…},"offsetTable":{3:17,5:2}}      level: offset in its queue

Written every flushDelayOffsetInterval and at the stop, and never ahead of what is on stable storage (see `progress`).
Messages that were set aside stand in a table of ours, `failedOffsets`, which RocketMQ reads over.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pymq.broker import names
from pymq.broker.config_file import ConfigFile
from pymq.broker.data_version import DataVersion
from pymq.broker.schedule.progress import LevelProgress
from pymq.errors import CorruptFileError, NotFoundError
from pymq.remoting import json_dialect
from pymq.store.offsets import BARE_KEY

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

DELAY_OFFSET_FILE = "delayOffset.json"
LEVEL_MAX = 65_536
OFFSETS, FAILED = "offsetTable", "failedOffsets"

log = logging.getLogger("pymq.broker.schedule")


class DelayOffsets:
    """Progress of every level, and its file."""

    def __init__(self, broker: Broker) -> None:
        """Begin with nothing; see load()."""
        self._broker = broker
        self._file = ConfigFile(
            broker.config_directory / DELAY_OFFSET_FILE, lambda: self._writing, broker.config_executor
        )
        self._writing: dict[str, Any] = {}
        self._saved: dict[str, Any] = {}
        self.version = DataVersion()
        self.levels: dict[int, LevelProgress] = {}

    def load(self, level_max: int) -> None:
        """Read the file and put right what does not fit the queues, as correctDelayOffset does. Waits for the disk.

        Levels beyond *level_max* that still have messages are there too: fewer levels were configured since.

        Raises:
            CorruptFileError: file and backup are unreadable, or an offset is no number.
        """
        found = self._file.load()
        document = found or {}
        self.version = DataVersion.from_json(document.get("dataVersion")) or self.version
        offsets = self._table(document, OFFSETS)
        failed = self._table(document, FAILED)
        ranges = self._ranges()
        if found is None and any(high > low for low, high in ranges.values()):
            log.error(
                "delay offsets are gone path=%s: levels begin with their oldest message, and deliver it again",
                self._file.path,
            )
        for level in sorted({*range(1, level_max + 1), *offsets, *(queue_id + 1 for queue_id in ranges)}):
            low, high = ranges.get(level - 1, (0, 0))
            aside = failed.get(level, [])
            offset = offsets.get(level, 0)
            if not isinstance(aside, list) or not all(type(at) is int and at >= 0 for at in (offset, *aside)):
                raise CorruptFileError(f"{self._file.path}: level {level}: {offset!r}, {aside!r} are no offsets")
            corrected = min(max(offset, low), high)
            if corrected != offset and level in offsets:
                log.error(
                    "delay offset corrected level=%d from=%d to=%d because=its queue holds %d to %d",
                    level, offset, corrected, low, high,
                )  # fmt: skip
            self.levels[level] = LevelProgress(
                corrected, (at for at in aside if low <= at < corrected), is_used=level in offsets
            )
        self._saved = self._tables()

    def _ranges(self) -> dict[int, tuple[int, int]]:
        """First offset and end of each level's queue."""
        store = self._broker.store
        queues = [queue_id for topic, queue_id, _, _ in store.queues() if topic == names.SCHEDULE_TOPIC]
        return {queue_id: store.queue_range(names.SCHEDULE_TOPIC, queue_id) for queue_id in queues}

    def _table(self, document: Mapping[str, Any], name: str) -> dict[int, Any]:
        table = document.get(name) or {}
        try:
            levels = {int(level.lstrip(BARE_KEY)): entry for level, entry in table.items()}
        except (AttributeError, ValueError) as error:
            raise CorruptFileError(f"{self._file.path}: {name} is no table of levels: {error}") from error
        for level in levels:
            if not 1 <= level <= LEVEL_MAX:
                raise CorruptFileError(f"{self._file.path}: {name}: {level} is no level")
        return levels

    # ---- saving --------------------------------------------------------------------------------------------------

    async def save(self) -> bool:
        """Write what is on stable storage, if it moved since the last time; whether it did.

        Raises:
            OSError: the disk refused.
        """
        flushed = int(self._broker.store.watermarks()["flushed"])
        for progress in self.levels.values():
            progress.settle(flushed)
        tables = self._tables()
        if tables == self._saved:
            return False
        self.version.advance(self._broker.clock)
        self._writing = {"dataVersion": self.version.to_json(), **tables}
        await self._file.save()
        self._saved = tables
        return True

    def _tables(self) -> dict[str, Any]:
        tables: dict[str, Any] = {
            OFFSETS: {f"{BARE_KEY}{level}": at.vouched for level, at in self.levels.items() if at.is_used}
        }
        failed = {f"{BARE_KEY}{level}": at.failed_offsets() for level, at in self.levels.items() if at.failed_offsets()}
        return tables | ({FAILED: failed} if failed else {})

    # ---- telling -------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """What GET_ALL_DELAY_OFFSET answers: how far it has come now."""
        table = {level: progress.offset for level, progress in self.levels.items() if progress.is_used}
        return json_dialect.dumps({"dataVersion": self.version.to_json(), OFFSETS: table}, standard=False)

    def table(self) -> dict[str, str]:
        """`scheduleMessageOffset_<level>`: delivered up to, and stored up to."""
        table = {}
        for level, progress in self.levels.items():
            try:
                _, high = self._broker.store.queue_range(names.SCHEDULE_TOPIC, level - 1, False)
            except NotFoundError:
                continue
            table[f"scheduleMessageOffset_{level}"] = f"{progress.offset},{high}"
        return table
