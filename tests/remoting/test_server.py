"""A server and its clients over loopback, both serializations."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from pymq.errors import ConfigError
from pymq.remoting.codes import ResponseCode, SerializeType
from pymq.remoting.command import FLAG_ONEWAY, Command
from pymq.remoting.config import Lane, RemotingServerConfig, TransportConfig
from pymq.remoting.errors import (
    RemotingConnectError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
)
from pymq.remoting.server import RemotingServer, Request
from tests.remoting.conftest import PLAIN, Served, until

ECHO, LATER, REFUSE, BREAK, BREAK_LATER, ASK, SILENT = 1, 2, 3, 4, 5, 6, 7
TIMEOUT_S = 10.0
both = pytest.mark.parametrize("kind", list(SerializeType))


def echo(request: Request) -> Command:
    """What was sent."""
    command = request.command
    return command.reply(0, command.remark, command.fields, command.body)


async def later(request: Request) -> Command:
    """An answer after a turn of the loop."""
    await asyncio.sleep(0.001)
    return request.command.reply(0, "later")


def refuse(request: Request) -> Command:
    """A refusal with a code."""
    raise RemotingError(ResponseCode.NO_PERMISSION, "not you")


def break_down(request: Request) -> Command:
    """A bug."""
    return request.command.reply(1 // len(request.command.body))


async def break_down_later(request: Request) -> Command:
    """A bug behind an await."""
    await asyncio.sleep(0)
    return break_down(request)


def prepare(server: RemotingServer) -> None:
    """Handlers of every kind."""
    server.register(ECHO, echo)
    server.register(LATER, later, lane=Lane.CLIENT)
    server.register(REFUSE, refuse)
    server.register([BREAK], break_down)
    server.register([BREAK_LATER], break_down_later)
    server.register(SILENT, lambda request: None)


@both
def test_requests_are_answered_in_their_serialization(served: Served, kind: SerializeType):
    """Goal: both headers, text of all kinds, large bodies. Method: echo."""

    async def scenario() -> None:
        async with served(prepare) as (_, client, address):
            fields = {"topic": "T\u00e9\U0001f600", "properties": "KEYS\x01k\x02", "quote": '"\\'}
            for size in (0, 1, 100_000, 4 << 20):
                request = Command(ECHO, dict(fields), bytes(size), remark="why", serialize_type=kind)
                answer = await client.invoke(address, request, TIMEOUT_S)
                assert (answer.code, answer.remark, answer.fields) == (0, "why", fields)
                assert answer.body == bytes(size)
                assert answer.serialize_type == kind
                assert answer.is_response

    asyncio.run(scenario())


@both
def test_handlers_that_wait_refuse_or_break_are_answered(served: Served, kind: SerializeType, caplog):
    """Goal: every request gets one answer. Method: each kind of handler, and a code nobody has."""

    async def scenario() -> None:
        async with served(prepare) as (server, client, address):
            answers = {
                code: await client.invoke(address, Command(code, serialize_type=kind), TIMEOUT_S)
                for code in (LATER, REFUSE, BREAK, BREAK_LATER, 31999)
            }
            assert (answers[LATER].code, answers[LATER].remark) == (0, "later")
            assert (answers[REFUSE].code, answers[REFUSE].remark) == (ResponseCode.NO_PERMISSION, "not you")
            for code in (BREAK, BREAK_LATER):
                assert answers[code].code == ResponseCode.SYSTEM_ERROR
                assert "ZeroDivisionError" in str(answers[code].remark)
            assert answers[31999].code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answers[31999].remark == " request type 31999 not supported"
            assert server.handler_failures == 2

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert sum("failed" in record.getMessage() for record in caplog.records) == 2


def test_oneway_requests_are_handled_and_never_answered(served: Served):
    """Goal: nobody reads an answer to a oneway. Method: one that echoes, one that breaks, one unknown; then count."""
    seen: list[Request] = []

    async def scenario() -> None:
        async with served(prepare) as (server, client, address):
            server.register(ECHO, lambda request: seen.append(request) or echo(request))
            for code in (ECHO, BREAK, LATER, 31999):
                await client.oneway(address, Command(code, {"a": "1"}), TIMEOUT_S)
            answer = await client.invoke(address, Command(ECHO), TIMEOUT_S)
            assert answer.code == 0
            await asyncio.sleep(0.02)
            assert client._calls.unmatched == 0  # nothing came that nobody waited for
            assert server.transport.stats()["frames_in"] == 5

    asyncio.run(scenario())
    assert seen[0].command.is_oneway
    assert seen[0].command.flag == FLAG_ONEWAY
    assert seen[0].peer[0] == "127.0.0.1"


def test_a_server_asks_its_client_and_is_answered(served: Served):
    """Goal: requests in the other direction. Method: a handler that asks back before it answers."""

    async def scenario() -> None:
        async with served() as (server, client, address):

            async def ask(request: Request) -> Command:
                told = await server.invoke(request.connection, Command(40, {"consumerGroup": "g"}), TIMEOUT_S)
                return request.command.reply(told.code, told.remark)

            server.register(ASK, ask)
            client.register(
                40, lambda request: request.command.reply(7, "I am " + request.command.fields["consumerGroup"])
            )
            answer = await client.invoke(address, Command(ASK), TIMEOUT_S)
            assert (answer.code, answer.remark) == (7, "I am g")

    asyncio.run(scenario())


def test_a_client_that_does_not_answer_costs_a_time_out(served: Served):
    """Goal: the server does not wait for ever. Method: a client whose handler says nothing; then one that is gone."""

    async def scenario() -> None:
        async with served(prepare) as (server, client, address):
            client.register(40, lambda request: None)
            await client.invoke(address, Command(ECHO), TIMEOUT_S)
            (connection,) = server.connections()
            with pytest.raises(RemotingTimeoutError, match=r"127\.0\.0\.1"):
                await server.invoke(connection, Command(40), 0.05)
            waiting = asyncio.ensure_future(server.invoke(connection, Command(40), TIMEOUT_S))
            await asyncio.sleep(0.01)
            client.disconnect(address)
            with pytest.raises(RemotingSendRequestError, match=r"127\.0\.0\.1"):
                await waiting
            with pytest.raises(RemotingConnectError):
                await server.invoke(connection, Command(40), TIMEOUT_S)
            assert server.peer(connection) is None

    asyncio.run(scenario())


def test_a_push_reaches_the_client(served: Served):
    """Goal: notifications. Method: push to a connection; push to one that is gone."""

    async def scenario() -> None:
        async with served(prepare) as (server, client, address):
            got: asyncio.Future[Request] = asyncio.get_running_loop().create_future()
            client.register(40, got.set_result)
            await client.invoke(address, Command(ECHO), TIMEOUT_S)
            (connection,) = server.connections()
            assert server.push(connection, Command(40, {"consumerGroup": "g"}))
            request = await asyncio.wait_for(got, TIMEOUT_S)
            assert request.command.is_oneway
            assert client.address_of(request.connection) == address
            assert not server.push(connection + (1 << 40), Command(40))

    asyncio.run(scenario())


def test_a_reply_may_come_later_and_from_elsewhere(served: Served):
    """Goal: holds. Method: a handler that returns None; the answer is sent with reply()."""

    async def scenario() -> None:
        async with served() as (server, client, address):
            held: list[Request] = []
            server.register(SILENT, held.append)
            waiting = asyncio.ensure_future(client.invoke(address, Command(SILENT), TIMEOUT_S))
            await until(lambda: bool(held))
            assert server.reply(held[0], held[0].command.reply(21, "moved"))
            assert (await waiting).remark == "moved"
            client.disconnect(address)
            await until(lambda: server.peer(held[0].connection) is None)
            assert not server.reply(held[0], held[0].command.reply(0))

    asyncio.run(scenario())


def test_closing_is_told_once_and_after_the_last_request(served: Served):
    """Goal: client tables are kept right. Method: oneways and a hang-up at once; look at the order."""
    told: list[str] = []

    async def scenario() -> None:
        async with served() as (server, client, address):
            server.register(ECHO, lambda request: told.append("request"))
            server.on_close(lambda connection: told.append("closed"))
            for _ in range(200):
                await client.oneway(address, Command(ECHO), TIMEOUT_S)
            client.disconnect(address)
            await until(lambda: "closed" in told)

    asyncio.run(scenario())
    assert told == ["request"] * 200 + ["closed"]


def test_a_frame_nobody_can_read_ends_its_connection_and_no_other(served: Served):
    """Goal: as Apache's broker. Method: raw bytes on one connection while another goes on."""

    async def scenario() -> None:
        async with served(prepare) as (server, client, address):
            await client.invoke(address, Command(ECHO), TIMEOUT_S)
            for header in (b"no JSON", b'{"code":"x","opaque":1}', b"\xff" * 40):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
                writer.write((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
                assert await asyncio.wait_for(reader.read(), TIMEOUT_S) == b""
                writer.close()
                await writer.wait_closed()
            assert (await client.invoke(address, Command(ECHO), TIMEOUT_S)).code == 0
            assert client.is_connected(address)

    asyncio.run(scenario())


def test_odd_but_readable_headers_are_served(served: Served):
    """Goal: what C hands over, Python answers. Method: single quotes, numbers in quotes, no language, by hand."""

    async def scenario() -> None:
        async with served(prepare) as (server, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
            header = b"{'code':'1','opaque':+77,/* hm */'extFields':{'a':1.50,},}"
            writer.write((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
            size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), TIMEOUT_S), "big")
            answer = Command.decode(size.to_bytes(4, "big") + await reader.readexactly(size))
            assert (answer.opaque, answer.code, answer.fields) == (77, 0, {"a": "1.50"})
            writer.close()
            await writer.wait_closed()

    asyncio.run(scenario())


def test_stopping_answers_what_was_read(served: Served):
    """Goal: a stop loses no answer. Method: slow handlers in flight when stop() begins."""

    async def scenario() -> None:
        async with served() as (server, client, address):
            begun = asyncio.Event()

            async def slow(request: Request) -> Command:
                begun.set()
                await asyncio.sleep(0.1)
                return request.command.reply(0, "done")

            server.register(LATER, slow)
            waiting = asyncio.ensure_future(client.invoke(address, Command(LATER), TIMEOUT_S))
            await begun.wait()
            await server.stop()
            assert (await waiting).remark == "done"
            assert server.transport.closed
            await server.stop()  # twice is once
            await until(lambda: not client.is_connected(address))
            with pytest.raises(RemotingConnectError, match=address):
                await client.invoke(address, Command(ECHO), TIMEOUT_S)

    asyncio.run(scenario())


def test_a_late_loop_is_counted_and_logged(served: Served, caplog, monkeypatch):
    """Goal: an operator sees that something blocked the loop. Method: block it longer than the limit of this test."""
    monkeypatch.setattr("pymq.remoting.server.TICK_S", 0.01)
    config = RemotingServerConfig(tls=PLAIN, loop_late_ms=50)

    async def scenario() -> None:
        async with served(prepare, server_config=config) as (server, _, _):
            await asyncio.sleep(0.02)
            time.sleep(0.2)  # noqa: ASYNC251 - the fault injected
            await until(lambda: server.loop_late_count >= 1)
            assert server.loop_late_ms_max > 50

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert any("control loop is" in record.getMessage() for record in caplog.records)


def test_a_full_lane_is_answered_busy_without_the_loop(served: Served):
    """Goal: overload costs the loop nothing. Method: a lane of 3 while the loop is blocked; the transport refuses."""
    transport = TransportConfig(reactors=1, lane_count_max=(3, 3, 3, 3, 65536, 65536))

    async def scenario() -> None:
        config = RemotingServerConfig(tls=PLAIN, transport=transport)
        async with served(prepare, server_config=config) as (server, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
            writer.write(b"".join(Command(ECHO, opaque=number).encode() for number in range(40)))
            await writer.drain()
            end_s = time.monotonic() + TIMEOUT_S
            while sum(server.transport.stats()["lane_refused"]) <= 20:  # the fault injected: the loop takes nothing
                assert time.monotonic() < end_s, server.transport.stats()
                time.sleep(0.01)  # noqa: ASYNC251
            codes = []
            for _ in range(40):
                size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), TIMEOUT_S), "big")
                codes.append(Command.decode(size.to_bytes(4, "big") + await reader.readexactly(size)).code)
            assert codes.count(ResponseCode.SYSTEM_BUSY) > 20
            assert codes.count(0) >= 3
            writer.close()
            await writer.wait_closed()

    asyncio.run(scenario())


def test_hooks_see_requests_and_answers_and_may_refuse(served: Served):
    """Goal: signing and checking. Method: a hook on each side."""
    seen: list[str] = []

    class Signer:
        def before_request(self, address: str, request: Command) -> None:
            request.fields["signature"] = "s"

        def after_response(self, address: str, request: Command, response: Command | None) -> None:
            seen.append(f"answered {response.code if response else None}")

    class Checker:
        def before_request(self, address: str, request: Command) -> None:
            if request.fields.get("signature") != "s":
                raise RemotingError(ResponseCode.NO_PERMISSION, "unsigned")

        def after_response(self, address: str, request: Command, response: Command | None) -> None:
            seen.append("served")

    async def scenario() -> None:
        async with served(prepare) as (server, client, address):
            server.register_hook(Checker())
            assert (await client.invoke(address, Command(ECHO), TIMEOUT_S)).code == ResponseCode.NO_PERMISSION
            client.register_hook(Signer())
            assert (await client.invoke(address, Command(ECHO), TIMEOUT_S)).code == 0

    asyncio.run(scenario())
    assert seen == ["served", "answered 0"]


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"addresses": ()}, "addresses is empty"),
        ({"addresses": (("127.0.0.1", 70000),)}, "between 0 and 65535"),
        ({"loop_late_ms": 0}, "at least 1"),
    ],
)
def test_settings_outside_their_bounds_are_refused(keywords: dict[str, object], words: str):
    """Goal: a clear word before anything starts. Method: one of each."""
    with pytest.raises(ConfigError, match=words):
        RemotingServerConfig(**keywords)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"lane_count_max": (1, 2)}, "one for each of 6 lanes"),
        ({"lane_wait_ms": (1, 1, 1, 1, 1, -1)}, "negative"),
        ({"output_size_pause": 2 << 30}, "output_size_max"),
        ({"reactors": 17}, "at most 16"),
    ],
)
def test_transport_settings_outside_their_bounds_are_refused(keywords: dict[str, object], words: str):
    """Goal: as above. Method: one of each."""
    with pytest.raises(ConfigError, match=words):
        TransportConfig(**keywords)


def test_an_address_in_use_is_an_error_that_names_it(served: Served):
    """Goal: a start that failed says so. Method: two servers on one port."""

    async def scenario() -> None:
        async with served() as (server, _, _):
            second = RemotingServer(RemotingServerConfig(addresses=(("127.0.0.1", server.ports[0]),), tls=PLAIN))
            with pytest.raises(OSError, match=str(server.ports[0])):
                await second.start()
            await second.stop(0)

    asyncio.run(scenario())


def test_refused_connections_are_told_and_not_one_by_one(served: Served, caplog):
    """Goal: an operator learns of a full server. Method: two connections too many; then more, sooner than is told."""

    async def scenario() -> None:
        config = RemotingServerConfig(tls=PLAIN, transport=TransportConfig(reactors=1, connections_max=1))
        async with served(server_config=config) as (server, _, address):
            host, _, port = address.rpartition(":")
            writers = []
            for expected in (2, 5):
                while server.transport.stats()["refused"] < expected:
                    _, writer = await asyncio.open_connection(host, int(port))
                    writers.append(writer)
                    await asyncio.sleep(0.01)
                await until(lambda: "were refused" in caplog.text)
            await asyncio.sleep(0.6)
            for writer in writers:
                writer.close()

    with caplog.at_level(logging.WARNING, "pymq.remoting"):
        asyncio.run(scenario())
    assert caplog.text.count("connections were refused") == 1
