"""Client tables: joining, leaving, subscriptions, expiry, who is told."""

from __future__ import annotations

import asyncio
from datetime import timedelta

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
    clock = broker.clock
    stamps = clock.now_ms(), clock.monotonic_s()
    return ClientChannel(connection, client_id or f"client-{connection}", "JAVA", 513, "1.2.3.4:5", *stamps)


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
    """Goal: rebalance at once, and no storm. Method: two joins and a repeated heartbeat; who was told."""
    assert join(broker, 1)
    assert told(broker) == [1]
    assert join(broker, 2)
    assert told(broker) == [1, 2]
    assert not join(broker, 2)
    assert told(broker) == []
    assert broker.clients.consumer_group("g").client_ids() == ["client-1", "client-2"]


@pytest.mark.parametrize("how", ["unregister", "close"])
def test_the_others_are_told_when_one_leaves(broker, how):
    """Goal: its queues are taken over at once. Method: by its own word and by its connection's end."""
    join(broker, 1)
    join(broker, 2)
    told(broker)
    if how == "unregister":
        broker.clients.unregister_consumer("g", 1, notify=True)
    else:
        broker.clients.connection_closed(1)
    assert told(broker) == [2]


def test_the_last_member_takes_group_and_subscriptions_along(broker):
    """Goal: no pull is served for nobody. Method: what is published after the only member is gone."""
    join(broker, 1, consumer(tags("TagA")))
    assert ("g", "t") in broker.serve.subscriptions
    broker.clients.connection_closed(1)
    assert broker.clients.consumer_group("g") is None
    assert broker.serve.subscriptions == {}
    told(broker)


def test_broadcasting_members_and_groups_that_do_not_want_it_are_not_told(broker):
    """Goal: nobody rebalances in vain. Method: a broadcasting pair, and a group with the switch off."""
    join(broker, 1, consumer(tags("*"), message_model="BROADCASTING"))
    join(broker, 2, consumer(tags("*"), message_model="BROADCASTING"))
    broker.clients.connection_closed(1)
    assert told(broker) == []
    broker.clients.connection_closed(2)
    join(broker, 3, notify=False)
    assert told(broker) == []


def test_subscriptions_are_published_with_java_s_hashes(broker):
    """Goal: C filters by what the store has. Method: hashes as a real heartbeat carries them."""
    join(broker, 1, consumer(tags("TagA || TagB", 7), tags("*", 8, "u")))
    assert broker.serve.subscriptions["g", "t"] == {
        "version": 7,
        "all": False,
        "special": False,
        "tag_hashes": (TAG_A, TAG_B),
        "program": None,
    }
    assert broker.serve.subscriptions["g", "u"]["all"]


def test_sql_is_left_to_python_while_it_is_off_and_many_tags_are_a_program(broker):
    """Goal: C never filters by half a subscription. Method: an expression, and one tag around the limit of 64."""
    sql = SubscriptionData(topic="t", sub_string="a > 1", expression_type="SQL92", sub_version=1)
    many = tags(" || ".join(f"tag{n}" for n in range(65)), 1, "u")
    most = tags(" || ".join(f"tag{n}" for n in range(64)), 1, "v")
    join(broker, 1, consumer(sql, many, most))
    special = {topic: row["special"] for (_, topic), row in broker.serve.subscriptions.items()}
    assert special == {"t": True, "u": False, "v": False}
    programs = {topic: row["program"] is not None for (_, topic), row in broker.serve.subscriptions.items()}
    assert programs == {"t": False, "u": True, "v": False}


def test_a_heartbeat_that_brings_no_tag_hashes_gets_no_other_tags():
    """Goal: a client that leaves codeSet and tagsSet out is not given the whole topic. Method: such an entry, read."""
    entry = {"topic": "t", "subString": "TagA || TagB", "subVersion": 1}
    read = SubscriptionData.from_json(entry)
    assert not read.is_all
    assert read.tag_hashes == {TAG_A, TAG_B}
    assert SubscriptionData.from_json(entry | {"subString": "*"}).is_all
    with pytest.raises(ValueError, match="split error"):
        SubscriptionData.from_json(entry | {"subString": " || "})


def test_only_a_newer_version_replaces_a_subscription(broker):
    """Goal: a late heartbeat does not win. Method: equal and newer versions."""
    join(broker, 1, consumer(tags("TagA", 5)))
    join(broker, 1, consumer(tags("TagB", 5)))
    assert broker.serve.subscriptions["g", "t"]["tag_hashes"] == (TAG_A,)
    join(broker, 1, consumer(tags("TagB", 6)))
    assert broker.serve.subscriptions["g", "t"]["tag_hashes"] == (TAG_B,)


def test_a_topic_no_longer_subscribed_to_is_taken_away_and_members_are_told(broker):
    """Goal: unsubscribing counts. Method: a heartbeat with one topic less."""
    join(broker, 1, consumer(tags("*"), tags("*", 1, "u")))
    told(broker)
    assert join(broker, 1, consumer(tags("*")))
    assert set(broker.serve.subscriptions) == {("g", "t")}
    assert told(broker) == [1]


def test_a_heartbeat_without_subscriptions_leaves_them_alone(broker):
    """Goal: version 2's short form. Method: a heartbeat that left them out."""
    join(broker, 1, consumer(tags("TagA", 5)))
    told(broker)
    assert not join(broker, 1, consumer(), subscriptions_too=False)
    assert ("g", "t") in broker.serve.subscriptions
    assert told(broker) == []


@pytest.mark.parametrize(("silent_s", "gone"), [(119.9, False), (120.0, False), (120.1, True)])
def test_clients_silent_for_120_s_are_closed_and_forgotten(broker, silent_s, gone):
    """Goal: the dead leave. Method: around the edge, beside one that still beats."""
    join(broker, 1)
    broker.clients.register_producer("p", channel(broker, 2))
    broker.clock.advance(silent_s)
    join(broker, 3)
    broker.clients.expire()
    assert sorted(broker.server.closed) == ([1, 2] if gone else [])
    assert broker.clients.consumer_group("g").client_ids() == (["client-3"] if gone else ["client-1", "client-3"])
    assert bool(broker.clients.producers("p")) is not gone


def test_a_step_of_the_wall_clock_expires_nobody(broker):
    """Goal: no mass rebalance after a VM resumes. Method: the wall clock jumps ten minutes, monotonic time does not."""
    join(broker, 1)
    broker.clock._now += timedelta(minutes=10)
    broker.clients.expire()
    assert broker.clients.consumer_group("g").client_ids() == ["client-1"]
    assert broker.server.closed == []


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
    """Goal: the producer table. Method: join, leave, connection lost."""
    broker.clients.register_producer("p", channel(broker, 1))
    broker.clients.register_producer("p", channel(broker, 2))
    broker.clients.unregister_producer("p", 1)
    assert [item.client_id for item in broker.clients.producers("p")] == ["client-2"]
    broker.clients.connection_closed(2)
    assert broker.clients.producer_groups() == {}


def test_fingerprints_tell_whether_a_group_s_heartbeat_changed(broker):
    """Goal: IS_SUB_CHANGE's source. Method: first, same, other, another group."""
    seen = broker.clients.changed_fingerprint
    assert [seen("g", 5), seen("g", 5), seen("g", 6), seen("h", 5)] == [False, False, True, False]


def test_heartbeats_of_4_9_and_5_x_are_read():
    """Goal: every client's heartbeat. Method: without codeSet and fingerprint, with both, and without a client id."""
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
