"""The servers and the clients, started when first asked for and shared by every test of this directory."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.apache_toolchain import Toolchain, ToolchainMissingError
from tests.interop.clients import raw
from tests.interop.clients.fleet import Clients, unavailable
from tests.interop.clients.names import QUEUE_COUNT, Names
from tests.interop.clients.servers import Certificate, Cluster, running_cluster


@pytest.fixture(scope="session")
def interop_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where servers and clients keep their files."""
    return tmp_path_factory.mktemp("clients")


@pytest.fixture(scope="session")
def certificate(interop_home: Path) -> Certificate:
    """A self-signed certificate for 127.0.0.1, made for this session."""
    if shutil.which("openssl") is None:
        unavailable(ToolchainMissingError("not installed: openssl (apt-get install openssl)"))
    made = Certificate(interop_home / "server.pem", interop_home / "server.key")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(made.key), "-out", str(made.certificate),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )  # fmt: skip
    return made


@pytest.fixture(scope="session")
def target() -> str:
    """Whose servers are tested: pymq's, unless the environment says apache."""
    return os.environ.get("PYMQ_INTEROP_TARGET", "pymq")


@pytest.fixture(scope="session")
def cluster(target: str, apache: Toolchain, interop_home: Path, certificate: Certificate) -> Iterator[Cluster]:
    """A name server and a broker."""
    with running_cluster(target, apache, interop_home / target, certificate) as running:
        yield running


@pytest.fixture(scope="session")
def clients(interop_home: Path, certificate: Certificate) -> Iterator[Clients]:
    """The client programs."""
    running = Clients(interop_home, certificate)
    yield running
    running.close()


@pytest.fixture(scope="session")
def unique() -> Names:
    """New names."""
    return Names()


@pytest.fixture
def topic(cluster: Cluster, unique: Names) -> str:
    """A new topic of QUEUE_COUNT queues, known to the name server."""
    name = unique("topic")
    raw.create_topic(cluster.broker, cluster.namesrv, name, QUEUE_COUNT)
    return name
