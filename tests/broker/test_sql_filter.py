"""SQL92 filters over the wire, on both data planes: what passes, what is refused and where, how holds go on."""

from __future__ import annotations

import json

import pytest

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.sides import EXPRESSION, SUSPEND, Side, offsets_in, told, until
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.wire import Wire, send_fields

NOT_SUPPORTED = "The broker does not support consumer to filter message by SQL92"
PULL = int(RequestCode.PULL_MESSAGE)


def make_broker(directory, plane, **more):
    """A broker that filters, unless told otherwise."""
    settings = {"enable_property_filter": True, "data_plane": plane} | more
    return pymq.Broker(
        pymq.BrokerConfig(
            listen_port=0,
            namesrv_listen_port=0,
            broker_name="a",
            store_path_root_dir=str(directory),
            store=SMALL,
            **settings,
        )
    )


@pytest.fixture(scope="module", params=["native", "python"])
def filtering(request, tmp_path_factory):
    """A filtering broker on each plane."""
    with make_broker(tmp_path_factory.mktemp("store"), request.param).running() as broker:
        yield broker


@pytest.fixture
def sql(filtering, request):
    """A topic and a group of the test's own, not yet subscribed."""
    name = request.node.name.partition("[")[0][-60:]
    with Wire(filtering.config.listen_port) as wire:
        create_topic(wire, f"T_{name}")
        yield Side(filtering, wire, f"G_{name}", f"T_{name}")


def subscribe(side, expression, *, version=1, kind="SQL92", topic=None, **more):
    """A heartbeat with one subscription."""
    subscription = {
        "topic": topic or side.topic, "subString": expression, "subVersion": version, "expressionType": kind, **more,
    }  # fmt: skip
    body = {
        "clientID": f"{side.group}-client",
        "consumerDataSet": [
            {"groupName": side.group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
             "subscriptionDataSet": [subscription]}
        ],
    }  # fmt: skip
    assert side.wire.call(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == ResponseCode.SUCCESS


def send(side, *messages, topic=None):
    """Messages with these properties, visible on return."""
    for properties in messages:
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        answer = side.wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic or side.topic, 0, text), b"body")
        assert answer.code == ResponseCode.SUCCESS, answer
    wanted = int(answer.fields["queueOffset"]) + 1
    fields = {"topic": topic or side.topic, "queueId": "0"}
    until(lambda: int(side.wire.call(RequestCode.GET_MAX_OFFSET, fields).fields["offset"]) >= wanted)


PRICES = [{"price": "4"}, {"price": "5"}, {"price": "6"}, {"price": "much"}, {}, {"price": "7", "colour": "red"}]


def test_only_what_the_expression_says_is_pulled(sql):
    """Goal: filtered at the broker, by the plane that is asked. Method: numbers, no number, no property."""
    subscribe(sql, "price > 5")
    send(sql, *PRICES)
    before = sql.served_by(PULL)
    answer = sql.ask(0, expressionType="SQL92")
    assert (told(answer), offsets_in(answer.body)) == ((0, "FOUND", "6", "0", "6"), [2, 5])
    nothing = sql.ask(3, maxMsgNums=1)
    assert (told(nothing), offsets_in(nothing.body)) == ((0, "FOUND", "6", "0", "6"), [5])
    after = sql.served_by(PULL)
    native = sql.broker.config.data_plane == "native"
    assert (after[0] - before[0], after[1] - before[1]) == ((2, 0) if native else (0, 2))


def test_nothing_that_matches_still_moves_the_reader_on(sql):
    """Goal: NO_MATCHED_MESSAGE with the next offset. Method: an expression that nothing satisfies."""
    subscribe(sql, "colour = 'green'")
    send(sql, *PRICES)
    assert told(sql.ask(0)) == (20, "NO_MATCHED_MESSAGE", "6", "0", "6")


def test_a_newer_expression_takes_the_place_of_the_older(sql):
    """Goal: versions. Method: a newer one counts, an older or equal one does not."""
    subscribe(sql, "price = 4", version=5)
    send(sql, *PRICES)
    assert offsets_in(sql.ask(0, subVersion=5).body) == [0]
    subscribe(sql, "price = 5", version=4)
    subscribe(sql, "price = 5", version=5)
    assert offsets_in(sql.ask(0, subVersion=5).body) == [0]
    subscribe(sql, "price = 6", version=6)
    assert offsets_in(sql.ask(0, subVersion=6).body) == [2]
    late = sql.ask(0, subVersion=7)
    assert (late.code, late.remark) == (25, "the consumer's subscription not latest")


def test_a_bad_expression_is_refused_with_its_place(sql):
    """Goal: no guessing what is wrong. Method: the check before the start, the pull after a heartbeat or alone."""
    bad = "price > 5 AND\n  colour IN (5)"
    where = "line 2, column 14: expected a string, found 5"
    check = {"clientId": "c", "group": sql.group,
             "subscriptionData": {"topic": sql.topic, "subString": bad, "expressionType": "SQL92"}}  # fmt: skip
    answer = sql.wire.call(RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps(check).encode())
    assert (answer.code, answer.remark) == (23, f"Invalid MessageSelector. {where}")
    check["subscriptionData"]["subString"] = "price > 5"
    assert sql.wire.call(RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps(check).encode()).code == 0
    subscribe(sql, bad)
    refused = sql.ask(0)
    assert refused.code == 27
    assert refused.remark == "The broker's consumer filter data is not exist!Your expression may be wrong!"
    own = sql.ask(0, sysFlag=EXPRESSION, subscription=bad, expressionType="SQL92")
    assert (own.code, own.remark) == (23, f"parse the consumer's subscription failed: {where}")
    other = sql.ask(0, sysFlag=EXPRESSION, subscription="x", expressionType="GROOVY")
    assert (other.code, "no filter is of type GROOVY" in other.remark) == (23, True)


def test_a_newer_bad_expression_ends_the_older(sql):
    """Goal: nobody is served what nobody asks for. Method: a good one, then a bad newer one, then a good one."""
    subscribe(sql, "price > 5", version=1)
    send(sql, *PRICES)
    assert sql.ask(0).code == 0
    subscribe(sql, "price >", version=2)
    assert sql.ask(0, subVersion=2).code == 27
    subscribe(sql, "price < 5", version=3)
    assert offsets_in(sql.ask(0, subVersion=3).body) == [0]


def test_a_pull_that_brings_the_groups_expression_is_served_alike(sql):
    """Goal: lite pull consumers, natively when they are subscribed so. Method: the same text, and another."""
    subscribe(sql, "price > 5")
    send(sql, *PRICES)
    before = sql.served_by(PULL)
    same = sql.ask(0, sysFlag=EXPRESSION, subscription="price > 5", expressionType="SQL92")
    assert offsets_in(same.body) == [2, 5]
    if sql.broker.config.data_plane == "native":
        assert sql.served_by(PULL) == (before[0] + 1, before[1])
    other = sql.ask(0, sysFlag=EXPRESSION, subscription="colour IS NOT NULL", expressionType="SQL92")
    assert offsets_in(other.body) == [5]


def test_a_held_pull_waits_for_a_message_that_matches(sql):
    """Goal: what does not match wakes nobody. Method: hold, send one of each."""
    subscribe(sql, "price > 5")
    for own in ({}, {"subscription": "price > 5", "sysFlag": SUSPEND | EXPRESSION, "expressionType": "SQL92"}):
        begin = sql.maximum()
        number = sql.post(begin, **({"sysFlag": SUSPEND} | own))
        sql.held(1)
        with Wire(sql.broker.config.listen_port) as producer:
            sender = Side(sql.broker, producer, sql.group, sql.topic)
            send(sender, {"price": "4"}, {"price": "x"}, {})
            assert sql.broker.serve.stats()["holds"] == 1
            send(sender, {"price": "6"})
        answer = sql.wire.wait(number)
        assert answer.code == 0
        assert offsets_in(answer.body) == [begin + 3]


def test_a_held_pull_whose_time_is_up_goes_on_behind_what_it_has_seen(sql):
    """Goal: nothing is looked at twice. Method: hold, send what does not match, wait."""
    subscribe(sql, "price > 5")
    number = sql.post(0, sysFlag=SUSPEND, suspendTimeoutMillis=600)
    sql.held(1)
    with Wire(sql.broker.config.listen_port) as producer:
        send(Side(sql.broker, producer, sql.group, sql.topic), {"price": "4"}, {"price": "5"})
    assert told(sql.wire.wait(number)) == (20, "NO_MATCHED_MESSAGE", "2", "0", "2")


def test_many_tags_are_filtered_too(sql):
    """Goal: beyond the hashes of a row, still filtered, natively. Method: 100 tags, by heartbeat and by the pull."""
    tags = [f"tag{number}" for number in range(100)]
    subscribe(sql, " || ".join(tags), kind="TAG", tagsSet=tags)
    send(sql, {"TAGS": "tag99"}, {"TAGS": "other"}, {}, {"TAGS": "tag7"})
    before = sql.served_by(PULL)
    assert offsets_in(sql.ask(0).body) == [0, 3]
    if sql.broker.config.data_plane == "native":
        assert sql.served_by(PULL) == (before[0] + 1, before[1])
    own = sql.ask(0, sysFlag=EXPRESSION, subscription="||".join([*tags[50:], "other", *tags[:20]]))
    assert offsets_in(own.body) == [0, 1, 3]


def test_class_filter_is_refused_with_the_way_out(sql):
    """Goal: no silent flood. Method: by heartbeat and by the check."""
    subscribe(sql, "org.example.Filter", kind="TAG", classFilterMode=True)
    answer = sql.ask(0)
    assert (answer.code, "subscribe by tags or by SQL92" in answer.remark) == (1, True)
    check = {"clientId": "c", "group": sql.group, "subscriptionData": {"topic": sql.topic, "classFilterMode": True}}
    answer = sql.wire.call(RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps(check).encode())
    assert (answer.code, "subscribe by tags or by SQL92" in answer.remark) == (1, True)


@pytest.mark.parametrize("plane", ["native", "python"])
def test_without_the_setting_expressions_are_refused_in_apaches_words(tmp_path, plane):
    """Goal: enablePropertyFilter decides, also while running. Method: off, on, off."""
    with (
        make_broker(tmp_path, plane, enable_property_filter=False).running() as broker,
        Wire(broker.config.listen_port) as wire,
    ):
        create_topic(wire, "T")
        side = Side(broker, wire, "G", "T")
        subscribe(side, "price > 5")
        send(side, *PRICES)
        check = {"clientId": "c", "group": "G", "subscriptionData": {"subString": "a", "expressionType": "SQL92"}}
        asked = [
            lambda: side.ask(0),
            lambda: side.ask(0, sysFlag=EXPRESSION, subscription="price > 5", expressionType="SQL92"),
            lambda: side.ask(0, sysFlag=EXPRESSION, subscription="(", expressionType="SQL92"),
            lambda: wire.call(RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps(check).encode()),
        ]
        assert [(answer.code, answer.remark) for answer in (ask() for ask in asked)] == [(1, NOT_SUPPORTED)] * 4
        for value, code in (("true", 0), ("false", 1)):
            wire.call(RequestCode.UPDATE_BROKER_CONFIG, body=f"enablePropertyFilter={value}\n".encode())
            assert side.ask(0).code == code


@pytest.mark.parametrize("plane", ["native", "python"])
def test_retry_topic_is_filtered_by_the_original_topics_expression(tmp_path, plane):
    """Goal: FILT-10. Method: a group that subscribes to its retry topic by SQL92, filterSupportRetry on and off."""
    retry = "%RETRY%G"
    with (
        make_broker(tmp_path, plane, filter_support_retry=True).running() as broker,
        Wire(broker.config.listen_port) as wire,
    ):
        create_topic(wire, "T")
        side = Side(broker, wire, "G", "T")
        body = {
            "clientID": "c",
            "consumerDataSet": [
                {"groupName": "G", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                 "subscriptionDataSet": [
                     {"topic": "T", "subString": "price > 5", "subVersion": 1, "expressionType": "SQL92"},
                     {"topic": retry, "subString": "price = 1", "subVersion": 1, "expressionType": "SQL92"}]}
            ],
        }  # fmt: skip
        assert wire.call(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == ResponseCode.SUCCESS
        send(side, {"RETRY_TOPIC": "T", "price": "6"}, {"RETRY_TOPIC": "T", "price": "1"},
             {"RETRY_TOPIC": "U", "price": "1"}, {"price": "9"}, topic=retry)  # fmt: skip
        assert offsets_in(side.ask(0, topic=retry).body) == [0, 2, 3]
        wire.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"filterSupportRetry=false\n")
        assert offsets_in(side.ask(0, topic=retry).body) == [1, 2]


def test_filters_outlive_the_broker(tmp_path):
    """Goal: consumerFilter.json in RocketMQ's format. Method: register, leave, stop, look, start again."""
    with make_broker(tmp_path, "native").running() as broker:
        with Wire(broker.config.listen_port) as wire:
            create_topic(wire, "T")
            subscribe(Side(broker, wire, "G", "T"), "price > 5", version=17)
        until(lambda: broker.filters.get("T", "G").is_dead)
    document = json.loads((tmp_path / "config" / "consumerFilter.json").read_text())
    kept = document["filterDataByTopic"]["T"]["groupFilterData"]["G"]
    assert document["filterDataByTopic"]["T"]["topic"] == "T"
    assert kept["bloomFilterData"] == {"bitNum": 112, "bitPos": [24, 26, 83]}  # as Apache computes it
    assert (kept["clientVersion"], kept["expression"], kept["expressionType"]) == (17, "price > 5", "SQL92")
    assert (kept["consumerGroup"], kept["topic"], kept["dead"]) == ("G", "T", True)
    assert kept["deadTime"] >= kept["bornTime"] > 0
    with make_broker(tmp_path, "native").running() as broker, Wire(broker.config.listen_port) as wire:
        side = Side(broker, wire, "G", "T")
        subscribe(side, "price < 5", version=16)  # an older client than the one before the restart
        assert broker.filters.get("T", "G").expression == "price > 5"
        assert not broker.filters.get("T", "G").is_dead or broker.filters.get("T", "G").client_version == 17


def test_a_costly_expression_ends_its_pull_early_and_goes_on(sql):
    """Goal: nobody's expression keeps a reactor for long. Method: many searches in long values; pull to the end."""
    expression = " OR ".join(f"long CONTAINS '{number:04d}'" for number in range(1500)) + " OR last = 'x'"
    subscribe(sql, expression)
    send(sql, *[{"long": "z" * 8000}] * 12, {"long": "z", "last": "x"})
    offset, pulls = 0, 0
    while True:
        answer = sql.ask(offset)
        pulls += 1
        if answer.code == 0:
            break
        assert answer.code == 20
        assert int(answer.fields["nextBeginOffset"]) > offset
        offset = int(answer.fields["nextBeginOffset"])
    assert offsets_in(answer.body) == [12]
    assert pulls > 1


def test_tools_are_shown_the_filter_of_a_group(sql):
    """Goal: mqadmin's look at a queue tells what a group filters by. Method: QUERY_CONSUME_QUEUE with the group."""
    subscribe(sql, "price > 5", version=9)
    send(sql, *PRICES)
    fields = {"topic": sql.topic, "queueId": "0", "index": "0", "count": "2", "consumerGroup": sql.group}
    body = json.loads(sql.wire.call(RequestCode.QUERY_CONSUME_QUEUE, fields).body)
    assert len(body["queueData"]) == 2
    shown = json.loads(body["filterData"])
    assert (shown["expression"], shown["clientVersion"], shown["dead"]) == ("price > 5", 9, False)
    assert '\t"bloomFilterData":{\n\t\t"bitNum":112,\n\t\t"bitPos":[' in body["filterData"]
