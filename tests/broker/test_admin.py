"""Administrative requests against a broker that runs: what tools get back, and what it changes."""

from __future__ import annotations

import json

import pytest

import pymq
from pymq.remoting import json_dialect
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.store.config import ASYNC_FLUSH, StoreConfig
from tests.broker.wire import Wire, send_fields

SMALL = StoreConfig(
    flush_disk_type=ASYNC_FLUSH, mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=4000
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for the module; each test has topics and groups of its own."""
    config = pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        broker_name="broker-a",
        store_path_root_dir=str(tmp_path_factory.mktemp("store")),
        store=SMALL,
    )
    with pymq.Broker(config).running() as running:
        yield running


def create_topic(wire, topic, queues=4, **more):
    """UPDATE_AND_CREATE_TOPIC as mqadmin sends it, with other fields, and without those that are None."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": "",
    }
    fields |= more
    asked = {name: value for name, value in fields.items() if value is not None}
    return wire.call(RequestCode.UPDATE_AND_CREATE_TOPIC, asked)


def send(wire, topic, count, queue_id=0, properties=""):
    """Sends *count* messages and waits until the queue shows all it has: dispatch follows the log, not the answer."""
    for _ in range(count):
        sent = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic, queue_id, properties), b"x")
        assert sent.code == ResponseCode.SUCCESS
    ask = {"topic": topic, "queueId": str(queue_id)}
    while int(wire.call(RequestCode.GET_MAX_OFFSET, ask).fields["offset"]) <= int(sent.fields["queueOffset"]):
        pass


def route(broker, topic):
    """The topic's route at the broker's own name server."""
    port = int(broker.namesrv_addr.rpartition(":")[2])
    with Wire(port) as wire:
        return wire.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})


def test_a_created_topic_is_configured_routed_and_can_be_sent_to(broker, wire):
    """Goal: updateTopic works. Method: the answer, the configuration, the route, a send to its last queue."""
    answer = create_topic(wire, "created", 3)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")
    shown = json.loads(wire.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "created"}).body)
    assert (shown["writeQueueNums"], shown["perm"], shown["attributes"]) == (3, 6, {})
    queue = json.loads(route(broker, "created").body)["queueDatas"][0]
    assert (queue["brokerName"], queue["writeQueueNums"]) == ("broker-a", 3)
    assert wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("created", 2), b"x").code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("topic", "more", "code", "words"),
    [
        ("a b", {}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ("TBW102", {}, ResponseCode.INVALID_PARAMETER, "conflict with system topic"),
        ("rmq_sys_x", {}, ResponseCode.INVALID_PARAMETER, "conflict with system topic"),
        ("bad1", {"attributes": "+message.type=MIXED"}, ResponseCode.INVALID_PARAMETER, "MIXED"),
        ("bad2", {"attributes": "+nothing=1"}, ResponseCode.SYSTEM_ERROR, "unsupported key: nothing"),
        ("bad3", {"attributes": "-message.type"}, ResponseCode.SYSTEM_ERROR, "only add attribute"),
        ("bad4", {"readQueueNums": "x"}, ResponseCode.SYSTEM_ERROR, "readQueueNums"),
        ("bad6", {"readQueueNums": "99999999999999999999"}, ResponseCode.SYSTEM_ERROR, "readQueueNums"),
        ("bad7", {"perm": "2147483648"}, ResponseCode.SYSTEM_ERROR, "perm"),
        ("bad8", {"perm": "1_0"}, ResponseCode.SYSTEM_ERROR, "perm"),
        ("bad9", {"topicFilterType": "NO_TAG"}, ResponseCode.SYSTEM_ERROR, "[NO_TAG] value invalid"),
        ("bad10", {"topicFilterType": None}, ResponseCode.SYSTEM_ERROR, "[null] value invalid"),
        ("bad5", {"readQueueNums": "-1"}, ResponseCode.INVALID_PARAMETER, "-1 queues"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_in_words(wire, topic, more, code, words):
    """Goal: a clear error and no half-made topic. Method: names, attributes and numbers that are wrong."""
    answer = create_topic(wire, topic, **more)
    assert answer.code == code
    assert words in answer.remark
    if not topic.startswith("T"):
        assert wire.call(RequestCode.GET_TOPIC_CONFIG, {"topic": topic}).code == ResponseCode.TOPIC_NOT_EXIST


def test_an_optional_number_that_is_none_counts_as_left_out(wire):
    """As Apache's reader leaves it null; found by comparing random sequences."""
    assert create_topic(wire, "flagless", topicSysFlag="99999999999999999999").code == ResponseCode.SUCCESS
    assert json.loads(wire.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "flagless"}).body)["topicSysFlag"] == 0


def test_topics_come_in_lists_and_are_listed_in_slices(wire):
    """Goal: updateTopicList and the paged listing. Method: three made, then a slice by version."""
    entries = [{"topicName": f"listed{n}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for n in range(3)]
    body = json.dumps({"topicConfigList": entries}).encode()
    assert wire.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body).code == ResponseCode.SUCCESS
    everything = wire.call(RequestCode.GET_ALL_TOPIC_CONFIG)
    table = json.loads(everything.body)["topicConfigTable"]
    assert {"listed0", "listed1", "listed2", "TBW102"} <= set(table)
    assert everything.fields["totalTopicNum"] == str(len(table))
    version = json.dumps(json.loads(everything.body)["dataVersion"], separators=(",", ":"))
    second = wire.call(RequestCode.GET_ALL_TOPIC_CONFIG, {"topicSeq": "2", "maxTopicNum": "2", "dataVersion": version})
    assert list(json.loads(second.body)["topicConfigTable"]) == sorted(table)[2:4]


def test_topic_statistics_know_ends_and_times_of_every_queue(wire):
    """Goal: topicStatus. Method: an empty and a filled queue, and a topic that is not there."""
    create_topic(wire, "counted", 2)
    send(wire, "counted", 3, 1)
    answer = wire.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "counted"})
    table = {key["queueId"]: value for key, value in json_dialect.loads(answer.body)["offsetTable"].items()}
    assert (table[0]["maxOffset"], table[0]["lastUpdateTimestamp"]) == (0, 0)
    assert (table[1]["minOffset"], table[1]["maxOffset"]) == (0, 3)
    assert table[1]["lastUpdateTimestamp"] > 0
    assert wire.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "none"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_deleted_topic_takes_offsets_and_queues_along_and_begins_anew(wire):
    """Goal: no old message comes back. Method: delete, make again, send; then deletions that are refused."""
    create_topic(wire, "doomed", 1)
    send(wire, "doomed", 3)
    assert wire.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "doomed"}).code == ResponseCode.SUCCESS
    assert wire.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "doomed"}).code == ResponseCode.TOPIC_NOT_EXIST
    create_topic(wire, "doomed", 1)
    answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("doomed"), b"x")
    assert (answer.code, answer.fields["queueOffset"]) == (ResponseCode.SUCCESS, "0")
    for fields, words in (({"topic": ""}, "blank"), ({}, "blank"), ({"topic": "TBW102"}, "system topic")):
        answer = wire.call(RequestCode.DELETE_TOPIC_IN_BROKER, fields)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert words in answer.remark


def test_groups_are_created_changed_listed_and_deleted(wire):
    """Goal: updateSubGroup and its kin. Method: one, many, gone; bodies that are none."""
    body = json.dumps({"groupName": "made", "retryMaxTimes": 3}).encode()
    assert wire.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == ResponseCode.SUCCESS
    many = json.dumps({"groupConfigList": [{"groupName": "made2"}, {"groupName": "made3"}]}).encode()
    assert wire.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, many).code == ResponseCode.SUCCESS
    table = json.loads(wire.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)["subscriptionGroupTable"]
    assert (table["made"]["retryMaxTimes"], table["made2"]["retryMaxTimes"]) == (3, 16)
    assert wire.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "made"}).code == ResponseCode.SUCCESS
    table = json.loads(wire.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)["subscriptionGroupTable"]
    assert "made" not in table
    for bad in (b'{"groupName":"a b"}', b"{", b"[]", b"{}"):
        answer = wire.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, bad)
        assert answer.code == ResponseCode.INVALID_PARAMETER


def test_what_a_group_is_kept_from_is_kept(wire):
    """Goal: UPDATE_AND_GET_GROUP_FORBIDDEN. Method: ask, forbid, ask."""
    ask = {"group": "kept", "topic": "t"}
    assert json.loads(wire.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, ask).body)["readable"] is True
    wire.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, ask | {"readable": "false"})
    assert json.loads(wire.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, ask).body)["readable"] is False


def heartbeat(wire, client_id, group, topic):
    """One consumer and one producer say they are there."""
    subscription = {"topic": topic, "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []}
    consumer = {"groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription]}
    body = {"clientID": client_id, "producerDataSet": [{"groupName": f"p-{group}"}], "consumerDataSet": [consumer]}
    return wire.call(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())


def test_members_are_listed_told_and_forgotten_with_their_connection(broker, wire):
    """Two consumers join, are told of each other, are listed, and one leaves by closing."""
    create_topic(wire, "watched", 1)
    heartbeat(wire, "c1", "watchers", "watched")
    with Wire(broker.config.listen_port) as other:
        heartbeat(other, "c2", "watchers", "watched")
        ids = json.loads(wire.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "watchers"}).body)
        assert sorted(ids["consumerIdList"]) == ["c1", "c2"]
        listed = json.loads(wire.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "watchers"}).body)
        assert {item["clientId"] for item in listed["connectionSet"]} == {"c1", "c2"}
        assert listed["subscriptionTable"]["watched"]["subString"] == "*"
        producers = wire.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p-watchers"})
        assert len(json.loads(producers.body)["connectionSet"]) == 2
    while True:
        ids = json.loads(wire.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "watchers"}).body)
        if ids["consumerIdList"] == ["c1"]:
            break
    told = [command for command in wire.pushed if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    assert len(told) >= 2
    assert all(command.fields == {"consumerGroup": "watchers"} and command.is_oneway for command in told)
    groups = json.loads(wire.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "watched"}).body)
    assert groups == {"groupList": ["watchers"]}
    everybody = json.loads(wire.call(RequestCode.GET_ALL_PRODUCER_INFO).body)["data"]
    assert [item["clientId"] for item in everybody["p-watchers"]] == ["c1"]


def test_a_question_is_passed_on_to_the_client_it_is_about(broker, wire):
    """Goal: consumerStatus. Method: the test answers as the consumer; then asks about nobody."""
    create_topic(wire, "asked", 1)
    heartbeat(wire, "c-asked", "askers", "asked")
    with Wire(broker.config.listen_port) as tool:
        fields = {"consumerGroup": "askers", "clientId": "c-asked", "jstackEnable": "false"}
        number = tool.post(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, dict(fields)))
        question = next_question(wire, RequestCode.GET_CONSUMER_RUNNING_INFO)
        assert question.fields == fields
        reply(wire, question, b'{"mine":1}')
        assert tool.wait(number).body == b'{"mine":1}'
        missing = tool.call(RequestCode.GET_CONSUMER_RUNNING_INFO, fields | {"clientId": "nobody"})
        assert missing.remark == "The Consumer <askers> <nobody> not online"


def test_a_stored_message_is_given_to_one_consumer_to_consume_now(broker, wire):
    """Asks for a direct consumption and looks at what the consumer is handed."""
    create_topic(wire, "direct", 1)
    heartbeat(wire, "c-direct", "directors", "direct")
    sent = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("direct"), b"the body")
    fields = {"consumerGroup": "directors", "clientId": "c-direct", "topic": "direct", "msgId": sent.fields["msgId"]}
    with Wire(broker.config.listen_port) as tool:
        number = tool.post(Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, dict(fields)))
        question = next_question(wire, RequestCode.CONSUME_MESSAGE_DIRECTLY)
        assert question.fields == fields | {"brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
        assert b"the body" in question.body
        assert len(question.body) == int.from_bytes(question.body[:4], "big")
        reply(wire, question, b'{"consumeResult":"CR_SUCCESS"}')
        assert tool.wait(number).body == b'{"consumeResult":"CR_SUCCESS"}'
        bad = tool.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields | {"msgId": "F" * 32})
        assert bad.code == ResponseCode.SYSTEM_ERROR


def next_question(wire, code):
    """The next request of the server with that code."""
    while True:
        command = wire.receive()
        if not command.is_response and command.code == code:
            return command


def reply(wire, question, body):
    """Answer the server."""
    wire._socket.sendall(question.reply(body=body).encode())


def test_consume_statistics_and_reset_and_clone_of_offsets(wire):
    """Sends, commits, looks, resets to the beginning and clones to another group."""
    create_topic(wire, "consumed", 1)
    send(wire, "consumed", 5)
    for group in ("reader", "copy"):
        body = json.dumps({"groupName": group}).encode()
        wire.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    commit = {"consumerGroup": "reader", "topic": "consumed", "queueId": "0", "commitOffset": "4"}
    assert wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUCCESS
    answer = wire.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "reader"})
    ((queue, row),) = json_dialect.loads(answer.body)["offsetTable"].items()
    assert (queue["topic"], queue["queueId"]) == ("consumed", 0)
    assert (row["brokerOffset"], row["consumerOffset"], row["lastTimestamp"] > 0) == (5, 4, True)
    clone = {"srcGroup": "reader", "destGroup": "copy", "topic": "consumed", "offline": "true"}
    assert wire.call(RequestCode.CLONE_GROUP_OFFSET, clone).code == ResponseCode.SUCCESS
    query = {"consumerGroup": "copy", "topic": "consumed", "queueId": "0"}
    assert wire.call(RequestCode.QUERY_CONSUMER_OFFSET, query).fields["offset"] == "4"
    reset = {"topic": "consumed", "group": "reader", "timestamp": "0", "isForce": "true"}
    answer = wire.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    assert list(json_dialect.loads(answer.body)["offsetTable"].values()) == [0]
    topics = json.loads(wire.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "reader"}).body)
    assert topics["topicList"] == ["consumed"]


def test_a_reset_outside_the_queue_or_of_nothing_is_refused(wire):
    """Goal: no group is sent into nowhere. Method: an offset beyond the end, an unknown group and topic."""
    create_topic(wire, "unreset", 1)
    base = {"topic": "unreset", "group": "TOOLS_CONSUMER", "timestamp": "-1"}
    answer = wire.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, base | {"queueId": "0", "offset": "2"})
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "Target offset 2 not in consume queue range [0-0]",
    )
    unknown = wire.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, base | {"group": "nobody-knows"})
    assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    nowhere = wire.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, base | {"topic": "nowhere"})
    assert nowhere.code == ResponseCode.TOPIC_NOT_EXIST


def test_units_of_a_queue_are_shown_from_an_index_on(wire):
    """Goal: queryCq. Method: tags and places of the units behind an index."""
    create_topic(wire, "units", 1)
    for tag in ("A", "B", "A"):
        send(wire, "units", 1, 0, f"TAGS\x01{tag}\x02")
    ask = {"topic": "units", "queueId": "0", "index": "1", "count": "5", "consumerGroup": "nobody"}
    body = json.loads(wire.call(RequestCode.QUERY_CONSUME_QUEUE, ask).body)
    assert (body["minQueueIndex"], body["maxQueueIndex"]) == (0, 3)
    assert [unit["tagsCode"] for unit in body["queueData"]] == [ord("B"), ord("A")]
    first, second = body["queueData"]
    assert second["physicOffset"] == first["physicOffset"] + first["physicSize"]
    assert body["filterData"] == "nobody@units is not online!"
    assert wire.call(RequestCode.QUERY_CONSUME_QUEUE, ask | {"queueId": "7"}).remark == "7@units is not exist!"


def test_configuration_is_shown_changed_and_kept(broker, wire):
    """Goal: getBrokerConfig and updateBrokerConfig. Method: the text, version, effect on a send, file, refusals."""
    shown = wire.call(RequestCode.GET_BROKER_CONFIG)
    lines = dict(line.split("=", 1) for line in shown.body.decode().splitlines())
    assert (lines["brokerName"], lines["listenPort"]) == ("broker-a", str(broker.config.listen_port))
    assert list(lines) == sorted(lines)
    before = json.loads(shown.fields["version"])["counter"]
    assert wire.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"traceOn=false\n").code == ResponseCode.SUCCESS
    after = wire.call(RequestCode.GET_BROKER_CONFIG)
    assert json.loads(after.fields["version"])["counter"] == before + 1
    assert "traceOn=false\n" in after.body.decode()
    create_topic(wire, "untraced", 1)
    sent = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("untraced"), b"x")
    assert sent.fields["TRACE_ON"] == "false"
    kept = broker.config_directory / "broker.properties"
    assert "traceOn=false" in kept.read_text()
    for body, code in ((b"tracOn=false", 29), (b"configBlackList=x", ResponseCode.NO_PERMISSION)):
        answer = wire.call(RequestCode.UPDATE_BROKER_CONFIG, {}, body)
        assert answer.code == code, answer.remark


def test_a_key_password_is_neither_shown_nor_logged_nor_lost(tmp_path, caplog):
    """Goal: a password stays in the file. Method: ask for it, change it, send back what was shown; log and file."""
    config = pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        store_path_root_dir=str(tmp_path),
        store=SMALL,
        tls={"tls.server.keyPassword": "s3cret"},
    )
    kept = tmp_path / "config" / "broker.properties"
    with caplog.at_level("DEBUG"), pymq.Broker(config).running() as running, Wire(running.config.listen_port) as wire:
        shown = wire.call(RequestCode.GET_BROKER_CONFIG).body.decode()
        assert "tls.server.keyPassword=******\n" in shown
        changes = b"tls.server.keyPassword=s3cret-2\ninnerClientAuthenticationCredentials=s3cret-3\n"
        assert wire.call(RequestCode.UPDATE_BROKER_CONFIG, {}, changes).code == ResponseCode.SUCCESS
        assert kept.read_bytes() == changes
        kept.chmod(0o600)
        again = b"tls.server.keyPassword=******\ntraceOn=false\n"
        assert wire.call(RequestCode.UPDATE_BROKER_CONFIG, {}, again).code == ResponseCode.SUCCESS
        assert kept.read_bytes() == changes + b"traceOn=false\n"
        assert kept.stat().st_mode & 0o777 == 0o600
        shown += wire.call(RequestCode.GET_BROKER_CONFIG).body.decode()
    assert "kept for the next start key=tls.server.keyPassword value=******" in caplog.text
    assert "s3cret" not in shown + caplog.text + repr(config)


def test_taking_the_write_permission_away_shows_in_the_route_and_comes_back(broker, wire):
    """Goal: a broker can be drained. Method: the route after each change."""
    create_topic(wire, "permitted", 1)
    for permission, expected in (("4", 4), ("6", 6)):
        wire.call(RequestCode.UPDATE_BROKER_CONFIG, {}, f"brokerPermission={permission}".encode())
        assert json.loads(route(broker, "permitted").body)["queueDatas"][0]["perm"] == expected


def test_runtime_information_has_what_tools_print_and_how_requests_were_served(wire):
    """Goal: clusterList and brokerStatus. Method: the names they read, as texts, and the counters."""
    create_topic(wire, "told", 1)
    wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("told"), b"x")
    table = json.loads(wire.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    printed = {
        "brokerVersionDesc", "brokerActive", "putTps", "getTransferredTps", "sendThreadPoolQueueSize",
        "pullThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills",
        "pageCacheLockTimeMills", "earliestMessageTimeStamp", "commitLogDiskRatio", "timerReadBehind",
        "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "msgPutTotalTodayMorning", "bootTimestamp",
    }  # fmt: skip
    assert printed <= set(table)
    assert all(isinstance(value, str) for value in table.values())
    assert 0.0 <= float(table["commitLogDiskRatio"]) <= 1.0
    assert int(table["earliestMessageTimeStamp"]) > 0
    assert int(table["pymq.served.310.native"]) >= 1
    assert int(table["pymq.served.17.python.code"]) >= 1


def test_an_unknown_code_is_answered_and_the_connection_stays(wire):
    """Goal: newer clients are not cut off. Method: a code of nobody, then one of somebody."""
    answer = wire.call(31999)
    assert (answer.code, answer.remark) == (3, " request type 31999 not supported")
    assert wire.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).code == ResponseCode.SUCCESS
