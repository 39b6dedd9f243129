"""CONSUMER_SEND_MSG_BACK over the wire, on both planes: what comes back, where, when, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from pymq.broker import reputs
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from tests.broker.sides import until
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.test_delay import SCHEDULE, arrived, running
from tests.broker.wire import send_fields

LEVELS = "1h 2h 0s 3h 4h 5h"  # the first retry (level 3) comes at once, later ones stay where they can be looked at
STORE = SMALL.replace(message_delay_level=LEVELS)
V3_4_9 = 121


@pytest.fixture(scope="module", params=["native", "python"])
def shared(request, tmp_path_factory):
    """One broker for each plane."""
    with running(tmp_path_factory.mktemp(request.param), request.param, STORE) as pair:
        yield pair


@pytest.fixture
def group(request):
    """A group, and the topic it consumes, of the test's own."""
    return "G_" + re.sub(r"\W", "_", request.node.name)[-60:]


def send(broker, wire, topic, body=b"body", properties="", **more):
    """Send a message; it as it is stored."""
    answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic, 0, properties, **more), body)
    assert answer.code == ResponseCode.SUCCESS, answer
    return broker.store.read(topic, 0, int(answer.fields["queueOffset"]), 1)[0]


def send_back(wire, group, message, level=0, version=500, **more):
    """Send *message* back; the answer."""
    fields = {"group": group, "offset": str(message.physical_offset), "delayLevel": str(level),
              "originMsgId": message.message_id, "originTopic": message.topic, "unitMode": "false"}  # fmt: skip
    fields |= {name: str(value) for name, value in more.items()}
    command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
    command.version = version
    return wire.wait(wire.post(command))


def sent_back(wire, *arguments, **more):
    """Send back what must be taken."""
    answer = send_back(wire, *arguments, **more)
    assert answer.code == ResponseCode.SUCCESS, answer
    assert not answer.fields
    return answer


def waiting(broker, level):
    """The newest message of a level."""
    low, high = broker.store.queue_range(SCHEDULE, level - 1)
    assert high > low
    return broker.store.read(SCHEDULE, level - 1, high - 1, 1)[0]


def update_group(wire, name, **settings):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
    body = json.dumps({"groupName": name, **settings}).encode()
    assert wire.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == ResponseCode.SUCCESS


def test_a_message_comes_back_with_where_it_came_from(shared, group):
    """RETRY-4, 6, 10: a new message in %RETRY%group; body, flag, keys, tags, born time and host as they were."""
    broker, wire = shared
    create_topic(wire, "Back")
    first = send(
        broker, wire, "Back", b"again", "TAGS\x01red\x02KEYS\x01k\x02own\x01mine\x02", h="7", g="1700000000123"
    )
    sent_back(wire, group, first)
    (message,) = arrived(broker, f"%RETRY%{group}")
    assert (message.body, message.flag, message.reconsume_times) == (b"again", 7, 1)
    assert message.born_timestamp_ms == first.born_timestamp_ms == 1_700_000_000_123
    assert message.born_host == first.born_host
    assert message.message_id != first.message_id
    expected = first.properties | {
        "RETRY_TOPIC": "Back", "ORIGIN_MESSAGE_ID": first.message_id, "WAIT": "false", "DELAY": "3",
        "REAL_TOPIC": f"%RETRY%{group}", "REAL_QID": "0",
    }  # fmt: skip
    assert message.properties == expected
    config = broker.topics.get(f"%RETRY%{group}")
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


def test_the_second_time_it_remembers_the_first(shared, group):
    """RETRY-6: RETRY_TOPIC and ORIGIN_MESSAGE_ID are of the first message; RETRY-7: the level grows with the count."""
    broker, wire = shared
    create_topic(wire, "Twice")
    first = send(broker, wire, "Twice")
    sent_back(wire, group, first)
    (second,) = arrived(broker, f"%RETRY%{group}")
    sent_back(wire, group, second)
    third = waiting(broker, 4)
    assert third.reconsume_times == 2
    assert third.properties["DELAY"] == "4"
    assert third.properties["RETRY_TOPIC"] == "Twice"
    assert third.properties["ORIGIN_MESSAGE_ID"] == first.message_id
    assert third.properties["REAL_TOPIC"] == f"%RETRY%{group}"


@pytest.mark.parametrize(
    ("times", "asked", "level"), [(0, 1, 1), (0, 2, 2), (1, 0, 4), (3, 0, 6), (9, 0, 6), (5, 99, 6)]
)
def test_the_level_is_the_one_asked_for_or_three_and_one_more_each_time(shared, group, times, asked, level):
    """RETRY-7, 8; above the highest it is the highest."""
    broker, wire = shared
    create_topic(wire, "Asked")
    sent_back(wire, group, send(broker, wire, "Asked", j=str(times)), asked)
    message = waiting(broker, level)
    assert message.reconsume_times == times + 1
    assert message.properties["DELAY"] == str(level)


@pytest.mark.parametrize(
    ("times", "asked", "own_max", "version", "dead"),
    [
        (0, -1, None, 500, True),
        (15, 0, None, 500, False),
        (16, 0, None, 500, True),
        (2, 0, 3, 500, False),
        (3, 0, 3, 500, True),
        (0, 0, 0, V3_4_9, True),
        (3, 0, 3, V3_4_9 - 1, False),
        (17, 0, 99, V3_4_9 - 1, True),
        (17, 0, 99, 500, False),
    ],
)
def test_what_came_back_too_often_goes_to_the_dead_letters(shared, group, times, asked, own_max, version, dead):
    """RETRY-7, 9, 11: by the group's maximum, or the request's own from 3.4.9 on; dead letters can be read."""
    broker, wire = shared
    create_topic(wire, "Often")
    first = send(broker, wire, "Often", b"%d" % times, j=str(times))
    more = {} if own_max is None else {"maxReconsumeTimes": own_max}
    sent_back(wire, group, first, asked, version, **more)
    config = broker.topics.get(f"%DLQ%{group}")
    assert (config is not None) is dead
    if not dead:
        assert broker.topics.get(f"%RETRY%{group}") is not None
        return
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    (message,) = arrived(broker, f"%DLQ%{group}")
    assert message.body == first.body
    assert message.reconsume_times == times + 1
    assert message.properties["DELAY"] == "0"
    assert message.properties["RETRY_TOPIC"] == "Often"
    assert message.properties["ORIGIN_MESSAGE_ID"] == first.message_id


@pytest.mark.parametrize(("times", "asked", "topic"), [(2**31 - 1, 0, "%DLQ%"), (-3, 0, "%RETRY%"), (-9, 0, "%RETRY%")])
def test_a_count_that_no_consumer_makes_is_survived(shared, group, times, asked, topic):
    """Symptom: a message sent with a negative count waited in a queue below 0, one with the largest was never taken."""
    broker, wire = shared
    create_topic(wire, "Counts")
    sent_back(wire, group, send(broker, wire, "Counts", b"odd", j=str(times)), asked)
    (message,) = arrived(broker, topic + group)
    assert message.body == b"odd"
    assert message.reconsume_times == max(min(times, 2**31 - 2) + 1, 0)


def test_the_groups_own_maximum_and_queues_count(shared, group):
    """RETRY-4, 9: retryMaxTimes and retryQueueNums of the group."""
    broker, wire = shared
    update_group(wire, group, retryMaxTimes=1, retryQueueNums=3)
    create_topic(wire, "Own")
    sent_back(wire, group, send(broker, wire, "Own", j="0"), version=1)
    assert broker.topics.get(f"%RETRY%{group}").write_queue_nums == 3
    sent_back(wire, group, send(broker, wire, "Own", j="1"), version=1)
    assert arrived(broker, f"%DLQ%{group}")


def test_no_retry_queues_mean_success_and_no_retry(shared, group):
    """RETRY-3."""
    broker, wire = shared
    update_group(wire, group, retryQueueNums=0)
    create_topic(wire, "None")
    sent_back(wire, group, send(broker, wire, "None"))
    assert broker.topics.get(f"%RETRY%{group}") is None


def test_more_retry_queues_than_the_topic_has_are_not_used(shared, group):
    """Symptom: after retryQueueNums was raised messages went to queues nobody reads."""
    broker, wire = shared
    create_topic(wire, "Raised")
    sent_back(wire, group, send(broker, wire, "Raised"))
    update_group(wire, group, retryQueueNums=64)
    for _ in range(20):
        sent_back(wire, group, send(broker, wire, "Raised"))
    assert len(arrived(broker, f"%RETRY%{group}", 21)) == 21


def test_a_message_that_is_not_there_is_an_error(shared, group):
    """RETRY-5: beyond the log, below it, and in the middle of another message."""
    broker, wire = shared
    create_topic(wire, "Absent")
    message = send(broker, wire, "Absent")
    for offset in (-1, message.physical_offset + 1, message.physical_offset + (1 << 40), 2**63 - 1):
        answer = send_back(wire, group, message, offset=offset)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"look message by offset failed, {offset}"
    assert broker.topics.get(f"%DLQ%{group}") is None


@pytest.mark.parametrize("properties", ["DELAY\x016\x02", "TRAN_MSG\x01true\x02PGROUP\x01p\x02"])
def test_what_was_never_delivered_cannot_be_sent_back(shared, group, properties):
    """Symptom: a half message became visible to whoever sent its place in the log back."""
    _, wire = shared
    create_topic(wire, "Hidden")
    answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("Hidden", 0, properties), b"hidden")
    assert answer.code == ResponseCode.SUCCESS, answer
    offset = int(answer.fields["msgId"][16:], 16)
    fields = {"group": group, "offset": str(offset), "delayLevel": "0"}
    for _ in range(2):  # the second time the retry topic is there, and the reactor looks at it first
        refused = wire.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark == f"look message by offset failed, {offset}"


@pytest.mark.parametrize("field", ["group", "offset", "delayLevel"])
def test_a_header_without_what_it_needs_is_an_error_by_name(shared, field):
    """As the Java header checks it."""
    _, wire = shared
    fields = {"group": "g", "offset": "0", "delayLevel": "0"}
    del fields[field]
    answer = wire.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert field in answer.remark


def test_groups_and_permissions_are_asked_for(tmp_path, group):
    """RETRY-3 and the two permissions, in Apache's words."""
    with running(tmp_path, store=STORE, auto_create_subscription_group=False) as (broker, wire):
        create_topic(wire, "Asked")
        message = send(broker, wire, "Asked")
        answer = send_back(wire, group, message)
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert answer.remark.startswith(f"subscription group not exist, {group} ")
        update_group(wire, group)
        sent_back(wire, group, message)
        retry = f"%RETRY%{group}"
        topic = dataclasses.replace(broker.topics.get(retry), perm=4)
        fields = {
            "topic": retry, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "4",
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        assert wire.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == ResponseCode.SUCCESS
        assert broker.topics.get(retry).perm == topic.perm
        answer = send_back(wire, group, message)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == f"the topic[{retry}] sending message is forbidden"
        assert wire.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4\n").code == ResponseCode.SUCCESS
        answer = send_back(wire, group, message)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "sending message is forbidden" in answer.remark


def test_what_the_client_sends_to_its_retry_topic_itself_is_delayed_too(shared, group):
    """The client's way when a send-back failed: a send to %RETRY%group with a level and a count."""
    broker, wire = shared
    retry = f"%RETRY%{group}"
    text = "DELAY\x013\x02RETRY_TOPIC\x01T\x02ORIGIN_MESSAGE_ID\x01id\x02"
    fields = send_fields(retry, 0, text, j="1", l="16")
    assert wire.call(RequestCode.SEND_MESSAGE_V2, fields, b"by myself").code == ResponseCode.SUCCESS
    (message,) = arrived(broker, retry)
    assert message.body == b"by myself"
    assert message.reconsume_times == 1
    assert message.properties["RETRY_TOPIC"] == "T"


def test_what_an_ordered_group_sends_to_its_retry_topic_is_a_dead_letter(shared, group):
    """handleRetryAndDLQ: a group that holds queue locks consumes in order, and gives up what it sends there."""
    broker, wire = shared
    create_topic(wire, "InOrder")
    queue = {"topic": "InOrder", "brokerName": broker.config.broker_name, "queueId": 0}
    locked = {"consumerGroup": group, "clientId": "c", "mqSet": [queue]}
    assert wire.call(RequestCode.LOCK_BATCH_MQ, {}, json.dumps(locked).encode()).code == ResponseCode.SUCCESS
    fields = send_fields(f"%RETRY%{group}", 0, "DELAY\x013\x02", j="1", l="16")
    assert wire.call(RequestCode.SEND_MESSAGE_V2, fields, b"given up").code == ResponseCode.SUCCESS
    (message,) = arrived(broker, f"%DLQ%{group}")
    assert message.body == b"given up"


def test_under_sync_flush_the_answer_waits_for_the_disk(tmp_path, group):
    """What is acknowledged is flushed: the log's flushed end when the answer is there."""
    with running(tmp_path, store=STORE.replace(flush_disk_type="SYNC_FLUSH")) as (broker, wire):
        create_topic(wire, "Flushed")
        first = send(broker, wire, "Flushed")
        for _ in range(5):
            sent_back(wire, group, first, -1)
            marks = broker.store.watermarks()
            assert marks["flushed"] == marks["written"]
        until(lambda: broker.store.queue_range(f"%DLQ%{group}", 0)[1] == 5)


def test_a_message_from_the_disk_is_sent_back_too(tmp_path, group, monkeypatch):
    """A message far behind the end of the log is read off the loop."""
    monkeypatch.setattr(reputs, "HOT_BYTES", 1 << 20)
    with running(tmp_path, store=STORE) as (broker, wire):
        create_topic(wire, "Cold")
        first = send(broker, wire, "Cold", b"old")
        for _ in range(50):
            send(broker, wire, "Cold", b"x" * 100_000)
        sent_back(wire, group, first)
        assert arrived(broker, f"%RETRY%{group}")[0].body == b"old"


def test_many_at_once_are_put_together_and_each_is_answered(shared, group):
    """One that is not there keeps no other out, and every answer is its own."""
    broker, wire = shared
    create_topic(wire, "Many")
    messages = [send(broker, wire, "Many", b"%d" % number) for number in range(40)]
    asked = {}
    for number, message in enumerate(messages):
        offset = message.physical_offset + (1 if number % 10 == 9 else 0)
        fields = {"group": group, "offset": str(offset), "delayLevel": "-1"}
        asked[wire.post(Command(RequestCode.CONSUMER_SEND_MSG_BACK, fields))] = number
    for _ in messages:
        answer = wire.receive()
        failed = asked.pop(answer.opaque) % 10 == 9
        assert answer.code == (ResponseCode.SYSTEM_ERROR if failed else ResponseCode.SUCCESS)
    dead = [int(message.body) for message in arrived(broker, f"%DLQ%{group}", 36)]
    assert sorted(dead) == [number for number in range(40) if number % 10 != 9]


def test_the_store_that_refuses_is_an_error_that_says_why(tmp_path, group):
    """The consumer keeps the message and tries again."""
    with running(tmp_path, store=STORE) as (broker, wire):
        create_topic(wire, "Refused")
        first = send(broker, wire, "Refused")
        broker.store.set_writable(False)
        answer = send_back(wire, group, first)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark.startswith("the message was not stored again: ")
        broker.store.set_writable(True)
        sent_back(wire, group, first)
