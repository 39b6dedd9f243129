"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ as clients that consume in order speak them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from pymq.broker.locks import LockedQueue, OrderLocks
from pymq.clock import ManualClock
from pymq.remoting.codes import RequestCode
from tests.broker.wire import Wire

QUEUE = LockedQueue("t", "a", 0)
BAD_BODIES = [
    b"",
    b"nonsense",
    b"[]",
    b'{"clientId":"x"}',
    b'{"consumerGroup":"g","mqSet":[]}',
    b'{"consumerGroup":"g","clientId":"x","mqSet":5}',
    b'{"consumerGroup":"g","clientId":"x","mqSet":[{"topic":"t","queueId":1e999}]}',
    b'{"consumerGroup":"g","clientId":"x","mqSet":[{"topic":"t","queueId":99999999999}]}',
    b'{"consumerGroup":"g","clientId":"x","mqSet":[{"topic":"t","queueId":"x"}]}',
]


def queue(side, queue_id):
    """A MessageQueue of the side's topic."""
    return {"topic": side.topic, "brokerName": "a", "queueId": queue_id}


def ask(side, code, client_id, *queue_ids, **more):
    """Lock or unlock."""
    body = {"consumerGroup": side.group, "clientId": client_id, "mqSet": [queue(side, number) for number in queue_ids]}
    return side.wire.call(code, body=json.dumps(body | more).encode())


def lock(side, client_id, *queue_ids, **more):
    """Queues the client has after asking for these."""
    answer = ask(side, RequestCode.LOCK_BATCH_MQ, client_id, *queue_ids, **more)
    assert (answer.code, answer.remark) == (0, None)
    return sorted(entry["queueId"] for entry in json.loads(answer.body)["lockOKMQSet"])


def test_queue_belongs_to_one_client_until_it_is_given_back(side):
    """Queue belongs to one client until it is given back."""
    assert lock(side, "one", 0, 1, 2) == [0, 1, 2]
    assert lock(side, "two", 2, 3) == [3]
    assert lock(side, "one", 0, 1, 2, 3) == [0, 1, 2]
    assert ask(side, RequestCode.UNLOCK_BATCH_MQ, "two", 0, 3).code == 0  # 0 is not two's to give back
    assert lock(side, "three", 0, 3) == [3]
    assert ask(side, RequestCode.UNLOCK_BATCH_MQ, "one", 0).code == 0
    assert lock(side, "three", 0, 1) == [0]
    assert lock(side, "nobody") == []


def test_answer_is_the_body_a_java_client_reads(side):
    """Answer is the body a Java client reads: one MessageQueue per granted queue, in fastjson's order of fields."""
    answer = ask(side, RequestCode.LOCK_BATCH_MQ, "one", 1)
    assert answer.body.decode() == f'{{"lockOKMQSet":[{{"brokerName":"a","queueId":1,"topic":"{side.topic}"}}]}}'
    assert not answer.fields
    unlocked = ask(side, RequestCode.UNLOCK_BATCH_MQ, "one", 1)
    assert (unlocked.code, unlocked.remark, unlocked.body) == (0, None, b"")


def test_only_this_broker_is_what_a_single_broker_always_is(side):
    """Only this broker is what a single broker always is."""
    assert lock(side, "one", 0, onlyThisBroker=True) == [0]
    assert lock(side, "two", 0, onlyThisBroker=True) == []


def test_groups_do_not_share_locks(side):
    """Groups do not share locks."""
    assert lock(side, "one", 0) == [0]
    assert lock(side, "two", 0, consumerGroup=f"{side.group}_other") == [0]


@pytest.mark.parametrize("body", BAD_BODIES)
def test_request_that_names_nobody_is_refused_by_name(side, body):
    """Request that names nobody is refused by name."""
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        answer = side.wire.call(code, body=body)
        assert answer.code == 1
        assert "locks asked for cannot be read" in answer.remark


def test_lock_outlives_the_connection_of_its_owner(side):
    """Lock outlives the connection of its owner: the client may be back, and is still working on what it pulled."""
    with Wire(side.broker.config.listen_port) as gone:
        body = {"consumerGroup": side.group, "clientId": "gone", "mqSet": [queue(side, 0)]}
        assert gone.call(RequestCode.LOCK_BATCH_MQ, body=json.dumps(body).encode()).code == 0
    assert lock(side, "one", 0) == []


def test_lock_is_free_after_its_time_and_not_at_it():
    """Lock is free after its time and not at it; asking again in between begins the time anew."""
    clock = ManualClock(datetime(2026, 11, 16, tzinfo=UTC))
    locks = OrderLocks(clock, 60_000)
    assert locks.lock("g", [QUEUE], "one") == [QUEUE]
    clock.advance(60.0)
    assert locks.lock("g", [QUEUE], "two") == []
    assert locks.lock("g", [QUEUE], "one") == [QUEUE]
    clock.advance(60.0)
    assert locks.lock("g", [QUEUE], "two") == []
    clock.advance(0.001)
    assert locks.is_free("g")
    assert locks.lock("g", [QUEUE], "two") == [QUEUE]
    assert locks.lock("g", [QUEUE], "one") == []
    assert list(locks.held()) == [("g", QUEUE, "two")]


def test_client_that_asks_for_ever_is_logged_once(caplog):
    """Client that asks for ever is logged once, not every 20 seconds."""
    locks = OrderLocks(ManualClock(datetime(2026, 11, 16, tzinfo=UTC)), 60_000)
    locks.lock("g", [QUEUE], "one")
    for _ in range(5):
        locks.lock("g", [QUEUE], "two")
    refused = [record for record in caplog.records if "locked by another client" in record.message]
    assert len(refused) == 1
    assert "owner=one asked=two" in refused[0].message
