"""Tables with entries that no broker could serve, as Apache's takes and writes them: start, say so, and keep them."""

from __future__ import annotations

import json

import pytest

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.json_dialect import loads
from tests.broker.sides import heartbeat
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.wire import Wire

LONG = "n" * 300


def make_config(path):
    """A broker over *path*."""
    return pymq.BrokerConfig(
        listen_port=0, namesrv_listen_port=0, broker_name="a", store_path_root_dir=str(path), store=SMALL
    )


def started_with(path, file, document):
    """Start and stop over a table that says *document*, changing something of each; what the table says then."""
    directory = path / "config"
    directory.mkdir()
    (directory / file).write_text(document)
    with pymq.Broker(make_config(path)).running() as running, Wire(running.config.listen_port) as wire:
        create_topic(wire, "Other")
        heartbeat(wire, "OtherGroup", "Other")
        commit = {"consumerGroup": "OtherGroup", "topic": "Other", "queueId": "0", "commitOffset": "0"}
        assert wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUCCESS
    return loads((directory / file).read_bytes())


@pytest.mark.parametrize(
    ("pair", "offsets"), [("T@g", {"70000": 3}), ("T@g", {"-1": 3}), (f"T@{LONG}", {"0": 1}), ("T@", {"0": 1})]
)
def test_a_broker_starts_on_offsets_of_queues_that_cannot_be(tmp_path, caplog, pair, offsets):
    """Goal: Apache's commits do not keep pymq from starting, nor get lost. Method: such a file, then the file again."""
    bare = ",".join(f"{queue}:{offset}" for queue, offset in offsets.items())
    found = started_with(tmp_path, "consumerOffset.json", f'{{"offsetTable":{{"{pair}":{{{bare}}}}}}}')
    assert {int(queue): offset for queue, offset in found["offsetTable"][pair].items()} == {
        int(queue): offset for queue, offset in offsets.items()
    }
    assert "Other@OtherGroup" in found["offsetTable"]
    assert "offset left out" in caplog.text


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("T", {"topicName": "T", "readQueueNums": -1, "writeQueueNums": 4, "perm": 6}),
        ("T", {"topicName": "T", "readQueueNums": 4, "writeQueueNums": 70000, "perm": 6}),
        (LONG, {"topicName": LONG}),
        ("T", None),
    ],
)
def test_a_broker_starts_on_topics_that_cannot_be_served(tmp_path, caplog, name, entry):
    """Goal: the other topics are served, and Apache finds its own again. Method: one such entry in topics.json."""
    found = started_with(tmp_path, "topics.json", json.dumps({"topicConfigTable": {name: entry}}))
    assert found["topicConfigTable"][name] == entry
    assert "Other" in found["topicConfigTable"]
    assert "topic left out" in caplog.text


@pytest.mark.parametrize(
    "document",
    [
        {"subscriptionGroupTable": {LONG: {"groupName": LONG}}},
        {"subscriptionGroupTable": {"g": {"groupName": "g", "retryQueueNums": -1}}},
        {"forbiddenTable": {"g": None}},
        {"forbiddenTable": {"g": {"T": "much"}}},
    ],
)
def test_a_broker_starts_on_groups_that_cannot_be_served(tmp_path, document):
    """Goal: as of topics. Method: names, counts and bits that nothing was ever made of."""
    found = started_with(tmp_path, "subscriptionGroup.json", json.dumps(document))
    assert found["subscriptionGroupTable"].keys() >= {"OtherGroup", *document.get("subscriptionGroupTable", {})}


@pytest.mark.parametrize("count", [-3, 65536, 100_000])
def test_a_group_with_impossible_retry_queues_is_refused_and_the_broker_starts_again(tmp_path, count):
    """Goal: no request makes a store that cannot be opened. Method: the group, its heartbeat, a restart; then a group
    of a file with as many."""
    with pymq.Broker(make_config(tmp_path)).running() as running, Wire(running.config.listen_port) as wire:
        body = json.dumps({"groupName": "g", "retryQueueNums": count}).encode()
        answer = wire.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert f"retryQueueNums of g is {count}" in answer.remark
    table = {"g": {"groupName": "g", "retryQueueNums": count}}
    (tmp_path / "config" / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": table}))
    for _ in range(2):
        with pymq.Broker(make_config(tmp_path)).running() as running, Wire(running.config.listen_port) as wire:
            heartbeat(wire, "g", "T")
            answer = wire.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "%RETRY%g"})
            assert json.loads(answer.body)["readQueueNums"] == max(0, min(count, 65535))
