"""Consumer offsets on disk: `config/consumerOffset.json`, in RocketMQ's dialect.

The offsets themselves live in the native table alone. Here they are put into it at the start, and copied out of it
every five seconds and at the stop; a file that would say the same again is not written.

Two tables of our own stand beside RocketMQ's, which Apache's broker does not read: resets that a group has not followed
yet, so that a restart does not let older commits win after all, and since when groups are known to topics (see
`pymq.broker.new_groups`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pymq.broker.config_file import ConfigFile
from pymq.broker.data_version import DataVersion
from pymq.errors import CorruptFileError, StoreError
from pymq.remoting import json_dialect
from pymq.store.offsets import BARE_KEY, SEPARATOR, offset_table

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

OFFSETS_FILE = "consumerOffset.json"
RESETS_KEY, KNOWN_SINCE_KEY = "pymqResetTable", "pymqKnownSince"
Table = dict[tuple[str, str], dict[int, int]]

log = logging.getLogger("pymq.broker")


class OffsetManager:
    """Saves and loads the native table's offsets."""

    def __init__(self, broker: Broker) -> None:
        """Begin with nothing; see load()."""
        self._broker = broker
        self._saved: Table = {}
        self._saved_beside: tuple[Table, dict[tuple[str, str], int]] = ({}, {})
        self._writing: Table = {}
        self._loaded: Table = {}
        self._own: Table = {}
        self._left_out: Table = {}
        self._writing_beside = self._saved_beside
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
        known = {"dataVersion", "offsetTable", "groupTopicMap", RESETS_KEY, KNOWN_SINCE_KEY}
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
                try:
                    self._broker.serve.offset_commit(group, topic, queue_id, min(offset, end))
                except StoreError as error:
                    # Apache keeps offsets of queues that cannot be; it gets them back as they were.
                    self._left_out.setdefault((topic, group), {})[queue_id] = offset
                    log.error(
                        "offset left out path=%s group=%s topic=%s queue=%d because=%s",
                        self._file.path,
                        group,
                        topic,
                        queue_id,
                        error,
                    )
                    continue
                self._loaded.setdefault((topic, group), {})[queue_id] = min(offset, end)
        self._load_beside(document, ends)
        self._saved = self.table()
        self._saved_beside = self._beside()

    def _load_beside(self, document: dict[str, Any], ends: dict[tuple[str, int], int]) -> None:
        """The two tables of our own."""
        try:
            resets = offset_table({"offsetTable": document.get(RESETS_KEY) or {}})
            since = {pair_of(key): int(moment_ms) for key, moment_ms in (document.get(KNOWN_SINCE_KEY) or {}).items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise CorruptFileError(f"{self._file.path}: {error}; repair or remove it") from error
        for (topic, group), queues in resets.items():
            for queue_id, offset in queues.items():
                end = ends.get((topic, queue_id), 0)
                try:
                    self._broker.serve.offset_reset(group, topic, queue_id, max(0, min(offset, end)))
                except StoreError as error:
                    log.error("reset left out group=%s topic=%s queue=%d because=%s", group, topic, queue_id, error)
        self._broker.new_groups.load(since)

    def _beside(self) -> tuple[Table, dict[tuple[str, str], int]]:
        """Resets that nobody has followed, and since when groups are known."""
        resets: Table = {}
        for state in self._broker.serve.offset_states():
            if state.pending is not None:
                resets.setdefault((state.topic, state.group), {})[state.queue_id] = state.pending
        return resets, dict(self._broker.new_groups.known_since())

    def table(self) -> Table:
        """Every offset now, by (topic, group) and queue."""
        table: Table = {}
        for group, topic, queue_id, offset in self._broker.serve.offsets():
            table.setdefault((topic, group), {})[queue_id] = offset
        for pair, queues in self._own.items():
            table[pair] = {queue_id: offset for queue_id, offset in queues.items() if offset}
            if not table[pair]:
                del table[pair]
        return table

    def loaded(self, group: str, topic: str, queue_id: int) -> int:
        """What the file said at the start, within the queue; 0 where it said nothing."""
        return self._loaded.get((topic, group), {}).get(queue_id, 0)

    def keep_own(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The broker's own progress, shown as an offset: what others commit for it is put right, and never saved."""
        self._own.setdefault((topic, group), {})[queue_id] = offset
        if (self._broker.serve.offset_query(group, topic, queue_id) or 0) != offset:
            self._broker.serve.offset_commit(group, topic, queue_id, offset)

    def saved(self) -> Table:
        """Every offset as of the last save; replaced, never changed."""
        return self._saved

    async def save(self) -> bool:
        """Write the file if anything moved since the last time; whether it did.

        Raises:
            OSError: the disk refused.
        """
        table, beside = self.table(), self._beside()
        if table == self._saved and beside == self._saved_beside:
            return False
        self._writing, self._writing_beside = table, beside
        self.version.advance(self._broker.clock)
        await self._file.save()
        self._saved, self._saved_beside = table, beside
        return True

    def encode(self) -> bytes:
        """What GET_ALL_CONSUMER_OFFSET answers: the offsets as they are now."""
        table = {f"{topic}{SEPARATOR}{group}": queues for (topic, group), queues in self.table().items()}
        return json_dialect.dumps({"dataVersion": self.version.to_json(), "offsetTable": table}, standard=False)

    def _document(self) -> dict[str, Any]:
        groups: dict[str, list[str]] = {}
        offsets = {pair: dict(queues) for pair, queues in self._left_out.items()}
        for pair, queues in self._writing.items():
            offsets.setdefault(pair, {}).update(queues)
        for topic, group in offsets:
            groups.setdefault(group, []).append(topic)
        return {
            "dataVersion": self.version.to_json(),
            "groupTopicMap": groups,
            "offsetTable": {
                f"{topic}{SEPARATOR}{group}": {f"{BARE_KEY}{queue}": offset for queue, offset in sorted(queues.items())}
                for (topic, group), queues in offsets.items()
            },
            **self._others,
            **self._document_beside(),
        }

    def _document_beside(self) -> dict[str, Any]:
        """Only what there is: a file that Apache's broker wrote stays as it is."""
        resets, since = self._writing_beside
        tables: dict[str, Any] = {}
        if resets:
            tables[RESETS_KEY] = {
                f"{topic}{SEPARATOR}{group}": {f"{BARE_KEY}{queue}": offset for queue, offset in sorted(queues.items())}
                for (topic, group), queues in resets.items()
            }
        if since:
            tables[KNOWN_SINCE_KEY] = {f"{topic}{SEPARATOR}{group}": at_ms for (topic, group), at_ms in since.items()}
        return tables


def pair_of(key: str) -> tuple[str, str]:
    """topic@group, apart.

    Raises:
        ValueError: it is not one.
    """
    topic, separator, group = key.rpartition(SEPARATOR)
    if not separator:
        raise ValueError(f"{key!r} is no topic{SEPARATOR}group")
    return topic, group
