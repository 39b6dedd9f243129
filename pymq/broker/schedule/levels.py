"""Delay levels: what a level means, and what a message becomes while it waits (HookUtils.transformDelayLevelMessage).

A message with DELAY > 0 is stored in queue level - 1 of SCHEDULE_TOPIC_XXXX, with its own topic and queue in REAL_TOPIC
and REAL_QID. Dispatch writes its delivery time where other queues have the hash of the tags.
"""

from __future__ import annotations

import re

from pymq.broker import names
from pymq.broker.processors.send_checks import SendRefused
from pymq.remoting.codes import ResponseCode
from pymq.store.config import parse_delay_levels

DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
NUMBER = re.compile(r"[+-]?[0-9]{1,10}")
INT32_MAX = 2**31 - 1


class DelayLevels:
    """The levels of `messageDelayLevel`, counted from 1."""

    def __init__(self, text: str) -> None:
        """Read *text*, as in "1s 5s 1m".

        Raises:
            ConfigError: it cannot be read.
        """
        self.delays_ms = parse_delay_levels(text)

    @property
    def level_max(self) -> int:
        """The highest level; a message that asks for a higher one gets this."""
        return len(self.delays_ms)

    def delay_ms(self, level: int) -> int:
        """How long a message of *level* waits."""
        return self.delays_ms[min(level, self.level_max) - 1]

    def queue_of(self, level: int) -> int:
        """The queue of SCHEDULE_TOPIC_XXXX in which *level* waits."""
        return min(level, self.level_max) - 1

    def waiting(self, level: int, topic: str, queue_id: int) -> tuple[str, int, dict[str, str]]:
        """Where a message for queue *queue_id* of *topic* waits: topic, queue, and the properties it then has."""
        level = min(level, self.level_max)
        properties = {DELAY: str(level), REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
        return names.SCHEDULE_TOPIC, self.queue_of(level), properties


def level_of(properties: dict[str, str]) -> int:
    """The level a message asks for; 0 or less is none.

    Raises:
        SendRefused: it is no number. Apache fails with an exception's name, or (dispatch) much later.
    """
    text = properties.get(DELAY)
    if text is None:
        return 0
    if NUMBER.fullmatch(text) and abs(int(text)) <= INT32_MAX:
        return int(text)
    raise SendRefused(ResponseCode.SYSTEM_ERROR, f"the property DELAY is no level: {text!r}", has_fields=False)
