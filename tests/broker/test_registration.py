"""Registration at name servers: what is said, to whom, and what a silent one costs."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib

import pytest

from pymq.broker.registration import Registration
from pymq.broker.topic_config import TopicConfig
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.errors import RemotingConnectError
from tests.broker.fakes import FakeBroker


class FakeClient:
    """Answers every call with success, or as told per address."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.answers: dict[str, object] = {}

    async def invoke(self, address, command, timeout_s):
        self.calls.append((address, command))
        answer = self.answers.get(address)
        if isinstance(answer, Exception):
            raise answer
        if answer == "never":
            await asyncio.sleep(3600)
        return answer(command) if callable(answer) else command.reply(fields={})


@pytest.fixture
def broker(tmp_path):
    """A broker with fakes around it, loaded."""
    broker = FakeBroker(tmp_path)
    broker.address, broker.ha_address = "192.0.2.1:10911", "192.0.2.1:10912"
    return broker.load()


def make(broker, addresses="ns1:9876;ns2:9876"):
    """A registration with a client that remembers."""
    client = FakeClient()
    registration = Registration(broker, client)
    registration.use(addresses)
    return registration, client


def test_every_name_server_is_told_everything_as_apache_tells_it(broker):
    """Goal: REGISTER_BROKER as Apache's name server reads it. Method: every field, the CRC and the body."""
    registration, client = make(broker)
    assert asyncio.run(registration.register_all()) == 2
    assert [address for address, _ in client.calls] == ["ns1:9876", "ns2:9876"]
    command = client.calls[0][1]
    assert command.code == RequestCode.REGISTER_BROKER
    assert command.fields == {
        "brokerName": "broker-a",
        "brokerAddr": "192.0.2.1:10911",
        "clusterName": "DefaultCluster",
        "brokerId": "0",
        "haServerAddr": "192.0.2.1:10912",
        "enableActingMaster": "false",
        "compressed": "false",
        "bodyCrc32": str(zlib.crc32(command.body) & 0x7FFFFFFF),
    }
    body = json.loads(command.body)
    assert body["filterServerList"] == []
    wrapper = body["topicConfigSerializeWrapper"]
    assert set(wrapper["topicConfigTable"]) == set(broker.topics.all())
    assert wrapper["dataVersion"] == broker.topics.version.to_json()


def test_a_new_topic_is_told_alone(broker):
    """Goal: small registrations. Method: the tables that were sent."""
    registration, client = make(broker)
    asyncio.run(registration.register_topics([TopicConfig(topic_name="orders")]))
    tables = [
        json.loads(command.body)["topicConfigSerializeWrapper"]["topicConfigTable"] for _, command in client.calls
    ]
    assert [list(table) for table in tables] == [["orders"], ["orders"]]


def test_a_topic_changed_together_with_another_is_not_ignored_by_name_servers(broker):
    """Goal: each change is taken. Method: a beat and two changes without a change of version between: three versions.

    A name server takes a topic that it knows only with a version that it does not: a second change with the same
    version left clients with the old number of queues until something else changed.
    """
    registration, client = make(broker, "ns1:9876")

    async def tell():
        await registration.register_all()
        await registration.register_topics([TopicConfig(topic_name="orders")])
        await registration.register_topics([TopicConfig(topic_name="payments")])

    asyncio.run(tell())
    versions = [json.loads(command.body)["topicConfigSerializeWrapper"]["dataVersion"] for _, command in client.calls]
    assert len({tuple(version.items()) for version in versions}) == len(versions) == 3


def test_one_name_server_that_fails_does_not_keep_the_others_from_knowing(broker, caplog):
    """Goal: independence. Method: one refused, one answering an error, then well again."""
    registration, client = make(broker)
    client.answers["ns1:9876"] = RemotingConnectError("ns1:9876", "refused")
    assert asyncio.run(registration.register_all()) == 1
    client.answers["ns1:9876"] = lambda command: command.reply(ResponseCode.SYSTEM_ERROR, "no")
    assert asyncio.run(registration.register_all()) == 1
    assert [record.message for record in caplog.records if "ns1:9876" in record.message and record.levelname == "ERROR"]
    client.answers.clear()
    assert asyncio.run(registration.register_all()) == 2


def test_a_name_server_that_never_answers_holds_a_new_topic_up_only_a_moment(broker, monkeypatch):
    """Goal: a first send is not lost to it. Method: a silent server and a short wait."""
    monkeypatch.setattr("pymq.broker.registration.NEW_TOPIC_WAIT_S", 0.05)
    registration, client = make(broker)
    client.answers["ns1:9876"] = "never"

    async def scenario():
        await asyncio.wait_for(registration.register_topics([TopicConfig(topic_name="orders")]), 10)
        await registration.unregister_quietly()

    async def unregister_quietly():
        client.answers.clear()
        await registration.unregister()

    registration.unregister_quietly = unregister_quietly
    asyncio.run(scenario())
    assert client.calls[-1][1].code == RequestCode.UNREGISTER_BROKER


def test_without_force_only_name_servers_that_know_less_are_told(broker):
    """Goal: QUERY_DATA_VERSION's use. Method: one that is up to date, one that is not."""
    registration, client = make(broker)
    known = json.dumps(broker.topics.version.to_json()).encode()

    def answer(changed):
        def reply(command):
            if command.code == RequestCode.QUERY_DATA_VERSION:
                return command.reply(fields={"changed": changed}, body=known)
            return command.reply(fields={})

        return reply

    client.answers = {"ns1:9876": answer("false"), "ns2:9876": answer("true")}
    assert asyncio.run(registration.register_all(force=False)) == 1
    registered = [address for address, command in client.calls if command.code == RequestCode.REGISTER_BROKER]
    assert registered == ["ns2:9876"]


def test_a_broker_that_may_not_write_registers_topics_that_may_not_be_written(broker):
    """Goal: producers go elsewhere. Method: the permission that is registered."""
    broker.config = broker.config.replace(broker_permission=4)
    registration, client = make(broker)
    asyncio.run(registration.register_topics([TopicConfig(topic_name="orders", perm=6)]))
    table = json.loads(client.calls[0][1].body)["topicConfigSerializeWrapper"]["topicConfigTable"]
    assert table["orders"]["perm"] == 4


def test_a_compressed_body_is_what_newer_brokers_send(broker):
    """Goal: RegisterBrokerBody's compressed form. Method: inflate it and read each piece."""
    broker.config = broker.config.replace(compressed_register=True)
    registration, client = make(broker)
    config = TopicConfig(topic_name="orders", read_queue_nums=3, attributes={"message.type": "FIFO"})
    asyncio.run(registration.register_topics([config]))
    command = client.calls[0][1]
    assert command.fields["compressed"] == "true"
    raw = zlib.decompress(command.body)
    (size,) = struct.unpack_from(">i", raw)
    assert json.loads(raw[4 : 4 + size]) == broker.topics.version.to_json()
    count, length = struct.unpack_from(">ii", raw, 4 + size)
    assert count == 1
    assert raw[12 + size : 12 + size + length].decode() == 'orders 3 16 6 SINGLE_TAG {"message.type":"FIFO"}'


def test_topics_with_an_order_configuration_become_ordered(broker):
    """The name server's answer carries ORDER_TOPIC_CONFIG; an unreadable one is left alone."""
    asyncio.run(broker.topics.create_on_send("orders", "TBW102", 4, "", 0))
    registration, client = make(broker, "ns1:9876")
    client.answers["ns1:9876"] = lambda command: command.reply(body=b'{"table":{"orders":"broker-a:4","none":"x:1"}}')
    assert asyncio.run(registration.register_all()) == 1
    assert broker.topics.get("orders").order
    assert broker.topics.get("none") is None
    client.answers["ns1:9876"] = lambda command: command.reply(body=b"[nonsense")
    assert asyncio.run(registration.register_all()) == 1


def test_nothing_is_registered_behind_the_good_bye(broker):
    """Goal: a stopped broker stays gone. Method: what is sent after unregistering."""
    registration, client = make(broker)

    async def scenario():
        registration.start()
        await registration.unregister()
        await registration.register_topics([TopicConfig(topic_name="orders")])
        return await registration.register_all()

    assert asyncio.run(scenario()) == 0
    assert {command.code for _, command in client.calls} == {RequestCode.UNREGISTER_BROKER}
