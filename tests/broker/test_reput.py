"""Messages put again through the binding: what comes back for each, and what a delay level gives out."""

from __future__ import annotations

import pytest

import pymq
from pymq._core._serve import Due, PutResult, Reput
from tests.broker.test_admin import SMALL

BORN = ("127.0.0.1", 4711)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker whose serving and store are used directly."""
    config = pymq.BrokerConfig(
        listen_port=0, namesrv_listen_port=0, store_path_root_dir=str(tmp_path_factory.mktemp("reput")), store=SMALL
    )
    with pymq.Broker(config).running() as running:
        yield running


def put(broker, topic, body, properties=b"", queue_id=0):
    """Store one message and wait until it can be read."""
    result = broker.serve.put(topic, queue_id, body, properties, born_host=BORN, born_timestamp_ms=5)
    assert broker.store.wait_dispatched(5000)
    return result


def test_each_gets_a_result_or_the_name_of_a_status(broker):
    """Goal: one that fails is told apart and keeps no other out. Method: good ones around bad ones."""
    source = put(broker, "Source", b"body", b"DELAY\x013\x02keep\x01me\x02").physical_offset
    results = broker.serve.reput(
        [
            Reput(source, "Target", 1, b"DELAY\x02", b"NEW\x01value\x02", reconsume_times=2),
            Reput(source + 1, "Target", 1),
            Reput(source),
            Reput(source, "Target"),
            Reput(source, "Target", 1, set=b"broken"),
            Reput(source, "Target", 1),
        ]
    )
    assert results[1:5] == ["PYMQ_ENOTFOUND", "PYMQ_ETOPIC", "PYMQ_EINVAL", "PYMQ_EINVAL"]
    assert isinstance(results[0], PutResult)
    assert isinstance(results[5], PutResult)
    assert (results[0].queue_offset, results[5].queue_offset) == (0, 1)
    assert broker.store.wait_dispatched(5000)
    first, second = broker.store.read("Target", 1, 0, 2)
    assert (first.body, first.raw_properties, first.reconsume_times) == (b"body", b"keep\x01me\x02NEW\x01value\x02", 2)
    assert (first.born_timestamp_ms, first.born_host) == (5, second.born_host)
    assert second.raw_properties == b"DELAY\x013\x02keep\x01me\x02"
    assert first.physical_offset == results[0].physical_offset


def test_nothing_to_put_again_is_no_error(broker):
    """An empty batch gives an empty list."""
    assert broker.serve.reput([]) == []


@pytest.mark.parametrize("bad", [Reput(0, 5), Reput("0"), Reput(0, "T", 0, "text"), Reput(1 << 70), [1, 2]])
def test_what_is_no_reput_is_refused_before_anything_is_put(broker, bad):
    """Goal: a mistake of the caller's is an exception and leaves nothing behind."""
    source = put(broker, "Source", b"body").physical_offset
    with pytest.raises((TypeError, OverflowError)):
        broker.serve.reput([Reput(source, "Untouched", 0), bad])
    assert not [queue for queue in broker.store.queues() if queue[0] == "Untouched"]


def test_a_delay_level_gives_out_what_is_due(broker):
    """Goal: not before its time, then once and in order. Method: ask with times around the one in the queue."""
    topic = "SCHEDULE_TOPIC_XXXX"
    properties = b"DELAY\x011\x02REAL_TOPIC\x01Due\x02REAL_QID\x013\x02"
    stored_ms = [put(broker, topic, b"%d" % number, properties).store_timestamp_ms for number in range(3)]
    due_ms = [stored + 1000 for stored in stored_ms]
    early = broker.serve.deliver_due(topic, 0, 0, due_ms[0] - 1, 10, remove=b"DELAY\x02")
    assert early == Due(0, 0, due_ms[0], "PYMQ_OK", 0, 0)
    some = broker.serve.deliver_due(topic, 0, 0, due_ms[2] + 5, 2, remove=b"DELAY\x02")
    assert (some.next_offset, some.delivered, some.next_due_ms, some.status) == (2, 2, due_ms[2], "PYMQ_OK")
    assert some.lateness_max_ms == due_ms[2] + 5 - due_ms[0]
    rest = broker.serve.deliver_due(topic, 0, some.next_offset, due_ms[2], 10, remove=b"DELAY\x02")
    assert (rest.next_offset, rest.delivered, rest.next_due_ms) == (3, 1, -1)
    assert rest.last_end_offset > some.last_end_offset
    assert broker.store.wait_dispatched(5000)
    delivered = broker.store.read("Due", 3, 0, 10)
    assert [message.body for message in delivered] == [b"0", b"1", b"2"]
    assert delivered[0].raw_properties == b"REAL_TOPIC\x01Due\x02REAL_QID\x013\x02"
