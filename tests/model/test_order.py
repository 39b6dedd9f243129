"""R10: order by sharding key while clients come, go, die and rebalance: no inversion within a lock's epoch, no backlog.

Simulated clients speak to a real broker over sockets, with the locks on a clock that the test moves: a client that dies
keeps its locks for 60 s, one that stops gives them back. They do what RocketMQ's ordered consumers do: divide the
queues by the list of client ids, lock, begin at the committed offset, consume one batch after another, commit (not
always: a fifth is lost); and drop what they are not granted any more. An epoch begins when a client gets a queue.

20,000 messages and 60 rebalances; with PYMQ_FULL=1 the million and 200 of ecosystem.md. The seed is printed; give it
back as PYMQ_SEED.
"""

from __future__ import annotations

import json
import os
import random
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pymq
from pymq.clock import ManualClock
from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.sides import heartbeat, until
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.wire import Wire, send_fields

FULL = os.environ.get("PYMQ_FULL") == "1"
MESSAGES, REBALANCES = (1_000_000, 200) if FULL else (20_000, 60)
SEED = int(os.environ.get("PYMQ_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
QUEUES, KEYS, BATCH = 8, 50, 100
LOCK_USED_S, LOCK_LIVE_S = 30.0, 60.0
BODY_AT = 84  # in a record with addresses of IPv4: the body's size, then the body


def bodies(records):
    """(key, number) of each record."""
    at = 0
    while at < len(records):
        (size,) = struct.unpack_from(">i", records, at)
        (body_size,) = struct.unpack_from(">i", records, at + BODY_AT)
        key, number = records[at + BODY_AT + 4 : at + BODY_AT + 4 + body_size].split(b":")
        yield int(key), int(number)
        at += size


@dataclass
class Client:
    """One ordered consumer."""

    name: str
    wire: Wire
    offsets: dict[int, int] = field(default_factory=dict)  # of the queues it holds
    locked_s: dict[int, float] = field(default_factory=dict)

    def call(self, code, fields=None, body=None):
        """Ask; the answer's code and fields and body."""
        return self.wire.call(code, fields, json.dumps(body).encode() if body is not None else b"")


class World:
    """A broker, its clients, and what was consumed under which epoch of which queue's lock."""

    def __init__(self, broker, clock, seed):
        self.broker, self.clock, self.chance = broker, clock, random.Random(seed)
        self.clients, self.names = [], 0
        self.owners: dict[int, tuple[str, int]] = {}  # of each queue: who had it last, and its epoch
        self.last: dict[tuple[int, int, int], int] = {}  # (queue, epoch, key): the newest number
        self.seen: dict[int, set[int]] = {key: set() for key in range(KEYS)}
        self.inversions = self.rebalances = 0

    def join(self):
        """A client starts."""
        self.names += 1
        client = Client(f"client-{self.names:04d}", Wire(self.broker.config.listen_port))
        beat(client.wire, client.name)
        self.clients.append(client)

    def leave(self, client, *, dies):
        """A client stops in order, or dies."""
        self.clients.remove(client)
        if not dies:
            self.unlock(client, list(client.offsets))
            client.call(RequestCode.UNREGISTER_CLIENT, {"clientID": client.name, "consumerGroup": "g"})
        client.wire.close()
        until(lambda: client.name not in self.members())

    def members(self):
        """Client ids as the broker lists them."""
        info = self.broker.clients.consumer_group("g")
        return sorted(info.client_ids()) if info is not None else []

    def rebalance(self, late=0.3):
        """Clients divide the queues anew, drop what is another's, and lock what is their own. Some notice later."""
        self.rebalances += 1
        for client in self.chance.sample(self.clients, len(self.clients)):
            if self.chance.random() < late:
                continue
            names = self.members()
            mine = {queue for queue in range(QUEUES) if names[queue % len(names)] == client.name}
            self.unlock(client, [queue for queue in client.offsets if queue not in mine])
            self.lock(client, sorted(mine))

    def unlock(self, client, queues):
        """Give queues back."""
        if queues:
            client.call(RequestCode.UNLOCK_BATCH_MQ, body=batch(client.name, queues))
        for queue in queues:
            client.offsets.pop(queue)
            client.locked_s.pop(queue)

    def lock(self, client, queues):
        """Ask for queues; a queue that is new begins where the group stands."""
        answer = client.call(RequestCode.LOCK_BATCH_MQ, body=batch(client.name, queues))
        granted = {entry["queueId"] for entry in json.loads(answer.body)["lockOKMQSet"]}
        for queue in queues:
            if queue not in granted:
                client.offsets.pop(queue, None)
                client.locked_s.pop(queue, None)
                continue
            now_s = self.clock.monotonic_s()
            lapsed = now_s - client.locked_s.get(queue, 0.0) > LOCK_LIVE_S  # it may have been another's meanwhile
            client.locked_s[queue] = now_s
            if queue not in client.offsets or lapsed:
                client.offsets[queue] = self.committed(client, queue)
                self.owners[queue] = (client.name, self.owners.get(queue, ("", 0))[1] + 1)

    def committed(self, client, queue):
        """Where the group stands."""
        fields = {"consumerGroup": "g", "topic": "t", "queueId": str(queue)}
        answer = client.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        return int(answer.fields["offset"]) if answer.code == ResponseCode.SUCCESS else 0

    def consume(self, client):
        """One batch of each queue it holds; the commit may be lost with the client, not the order."""
        found = 0
        for queue, offset in list(client.offsets.items()):
            if self.clock.monotonic_s() - client.locked_s[queue] > LOCK_USED_S:
                continue  # its lock may be another's soon
            assert self.owners[queue][0] == client.name, "two clients work on one queue"
            fields = {
                "consumerGroup": "g", "topic": "t", "queueId": str(queue), "queueOffset": str(offset),
                "maxMsgNums": "32", "sysFlag": "0", "commitOffset": "0", "suspendTimeoutMillis": "0",
                "subVersion": "1", "expressionType": "TAG",
            }  # fmt: skip
            answer = client.call(RequestCode.PULL_MESSAGE, fields)
            if answer.code != ResponseCode.SUCCESS:
                continue
            epoch = self.owners[queue][1]
            for key, number in bodies(answer.body):
                if number <= self.last.get((queue, epoch, key), -1):
                    self.inversions += 1
                self.last[queue, epoch, key] = number
                self.seen[key].add(number)
                found += 1
            client.offsets[queue] = int(answer.fields["nextBeginOffset"])
            if self.chance.random() < 0.8:
                commit = {"consumerGroup": "g", "topic": "t", "queueId": str(queue)}
                offset = str(client.offsets[queue])
                client.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": offset})
        return found

    def change(self):
        """Somebody comes or goes; time passes."""
        kind = self.chance.choice(("join", "leave", "die", "wait"))
        if kind == "join" or len(self.clients) < 2:
            self.join()
        elif kind != "wait" and len(self.clients) > 1:
            self.leave(self.chance.choice(self.clients), dies=kind == "die")
        self.clock.advance(self.chance.choice((0.5, 2.0, 20.0, 31.0, 61.0)))
        for client in self.clients:
            beat(client.wire, client.name)
        self.rebalance()


def beat(wire, name):
    """A heartbeat of an ordered consumer."""
    subscription = {"topic": "t", "subString": "*", "subVersion": 1}
    body = {"clientID": name, "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [subscription]}]}
    assert wire.call(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == ResponseCode.SUCCESS


def batch(name, queues):
    """LockBatchRequestBody."""
    queues = [{"topic": "t", "brokerName": "a", "queueId": queue} for queue in queues]
    return {"consumerGroup": "g", "clientId": name, "mqSet": queues}


def produce(wire, chance, sent):
    """A batch of messages of one key, to the key's queue."""
    key = chance.randrange(KEYS)
    texts = [f"{key}:{number}".encode() for number in range(sent[key], sent[key] + BATCH)]
    sent[key] += BATCH
    body = b"".join(struct.pack(">iiiii", 0, 0, 0, 0, len(text)) + text + struct.pack(">h", 0) for text in texts)
    answer = wire.call(RequestCode.SEND_BATCH_MESSAGE, send_fields("t", key % QUEUES, m="true"), body)
    assert answer.code == ResponseCode.SUCCESS, answer


def test_order_by_sharding_key_holds_while_clients_come_and_go(tmp_path):
    """Goal: strict order under one lock, everything consumed. Method: see above."""
    print(f"seed {SEED}, {MESSAGES} messages, {REBALANCES} rebalances")
    clock = ManualClock(datetime(2026, 11, 16, tzinfo=UTC))
    config = pymq.BrokerConfig(
        listen_port=0, namesrv_listen_port=0, broker_name="a", store_path_root_dir=str(tmp_path),
        broker_fast_failure_enable=False, channel_expired_timeout=2**31 - 1,
        store=SMALL.replace(mapped_file_size_commit_log=(64 if FULL else 4) << 20),
    )  # fmt: skip
    with pymq.Broker(config, clock=clock).running() as broker, Wire(broker.config.listen_port) as producer:
        create_topic(producer, "t", queues=QUEUES)
        heartbeat(producer, "g", "t")  # makes the group known, then goes
        producer.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "g-client", "consumerGroup": "g"})
        world = World(broker, clock, SEED)
        sent = dict.fromkeys(range(KEYS), 0)
        world.join()
        world.rebalance()
        for step in range(MESSAGES // BATCH):
            produce(producer, world.chance, sent)
            if step % max(1, MESSAGES // BATCH // REBALANCES) == 0:
                world.change()
            for client in world.clients:
                world.consume(client)
        clock.advance(LOCK_LIVE_S + 1)  # the locks of the dead
        world.rebalance(late=0.0)
        world.rebalance(late=0.0)  # what was given back only now
        total = sum(sent.values())
        until(lambda: sum(world.consume(client) for client in world.clients) >= 0 and count(world) == total, 120.0)
        for client in world.clients:
            client.wire.close()
    assert world.inversions == 0
    assert world.rebalances >= REBALANCES
    assert all(world.seen[key] == set(range(sent[key])) for key in range(KEYS))


def count(world):
    """Different messages consumed."""
    return sum(len(numbers) for numbers in world.seen.values())
