"""What an existing `broker.conf` may contain: every key of Apache RocketMQ 5.5.0, supported here or not.

The tables beside this file have one key a line: name, type, default, and `!` where `-m` prints it. A default of `-` is
Java's null, one that begins with `$` depends on the machine. They were read off the Java sources once and are ours to
keep; `BrokerConfig` decides which keys take effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pymq.broker.known_keys import auth, broker, network, store

# Spellings of older releases, still found in configuration files.
OLD_SPELLINGS = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
    "warmMappedFileEnable": "warmMapedFileEnable",
    "destroyMappedFileIntervalForcibly": "destroyMapedFileIntervalForcibly",
    "flushLeastPagesWhenWarmMappedFile": "flushLeastPagesWhenWarmMapedFile",
    "brokerPermisson": "brokerPermission",
}


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One key of Apache's.

    Attributes:
        default: as text; None for null, "$…" where it depends on the machine.
        part: "broker", "store", "network" or "auth": where Apache keeps it.
    """

    name: str
    kind: str
    default: str | None
    important: bool
    part: str

    def is_default(self, text: str) -> bool:
        """Whether *text* says what the default says, however it is spelled."""
        text = text.strip()
        if self.default is None:
            return text == ""
        if self.kind == "bool":
            return text.lower() == self.default
        if self.kind in ("int", "float"):
            try:
                return float(text) == float(self.default)
            except ValueError:
                return False
        return text == self.default


def parse_keys(table: str, part: str) -> Iterator[KnownKey]:
    """The keys of one table."""
    for line in table.split("\n"):
        if line:
            name, kind, default = line.removesuffix(" !").split(" ", 2)
            yield KnownKey(name, kind, None if default == "-" else default, line.endswith(" !"), part)


KNOWN_KEYS: dict[str, KnownKey] = {
    key.name: key
    for part, table in (
        ("broker", broker.KEYS),
        ("network", network.KEYS),
        ("store", store.KEYS),
        ("auth", auth.KEYS),
    )
    for key in reversed(list(parse_keys(table, part)))
}
