"""TLS as RocketMQ does it: modes, certificates, reload, and handshakes that fail alone."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from pathlib import Path

import pytest

from pymq.errors import ConfigError
from pymq.remoting.client import RemotingClient
from pymq.remoting.codes import SerializeType
from pymq.remoting.command import Command
from pymq.remoting.config import RemotingClientConfig, RemotingServerConfig, TlsConfig, TlsMode
from pymq.remoting.errors import RemotingCallError, RemotingConnectError
from pymq.remoting.server import RemotingServer, Request
from pymq.remoting.tls_context import client_context, openssl_name, server_context, tls_config, with_file
from tests.remoting.certificates import Authority
from tests.remoting.conftest import PLAIN, Served, until

ECHO, ASK = 1, 2
TIMEOUT_S = 20.0
TEST_MODE = TlsConfig(config_file=None)
TLS_CLIENT = RemotingClientConfig(tls=TlsConfig(client_enable=True, config_file=None))
HELLO = bytes.fromhex("160301")  # how a TLS handshake begins


def prepare(server: RemotingServer) -> None:
    """Echo, with the peer's address."""
    server.register(
        ECHO, lambda request: request.command.reply(0, request.peer[0], request.command.fields, request.command.body)
    )


def server_of(tls: TlsConfig) -> RemotingServerConfig:
    """A server's settings."""
    return RemotingServerConfig(tls=tls)


async def calls(config: RemotingClientConfig, address: str) -> Command:
    """One call of a client of its own."""
    client = RemotingClient(config)
    try:
        return await client.invoke(address, Command(ECHO), TIMEOUT_S)
    finally:
        await client.close()


@pytest.mark.parametrize("kind", list(SerializeType))
def test_a_permissive_server_serves_plain_and_tls_on_one_port(served: Served, kind: SerializeType):
    """Goal: the default mode. Method: both clients, both serializations, large bodies each way, the real peer."""

    async def scenario() -> None:
        async with served(prepare, server_config=server_of(TEST_MODE), client_config=TLS_CLIENT) as (
            server,
            client,
            address,
        ):
            for size in (0, 10, 1 << 20):
                request = Command(ECHO, {"a": "\u00e9"}, bytes(size), serialize_type=kind)
                answer = await client.invoke(address, request, TIMEOUT_S)
                assert (answer.code, answer.fields, len(answer.body)) == (0, {"a": "\u00e9"}, size)
                assert answer.remark == "127.0.0.1"
            assert (await calls(RemotingClientConfig(tls=PLAIN), address)).code == 0
            stats = server.tls_stats()
            assert (stats["handshakes"], stats["handshakes_failed"]) == (1, 0)

    asyncio.run(scenario())


def test_a_server_asks_its_client_over_tls(served: Served):
    """Goal: both directions through the pump. Method: a handler that asks back."""

    async def scenario() -> None:
        async with served(server_config=server_of(TEST_MODE), client_config=TLS_CLIENT) as (server, client, address):

            async def ask(request: Request) -> Command:
                return request.command.reply((await server.invoke(request.connection, Command(40), TIMEOUT_S)).code)

            server.register(ASK, ask)
            client.register(40, lambda request: request.command.reply(7))
            assert (await client.invoke(address, Command(ASK), TIMEOUT_S)).code == 7

    asyncio.run(scenario())


def test_an_enforcing_server_refuses_plain_clients(served: Served):
    """Goal: nothing in the clear. Method: a plain and a TLS client."""

    async def scenario() -> None:
        tls = dataclasses.replace(TEST_MODE, server_mode=TlsMode.ENFORCING)
        async with served(prepare, server_config=server_of(tls), client_config=TLS_CLIENT) as (_, client, address):
            with pytest.raises(RemotingCallError):
                await calls(RemotingClientConfig(tls=PLAIN), address)
            assert (await client.invoke(address, Command(ECHO), TIMEOUT_S)).code == 0

    asyncio.run(scenario())


def test_a_disabled_server_closes_what_begins_a_handshake(served: Served):
    """Goal: as the mode says. Method: a TLS client to a plain server."""

    async def scenario() -> None:
        async with served(prepare) as (_, _, address):
            with pytest.raises(RemotingConnectError):
                await calls(TLS_CLIENT, address)
            assert (await calls(RemotingClientConfig(tls=PLAIN), address)).code == 0

    asyncio.run(scenario())


def files(directory: Path, **keywords: object) -> TlsConfig:
    """A server with a certificate of an authority, verified by clients."""
    return TlsConfig(
        config_file=None,
        test_mode_enable=False,
        server_cert_path=directory / "server.pem",
        server_key_path=directory / "server.key",
        watch_interval_s=0.02,
        **keywords,
    )


def trusting(trust: Path, **keywords: object) -> RemotingClientConfig:
    """A client that verifies."""
    tls = TlsConfig(
        client_enable=True,
        config_file=None,
        test_mode_enable=False,
        client_auth_server=True,
        client_trust_cert_path=trust,
        **keywords,
    )
    return RemotingClientConfig(tls=tls)


def test_certificates_are_verified_when_told_so(served: Served, tmp_path: Path):
    """Goal: authServer. Method: one client trusts the right authority, one another; the key has a password."""
    ours, other = Authority.make("ours"), Authority.make("other")
    ours.issue("broker", tmp_path / "server.pem", tmp_path / "server.key", b"secret")
    right, wrong = trusting(ours.write(tmp_path / "ca.pem")), trusting(other.write(tmp_path / "other.pem"))

    async def scenario() -> None:
        tls = files(tmp_path, server_key_password="secret")
        async with served(prepare, server_config=server_of(tls)) as (server, _, address):
            assert (await calls(right, address)).code == 0
            with pytest.raises(RemotingConnectError, match="certificate verify failed"):
                await calls(wrong, address)
            assert (await calls(right, address)).code == 0
            await until(lambda: server.tls_stats()["handshakes_failed"] == 1)
            assert server.tls_stats()["handshakes"] == 2

    asyncio.run(scenario())


def test_clients_are_verified_when_told_so(served: Served, tmp_path: Path):
    """Goal: authClient with need.client.auth=require. Method: a client with a certificate, one without."""
    ours = Authority.make("ours")
    ours.issue("broker", tmp_path / "server.pem", tmp_path / "server.key")
    ours.issue("client", tmp_path / "client.pem", tmp_path / "client.key")
    trust = ours.write(tmp_path / "ca.pem")
    known = trusting(trust, client_cert_path=tmp_path / "client.pem", client_key_path=tmp_path / "client.key")

    async def scenario() -> None:
        tls = files(tmp_path, server_auth_client=True, server_trust_cert_path=trust, server_need_client_auth="require")
        async with served(prepare, server_config=server_of(tls)) as (_, _, address):
            assert (await calls(known, address)).code == 0
            with pytest.raises(RemotingCallError):
                await calls(trusting(trust), address)

    asyncio.run(scenario())


def test_certificate_and_key_are_loaded_again_when_both_have_changed(served: Served, tmp_path: Path):
    """Goal: REM-28. Method: replace one file, then the other; then write nonsense, and the old ones stay."""
    old, new = Authority.make("old"), Authority.make("new")
    old.issue("broker", tmp_path / "server.pem", tmp_path / "server.key")
    old_trust, new_trust = trusting(old.write(tmp_path / "a.pem")), trusting(new.write(tmp_path / "b.pem"))

    async def scenario() -> None:
        async with served(prepare, server_config=server_of(files(tmp_path))) as (server, _, address):
            assert (await calls(old_trust, address)).code == 0
            new.issue("broker", tmp_path / "next.pem", tmp_path / "next.key")
            (tmp_path / "next.pem").replace(tmp_path / "server.pem")
            await asyncio.sleep(0.1)
            assert server.tls_stats()["reloads"] == 0  # the key does not fit yet
            assert (await calls(old_trust, address)).code == 0
            (tmp_path / "next.key").replace(tmp_path / "server.key")
            await until(lambda: server.tls_stats()["reloads"] == 1)
            assert (await calls(new_trust, address)).code == 0
            (tmp_path / "server.pem").write_text("nonsense")
            (tmp_path / "server.key").write_text("nonsense")
            await asyncio.sleep(0.1)
            assert (await calls(new_trust, address)).code == 0
            assert server.tls_stats()["reloads"] == 1

    asyncio.run(scenario())


def test_the_trust_file_is_loaded_again_at_once(served: Served, tmp_path: Path):
    """Goal: REM-28. Method: a client whose authority is trusted only after the file has changed."""
    ours, late = Authority.make("ours"), Authority.make("late")
    ours.issue("broker", tmp_path / "server.pem", tmp_path / "server.key")
    late.issue("client", tmp_path / "client.pem", tmp_path / "client.key")
    trust = ours.write(tmp_path / "trust.pem")
    client = trusting(
        ours.write(tmp_path / "ca.pem"),
        client_cert_path=tmp_path / "client.pem",
        client_key_path=tmp_path / "client.key",
    )

    async def scenario() -> None:
        tls = files(tmp_path, server_auth_client=True, server_trust_cert_path=trust, server_need_client_auth="require")
        async with served(prepare, server_config=server_of(tls)) as (server, _, address):
            with pytest.raises(RemotingCallError):
                await calls(client, address)
            late.write(tmp_path / "late.pem")
            trust.write_bytes(trust.read_bytes() + (tmp_path / "late.pem").read_bytes())
            await until(lambda: server.tls_stats()["reloads"] == 1)
            assert (await calls(client, address)).code == 0

    asyncio.run(scenario())


def test_handshakes_that_hang_or_break_disturb_nobody(served: Served):
    """Goal: a deadline, a bound, and no effect on others. Method: silent ones, nonsense, and more than are allowed."""
    tls = dataclasses.replace(TEST_MODE, handshake_timeout_s=0.3, handshakes_max=3)

    async def scenario() -> None:
        async with served(prepare, server_config=server_of(tls), client_config=TLS_CLIENT) as (server, client, address):
            assert (await client.invoke(address, Command(ECHO), TIMEOUT_S)).code == 0
            writers = []
            for _ in range(6):
                _, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
                writer.write(HELLO)
                writers.append(writer)
            await until(lambda: server.tls_stats()["handshakes_dropped"] == 3)
            assert server.tls_stats()["handshaking"] <= 3
            assert (await client.invoke(address, Command(ECHO), TIMEOUT_S)).code == 0
            await until(lambda: server.tls_stats()["handshakes_failed"] == 3)  # their time is over
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
            writer.write(HELLO + bytes(100))
            await until(lambda: server.tls_stats()["handshakes_failed"] == 4)
            assert (await calls(TLS_CLIENT, address)).code == 0
            await asyncio.wait_for(reader.read(), TIMEOUT_S)  # closed, with an alert or without
            for each in (*writers, writer):
                each.close()

    asyncio.run(scenario())


def test_peers_that_begin_a_handshake_and_wait_do_not_lock_clients_out(served: Served, caplog):
    """Goal: one byte a connection is no denial of service. Method: as many as are allowed and more, then a client."""
    tls = dataclasses.replace(TEST_MODE, handshakes_max=4)

    async def scenario() -> None:
        async with served(prepare, server_config=server_of(tls), client_config=TLS_CLIENT) as (server, client, address):
            readers, writers = [], []
            for _ in range(6):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
                writer.write(HELLO[:1])
                readers.append(reader)
                writers.append(writer)
            await until(lambda: server.tls_stats()["handshakes_dropped"] == 2)
            assert (await client.invoke(address, Command(ECHO), TIMEOUT_S)).code == 0
            counts = server.tls_stats()
            assert (counts["handshakes"], counts["handshakes_dropped"], counts["handshaking"]) == (1, 3, 3)
            await until(lambda: sum(reader.at_eof() or reader.exception() is not None for reader in readers) == 3)
            for writer in writers:
                writer.close()

    asyncio.run(scenario())
    assert caplog.text.count("is dropped for a new one") == 1


def test_a_client_that_hangs_up_is_gone_everywhere(served: Served):
    """Goal: no pump outlives its connection. Method: connect, leave, look; then the other way round."""

    async def scenario() -> None:
        async with served(prepare, server_config=server_of(TEST_MODE), client_config=TLS_CLIENT) as (
            server,
            client,
            address,
        ):
            await client.invoke(address, Command(ECHO), TIMEOUT_S)
            assert server.tls_stats()["connections"] == 1
            client.disconnect(address)
            await until(lambda: server.tls_stats()["connections"] == 0 and not list(server.connections()))
            await client.invoke(address, Command(ECHO), TIMEOUT_S)
            (connection,) = server.connections()
            server.close_connection(connection)
            await until(lambda: not client.is_connected(address))
            await until(lambda: server.tls_stats()["connections"] == 0)

    asyncio.run(scenario())


def test_a_server_without_a_certificate_says_so(tmp_path: Path, served: Served, caplog):
    """Goal: a clear word. Method: enforcing refuses to start and names the file; permissive warns and serves plain."""

    async def enforcing() -> None:
        tls = files(tmp_path, server_mode=TlsMode.ENFORCING)
        server = RemotingServer(RemotingServerConfig(addresses=(("127.0.0.1", 0),), tls=tls))
        try:
            with pytest.raises(ConfigError, match=r"server\.pem"):
                await server.start()
        finally:
            await server.stop(0)

    async def permissive() -> None:
        async with served(prepare, server_config=server_of(files(tmp_path))) as (_, _, address):
            assert (await calls(RemotingClientConfig(tls=PLAIN), address)).code == 0

    asyncio.run(enforcing())
    asyncio.run(permissive())
    assert any("plain connections only" in record.getMessage() for record in caplog.records)


def test_properties_by_rocketmq_s_names(tmp_path: Path):
    """Goal: an operator's files work. Method: all keys, from a mapping and from tls.properties, which wins."""
    config = tls_config(
        {
            "tls.server.mode": "enforcing",
            "tls.enable": "TRUE",
            "tls.test.mode.enable": "false",
            "tls.server.certPath": "/a/cert.pem",
            "tls.server.keyPath": "",
            "tls.server.need.client.auth": "",
            "tls.config.file": str(tmp_path / "tls.properties"),
            "listenPort": "10911",
        }
    )
    assert (config.server_mode, config.client_enable, config.test_mode_enable) == (TlsMode.ENFORCING, True, False)
    assert (config.server_cert_path, config.server_key_path) == (Path("/a/cert.pem"), None)
    assert config.server_need_client_auth == "none"
    (tmp_path / "tls.properties").write_text(
        "tls.server.mode=disabled\ntls.server.certPath=/b/cert.pem\ntls.server.keyPassword=p\ntls.server.authClient=true\n"
    )
    filed = with_file(config)
    assert filed.server_cert_path == Path("/b/cert.pem")
    assert filed.server_key_password == "p"
    assert filed.server_auth_client
    assert filed.server_mode == TlsMode.ENFORCING  # the process's, not the file's, as at Apache's
    assert "secret" not in repr(dataclasses.replace(filed, server_key_password="secret"))
    with pytest.raises(ConfigError, match="disabled, permissive or enforcing"):
        tls_config({"tls.server.mode": "strict"})


def test_ciphers_and_protocols(tmp_path: Path):
    """Goal: tls.ciphers and tls.protocols. Method: Java's names; nonsense is named."""
    assert openssl_name("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256") == "ECDHE-RSA-AES128-GCM-SHA256"
    assert openssl_name("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384") == "ECDHE-ECDSA-AES256-SHA384"
    assert openssl_name("TLS_RSA_WITH_AES_128_CBC_SHA") == "AES128-SHA"
    context = server_context(
        dataclasses.replace(
            TEST_MODE, ciphers="TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256", protocols="TLSv1.2"
        )
    )
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    assert "ECDHE-RSA-AES128-GCM-SHA256" in {cipher["name"] for cipher in context.get_ciphers()}
    with pytest.raises(ConfigError, match=r"tls\.protocols has SSLv3"):
        client_context(dataclasses.replace(TEST_MODE, protocols="TLSv1.2,SSLv3"))
    with pytest.raises(ConfigError, match=r"tls\.ciphers is 'NONSENSE'"):
        client_context(dataclasses.replace(TEST_MODE, ciphers="NONSENSE"))
