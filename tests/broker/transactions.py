"""A broker whose transactions a test drives: its own loop, a clock that the test moves, a producer on the wire."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from datetime import UTC, datetime

import pymq
from pymq.broker import names
from pymq.clock import ManualClock
from pymq.message import PhysicalOffset
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.store.config import ASYNC_FLUSH, StoreConfig
from tests.broker.wire import Wire, send_fields

COMMIT, ROLLBACK, UNKNOWN = "8", "12", "0"
NEVER_MS = 2**31 - 1
SMALL = StoreConfig(
    flush_disk_type=ASYNC_FLUSH, mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=4000
)


class DrivenBroker:
    """A broker on a loop of its own, whose rounds happen only when they are called for."""

    def __init__(self, directory, *, store: StoreConfig = SMALL, **settings) -> None:
        self.clock = ManualClock(datetime.now(UTC))
        settings = {"transaction_check_interval": NEVER_MS, "transaction_op_batch_interval": NEVER_MS} | settings
        self.config = pymq.BrokerConfig(
            listen_port=0,
            namesrv_listen_port=0,
            broker_name="a",
            store_path_root_dir=str(directory),
            store=store,
            **settings,
        )
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.broker: pymq.Broker | None = None

    def call(self, work):
        """Run *work* on the broker's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def __enter__(self):
        self._thread.start()
        self.broker = pymq.Broker(self.config, clock=self.clock)
        self.call(self.broker.start())
        return self

    def __exit__(self, *exception):
        self.call(self.broker.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    @property
    def service(self):
        """Its transactions."""
        return self.broker.transactions

    def restart(self, *, kill: bool = False, **settings):
        """Stop and start; with *kill* as if the process had been killed: nothing is written at the end."""
        if kill:

            async def nothing():
                return None

            self.service.stop = nothing
            self.broker.offsets.save = nothing
        self.call(self.broker.stop())
        self.config = self.config.replace(**settings)
        self.broker = pymq.Broker(self.config, clock=self.clock)
        self.call(self.broker.start())

    def round(self, after_s: float = 7.0) -> bool:
        """Let time pass, then one round of checks."""
        self.clock.advance(after_s)

        async def run():
            return await self.service.checks.run()

        self.settled()
        return self.call(run())

    def settled(self) -> None:
        """Until everything written is in its queue."""
        written = self.broker.store.watermarks()["written"]
        end_s = time.monotonic() + 20.0
        while self.broker.store.watermarks()["dispatched"] < written:
            assert time.monotonic() < end_s, "what is written is not dispatched"
            time.sleep(0.0005)

    def messages(self, topic: str, queue_id: int = 0):
        """Everything in a queue."""
        self.settled()
        found: list = []
        try:
            while more := self.broker.store.read(topic, queue_id, len(found), 10_000, settle=False):
                found += more
        except pymq.NotFoundError:
            pass
        return found

    def halves(self):
        """Everything in the half queue."""
        return self.messages(names.HALF_TOPIC)

    def progress(self) -> tuple[int, int]:
        """Consumer offsets of the half and op queues, flushed and published."""

        async def publish():
            self.broker.store.flush()
            self.service.settle()
            self.broker.store.flush()
            self.service.publish()
            self.service.publish()

        self.call(publish())
        query = self.broker.serve.offset_query
        return tuple(query("CID_RMQ_SYS_TRANS", topic, 0) or 0 for topic in (names.HALF_TOPIC, names.OP_HALF_TOPIC))


class Producer(Wire):
    """A transactional producer of one group, on the wire."""

    def __init__(self, driven: DrivenBroker, group: str = "P", topic: str = "T", *, alive: bool = True) -> None:
        super().__init__(driven.broker.config.listen_port)
        self.driven, self.group, self.topic = driven, group, topic
        if alive:
            self.heartbeat()

    def heartbeat(self) -> None:
        """Be known as a live producer."""
        body = {"clientID": f"client-{id(self)}", "producerDataSet": [{"groupName": self.group}], "consumerDataSet": []}
        assert self.call(RequestCode.HEART_BEAT, {}, json.dumps(body).encode()).code == ResponseCode.SUCCESS

    def close(self) -> None:
        """Leave, and wait until the broker has noticed: a round right behind would still ask this one."""
        if self._socket.fileno() < 0:
            return
        mine = self._socket.getsockname()
        super().close()
        end_s = time.monotonic() + 10
        broker = self.driven.broker
        while time.monotonic() < end_s and mine in {
            broker.server.peer(channel.connection) for channel in broker.clients.producers(self.group)
        }:
            time.sleep(0.002)

    def half(self, body: bytes = b"half", queue_id: int = 0, properties: str = "", **more: str) -> Command:
        """The answer to a half message."""
        prepared = f"TRAN_MSG\x01true\x02PGROUP\x01{self.group}\x02{properties}"
        fields = send_fields(self.topic, queue_id, prepared, f="4", g=str(self.driven.clock.now_ms())) | more
        return self.call(RequestCode.SEND_MESSAGE_V2, fields, body)

    def end_fields(self, half: Command, how: str, **more: str) -> dict[str, str]:
        """The fields of END_TRANSACTION for the half of that answer."""
        return {
            "producerGroup": self.group,
            "tranStateTableOffset": half.fields["queueOffset"],
            "commitLogOffset": str(offset_of(half.fields["msgId"])),
            "commitOrRollback": how,
            "fromTransactionCheck": "false",
            "msgId": half.fields["transactionId"],
            "transactionId": half.fields["transactionId"],
            **more,
        }

    def end(self, half: Command, how: str = COMMIT, **more: str) -> Command:
        """The answer to END_TRANSACTION."""
        return self.call(RequestCode.END_TRANSACTION, self.end_fields(half, how, **more))

    def end_oneway(self, half: Command, how: str = COMMIT, **more: str) -> None:
        """END_TRANSACTION as Java's producers send it, done on return."""
        self.oneway(Command(RequestCode.END_TRANSACTION, self.end_fields(half, how, **more)))
        self.call(RequestCode.GET_BROKER_CONFIG)

    def checked(self, count: int = 1, timeout_s: float = 10.0) -> list[Command]:
        """The next *count* checks the broker sends."""
        end_s = time.monotonic() + timeout_s
        while len(self.pushed) < count:
            assert time.monotonic() < end_s, f"{len(self.pushed)} of {count} checks"
            self.pushed.append(self.receive())
        taken, self.pushed = self.pushed[:count], self.pushed[count:]
        assert {command.code for command in taken} <= {RequestCode.CHECK_TRANSACTION_STATE}
        return taken

    def answer(self, check: Command, how: str = COMMIT, **more: str) -> Command:
        """Answer a check, waiting for the broker's word."""
        return self.call(RequestCode.END_TRANSACTION, self.answer_fields(check, how, **more))

    def answer_oneway(self, check: Command, how: str = COMMIT) -> None:
        """Answer a check as Java's producers do."""
        self.oneway(Command(RequestCode.END_TRANSACTION, self.answer_fields(check, how)))

    def answer_fields(self, check: Command, how: str, **more: str) -> dict[str, str]:
        """The fields of END_TRANSACTION that answer a check."""
        return {
            "producerGroup": self.group,
            "tranStateTableOffset": check.fields["tranStateTableOffset"],
            "commitLogOffset": check.fields["commitLogOffset"],
            "commitOrRollback": how,
            "fromTransactionCheck": "true",
            "msgId": check.fields["msgId"],
            "transactionId": check.fields["transactionId"],
            **more,
        }


def offset_of(message_id: str) -> PhysicalOffset:
    """The place in the log an offset message id names."""
    return PhysicalOffset(int(message_id[-16:], 16))


def committed(driven, topic="T", queue_id=0):
    """Bodies that consumers of the queue can see."""
    return [message.body for message in driven.messages(topic, queue_id)]
