"""How a timed message is put again: where it goes, what is added to it, and what a refusal means."""

from __future__ import annotations

from collections.abc import Mapping

from pymq._core._serve import Reput
from pymq.broker import names as broker_names
from pymq.broker.timer import properties as names
from pymq.broker.timer.log import Unit

MOVED = b"REAL_TOPIC\x02REAL_QID\x02"
ASKED = b"".join(f"{name}\x02".encode() for name in (names.DELAY_SEC, names.DELAY_MS, names.DELIVER_MS))

GONE = frozenset({"PYMQ_ENOTFOUND", "PYMQ_ECORRUPT"})  # the record itself; no attempt will find it
HOMELESS = frozenset({"PYMQ_ETOPIC", "PYMQ_EINVAL"})  # it says no topic or queue of its own
FULL = frozenset({"PYMQ_EPROPERTIES", "PYMQ_ETOOBIG"})  # no room for what we add
ALONE = FULL | {"PYMQ_EREMOVED"}  # concerns this message and not the store


def _times(unit: Unit, now_ms: int) -> str:
    return f"{names.ENQUEUE_MS}\x01{unit.written_ms}\x02{names.DEQUEUE_MS}\x01{now_ms}\x02"


def delivery(unit: Unit, now_ms: int) -> Reput:
    """To where the message belongs.

    Compat: REAL_TOPIC and REAL_QID stay; 5.5.0 clears them too late, and consumers see them.
    """
    return Reput(unit.offset, set=_times(unit, now_ms).encode())


def roll(unit: Unit, now_ms: int, properties: Mapping[str, str]) -> Reput:
    """Back to the timer topic, for another round."""
    added = _times(unit, now_ms) + names.rolled_again(properties)
    return Reput(unit.offset, topic=broker_names.TIMER_TOPIC, queue_id=0, set=added.encode())


def deliveries_without_room(unit: Unit) -> list[Reput]:
    """What to try with a message that has no room for what is added: sends leave some, other brokers' sends did not."""
    return [Reput(unit.offset, remove=MOVED)]


def rolls_without_room(unit: Unit, properties: Mapping[str, str]) -> list[Reput]:
    """The same for one that is rolled, which must not be stuck until its time and beyond.

    What it asked for is in OUT_MS by then and gives its place to the count, by which copies are told apart; without
    even that it may come twice from a rebuild.
    """
    return [
        Reput(unit.offset, topic=broker_names.TIMER_TOPIC, queue_id=0, remove=ASKED, set=added.encode())
        for added in (names.rolled_again(properties), "")
    ]
