"""The client programs do what their flags say; otherwise the other tests would test less than they claim."""

from __future__ import annotations

import os
import random
import socket
import struct
from pathlib import Path

import pytest

from tests.interop.apache_toolchain import ToolchainBuildError, ToolchainMissingError
from tests.interop.clients import raw
from tests.interop.clients.builds import go_client
from tests.interop.clients.fleet import CODECS, KINDS, Clients
from tests.interop.clients.messages import OutMessage
from tests.interop.clients.names import Names
from tests.interop.clients.servers import Cluster
from tests.interop.clients.workers import ClientError, ClientWorker

ACCEPT_TIMEOUT_SECONDS = 20.0
TLS_HANDSHAKE_RECORD = 0x16


def first_bytes_of(worker: ClientWorker, name: str) -> bytes:
    """What the client's first connection begins with; it is cut then, and the client's send fails."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(ACCEPT_TIMEOUT_SECONDS)
        worker.start_producer(name, f"127.0.0.1:{listener.getsockname()[1]}")
        sending = worker.begin("send", producer=name, mode="sync", messages=[OutMessage("any", "key", b"body").line()])
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(ACCEPT_TIMEOUT_SECONDS)
            received = raw.read_exactly(connection, 8)
    with pytest.raises(ClientError):
        worker.finish(sending)
    worker.retire(name)
    return received


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", KINDS)
def test_headers_have_the_wanted_serialization(clients: Clients, unique: Names, kind: str, codec: str) -> None:
    """Goal: "binary" tests are binary. Method: the serialization byte of the first frame, caught by a bare socket."""
    size, marked_size = struct.unpack(">II", first_bytes_of(clients.get(kind, codec), unique("codec")))
    assert marked_size >> 24 == {"json": raw.JSON_HEADER, "rocketmq": raw.BINARY_HEADER}[codec]
    assert marked_size & 0xFFFFFF <= size


@pytest.mark.parametrize("kind", ["java550", "java498"])
def test_tls_clients_begin_with_a_handshake(clients: Clients, cluster: Cluster, unique: Names, kind: str) -> None:
    """Goal: "TLS" tests are TLS. Method: the first byte, caught by a bare socket."""
    assert first_bytes_of(clients.get(kind, tls=cluster), unique("tls"))[0] == TLS_HANDSHAKE_RECORD


def test_a_send_that_is_refused_is_an_error_here(clients: Clients, cluster: Cluster, unique: Names) -> None:
    """Goal: a client's exception fails a test. Method: a body over 4 MiB even when compressed, from each."""
    body = random.Random(1).randbytes(5 << 20)
    for kind in KINDS:
        name = unique("too-large")
        worker = clients.get(kind)
        worker.start_producer(name, cluster.namesrv)
        with pytest.raises(ClientError):
            worker.send(name, "sync", [OutMessage(unique("topic"), "key", body)])
        worker.retire(name)


def test_a_missing_go_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Goal: whoever lacks Go learns what to install. Method: an empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainMissingError, match="golang-go"):
        go_client()


def test_a_go_that_fails_is_an_error_with_its_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Goal: a broken build is never taken for a missing tool. Method: a Go that only complains, a cold cache."""
    fake = tmp_path / "bin" / "go"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho no route to the modules >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYMQ_INTEROP_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ToolchainBuildError, match="no route to the modules"):
        go_client()
    assert not (tmp_path / "cache" / "client-go" / "stamp").exists()
