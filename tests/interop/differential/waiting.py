"""Random sequences about messages that wait: delayed sends, messages sent back, dead letters, and how they are stored.

Where a field depends on an earlier answer it holds one of the marks below, which `play` fills in for each broker.
"""

from __future__ import annotations

import random

from tests.interop.differential.sequences import (
    CREATE_GROUP,
    CREATE_TOPIC,
    CREATED,
    MAX_OFFSET,
    PULL,
    SEND_V2,
    SUBSCRIPTION,
    V2_NAMES,
    Step,
    compact,
)

SEND_BACK, DELAY_OFFSETS = 36, 45
LAST_PLACE = "@place of the last message"  # its physical offset
LAST_END = "@newest of the last queue"  # one before the last maximum that was asked for
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS = ("3", "4", "5", "17", "18", "19", "99", "0", "-1", "+4", "x", "2147483648")
TIMES = ("0", "0", "1", "2", "3", "13", "15", "16", "17")


class WaitingGenerator:
    """Makes one sequence."""

    def __init__(self, seed: int, prefix: str = "W") -> None:
        self._random = random.Random(f"{prefix}-{seed}")
        self._names = f"{prefix}{seed}"
        self._time_ms = 1_700_000_000_000 + seed

    def steps(self) -> list[Step]:
        """The whole sequence: a topic, a group, then messages and how each of them was stored."""
        group = {
            "groupName": f"{self._names}_G", "consumeEnable": True, "consumeBroadcastEnable": True,
            "retryQueueNums": self._random.choice([1, 1, 1, 0]), "retryMaxTimes": self._random.choice([16, 16, 2, 0]),
        }  # fmt: skip
        made = [Step(CREATE_TOPIC, {**CREATED, "topic": f"{self._names}_T"}), Step(CREATE_GROUP, {}, compact(group))]
        for _ in range(self._random.randint(2, 6)):
            made += self._random.choice([self.delayed, self.sent_back, self.sent_back, self.by_itself])()
        return made

    def delayed(self) -> list[Step]:
        """A delayed send, and the record that waits."""
        level = self._random.choice(LEVELS)
        steps = [self._send(f"{self._names}_T", f"DELAY\x01{level}\x02TAGS\x01A\x02KEYS\x01k\x02")]
        return steps + (self._newest(SCHEDULE, queue_of(level)) if level.isdigit() and int(level) > 0 else [])

    def sent_back(self) -> list[Step]:
        """A message, the wish to have it again, and the record that waits, or is dead."""
        times, level = self._random.choice(TIMES), self._random.choice(["0", "0", "4", "18", "99", "-1"])
        fields = {
            "group": f"{self._names}_{self._random.choice('GGGH')}",
            "offset": self._random.choice([LAST_PLACE] * 8 + ["99999999999", "-1"]),
            "delayLevel": level,
            "originTopic": f"{self._names}_T",
            "unitMode": self._random.choice(["true", "false", "false"]),
            "maxReconsumeTimes": self._random.choice([None, None, "16", "2", "0"]),
        }
        steps = [self._send(f"{self._names}_T", "TAGS\x01B\x02own\x01x\x02", times)]
        steps += [Step(SEND_BACK, fields, b"", self._random.random() < 0.3)]
        count = 3 + int(times) if level == "0" else int(level)
        if count > 0:
            steps += self._newest(SCHEDULE, queue_of(str(count)))
        return steps + self._newest(f"%DLQ%{fields['group']}", 0) + self._newest(f"%RETRY%{fields['group']}", 0)

    def by_itself(self) -> list[Step]:
        """What the client does when a send-back failed: a send to the retry topic."""
        level, times = self._random.choice(LEVELS[:5]), self._random.choice(TIMES)
        group = f"{self._names}_G"
        text = f"DELAY\x01{level}\x02RETRY_TOPIC\x01{self._names}_T\x02ORIGIN_MESSAGE_ID\x01id\x02"
        steps = [self._send(f"%RETRY%{group}", text, times, self._random.choice([None, "16", "1"]))]
        return steps + self._newest(SCHEDULE, queue_of(level)) + self._newest(f"%DLQ%{group}", 0)

    def _send(self, topic: str, properties: str, times: str = "0", times_max: str | None = None) -> Step:
        fields = {
            "producerGroup": f"{self._names}_P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
            "queueId": "0", "sysFlag": "0", "bornTimestamp": str(self._time_ms), "flag": "3", "properties": properties,
            "reconsumeTimes": times, "unitMode": "false", "batch": "false", "maxReconsumeTimes": times_max,
        }  # fmt: skip
        named = {V2_NAMES[name]: value for name, value in fields.items()}
        return Step(SEND_V2, named, self._random.randbytes(20), self._random.random() < 0.3)

    def _newest(self, topic: str, queue_id: int) -> list[Step]:
        """The last message of a queue."""
        queue = {"topic": topic, "queueId": str(queue_id)}
        pull = {
            **queue, "consumerGroup": f"{self._names}_R", "queueOffset": LAST_END, "maxMsgNums": "1",
            "sysFlag": str(SUBSCRIPTION), "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
            "subVersion": "1", "expressionType": "TAG",
        }  # fmt: skip
        return [Step(MAX_OFFSET, queue), Step(PULL, pull)]


def queue_of(level: str) -> int:
    """The queue of a level."""
    return min(int(level), 18) - 1
