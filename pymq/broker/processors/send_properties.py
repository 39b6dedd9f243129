"""A message's properties on their way into the log: the slow twin of csrc/serve/send_properties.c, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymq._core._serve import unique_key

if TYPE_CHECKING:
    from pymq.broker.config import BrokerConfig

NAME_VALUE, PROPERTY = "\x01", "\x02"
UNIQUE_KEY = "UNIQ_KEY"
DROPPED = frozenset({"POP_CK", "MSG_REGION", "TRACE_ON", "CLUSTER"})  # the broker's to say


def parse(text: str | None) -> dict[str, str]:
    """Names and values as Apache's decoder reads them: of two equal names the last counts, an empty half does not."""
    pairs: dict[str, str] = {}
    for piece in (text or "").split(PROPERTY):
        name, separator, value = piece.partition(NAME_VALUE)
        if separator and name and value:
            pairs[name] = value
    return pairs


def sent(properties: dict[str, str]) -> dict[str, str]:
    """A client's own: without what the broker says, and with a key."""
    kept = {name: value for name, value in properties.items() if name not in DROPPED}
    if UNIQUE_KEY not in kept:
        kept[UNIQUE_KEY] = unique_key()
    return kept


def encode(properties: dict[str, str], config: BrokerConfig) -> bytes:
    """As they are stored, with the broker's own behind them. Java writes a "?" for half a surrogate pair."""
    added = {
        "MSG_REGION": config.region_id,
        "TRACE_ON": "true" if config.trace_on else "false",
        "CLUSTER": config.broker_cluster_name,
    }
    return join(properties) + join(added)


def join(properties: dict[str, str]) -> bytes:
    """Names and values as they are stored."""
    text = "".join(f"{name}{NAME_VALUE}{value}{PROPERTY}" for name, value in properties.items())
    return text.encode("utf-8", "replace")


def waits(properties: dict[str, str]) -> bool:
    """Whether the producer wants its answer only after flush and replica (isWaitStoreMsgOK)."""
    return properties.get("WAIT", "true").lower() == "true"
