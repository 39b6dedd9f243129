"""Client tables: joining, leaving, subscriptions, expiry, who is told."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pymq.broker.clients import ClientChannel
from pymq.broker.groups import SubscriptionGroup
from pymq.broker.subscriptions import ConsumerData, Heartbeat, SubscriptionData
from pymq.remoting.codes import RequestCode
from tests.broker.fakes import FakeBroker

TAG_A, TAG_B = 2598919, 2598920  # Java's hashes of TagA and TagB, as the golden heartbeat has them


@pytest.fixture
def broker(tmp_path):
    """A broker with fakes around it, loaded."""
    return FakeBroker(tmp_path).load()


def channel(broker, connection, client_id=None):
    """Channel."""
    now = broker.clock.now_ms()
    return ClientChannel(connection, client_id or f"client-{connection}", "JAVA", 513, "1.2.3.4:5", now)


def consumer(*subscriptions, **more):
    """Consumer."""
    return ConsumerData(group_name="g", subscriptions=subscriptions, **more)


def tags(text, version=1, topic="t"):
    """Tags."""
    return SubscriptionData.from_expression(topic, text, version, "TAG")


def join(broker, connection, data=None, **more):
    """Join."""
    data = data or consumer(tags("*"))
    options = {"notify": True, "subscriptions_too": True} | more
    return broker.clients.register_consumer(channel(broker, connection), data, **options)


def told(broker):
    """Connections told to rebalance since the last look."""
    pushed, broker.server.pushed = broker.server.pushed, []
    assert all(command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED for _, command in pushed)
    assert all(command.fields == {"consumerGroup": "g"} for _, command in pushed)
    return sorted(connection for connection, _ in pushed)


def test_every_member_is_told_when_one_joins_and_not_when_it_only_beats(broker):
    """Every member is told when one joins and not when it only beats."""
    assert join(broker, 1)
    assert told(broker) == [1]
    assert join(broker, 2)
    assert told(broker) == [1, 2]
    assert not join(broker, 2)
    assert told(broker) == []
    assert broker.clients.consumer_group("g").client_ids() == ["client-1", "client-2"]


@pytest.mark.parametrize("how", ["unregister", "close"])
def test_the_others_are_told_when_one_leaves(broker, how):
    """The others are told when one leaves."""
    join(broker, 1)
    join(broker, 2)
    told(broker)
    if how == "unregister":
        broker.clients.unregister_consumer("g", 1, notify=True)
    else:
        broker.clients.connection_closed(1)
    assert told(broker) == [2]


def test_the_last_member_takes_group_and_subscriptions_along(broker):
    """The last member takes group and subscriptions along."""
    join(broker, 1, consumer(tags("TagA")))
    assert ("g", "t") in broker.serve.subscriptions
    broker.clients.connection_closed(1)
    assert broker.clients.consumer_group("g") is None
    assert broker.serve.subscriptions == {}
    told(broker)


def test_broadcasting_members_and_groups_that_do_not_want_it_are_not_told(broker):
    """Broadcasting members and groups that do not want it are not told."""
    join(broker, 1, consumer(tags("*"), message_model="BROADCASTING"))
    join(broker, 2, consumer(tags("*"), message_model="BROADCASTING"))
    broker.clients.connection_closed(1)
    assert told(broker) == []
    broker.clients.connection_closed(2)
    join(broker, 3, notify=False)
    assert told(broker) == []


def test_subscriptions_are_published_with_java_s_hashes(broker):
    """Subscriptions are published with java s hashes."""
    join(broker, 1, consumer(tags("TagA || TagB", 7), tags("*", 8, "u")))
    assert broker.serve.subscriptions["g", "t"] == {
        "version": 7,
        "all": False,
        "special": False,
        "tag_hashes": (TAG_A, TAG_B),
    }
    assert broker.serve.subscriptions["g", "u"]["all"]


def test_sql_and_too_many_tags_are_left_to_python(broker):
    """Sql and too many tags are left to python."""
    sql = SubscriptionData(topic="t", sub_string="a > 1", expression_type="SQL92", sub_version=1)
    many = tags(" || ".join(f"tag{n}" for n in range(65)), 1, "u")
    most = tags(" || ".join(f"tag{n}" for n in range(64)), 1, "v")
    join(broker, 1, consumer(sql, many, most))
    special = {topic: row["special"] for (_, topic), row in broker.serve.subscriptions.items()}
    assert special == {"t": True, "u": True, "v": False}


def test_only_a_newer_version_replaces_a_subscription(broker):
    """Only a newer version replaces a subscription."""
    join(broker, 1, consumer(tags("TagA", 5)))
    join(broker, 1, consumer(tags("TagB", 5)))
    assert broker.serve.subscriptions["g", "t"]["tag_hashes"] == (TAG_A,)
    join(broker, 1, consumer(tags("TagB", 6)))
    assert broker.serve.subscriptions["g", "t"]["tag_hashes"] == (TAG_B,)


def test_a_topic_no_longer_subscribed_to_is_taken_away_and_members_are_told(broker):
    """A topic no longer subscribed to is taken away and members are told."""
    join(broker, 1, consumer(tags("*"), tags("*", 1, "u")))
    told(broker)
    assert join(broker, 1, consumer(tags("*")))
    assert set(broker.serve.subscriptions) == {("g", "t")}
    assert told(broker) == [1]


def test_a_heartbeat_without_subscriptions_leaves_them_alone(broker):
    """A heartbeat without subscriptions leaves them alone."""
    join(broker, 1, consumer(tags("TagA", 5)))
    told(broker)
    assert not join(broker, 1, consumer(), subscriptions_too=False)
    assert ("g", "t") in broker.serve.subscriptions
    assert told(broker) == []


def test_members_that_want_different_things_are_reported_once(broker, caplog):
    """Members that want different things are reported once."""
    join(broker, 1, consumer(tags("TagA", 5)))
    with caplog.at_level(logging.ERROR, "pymq.broker"):
        join(broker, 2, consumer(tags("TagB", 6)))
        join(broker, 1, consumer(tags("TagA", 7)))
        join(broker, 2, consumer(tags("TagB", 8)))
    reports = [record for record in caplog.records if "subscribe differently" in record.message]
    assert len(reports) == 1
    assert all(word in reports[0].message for word in ("group=g", "topic=t", "TagA", "TagB", "client-2"))


def test_one_member_changing_its_mind_is_no_quarrel(broker, caplog):
    """One member changing its mind is no quarrel."""
    join(broker, 1, consumer(tags("TagA", 5)))
    with caplog.at_level(logging.ERROR, "pymq.broker"):
        join(broker, 1, consumer(tags("TagB", 6)))
    assert not caplog.records


@pytest.mark.parametrize(("silent_s", "gone"), [(119.9, False), (120.0, False), (120.1, True)])
def test_clients_silent_for_120_s_are_closed_and_forgotten(broker, silent_s, gone):
    """Clients silent for 120 s are closed and forgotten."""
    join(broker, 1)
    broker.clients.register_producer("p", channel(broker, 2))
    broker.clock.advance(silent_s)
    join(broker, 3)
    broker.clients.expire()
    assert sorted(broker.server.closed) == ([1, 2] if gone else [])
    assert broker.clients.consumer_group("g").client_ids() == (["client-3"] if gone else ["client-1", "client-3"])
    assert bool(broker.clients.producers("p")) is not gone


def test_a_group_that_may_not_broadcast_is_special_only_while_its_members_do(broker):
    """mqadmin makes every group so; its pulls must be served natively all the same."""
    group = SubscriptionGroup(group_name="g", consume_broadcast_enable=False)
    asyncio.run(broker.groups.update([group]))
    assert not broker.serve.groups["g"]["special"]
    join(broker, 1)
    assert not broker.serve.groups["g"]["special"]
    join(broker, 2, consumer(tags("*"), message_model="BROADCASTING"))
    assert broker.serve.groups["g"]["special"]
    join(broker, 2)
    assert not broker.serve.groups["g"]["special"]


def test_producers_come_and_go(broker):
    """Producers come and go."""
    broker.clients.register_producer("p", channel(broker, 1))
    broker.clients.register_producer("p", channel(broker, 2))
    broker.clients.unregister_producer("p", 1)
    assert [item.client_id for item in broker.clients.producers("p")] == ["client-2"]
    broker.clients.connection_closed(2)
    assert broker.clients.producer_groups() == {}


def test_fingerprints_tell_whether_a_group_s_heartbeat_changed(broker):
    """Fingerprints tell whether a group s heartbeat changed."""
    seen = broker.clients.changed_fingerprint
    assert [seen("g", 5), seen("g", 5), seen("g", 6), seen("h", 5)] == [False, False, True, False]


def test_heartbeats_of_4_9_and_5_x_are_read():
    """Heartbeats of 4 9 and 5 x are read."""
    old = {
        "clientID": "c",
        "producerDataSet": [{"groupName": "p"}],
        "consumerDataSet": [
            {
                "groupName": "g",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "unitMode": False,
                "subscriptionDataSet": [
                    {"topic": "t", "subString": "TagA || TagB", "tagsSet": ["TagA", "TagB"], "subVersion": 7}
                ],
            }
        ],
    }
    beat = Heartbeat.from_json(old)
    assert (beat.client_id, beat.producers, beat.fingerprint, beat.without_sub) == ("c", ("p",), 0, False)
    assert beat.consumers[0].subscriptions[0].tag_hashes == {TAG_A, TAG_B}
    new = Heartbeat.from_json(old | {"heartbeatFingerprint": 99, "withoutSub": True})
    assert (new.fingerprint, new.without_sub) == (99, True)
    with pytest.raises(TypeError):
        Heartbeat.from_json({"producerDataSet": []})
