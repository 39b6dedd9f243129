"""Key-value configuration: namespaces of strings that operators keep in the name server, on disk.

The file is `kvConfig.json`, in Apache's shape: {"configTable":{"NAMESPACE":{"key":"value"}}}.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pymq.durable_file import read_file, replace_file
from pymq.remoting import json_dialect

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

log = logging.getLogger("pymq.namesrv")


class KvConfig:
    """The table in memory; `content` is what belongs on disk after each change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file, or its backup.

        Raises:
            ValueError: the file is damaged; the message names it and the way out.
        """
        content = read_file(self.path)
        if content is None:
            return
        try:
            table = json_dialect.loads(content, forgiven_size_max=None)["configTable"]
            self._table = {
                str(namespace): {str(key): str(value) for key, value in entries.items()}
                for namespace, entries in table.items()
            }
        except (ValueError, TypeError, KeyError, AttributeError) as failure:
            raise ValueError(
                f"{self.path}: not a KV configuration ({failure}); repair it, or move it away to start with none"
            ) from failure

    def content(self) -> bytes:
        """The file as it should be now."""
        return json_dialect.dumps({"configTable": self._table}, standard=True)

    def save(self) -> None:
        """Put the table on disk; waits for it."""
        replace_file(self.path, self.content())

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value."""
        self._table.setdefault(namespace, {})[key] = value
        log.info("KV config: %s %s = %s", namespace, key, value)

    def get(self, namespace: str, key: str) -> str | None:
        """A value, or None."""
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value; the namespace stays, as in Apache."""
        removed = self._table.get(namespace, {}).pop(key, None)
        log.info("KV config: %s %s removed, it was %s", namespace, key, removed)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All values of a namespace, or None when there never was one."""
        return self._table.get(namespace)

    def lines(self) -> list[str]:
        """One line per value, for the log."""
        return [f"{space} {key} = {value}" for space, entries in self._table.items() for key, value in entries.items()]
