"""Header classes: Apache's own requests through them and back."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

from pymq.remoting import headers
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import RemotingError
from pymq.remoting.headers import clients, messages, namesrv, offsets, pull, send, topics
from pymq.remoting.headers.base import Header, rules_of
from tests.remoting.conftest import GoldenFrame

REQUESTS: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: send.SendMessageRequestHeader,
    RequestCode.SEND_MESSAGE_V2: send.SendMessageRequestHeaderV2,
    RequestCode.SEND_BATCH_MESSAGE: send.SendMessageRequestHeaderV2,
    RequestCode.CONSUMER_SEND_MSG_BACK: send.ConsumerSendMsgBackRequestHeader,
    RequestCode.END_TRANSACTION: send.EndTransactionRequestHeader,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: send.ReplyMessageRequestHeader,
    RequestCode.PULL_MESSAGE: pull.PullMessageRequestHeader,
    RequestCode.LITE_PULL_MESSAGE: pull.PullMessageRequestHeader,
    RequestCode.QUERY_MESSAGE: messages.QueryMessageRequestHeader,
    RequestCode.VIEW_MESSAGE_BY_ID: messages.ViewMessageRequestHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: offsets.QueryConsumerOffsetRequestHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: offsets.UpdateConsumerOffsetRequestHeader,
    RequestCode.GET_MAX_OFFSET: offsets.GetMaxOffsetRequestHeader,
    RequestCode.GET_MIN_OFFSET: offsets.GetMinOffsetRequestHeader,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.SearchOffsetRequestHeader,
    RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.GetEarliestMsgStoretimeRequestHeader,
    RequestCode.UPDATE_AND_CREATE_TOPIC: topics.CreateTopicRequestHeader,
    RequestCode.DELETE_TOPIC_IN_BROKER: topics.DeleteTopicRequestHeader,
    RequestCode.GET_TOPIC_STATS_INFO: topics.GetTopicStatsInfoRequestHeader,
    RequestCode.GET_CONSUME_STATS: topics.GetConsumeStatsRequestHeader,
    RequestCode.UNREGISTER_CLIENT: clients.UnregisterClientRequestHeader,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.GetConsumerListByGroupRequestHeader,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: clients.NotifyConsumerIdsChangedRequestHeader,
    RequestCode.REGISTER_BROKER: namesrv.RegisterBrokerRequestHeader,
    RequestCode.UNREGISTER_BROKER: namesrv.UnregisterBrokerRequestHeader,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: namesrv.GetRouteInfoRequestHeader,
    RequestCode.PUT_KV_CONFIG: namesrv.PutKVConfigRequestHeader,
}
# In the frames, in no header class: put there by the client's hooks or admin code.
EXTRA_FIELDS = {"_UNIQUE_KEY_QUERY", "ReqT"}


def test_recorded_requests_pass_through_their_classes(golden: list[GoldenFrame]):
    """Goal: every field of every request has its name and type here. Method: read, write, compare."""
    seen = set()
    for frame in golden:
        command = Command.decode(frame.data)
        kind = REQUESTS.get(command.code)
        if command.is_response or kind is None:
            continue
        fields = {name: value for name, value in command.fields.items() if name not in EXTRA_FIELDS}
        written = kind.from_fields(fields).to_fields()
        added = {name: value for name, value in written.items() if name not in fields}
        assert {name: written.get(name) for name in fields} == fields, frame.name
        assert set(added.values()) <= {"false", "0", "true", "-1"}, frame.name  # Java's defaults of what was not said
        seen.add(command.code)
    assert seen == set(REQUESTS)


def test_recorded_answers_pass_through_their_classes(golden: list[GoldenFrame]):
    """Goal: clients find what they read. Method: answers to sends and pulls, read and written."""
    count = 0
    for frame in golden:
        command = Command.decode(frame.data)
        if "PULL_MESSAGE" in frame.name and command.is_response and "nextBeginOffset" in command.fields:
            header = pull.PullMessageResponseHeader.from_fields(command.fields)
            assert header.to_fields() == command.fields
            count += 1
        if "SEND_MESSAGE_V2" in frame.name and command.is_response and command.code == 0:
            answer = send.SendMessageResponseHeader.from_fields(command.fields)
            assert answer.queue_offset == int(command.fields["queueOffset"])
            count += 1
    assert count > 10


def test_every_header_class_reads_what_it_writes():
    """Goal: no class with a wrong type or name. Method: give every field a value, write, read."""
    examples = {"str": "text", "Int": "-7", "Long": str(2**40), "bool": "true"}
    count = 0
    for module in pkgutil.iter_modules(headers.__path__):
        for _, kind in inspect.getmembers(
            importlib.import_module(f"{headers.__name__}.{module.name}"), inspect.isclass
        ):
            if issubclass(kind, Header) and kind.__module__.endswith(module.name):
                types = {
                    name: str(item.type).removesuffix(" | None") for name, item in kind.__dataclass_fields__.items()
                }
                fields = {rule.name: examples[types[rule.attribute]] for rule in rules_of(kind)}
                assert kind.from_fields(fields).to_fields() == fields, kind
                count += 1
    assert count > 70


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topic": "T"}, "the custom field <queueId> is null"),
        ({"topic": "T", "queueId": "x"}, "<queueId> is no 32-bit number: 'x'"),
        ({"topic": "T", "queueId": str(2**31)}, "<queueId> is no 32-bit number"),
        ({"topic": "T", "queueId": " 1"}, "<queueId> is no 32-bit number"),
        ({"topic": "T", "queueId": "\u0661"}, "<queueId> is no 32-bit number"),
        ({}, "the custom field <topic> is null"),
    ],
)
def test_a_field_that_is_missing_or_no_number_is_named(fields: dict[str, str], words: str):
    """Goal: the client learns what it did wrong. Method: one of each."""
    with pytest.raises(RemotingError, match=words) as caught:
        offsets.GetMinOffsetRequestHeader.from_fields(fields)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_numbers_at_the_edges_and_with_a_sign_are_read():
    """Goal: Java's parsers. Method: the edges."""
    header = offsets.UpdateConsumerOffsetRequestHeader.from_fields(
        {"consumerGroup": "g", "topic": "T", "queueId": "+3", "commitOffset": str(-(2**63))}
    )
    assert (header.queue_id, header.commit_offset) == (3, -(2**63))
