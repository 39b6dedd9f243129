"""Offsets of groups and queues, and messages by id and key, on both data planes."""

from __future__ import annotations

from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from tests.broker.sides import offsets_in, until
from tests.broker.wire import send_fields

NEVER = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
AHEAD_MS = 3_600_000


def consumer_offset(side, **change):
    """The answer to QUERY_CONSUMER_OFFSET."""
    fields = {"consumerGroup": side.group, "topic": side.topic, "queueId": "0"}
    return side.wire.call(RequestCode.QUERY_CONSUMER_OFFSET, fields | change)


def commit(side, offset, **change):
    """The answer to UPDATE_CONSUMER_OFFSET."""
    fields = {"consumerGroup": side.group, "topic": side.topic, "queueId": "0", "commitOffset": str(offset)}
    answer = side.wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields | change)
    return answer.code, answer.remark


def of_queue(side, code, **more):
    """The fields of an answer about queue 0."""
    return side.wire.call(code, {"topic": side.topic, "queueId": "0", **more}).fields


def test_group_without_offset_begins_at_0_only_while_the_queue_does(side):
    """Group without offset begins at 0 only while the queue does."""
    answer = consumer_offset(side)
    assert (answer.code, answer.remark) == (22, NEVER)  # nothing was ever sent to the queue
    side.send(1)
    assert consumer_offset(side).fields == {"offset": "0"}
    kept = consumer_offset(side, setZeroIfNotFound="false")
    assert (kept.code, kept.remark) == (22, "Not found, do not set to zero, maybe this group boot first")


def test_commits_are_kept_also_smaller_ones(side):
    """Commits are kept also smaller ones."""
    side.send(5)
    assert commit(side, 5) == (0, None)
    assert consumer_offset(side).fields == {"offset": "5"}
    assert commit(side, 3) == (0, None)
    assert consumer_offset(side).fields == {"offset": "3"}


def test_commits_are_refused_in_apache_s_words(side):
    """Commits are refused in apache's words."""
    assert commit(side, 1, consumerGroup="no_such_group") == (26, "Group no_such_group not exist!")
    assert commit(side, 1, consumerGroup="") == (26, "Group  not exist!")
    assert commit(side, 1, topic="NoSuchTopic") == (17, "Topic NoSuchTopic not exist!")
    assert commit(side, "x") == (29, f"Offset is null, topic is {side.topic}")
    assert commit(side, 1, queueId="99999999999") == (29, f"QueueId is null, topic is {side.topic}")
    assert commit(side, 1, queueId="-1") == (29, f"queueId[-1] is illegal, topic:[{side.topic}]")


def test_oneway_commit_counts_and_is_not_answered(side):
    """Oneway commit counts and is not answered."""
    side.send(2)
    fields = {"consumerGroup": side.group, "topic": side.topic, "queueId": "0", "commitOffset": "2"}
    side.wire.oneway(Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields))
    assert consumer_offset(side).fields == {"offset": "2"}
    assert not [command for command in side.wire.pushed if command.is_response]


def test_where_queues_begin_and_end(side):
    """Where queues begin and end."""
    assert of_queue(side, RequestCode.GET_MAX_OFFSET) == {"offset": "0"}
    assert of_queue(side, RequestCode.GET_EARLIEST_MSG_STORETIME) == {"timestamp": "-1"}
    side.send(3)
    assert of_queue(side, RequestCode.GET_MAX_OFFSET, committed="false") == {"offset": "3"}
    answer = side.wire.call(RequestCode.GET_MIN_OFFSET, {"topic": side.topic, "queueId": "0"})
    assert (answer.fields, answer.remark) == ({"offset": "0"}, "")
    for impossible in ("-1", "70000"):
        fields = {"topic": side.topic, "queueId": impossible}
        assert side.wire.call(RequestCode.GET_MAX_OFFSET, fields).fields == {"offset": "0"}


def test_offsets_by_time(side):
    """Offsets by time."""
    side.send(3)
    stored_ms = int(of_queue(side, RequestCode.GET_EARLIEST_MSG_STORETIME)["timestamp"])
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert of_queue(side, search, timestamp=str(stored_ms)) == {"offset": "0"}
    assert of_queue(side, search, timestamp=str(stored_ms + AHEAD_MS)) == {"offset": "3"}
    assert of_queue(side, search, timestamp=str(stored_ms + AHEAD_MS), boundaryType="UPPER") == {"offset": "2"}
    assert of_queue(side, search, timestamp="0") == {"offset": "0"}
    nowhere = side.wire.call(search, {"topic": "NoSuchTopic", "queueId": "0", "timestamp": "0"})
    assert nowhere.fields == {"offset": "0"}


def test_message_is_found_by_its_place_and_by_its_keys(side):
    """Message is found by its place and by its keys."""
    properties = "KEYS\x01order-1 order-2\x02"
    sent = side.wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(side.topic, 0, properties), b"found")
    offset = int(sent.fields["msgId"][16:], 16)
    answer = side.wire.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
    assert (answer.code, answer.remark, answer.fields) == (0, None, {})
    assert b"found" in answer.body
    assert offsets_in(answer.body) == [0]
    missing = side.wire.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset + 1)})
    assert (missing.code, missing.remark) == (1, f"can not find message by the offset, {offset + 1}")

    query = {"topic": side.topic, "key": "order-2", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "9" * 18}
    until(lambda: side.wire.call(RequestCode.QUERY_MESSAGE, query).code == ResponseCode.SUCCESS)
    found = side.wire.call(RequestCode.QUERY_MESSAGE, query)
    assert found.body == answer.body
    assert int(found.fields["indexLastUpdatePhyoffset"]) >= offset
    assert int(found.fields["indexLastUpdateTimestamp"]) > 0
    unique = {**query, "key": sent.fields["transactionId"], "_UNIQUE_KEY_QUERY": "true", "maxNum": "0"}
    assert side.wire.call(RequestCode.QUERY_MESSAGE, unique).body == answer.body
    nothing = side.wire.call(RequestCode.QUERY_MESSAGE, {**query, "key": "no-such-key"})
    assert (nothing.code, nothing.remark) == (22, "can not find message, maybe time range not correct")
    assert nothing.fields == {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}


def test_query_gives_the_newest_in_the_log_s_order(side):
    """Query gives the newest in the log's order."""
    key = "order-9"
    for _ in range(5):
        side.wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(side.topic, 0, f"KEYS\x01{key}\x02"), b"x")
    query = {"topic": side.topic, "key": key, "beginTimestamp": "0", "endTimestamp": "9" * 18}
    until(lambda: len(offsets_in(side.wire.call(RequestCode.QUERY_MESSAGE, {**query, "maxNum": "9"}).body)) == 5)
    newest = side.wire.call(RequestCode.QUERY_MESSAGE, {**query, "maxNum": "2"})
    assert offsets_in(newest.body) == [3, 4]
