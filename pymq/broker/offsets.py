"""Consumer offsets on disk: `config/consumerOffset.json`, in RocketMQ's dialect.

The offsets themselves live in the native table alone. Here they are put into it at the start, and copied out of it
every five seconds and at the stop; a file that would say the same again is not written.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pymq.broker.config_file import ConfigFile
from pymq.broker.data_version import DataVersion
from pymq.errors import CorruptFileError
from pymq.remoting import json_dialect
from pymq.store.offsets import BARE_KEY, SEPARATOR, offset_table

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

OFFSETS_FILE = "consumerOffset.json"
Table = dict[tuple[str, str], dict[int, int]]

log = logging.getLogger("pymq.broker")


class OffsetManager:
    """Saves and loads the native table's offsets."""

    def __init__(self, broker: Broker) -> None:
        """Begin with nothing; see load()."""
        self._broker = broker
        self._saved: Table = {}
        self._writing: Table = {}
        self._others: dict[str, Any] = {}
        self.version = DataVersion(timestamp_ms=broker.clock.now_ms())
        self._file = ConfigFile(broker.config_directory / OFFSETS_FILE, self._document, broker.config_executor)

    def load(self) -> None:
        """Read the file into the native table.

        Offsets beyond the end of their queue are brought back to it: a power failure under ASYNC_FLUSH takes the log's
        tail and leaves the offsets, which would skip what is stored in its place.

        Raises:
            CorruptFileError: the file and its backup are unreadable.
        """
        document = self._file.load() or {}
        try:
            table = offset_table(document)
        except (TypeError, ValueError) as error:
            raise CorruptFileError(f"{self._file.path}: {error}; repair or remove it") from error
        self.version = DataVersion.from_json(document.get("dataVersion")) or self.version
        known = {"dataVersion", "offsetTable", "groupTopicMap"}
        self._others = {key: value for key, value in document.items() if key not in known}
        ends = {(topic, queue_id): int(end) for topic, queue_id, _, end in self._broker.store.queues()}
        for (topic, group), queues in table.items():
            for queue_id, offset in queues.items():
                end = ends.get((topic, queue_id), 0)
                if offset > end:
                    log.warning(
                        "offset corrected group=%s topic=%s queue=%d offset=%d to=%d",
                        group,
                        topic,
                        queue_id,
                        offset,
                        end,
                    )
                self._broker.serve.offset_commit(group, topic, queue_id, min(offset, end))
        self._saved = self.table()

    def table(self) -> Table:
        """Every offset now, by (topic, group) and queue."""
        table: Table = {}
        for group, topic, queue_id, offset in self._broker.serve.offsets():
            table.setdefault((topic, group), {})[queue_id] = offset
        return table

    def saved(self) -> Table:
        """Every offset as of the last save; replaced, never changed."""
        return self._saved

    async def save(self) -> bool:
        """Write the file if anything moved since the last time; whether it did.

        Raises:
            OSError: the disk refused.
        """
        table = self.table()
        if table == self._saved:
            return False
        self._writing = table
        self.version.advance(self._broker.clock)
        await self._file.save()
        self._saved = table
        return True

    def encode(self) -> bytes:
        """What GET_ALL_CONSUMER_OFFSET answers: the offsets as they are now."""
        table = {f"{topic}{SEPARATOR}{group}": queues for (topic, group), queues in self.table().items()}
        return json_dialect.dumps({"dataVersion": self.version.to_json(), "offsetTable": table}, standard=False)

    def _document(self) -> dict[str, Any]:
        groups: dict[str, list[str]] = {}
        for topic, group in self._writing:
            groups.setdefault(group, []).append(topic)
        return {
            "dataVersion": self.version.to_json(),
            "groupTopicMap": groups,
            "offsetTable": {
                f"{topic}{SEPARATOR}{group}": {f"{BARE_KEY}{queue}": offset for queue, offset in sorted(queues.items())}
                for (topic, group), queues in self._writing.items()
            },
            **self._others,
        }
