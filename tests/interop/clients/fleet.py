"""All client programs of a session, by kind, codec and transport; each is started when it is first asked for."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.apache_toolchain import ToolchainMissingError
from tests.interop.clients.builds import CLIENT_MAIN_CLASS, go_client, java_client
from tests.interop.clients.servers import Certificate, Cluster
from tests.interop.clients.workers import ClientError, ClientWorker

JAVA_KINDS = ("java550", "java498")
KINDS = (*JAVA_KINDS, "go")
CODECS = ("json", "rocketmq")
WIRES = (*CODECS, "tls")

# A rebalance that nobody announced is not waited for: 20 s is the clients' default.
REBALANCE_INTERVAL_MS = 2_000


def unavailable(problem: ToolchainMissingError) -> None:
    """Skip, or fail where nothing may be skipped."""
    if os.environ.get("PYMQ_CI", "0") not in ("", "0"):
        pytest.fail(f"PYMQ_CI=1 and {problem}")
    pytest.skip(str(problem))


class Clients:
    """Client programs by kind (java550, java498, go), codec (json, rocketmq) and whether they use TLS.

    A TLS one is asked for with the cluster that it is to reach: Go's must know it beforehand (see `go/tls.go`).
    """

    def __init__(self, home: Path, certificate: Certificate) -> None:
        self._home = home
        self._certificate = certificate
        self._shared: dict[tuple[str, str, Cluster | None], ClientWorker] = {}
        self._numbers = itertools.count(1)

    def get(self, kind: str, codec: str = "json", *, tls: Cluster | None = None) -> ClientWorker:
        """The shared program of this kind; started when first asked for."""
        wanted = kind, codec, tls
        if wanted not in self._shared:
            self._shared[wanted] = self.start(kind, codec, tls=tls)
        return self._shared[wanted]

    def on_wire(self, kind: str, wire: str, cluster: Cluster) -> ClientWorker:
        """The shared program of this kind that speaks as *wire* says: a codec, or TLS with JSON headers in it."""
        return self.get(kind, tls=cluster) if wire == "tls" else self.get(kind, wire)

    def start(
        self, kind: str, codec: str = "json", *, tls: Cluster | None = None, options: Sequence[str] = ()
    ) -> ClientWorker:
        """A program of one's own, to be closed or killed by whoever asked; *options* are for a JVM."""
        label = f"{kind}-{codec}{'-tls' if tls else ''}"
        home = self._home / f"{label}-{next(self._numbers)}"
        try:
            if kind == "go":
                command = _go_command(codec, tls)
            else:
                command = self._java_command(kind, codec, tls, home, options)
        except ToolchainMissingError as problem:
            unavailable(problem)
            raise
        return ClientWorker(label, command, home)

    def _java_command(self, kind: str, codec: str, tls: Cluster | None, home: Path, more: Sequence[str]) -> list[str]:
        options = [
            *more,
            f"-Drocketmq.serialize.type={codec.upper()}",
            f"-Drocketmq.client.rebalance.waitInterval={REBALANCE_INTERVAL_MS}",
        ]
        if tls is not None:
            options += [
                "-Dtls.enable=true",
                "-Dtls.test.mode.enable=false",
                "-Dtls.client.authServer=true",
                f"-Dtls.client.trustCertPath={self._certificate.certificate}",
            ]
        return java_client(kind).command(CLIENT_MAIN_CLASS, home=home, options=options)

    def close(self) -> None:
        """Shut all shared programs down, even when one of them will not."""
        problems = []
        for worker in self._shared.values():
            try:
                worker.close()
            except ClientError as problem:
                problems.append(problem)
        if problems:
            raise ExceptionGroup("clients did not close", problems)


def _go_command(codec: str, tls: Cluster | None) -> list[str]:
    command = [str(go_client()), "-codec", codec]
    if tls is not None:
        command += ["-tls-namesrv", tls.namesrv, "-tls-broker", tls.broker]
    return command
