"""A client: connecting, permits, time-outs, and what it says when a call fails."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

from pymq.remoting.client import RemotingClient, split_address
from pymq.remoting.client_sync import SyncRemotingClient
from pymq.remoting.command import Command
from pymq.remoting.config import RemotingClientConfig, TlsConfig
from pymq.remoting.errors import (
    RemotingCallError,
    RemotingConnectError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from pymq.remoting.server import RemotingServer
from tests.remoting.conftest import PLAIN, Served, until

ECHO, SILENT = 1, 2
TIMEOUT_S = 10.0


def prepare(server: RemotingServer) -> None:
    """One that answers, one that does not."""
    server.register(ECHO, lambda request: request.command.reply(0, body=request.command.body))
    server.register(SILENT, lambda request: None)


def config(**keywords: object) -> RemotingClientConfig:
    """A plain client's settings."""
    return RemotingClientConfig(tls=PLAIN, **keywords)


def unused_address() -> str:
    """Where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_where_nobody_listens_is_a_connect_error_that_names_the_address():
    """Goal: REM-15. Method: a free port, addresses that are none."""

    async def scenario() -> None:
        client = RemotingClient(config())
        for address in (unused_address(), "no port", "127.0.0.1:x"):
            with pytest.raises(RemotingConnectError) as caught:
                await client.invoke(address, Command(ECHO), TIMEOUT_S)
            assert caught.value.address == address
            assert address in str(caught.value)
            assert isinstance(caught.value, ConnectionError)
        await client.close()

    asyncio.run(scenario())


def test_one_connection_serves_many_calls_and_many_addresses_one_each(served: Served):
    """Goal: connections are shared. Method: a hundred calls at once before the first connection is made."""

    async def scenario() -> None:
        async with served(prepare) as (server, client, address):
            answers = await asyncio.gather(
                *(client.invoke(address, Command(ECHO, body=b"%d" % number), TIMEOUT_S) for number in range(100))
            )
            assert [answer.body for answer in answers] == [b"%d" % number for number in range(100)]
            assert server.transport.stats()["accepted"] == 1

    asyncio.run(scenario())


def test_no_answer_is_a_time_out_and_closes_the_connection(served: Served):
    """Goal: REM-13, REM-14. Method: a handler that says nothing; the next call makes a new connection."""

    async def scenario() -> None:
        async with served(prepare) as (server, client, address):
            with pytest.raises(RemotingTimeoutError, match=rf"{address} timeout, \d+ ms"):
                await client.invoke(address, Command(SILENT), 0.15)
            assert not client.is_connected(address)
            assert (await client.invoke(address, Command(ECHO), TIMEOUT_S)).code == 0
            assert server.transport.stats()["accepted"] == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("keeps", ["setting", "short"])
def test_a_time_out_keeps_the_connection_when_told_so_or_when_it_was_short(served: Served, keeps: str):
    """Goal: REM-14. Method: clientCloseSocketIfTimeout=false; and a call that had no time to speak of."""

    async def scenario() -> None:
        settings = config(close_socket_if_timeout=keeps != "setting")
        async with served(prepare, client_config=settings) as (_, client, address):
            await client.invoke(address, Command(ECHO), TIMEOUT_S)
            if keeps == "short":
                client.register_hook(Sleeper(0.09))
                with pytest.raises(RemotingTimeoutError):
                    await client.invoke(address, Command(SILENT), 0.1)
            else:
                with pytest.raises(RemotingTimeoutError):
                    await client.invoke(address, Command(SILENT), 0.15)
            assert client.is_connected(address)

    asyncio.run(scenario())


class Sleeper:
    """A hook that takes its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def before_request(self, address: str, request: Command) -> None:
        time.sleep(self.seconds)

    def after_response(self, address: str, request: Command, response: Command | None) -> None:
        pass


def test_time_spent_in_hooks_is_the_caller_s(served: Served):
    """Goal: REM-16. Method: a hook that takes all of it: a call times out, a callback and a oneway were too much."""

    async def scenario() -> None:
        async with served(prepare) as (server, client, address):
            await client.invoke(address, Command(ECHO), TIMEOUT_S)
            before = server.transport.stats()["frames_in"]
            client.register_hook(Sleeper(0.03))
            with pytest.raises(RemotingTimeoutError, match="spent"):
                await client.invoke(address, Command(ECHO), 0.02)
            with pytest.raises(RemotingTooMuchRequestError, match="spent"):
                await client.oneway(address, Command(ECHO), 0.02)
            await asyncio.sleep(0.02)
            assert server.transport.stats()["frames_in"] == before  # neither was sent

    asyncio.run(scenario())


def test_a_lost_connection_ends_the_calls_that_wait_on_it(served: Served):
    """Goal: nobody waits for a dead peer. Method: the server closes the connection under two calls."""

    async def scenario() -> None:
        async with served(prepare) as (server, client, address):
            await client.invoke(address, Command(ECHO), TIMEOUT_S)
            calls = [asyncio.ensure_future(client.invoke(address, Command(SILENT), TIMEOUT_S)) for _ in range(2)]
            await asyncio.sleep(0.01)
            (connection,) = server.connections()
            server.close_connection(connection)
            for call in calls:
                with pytest.raises(RemotingSendRequestError, match=address):
                    await call
            assert (await client.invoke(address, Command(ECHO), TIMEOUT_S)).code == 0

    asyncio.run(scenario())


def test_permits_bound_calls_in_flight(served: Served):
    """Goal: REM-17. Method: two permits, both taken by calls that wait; the third waits, then says how full it is."""

    async def scenario() -> None:
        async with served(prepare, client_config=config(async_semaphore_value=2)) as (_, client, address):
            await client.invoke(address, Command(ECHO), TIMEOUT_S)
            waiting = [asyncio.ensure_future(client.invoke(address, Command(SILENT), TIMEOUT_S)) for _ in range(2)]
            await asyncio.sleep(0.01)
            with pytest.raises(RemotingTimeoutError, match="waiting: 1, free: 0"):
                await client.invoke(address, Command(ECHO), 0.05)
            permits = client._calls._permits
            with pytest.raises(RemotingTooMuchRequestError, match="too fast: all 2"):
                await permits.take(address, 0)
            for call in waiting:
                call.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert permits.used == 0  # given back exactly once
            assert (await client.invoke(address, Command(ECHO), TIMEOUT_S)).code == 0

    asyncio.run(scenario())


def test_a_permit_freed_goes_to_the_one_who_waits(served: Served):
    """Goal: the semaphore is one. Method: one permit, two calls; the second is served after the first."""

    async def scenario() -> None:
        async with served(prepare, client_config=config(async_semaphore_value=1)) as (_, client, address):
            answers = await asyncio.gather(*(client.invoke(address, Command(ECHO), TIMEOUT_S) for _ in range(5)))
            assert [answer.code for answer in answers] == [0] * 5

    asyncio.run(scenario())


def test_callbacks_are_called_once_with_the_answer_or_the_error(served: Served):
    """Goal: async calls. Method: one that works, one that times out, one with nobody there."""
    got: dict[str, list[Command | RemotingCallError]] = {"good": [], "late": [], "nobody": []}

    async def scenario() -> None:
        # The one that times out must not take the connection from the one that is answered.
        async with served(prepare, client_config=config(close_socket_if_timeout=False)) as (_, client, address):
            client.invoke_callback(address, Command(ECHO), TIMEOUT_S, got["good"].append)
            client.invoke_callback(address, Command(SILENT), 0.05, got["late"].append)
            client.invoke_callback(unused_address(), Command(ECHO), TIMEOUT_S, got["nobody"].append)
            await until(lambda: all(got.values()))

    asyncio.run(scenario())
    assert isinstance(got["good"][0], Command)
    assert isinstance(got["late"][0], RemotingTimeoutError)
    assert isinstance(got["nobody"][0], RemotingConnectError)
    assert [len(results) for results in got.values()] == [1, 1, 1]


def test_a_request_of_the_server_that_nobody_handles_is_answered(served: Served):
    """Goal: the server learns it. Method: ask a client that has no handler."""

    async def scenario() -> None:
        async with served(prepare) as (server, client, address):
            await client.invoke(address, Command(ECHO), TIMEOUT_S)
            (connection,) = server.connections()
            answer = await server.invoke(connection, Command(309), TIMEOUT_S)
            assert (answer.code, answer.remark) == (3, " request type 309 not supported")

    asyncio.run(scenario())


def test_closing_ends_calls_and_refuses_new_ones(served: Served):
    """Goal: close is an end. Method: calls in flight, then close, then another call."""

    async def scenario() -> None:
        async with served(prepare) as (_, client, address):
            told: list[Command | RemotingCallError] = []
            await client.invoke(address, Command(ECHO), TIMEOUT_S)
            waiting = asyncio.ensure_future(client.invoke(address, Command(SILENT), TIMEOUT_S))
            client.invoke_callback(address, Command(SILENT), TIMEOUT_S, told.append)
            await asyncio.sleep(0.02)
            await client.close()
            with pytest.raises(RemotingSendRequestError, match=address):
                await waiting
            assert isinstance(told[0], RemotingSendRequestError)
            with pytest.raises(RuntimeError, match="closed"):
                await client.invoke(address, Command(ECHO), TIMEOUT_S)
            await client.close()

    asyncio.run(scenario())


def test_closing_ends_an_attempt_to_connect():
    """Goal: as above. Method: a peer that accepts and never shakes hands."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            client = RemotingClient(RemotingClientConfig(tls=TlsConfig(client_enable=True, config_file=None)))
            connecting = asyncio.ensure_future(client.invoke(address, Command(ECHO), TIMEOUT_S))
            await asyncio.sleep(0.05)
            assert not connecting.done()
            await client.close()
            with pytest.raises(RemotingConnectError, match=address):
                await connecting

    asyncio.run(scenario())


def test_the_blocking_client_calls_from_threads(served: Served):
    """Goal: programs without a loop. Method: several threads, a callback, a server's request, and a time-out."""

    async def scenario() -> None:
        async with served(prepare) as (server, _, address):
            await asyncio.to_thread(blocking_calls, address)
            assert server.transport.stats()["accepted"] == 2

    def blocking_calls(address: str) -> None:
        with SyncRemotingClient(config()) as client:
            results: list[bytes] = []
            threads = [
                threading.Thread(
                    target=lambda: results.append(client.invoke(address, Command(ECHO, body=b"x"), TIMEOUT_S).body)
                )
                for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert results == [b"x"] * 4
            client.oneway(address, Command(ECHO), TIMEOUT_S)
            done = threading.Event()
            client.invoke_callback(address, Command(ECHO), TIMEOUT_S, lambda result: done.set())
            assert done.wait(TIMEOUT_S)
            with pytest.raises(RemotingTimeoutError):
                client.invoke(address, Command(SILENT), 0.15)
            assert client.invoke(address, Command(ECHO), TIMEOUT_S).code == 0
        client.close()

    asyncio.run(scenario())


def test_names_are_looked_up(served: Served):
    """Goal: hosts by name. Method: the one name every machine knows."""

    async def scenario() -> None:
        async with served(prepare) as (server, client, _):
            assert (await client.invoke(f"localhost:{server.ports[0]}", Command(ECHO), TIMEOUT_S)).code == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("127.0.0.1:10911", "127.0.0.1", 10911), ("[::1]:9876", "::1", 9876), ("broker-a:1", "broker-a", 1)],
)
def test_addresses_are_split_at_their_last_colon(address: str, host: str, port: int):
    """Goal: names, IPv4, IPv6. Method: one of each."""
    assert split_address(address) == (host, port)
