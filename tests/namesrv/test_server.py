"""The name server over real sockets, asked in frames written by hand and in those Apache's broker really sent."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pymq.namesrv.config import NamesrvConfig, load
from pymq.namesrv.registration import write_compressed
from pymq.namesrv.server import NameServer
from pymq.remoting.command import Command
from tests.interop.differential.wire import Reply, Wire
from tests.remoting.conftest import until

FRAMES = Path(__file__).resolve().parent.parent / "data" / "golden-frames" / "json"
REGISTER, UNREGISTER, ROUTE, CLUSTER_INFO, QUERY_VERSION, BROKER_HEARTBEAT = 103, 104, 105, 106, 322, 904
BROKER = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:10911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:10912",
    "brokerId": "0",
    "compressed": "false",
    "enableActingMaster": "false",
}


@asynccontextmanager
async def running(tmp_path: Path, **values: Any) -> AsyncIterator[tuple[NameServer, str]]:
    """A name server on a port of the kernel's choice, and its address."""
    paths = {"kv_config_path": str(tmp_path / "kvConfig.json"), "config_store_path": str(tmp_path / "namesrv.conf")}
    config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1", **paths, **values)
    async with NameServer(config) as server:
        yield server, f"127.0.0.1:{server.port}"


def body(*topics: str, counter: int = 1) -> bytes:
    """A plain registration of *topics*."""
    table = {
        name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}
        for name in topics
    }
    version = {"counter": counter, "timestamp": 1, "stateVersion": 0}
    wrapper = {"dataVersion": version, "topicConfigTable": table, "topicQueueMappingInfoMap": {}}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def register(wire: Wire, content: bytes, **fields: str) -> Reply:
    """Register with the right CRC."""
    crc = str(zlib.crc32(content) & 0x7FFFFFFF)
    return wire.ask(REGISTER, {**BROKER, "bodyCrc32": crc, **fields}, content)


async def in_thread(work: Any, *arguments: Any) -> Any:
    """Blocking client code beside the server's loop."""
    return await asyncio.to_thread(work, *arguments)


async def test_route_after_registration(tmp_path: Path) -> None:
    """Route after registration."""

    def client(address: str) -> None:
        wire = Wire(address)
        assert wire.ask(ROUTE, {"topic": "A"}).code == 17
        assert register(wire, body("A", "B")).code == 0
        route = wire.ask(ROUTE, {"topic": "A"})
        assert json.loads(route.body)["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:10911"}
        assert b"{0:" in wire.ask(CLUSTER_INFO, {}).body
        wire.close()

    async with running(tmp_path) as (_, address):
        await in_thread(client, address)


async def test_old_clients_get_bare_integer_keys_and_announcing_ones_do_not(tmp_path: Path) -> None:
    """Old clients get bare integer keys and announcing ones do not."""
    async with running(tmp_path) as (server, address):
        wire = await in_thread(Wire, address)
        await in_thread(register, wire, body("A", "B"))
        for version, announced, bare in ((400, None, True), (401, None, False), (0, "true", False)):
            fields = {"topic": "A"} | ({} if announced is None else {"acceptStandardJsonOnly": announced})
            request = Command(ROUTE, fields, version=version)
            frame = await in_thread(exchange, address, request.encode())
            assert (b"{0:" in frame) is bare, (version, announced)
        wire.close()
        assert server.server.handler_failures == 0


def exchange(address: str, frame: bytes) -> bytes:
    """One frame there, one frame back."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(frame)
        received = connection.recv(4)
        (size,) = struct.unpack(">I", received)
        while len(received) < 4 + size:
            received += connection.recv(65536)
    return received


async def test_golden_registration_and_its_answers(tmp_path: Path) -> None:
    """What Apache's broker sent to Apache's name server is understood, and answered in the same words."""
    async with running(tmp_path) as (server, address):
        wire = await in_thread(Wire, address)
        frame = (FRAMES / "namesrv_000103_REGISTER_BROKER_json_0.req.bin").read_bytes()
        expected = (FRAMES / "namesrv_000103_REGISTER_BROKER_json_0.resp.bin").read_bytes()

        def send() -> bytes:
            wire._socket.sendall(frame)
            return wire._exactly(len(expected))

        assert await in_thread(send) == expected
        assert "BenchmarkTest" in server.routes.topics
        assert server.routes.topics["BenchmarkTest"]["broker-a"].read_queue_nums == 1024
        wire.close()


async def test_compressed_body_equals_the_plain_one(tmp_path: Path) -> None:
    """Compressed body equals the plain one."""
    topics = {
        name: {"readQueueNums": 4, "writeQueueNums": 2, "perm": 6, "attributes": {"+message.type": "FIFO"}}
        for name in ("A", "B")
    }
    content = write_compressed({"counter": 3, "timestamp": 4, "stateVersion": 0}, topics, [])
    async with running(tmp_path) as (server, address):
        wire = await in_thread(Wire, address)
        answer = await in_thread(lambda: register(wire, content, compressed="true"))
        assert answer.code == 0
        assert server.routes.topics["B"]["broker-a"].write_queue_nums == 2
        assert server.routes.data_version("DefaultCluster", "127.0.0.1:10911") == {
            "counter": 3,
            "timestamp": 4,
            "stateVersion": 0,
        }
        wire.close()


async def test_a_broker_that_says_good_bye_right_after_a_long_registration_does_not_come_back(tmp_path: Path) -> None:
    """Goal: order, though the body is read by a thread. Method: both in one write; then a registration and the end."""
    topics = {f"T{number}": {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for number in range(5000)}
    content = write_compressed({"counter": 1, "timestamp": 1, "stateVersion": 0}, topics, [])
    registers = Command(REGISTER, {**BROKER, "compressed": "true"}, content, opaque=1).encode()
    leaves = Command(UNREGISTER, {name: BROKER[name] for name in BROKER if name != "compressed"}, opaque=2).encode()
    async with running(tmp_path) as (server, address):
        for sent in (registers + leaves, registers):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(sent)
            if sent != registers:
                for _ in range(2):
                    (size,) = struct.unpack(">I", await reader.readexactly(4))
                    await reader.readexactly(size)
                assert server.routes.live == {}
            writer.close()
            await writer.wait_closed()
        wire = await in_thread(Wire, address)
        assert (await in_thread(wire.ask, CLUSTER_INFO, {})).code == 0
        for _ in range(200):
            if not server.server.running and len(list(server.server.connections())) == 1:
                break
            await asyncio.sleep(0.02)
        assert server.routes.live == {}
        wire.close()


@pytest.mark.parametrize("content", [b"\x00garbage", zlib.compress(b"\x7f\xff\xff\xff")])
async def test_broken_registrations_are_refused_and_change_nothing(tmp_path: Path, content: bytes) -> None:
    """Broken registrations are refused and change nothing."""
    async with running(tmp_path) as (server, address):
        wire = await in_thread(Wire, address)
        wrong_crc = await in_thread(lambda: register(wire, body("A"), bodyCrc32="5"))
        assert (wrong_crc.code, wrong_crc.remark) == (1, "crc32 not match")
        assert (await in_thread(lambda: register(wire, content, compressed="true"))).code == 1
        assert (await in_thread(lambda: register(wire, b"[1,2]"))).code == 1
        assert server.routes.live == {}
        wire.close()


async def test_a_stale_unregister_and_a_stale_close_leave_the_fresh_registration(tmp_path: Path) -> None:
    """apache/rocketmq#11043, over two connections."""
    async with running(tmp_path) as (server, address):
        old, new = await in_thread(Wire, address), await in_thread(Wire, address)
        await in_thread(register, old, body("A", "B"))
        await in_thread(lambda: register(new, body("A", "B", counter=2)))
        unregister = {key: BROKER[key] for key in ("brokerName", "brokerAddr", "clusterName", "brokerId")}
        assert (await in_thread(old.ask, UNREGISTER, unregister)).code == 0
        old.close()
        await until(lambda: len(list(server.server.connections())) == 1)
        assert "A" in server.routes.topics
        new.close()
        await until(lambda: not server.routes.topics)


@pytest.mark.parametrize("code", [QUERY_VERSION, BROKER_HEARTBEAT])
async def test_the_end_of_an_old_connection_leaves_a_broker_that_is_alive_on_another(tmp_path: Path, code: int) -> None:
    """Goal: a route does not vanish under a living broker. Method: registered on one, alive on the other; each ends."""
    async with running(tmp_path) as (server, address):
        old, new = await in_thread(Wire, address), await in_thread(Wire, address)
        await in_thread(register, old, body("A", "B"))
        fields = {key: BROKER[key] for key in ("brokerName", "brokerAddr", "clusterName", "brokerId")}
        version = json.dumps({"counter": 1, "timestamp": 1, "stateVersion": 0}).encode()
        assert (await in_thread(new.ask, code, fields, version)).code == 0
        old.close()
        await until(lambda: len(list(server.server.connections())) == 1)
        assert "A" in server.routes.topics
        new.close()
        await until(lambda: not server.routes.topics)


async def test_a_silent_broker_is_removed_and_its_connection_closed(tmp_path: Path) -> None:
    """A silent broker is removed and its connection closed."""
    async with running(tmp_path) as (server, address):
        wire = await in_thread(Wire, address)
        await in_thread(lambda: register(wire, body("A", "B"), heartbeatTimeoutMillis="1"))
        await asyncio.sleep(0.05)
        server.expire()
        assert server.routes.topics == {}
        assert await in_thread(wire._socket.recv, 1) == b""
        wire.close()


async def test_data_version_query(tmp_path: Path) -> None:
    """Data version query."""
    async with running(tmp_path) as (_, address):
        wire = await in_thread(Wire, address)
        fields = {key: BROKER[key] for key in ("brokerName", "brokerAddr", "clusterName", "brokerId")}
        same = json.dumps({"counter": 1, "timestamp": 1, "stateVersion": 0}).encode()
        assert (await in_thread(wire.ask, QUERY_VERSION, fields, same)).fields == {"changed": "true"}
        await in_thread(register, wire, body("A", "B"))
        answer = await in_thread(wire.ask, QUERY_VERSION, fields, same)
        assert answer.fields == {"changed": "false"}
        assert json.loads(answer.body)["counter"] == 1
        wire.close()


async def test_kv_config_survives_a_restart(tmp_path: Path) -> None:
    """Kv config survives a restart."""
    async with running(tmp_path) as (_, address):
        wire = await in_thread(Wire, address)
        answer = await in_thread(wire.ask, 100, {"namespace": "N", "key": "k", "value": "v ä"})
        assert answer.code == 0
        assert (await in_thread(wire.ask, 100, {"namespace": "N", "value": "v"})).remark == "namespace or key is null"
        wire.close()
    async with running(tmp_path) as (_, address):
        wire = await in_thread(Wire, address)
        assert (await in_thread(wire.ask, 101, {"namespace": "N", "key": "k"})).fields == {"value": "v ä"}
        assert (await in_thread(wire.ask, 101, {"namespace": "N", "key": "x"})).code == 22
        assert (await in_thread(wire.ask, 219, {"namespace": "N"})).body == '{"table":{"k":"v ä"}}'.encode()
        assert (await in_thread(wire.ask, 102, {"namespace": "N", "key": "k"})).code == 0
        assert (await in_thread(wire.ask, 101, {"namespace": "N", "key": "k"})).code == 22
        wire.close()


async def test_a_damaged_kv_config_is_named_and_not_overwritten(tmp_path: Path) -> None:
    """A damaged kv config is named and not overwritten."""
    path = tmp_path / "kvConfig.json"
    path.write_text("{broken")
    with pytest.raises(ValueError, match=r"kvConfig\.json"):
        async with running(tmp_path):
            pass
    assert path.read_text() == "{broken"


async def test_order_configuration_is_in_the_route_only_when_switched_on(tmp_path: Path) -> None:
    """Order configuration is in the route only when switched on."""
    async with running(tmp_path) as (_, address):
        wire = await in_thread(Wire, address)
        await in_thread(register, wire, body("A", "B"))
        await in_thread(wire.ask, 100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "A", "value": "broker-a:4"})
        assert "orderTopicConf" not in json.loads((await in_thread(wire.ask, ROUTE, {"topic": "A"})).body)
        update = b"orderMessageEnable=true\n"
        assert (await in_thread(wire.ask, 318, {}, update)).code == 0
        assert json.loads((await in_thread(wire.ask, ROUTE, {"topic": "A"})).body)["orderTopicConf"] == "broker-a:4"
        shown = (await in_thread(wire.ask, 319, {})).body.decode()
        assert "orderMessageEnable=true\n" in shown
        assert "orderMessageEnable=true\n" in (tmp_path / "namesrv.conf").read_text()
        wire.close()


@pytest.mark.parametrize(
    ("update", "code"),
    [
        (b"kvConfigPath=/tmp/x", 16),
        (b"listenPort=abc", 1),
        (b"supportActingMaster=true\norderMessageEnable=perhaps", 1),
        (b"scanNotActiveBrokerInterval=0", 1),
        (b"\xff\xfe", 1),
    ],
)
async def test_bad_configuration_updates_are_refused(tmp_path: Path, update: bytes, code: int) -> None:
    """Bad configuration updates are refused."""
    async with running(tmp_path) as (server, address):
        wire = await in_thread(Wire, address)
        before = server.config.to_properties()
        assert (await in_thread(wire.ask, 318, {}, update)).code == code
        assert server.config.to_properties() == before
        wire.close()


async def test_an_update_leaves_the_rest_of_the_operators_file(tmp_path: Path) -> None:
    """Goal: TLS is still on after a restart. Method: comments, tls. keys and ignored keys around one that changes."""
    file = tmp_path / "production.conf"
    before = (
        f"# production\nlistenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kv.json\n"
        "tls.server.mode=permissive\norderMessageEnable=false\nserverWorkerThreads=16\nunheardOf=1\n"
    )
    file.write_text(before)
    async with NameServer(load(str(file))) as server:
        wire = await in_thread(Wire, f"127.0.0.1:{server.port}")
        assert (await in_thread(wire.ask, 318, {}, b"orderMessageEnable=true\n")).code == 0
        assert file.read_text() == before.replace("Enable=false", "Enable=true")
        wire.close()


async def test_a_low_soft_limit_on_open_files_does_not_close_clients(tmp_path: Path) -> None:
    """Goal: a name server of its own serves more than 1,000 clients. Method: a low limit, more connections than it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        async with running(tmp_path) as (server, address):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
            host, _, port = address.rpartition(":")
            sockets = [socket.create_connection((host, int(port))) for _ in range(300)]
            await until(lambda: server.server.transport.stats()["accepted"] == 300)
            assert server.server.transport.stats()["refused"] == 0
            for client in sockets:
                client.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_unknown_code_and_missing_field_leave_the_connection(tmp_path: Path) -> None:
    """Unknown code and missing field leave the connection."""
    async with running(tmp_path) as (_, address):
        wire = await in_thread(Wire, address)
        unknown = await in_thread(wire.ask, 9999, {})
        assert (unknown.code, unknown.remark) == (3, " request type 9999 not supported")
        assert (await in_thread(wire.ask, ROUTE, {})).code == 1
        assert (await in_thread(wire.ask, ROUTE, {"topic": "A"})).code == 17
        wire.close()
