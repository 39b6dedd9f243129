"""Random sequences of requests: sends, pulls, offsets and administration, mostly sensible and now and then absurd.

A sequence has names of its own, so one broker can take thousands of them. The same seed gives the same sequence.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.interop.differential.batch import encode_batch

SEND, PULL, QUERY_OFFSET, UPDATE_OFFSET, CREATE_TOPIC = 10, 11, 14, 15, 17
SEARCH_OFFSET, MAX_OFFSET, MIN_OFFSET = 29, 30, 31
HEART_BEAT, UNREGISTER, CONSUMER_LIST = 34, 35, 38
CREATE_GROUP, TOPIC_STATS, CONSUMER_CONNECTIONS, PRODUCER_CONNECTIONS = 200, 202, 203, 204
DELETE_GROUP, CONSUME_STATS, DELETE_TOPIC = 207, 208, 215
TOPIC_CONSUMERS, SEND_V2, SEND_BATCH, TOPIC_CONFIG, GROUP_CONFIG = 300, 310, 320, 351, 352

STEPS_MIN, STEPS_MAX = 8, 24
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
V2_NAMES = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "queueId": "e",
    "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i", "reconsumeTimes": "j", "unitMode": "k",
    "maxReconsumeTimes": "l", "batch": "m", "bname": "n",
}  # fmt: skip
CREATED: Mapping[str, str] = {
    "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0", "order": "false",
}  # fmt: skip
BAD_TOPICS = ("", "with space", "T" * 128, "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "汉字", "a/b")


@dataclass(frozen=True)
class Step:
    """One request; `binary` chooses the header."""

    code: int
    fields: Mapping[str, str | None]
    body: bytes = b""
    binary: bool = False


class Generator:
    """Makes one sequence."""

    def __init__(self, seed: int, prefix: str = "D") -> None:
        self._random = random.Random(f"{prefix}-{seed}")
        self._names = f"{prefix}{seed}"
        self._time_ms = 1_700_000_000_000 + seed

    def steps(self) -> list[Step]:
        """The whole sequence."""
        kinds: list[tuple[int, Callable[[], Step]]] = [
            (10, self.send), (2, self.batch), (8, self.pull), (3, self.query_offset), (3, self.update_offset),
            (3, self.create_topic), (1, self.delete_topic), (2, self.create_group), (1, self.delete_group),
            (3, self.queue_question), (2, self.search), (2, self.heartbeat), (1, self.unregister),
            (4, self.look), (1, self.odd),
        ]  # fmt: skip
        weights = [weight for weight, _ in kinds]
        makers = [maker for _, maker in kinds]
        count = self._random.randint(STEPS_MIN, STEPS_MAX)
        return self._ground() + [maker() for maker in self._random.choices(makers, weights, k=count)]

    def _ground(self) -> list[Step]:
        """In most sequences a topic and a group exist and hold something, so that there is something to ask about."""
        if self._chance(25):
            return []
        topic = {**CREATED, "topic": f"{self._names}_T0"}
        group = {"groupName": f"{self._names}_G0", "consumeEnable": True, "consumeBroadcastEnable": True}
        sends = [
            Step(
                SEND_V2,
                {
                    **{
                        V2_NAMES[name]: value
                        for name, value in self._send_fields(f"{self._names}_T0", batch=False).items()
                    },
                    V2_NAMES["queueId"]: str(number % 2),
                },
                b"ground",
            )
            for number in range(4)
        ]
        return [Step(CREATE_TOPIC, topic), Step(CREATE_GROUP, {}, compact(group)), *sends]

    # --- parts -------------------------------------------------------------------------------------------------

    def _chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def _topic(self) -> str:
        if self._chance(3):
            return self._random.choice(BAD_TOPICS)
        return f"{self._names}_T{self._random.randrange(3)}"

    def _group(self) -> str:
        return f"{self._names}_G{self._random.randrange(2)}"

    def _queue(self) -> str:
        return str(self._random.choice([0, 0, 0, 1, 2, 3, 3, 7, 64, -1] if self._chance(30) else [0, 1]))

    def _offset(self) -> str:
        return str(self._random.choice([0, 0, 0, 1, 2, 3, 5, 100, -1]))

    def _damage(self, fields: dict[str, str | None]) -> dict[str, str | None]:
        """Now and then a field is missing or nonsense."""
        if self._chance(4):
            name = self._random.choice(sorted(fields))
            # A topic with -1 queues is refused here (tests/broker) and made by Apache: all after it would differ.
            negative = [] if name.endswith("QueueNums") else ["-1"]
            fields[name] = self._random.choice([None, "", "x", "99999999999999999999", *negative])
        return fields

    def _step(self, code: int, fields: dict[str, str | None], body: bytes = b"") -> Step:
        return Step(code, self._damage(fields), body, self._chance(30))

    # --- messages ----------------------------------------------------------------------------------------------

    def _properties(self) -> str:
        pairs: dict[str, str] = {}
        if self._chance(50):
            pairs["TAGS"] = self._random.choice(["A", "B", "C"])
        if self._chance(40):
            pairs["KEYS"] = self._random.choice(["k1", "k1 k2", "order-7"])
        if self._chance(50):
            pairs["UNIQ_KEY"] = f"{self._random.getrandbits(128):032X}"
        if self._chance(20):
            pairs["WAIT"] = self._random.choice(["true", "false"])
        if self._chance(20):
            pairs[self._random.choice(["colour", "größe", "MSG_REGION", "TRACE_ON", "CLUSTER"])] = "value"
        text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
        return text[:-1] if text and self._chance(20) else text

    def _send_fields(self, topic: str, *, batch: bool) -> dict[str, str | None]:
        return {
            "producerGroup": f"{self._names}_P",
            "topic": topic,
            "defaultTopic": "TBW102" if self._chance(95) else "NO_SUCH_DEFAULT",
            "defaultTopicQueueNums": self._random.choice(["4", "4", "2", "16"]),
            "queueId": self._queue(),
            "sysFlag": "0",
            "bornTimestamp": str(self._time_ms),
            "flag": self._random.choice(["0", "0", "7"]),
            "properties": "" if batch else self._properties(),
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": str(batch).lower(),
        }

    def send(self) -> Step:
        """One message, in the old or the new header."""
        fields = self._send_fields(self._topic(), batch=False)
        size = self._random.choice([0, 1, 10, 100, 1000, 5000]) if self._chance(98) else 4 * 1024 * 1024 + 1
        body = self._random.randbytes(min(size, 5000)).ljust(size, b"x")
        if self._chance(25):
            return self._send_step(SEND, fields, body)
        return self._send_step(SEND_V2, fields, body)

    def _send_step(self, code: int, fields: dict[str, str | None], body: bytes) -> Step:
        """A queue below 0 is the broker's to choose, at random: both brokers would go on from different states."""
        damaged = self._damage(fields)
        if (damaged["queueId"] or "").startswith("-"):
            damaged["queueId"] = "0"
        named = damaged if code == SEND else {V2_NAMES[name]: value for name, value in damaged.items()}
        return Step(code, named, body, self._chance(30))

    def batch(self) -> Step:
        """Several messages in one request."""
        fields = self._send_fields(self._topic(), batch=True)
        items = [(self._random.randbytes(20), self._properties()) for _ in range(self._random.randint(1, 5))]
        body = encode_batch(items)
        if self._chance(5):
            body = body[: len(body) // 2]
        return self._send_step(SEND_BATCH, fields, body)

    def pull(self) -> Step:
        """A pull that is answered at once, or held for a moment."""
        flag = SUBSCRIPTION
        if self._chance(20):
            flag |= COMMIT
        held = self._chance(10)
        if held:
            flag |= SUSPEND
        if self._chance(10):
            flag &= ~SUBSCRIPTION
        return self._step(
            PULL,
            {
                "consumerGroup": self._group(),
                "topic": self._topic(),
                "queueId": self._queue(),
                "queueOffset": self._offset(),
                "maxMsgNums": self._random.choice(["1", "2", "32", "32", "100", "0"]),
                "sysFlag": str(flag),
                "commitOffset": self._random.choice(["0", "2"]),
                "suspendTimeoutMillis": "50" if held else "0",
                "subscription": self._random.choice(["*", "*", "A", "A || B", "C"]),
                "subVersion": str(self._time_ms),
                "expressionType": "TAG",
            },
        )

    # --- offsets -----------------------------------------------------------------------------------------------

    def query_offset(self) -> Step:
        """QUERY_CONSUMER_OFFSET."""
        return self._step(QUERY_OFFSET, self._offset_fields())

    def update_offset(self) -> Step:
        """UPDATE_CONSUMER_OFFSET."""
        return self._step(UPDATE_OFFSET, {**self._offset_fields(), "commitOffset": self._offset()})

    def _offset_fields(self) -> dict[str, str | None]:
        return {"consumerGroup": self._group(), "topic": self._topic(), "queueId": self._queue()}

    def queue_question(self) -> Step:
        """Minimum and maximum of a queue."""
        fields: dict[str, str | None] = {"topic": self._topic(), "queueId": self._queue()}
        return self._step(self._random.choice([MAX_OFFSET, MIN_OFFSET]), fields)

    def search(self) -> Step:
        """SEARCH_OFFSET_BY_TIMESTAMP, before and after everything: what lies between depends on the clock."""
        moment = self._random.choice(["0", "1", "4102444800000"])
        return self._step(SEARCH_OFFSET, {"topic": self._topic(), "queueId": self._queue(), "timestamp": moment})

    # --- administration ----------------------------------------------------------------------------------------

    def create_topic(self) -> Step:
        """UPDATE_AND_CREATE_TOPIC."""
        return self._step(
            CREATE_TOPIC,
            {
                **CREATED,
                "topic": self._topic(),
                "readQueueNums": self._random.choice(["4", "2", "8"]),
                "writeQueueNums": self._random.choice(["4", "2", "8"]),
                "perm": self._random.choice(["6", "6", "6", "4", "2"]),
                "order": self._random.choice(["false", "false", "true"]),
            },
        )

    def delete_topic(self) -> Step:
        """DELETE_TOPIC_IN_BROKER."""
        return self._step(DELETE_TOPIC, {"topic": self._topic()})

    def create_group(self) -> Step:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        config = {
            "groupName": self._group(),
            "consumeEnable": self._chance(85),
            "consumeBroadcastEnable": self._chance(80),
            "retryQueueNums": 1,
            "retryMaxTimes": 16,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
        }
        return Step(CREATE_GROUP, {}, compact(config))

    def delete_group(self) -> Step:
        """DELETE_SUBSCRIPTIONGROUP."""
        return self._step(
            DELETE_GROUP, {"groupName": self._group(), "cleanOffset": self._random.choice(["true", "false"])}
        )

    def heartbeat(self) -> Step:
        """A producer and perhaps a consumer say they live."""
        consumers: list[dict[str, Any]] = []
        if self._chance(70):
            topic = f"{self._names}_T{self._random.randrange(3)}"
            expression = self._random.choice(["*", "A"])
            subscription = {
                "topic": topic, "subString": expression, "subVersion": self._time_ms, "expressionType": "TAG",
                "classFilterMode": False, "tagsSet": [] if expression == "*" else [expression],
                "codeSet": [] if expression == "*" else [ord(expression)], "filterClassSource": "",
            }  # fmt: skip
            consumers.append(
                {
                    "groupName": self._group(),
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [subscription],
                    "unitMode": False,
                }
            )
        body = {
            "clientID": f"{self._names}@1",
            "producerDataSet": [{"groupName": f"{self._names}_P"}],
            "consumerDataSet": consumers,
        }
        return Step(HEART_BEAT, {}, compact(body))

    def unregister(self) -> Step:
        """UNREGISTER_CLIENT."""
        return self._step(
            UNREGISTER,
            {"clientID": f"{self._names}@1", "producerGroup": f"{self._names}_P", "consumerGroup": self._group()},
        )

    def look(self) -> Step:
        """Questions that change nothing."""
        topic: dict[str, str | None] = {"topic": self._topic()}
        group: dict[str, str | None] = {"consumerGroup": self._group()}
        return self._step(
            *self._random.choice(
                [
                    (TOPIC_STATS, topic),
                    (TOPIC_CONFIG, topic),
                    (TOPIC_CONSUMERS, topic),
                    (GROUP_CONFIG, {"group": self._group()}),
                    (CONSUMER_LIST, group),
                    (CONSUMER_CONNECTIONS, group),
                    (CONSUME_STATS, group),
                    (PRODUCER_CONNECTIONS, {"producerGroup": f"{self._names}_P"}),
                ]
            )
        )

    def odd(self) -> Step:
        """A code nobody knows."""
        return Step(self._random.choice([1, 9, 9999, 13]), {"topic": self._topic()}, b"?", self._chance(30))


def compact(value: object) -> bytes:
    """JSON as clients write it."""
    return json.dumps(value, separators=(",", ":")).encode()
