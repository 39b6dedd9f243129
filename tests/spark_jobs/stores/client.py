"""A producer and consumer of one connection, speaking RocketMQ's protocol by hand and keeping books of what it knows.

Everything a store can hold comes from requests like these: single messages and batches, delayed and timed ones,
transactions, replies, messages sent back. What was acknowledged and what was handled goes into the ledger.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pymq import _scan
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import FLAG_RESPONSE, Command
from spark_jobs.ledger import LedgerWriter
from tests.broker.wire import Wire, send_fields

COMMIT, ROLLBACK, UNKNOWN = "8", "12", "0"
COMMIT_OFFSET, EXPRESSION = 1, 4  # a pull's system flags
PREPARED = 4
WAIT_S = 30.0


class RefusedError(AssertionError):
    """The broker did not do what it was asked; the message has its words."""


@dataclass(frozen=True)
class Sent:
    """A message as its acknowledgement names it."""

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    transaction_id: str
    recall_handle: str | None

    @property
    def physical_offset(self) -> int:
        """Where it lies in the log."""
        return int(self.message_id[-16:], 16)


def message_id(record: _scan.Record) -> str:
    """A record's offset message id."""
    host = record.store_host
    return (host.address + host.port.to_bytes(4, "big") + record.physical_offset.to_bytes(8, "big")).hex().upper()


def text_of(properties: dict[str, Any]) -> str:
    """Properties as they go over the wire."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


class Client(Wire):
    """One connection. *sender* is its number in the ledger; messages of a sender are counted from 1."""

    def __init__(self, port: int, ledger: LedgerWriter, sender: int, random: Random, timeout_s: float = 20.0) -> None:
        super().__init__(port, timeout_s=timeout_s)
        self.ledger, self.sender, self.random = ledger, sender, random
        self.sequence = 0

    def ask(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> Command:
        """A request that must succeed."""
        answer = self.call(code, {name: str(value) for name, value in (fields or {}).items()}, body)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(f"{RequestCode(code).name}: {answer.code} {answer.remark}")
        return answer

    # ---- tables ----------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, queues: int = 4, **more: Any) -> None:
        """UPDATE_AND_CREATE_TOPIC."""
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", "attributes": "",
        }  # fmt: skip
        self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | more)

    def create_group(self, group: str, **settings: Any) -> None:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        body = json.dumps({"groupName": group, **settings}).encode()
        self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

    def beat(self, *, producers: Sequence[str] = (), group: str = "", **subscriptions: str) -> None:
        """A heartbeat: as a producer of groups, or as a member that subscribes to topics by tags or `sql:…`."""
        body: dict[str, Any] = {"clientID": f"client-{self.sender}-{group}"}
        body["producerDataSet"] = [{"groupName": name} for name in producers]
        subscribed = [
            {"topic": topic, "subString": text.removeprefix("sql:"), "subVersion": 1,
             "expressionType": "SQL92" if text.startswith("sql:") else "TAG"}
            for topic, text in subscriptions.items()
        ]  # fmt: skip
        member = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
        body["consumerDataSet"] = [member | {"subscriptionDataSet": subscribed}] if group else []
        self.ask(RequestCode.HEART_BEAT, body=json.dumps(body).encode())

    # ---- sending ---------------------------------------------------------------------------------------------

    def unique_key(self) -> str:
        """As clients make them: nobody else has it."""
        return f"{self.random.getrandbits(128):032X}"

    def body(self, size: int = 60) -> bytes:
        """Bytes that say who sent them."""
        head = b"%d/%d " % (self.sender, self.sequence + 1)
        return head + self.random.randbytes(max(0, size - len(head)))

    def send(
        self, topic: str, body: bytes, queue_id: int = 0, properties: dict[str, Any] | None = None, **fields: Any
    ) -> Sent:
        """One message, acknowledged; *fields* are those of SEND_MESSAGE_V2 by their letters."""
        text = text_of({"UNIQ_KEY": self.unique_key(), "WAIT": "true", **(properties or {})})
        return self._send(RequestCode.SEND_MESSAGE_V2, topic, queue_id, text, body, 1, fields)[0]

    def send_batch(self, topic: str, bodies: Sequence[bytes], queue_id: int = 0, **properties: Any) -> list[Sent]:
        """One request, many messages."""
        items = [
            _scan.BatchItem(0, body, text_of({"UNIQ_KEY": self.unique_key(), **properties}).encode()) for body in bodies
        ]
        text = text_of({"WAIT": "true"})
        fields = {"m": "true"}
        raw = _scan.encode_batch(items)
        return self._send(RequestCode.SEND_BATCH_MESSAGE, topic, queue_id, text, raw, len(bodies), fields)

    def _send(
        self, code: int, topic: str, queue_id: int, text: str, body: bytes, count: int, fields: dict[str, Any]
    ) -> list[Sent]:
        letters = {name: str(value) for name, value in fields.items()}
        command = Command(int(code), send_fields(topic, queue_id, text, **letters), body)
        first = self.sequence + 1
        self.sequence += count
        sent_ns = time.monotonic_ns()
        try:
            answer = self.wait(self.post(command))
        except (OSError, EOFError):
            for sequence in range(first, first + count):
                self.ledger.unknown(topic, queue_id, sender=self.sender, sequence=sequence, sent_ns=sent_ns)
            raise
        done_ns = time.monotonic_ns()
        if answer.code != ResponseCode.SUCCESS:
            for sequence in range(first, first + count):
                self.ledger.refused(
                    topic,
                    queue_id,
                    answer.code,
                    sender=self.sender,
                    sequence=sequence,
                    sent_ns=sent_ns,
                    done_ns=done_ns,
                )
            raise RefusedError(f"{topic}: {answer.code} {answer.remark}")
        told = answer.fields
        made = [
            Sent(topic, int(told["queueId"]), int(told["queueOffset"]) + number, name,
                 told.get("transactionId") or "", told.get("recallHandle"))
            for number, name in enumerate(told["msgId"].split(","))
        ]  # fmt: skip
        for sequence, one in enumerate(made, first):
            self.ledger.acknowledged(
                topic, one.queue_id, one.queue_offset, one.message_id,
                sender=self.sender, sequence=sequence, sent_ns=sent_ns, done_ns=done_ns,
            )  # fmt: skip
        return made

    # ---- transactions ----------------------------------------------------------------------------------------

    def half(self, topic: str, group: str, body: bytes, queue_id: int = 0) -> Sent:
        """A half message."""
        properties = {"TRAN_MSG": "true", "PGROUP": group}
        return self.send(topic, body, queue_id, properties, a=group, f=PREPARED)

    def end(self, group: str, half: Sent, how: str) -> None:
        """Commit it or roll it back."""
        fields = {
            "producerGroup": group, "tranStateTableOffset": half.queue_offset, "commitLogOffset": half.physical_offset,
            "commitOrRollback": how, "fromTransactionCheck": "false", "msgId": half.transaction_id,
            "transactionId": half.transaction_id,
        }  # fmt: skip
        self.ask(RequestCode.END_TRANSACTION, fields)

    def checked(self, count: int = 1) -> list[Command]:
        """The next *count* questions of the broker about half messages."""
        while len(self.pushed) < count:
            self.pushed.append(self.receive())
        taken, self.pushed = self.pushed[:count], self.pushed[count:]
        return taken

    def answer(self, group: str, check: Command, how: str) -> None:
        """Answer such a question."""
        names = ("tranStateTableOffset", "commitLogOffset", "msgId", "transactionId")
        fields = {name: check.fields[name] for name in names} | {"producerGroup": group, "commitOrRollback": how}
        fields["fromTransactionCheck"] = "true"
        if how == UNKNOWN:  # nobody answers that
            self.oneway(Command(RequestCode.END_TRANSACTION, fields))
        else:
            self.ask(RequestCode.END_TRANSACTION, fields)

    # ---- consuming -------------------------------------------------------------------------------------------

    def range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The queue's first offset, and the one behind its last."""
        fields = {"topic": topic, "queueId": queue_id}
        low, high = (self.ask(code, fields) for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET))
        return int(low.fields["offset"]), int(high.fields["offset"])

    def pull(self, group: str, topic: str, queue_id: int, offset: int) -> tuple[list[_scan.Record], int]:
        """What is found at *offset*, and where to go on."""
        fields = {
            "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": 0, "commitOffset": 0, "suspendTimeoutMillis": 1000, "subVersion": 1, "expressionType": "TAG",
        }  # fmt: skip
        answer = self.call(RequestCode.PULL_MESSAGE, {name: str(value) for name, value in fields.items()})
        if answer.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        ):
            raise RefusedError(f"pull {topic}/{queue_id} at {offset}: {answer.code} {answer.remark}")
        records = list(records_of(answer.body)) if answer.code == ResponseCode.SUCCESS else []
        return records, int(answer.fields["nextBeginOffset"])

    def consume(self, group: str, topic: str, queue_id: int = 0, *, upto: int | None = None) -> list[_scan.Record]:
        """Everything from where the group is, handled and committed; with *upto* only what is below that offset."""
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": "true"}
        answer = self.call(RequestCode.QUERY_CONSUMER_OFFSET, {name: str(value) for name, value in fields.items()})
        offset = int(answer.fields["offset"]) if answer.code == ResponseCode.SUCCESS else self.range(topic, queue_id)[0]
        end = self.range(topic, queue_id)[1] if upto is None else upto
        handled: list[_scan.Record] = []
        while offset < end:
            records, following = self.pull(group, topic, queue_id, offset)
            for record in records:
                if record.queue_offset < end:
                    handled.append(record)
                    self.ledger.received(
                        topic, queue_id, record.queue_offset, message_id(record), done_ns=time.monotonic_ns()
                    )
            offset = min(end, following)
        commit = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
        self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        return handled

    def send_back(self, group: str, record: _scan.Record, level: int, times_max: int = 16) -> None:
        """A message that could not be handled, for later: level 0 is the broker's choice, -1 gives up."""
        topic = record.topic.decode()
        fields = {
            "group": group, "offset": record.physical_offset, "delayLevel": level, "originMsgId": message_id(record),
            "originTopic": topic, "unitMode": "false", "maxReconsumeTimes": times_max,
        }  # fmt: skip
        self.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)

    def take_push(self) -> Command:
        """A request of the broker's, answered well."""
        pushed = self.receive()
        answer = Command(ResponseCode.SUCCESS, {}, opaque=pushed.opaque)
        answer.flag |= FLAG_RESPONSE
        self._socket.sendall(answer.encode())
        return pushed

    def until_held(self, topic: str, queue_id: int, end: int) -> None:
        """Wait until the queue reaches *end*."""
        until(lambda: self.range(topic, queue_id)[1] >= end, f"{topic}/{queue_id} to reach {end}")


def records_of(body: bytes) -> Iterator[_scan.Record]:
    """The records in a pull's answer."""
    at = 0
    while at < len(body):
        record = _scan.decode_record(body, at=at)
        assert isinstance(record, _scan.Record)
        yield record
        at += record.total_size


def until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Wait for what must come to hold."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end_s:
            raise AssertionError(f"waited {timeout_s} s for {what}")
        time.sleep(0.02)
