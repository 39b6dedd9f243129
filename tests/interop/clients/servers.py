"""A name server and a broker to talk to: pymq's, or Apache RocketMQ's for the scenarios' own sake.

Which one is the `PYMQ_INTEROP_TARGET` environment's choice, `pymq` unless it says `apache`. Both are processes of
their own, on loopback, at ports the kernel chose, with all their files below a directory of the test session.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interop.apache_broker import BROKER_MAIN_CLASS, free_ports
from tests.interop.apache_toolchain import PROJECT_ROOT, Toolchain
from tests.interop.clients import raw

NAME_SERVER_MAIN_CLASS = "org.apache.rocketmq.namesrv.NamesrvStartup"
CLUSTER_NAME = "interop-cluster"
PORT_ATTEMPTS = 8
TOPIC_TO_CREATE_FROM = "TBW102"
READY_TEXT = "boot success"
START_TIMEOUT_SECONDS = 90.0
STOP_TIMEOUT_SECONDS = 30.0

# Enough for machines that do several things at once; the default 200 ms is for the abuse tests.
SEND_QUEUE_WAIT_MS = 10_000

# How a JVM ends after SIGTERM, however orderly.
JVM_TERMINATED = 128 + signal.SIGTERM


class ServerError(Exception):
    """A server did not start or did not stop; the message carries the end of what it printed."""


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, PEM files."""

    certificate: Path
    key: Path


def tls_settings(certificate: Certificate | None) -> dict[str, str]:
    """What makes a server offer TLS beside plain connections, by RocketMQ's names."""
    if certificate is None:
        return {}
    return {
        "tls.server.mode": "permissive",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(certificate.certificate),
        "tls.server.keyPath": str(certificate.key),
    }


@dataclass(frozen=True)
class Cluster:
    """The addresses of one name server and one broker, and the names the broker goes by."""

    target: str
    namesrv: str
    broker: str
    broker_name: str
    cluster_name: str


class ServerProcess:
    """A server that has said it is ready."""

    def __init__(self, label: str, command: Sequence[str], home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.label = label
        self._console_path = home / "console.log"
        with self._console_path.open("wb") as console:
            self._process = subprocess.Popen(
                command,
                cwd=home,
                env={**os.environ, "ROCKETMQ_HOME": str(home), "HOME": str(home), "PYTHONPATH": str(PROJECT_ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        try:
            self._await_ready()
        except ServerError:
            self.kill()
            raise

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while READY_TEXT not in self.console():
            status = self._process.poll()
            if status is not None:
                raise ServerError(f"{self.label} ended with status {status} before it was ready:\n{self._last_words()}")
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{self.label} did not say {READY_TEXT!r} in {START_TIMEOUT_SECONDS} s:\n{self._last_words()}"
                )
            time.sleep(0.05)

    def console(self) -> str:
        """Everything it printed."""
        return self._console_path.read_text(errors="replace")

    def _last_words(self) -> str:
        # The Java servers' logging library reports on its own configuration, at length.
        return re.sub(r"(?m)^.*\|-INFO.*\n", "", self.console())[-3000:]

    def stop(self, status_wanted: int = 0) -> None:
        """SIGTERM, and the process must end by itself, in order and without a complaint."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as problem:
            raise ServerError(
                f"{self.label} did not stop within {STOP_TIMEOUT_SECONDS} s of SIGTERM:\n{self._last_words()}"
            ) from problem
        if status != status_wanted or "Traceback" in self.console():
            raise ServerError(f"{self.label} ended with status {status}:\n{self._last_words()}")

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        self._process.kill()
        self._process.wait()


def _write_properties(path: Path, properties: Mapping[str, str]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(path)


def _broker_properties(namesrv: str, port: int, name: str, store: Path) -> dict[str, str]:
    """What both brokers are given, in the words of `broker.conf`."""
    return {
        "brokerClusterName": CLUSTER_NAME,
        "brokerName": name,
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port),
        "namesrvAddr": namesrv,
        "storePathRootDir": str(store),
        "autoCreateTopicEnable": "true",
        "enablePropertyFilter": "true",
        "mappedFileSizeCommitLog": str(64 << 20),
        "waitTimeMillsInSendQueue": str(SEND_QUEUE_WAIT_MS),
    }


def _start(label: str, home: Path, command: Callable[[int], Sequence[str]]) -> tuple[ServerProcess, str]:
    """The server that *command* makes of a port, and its address.

    Between the choice of a port and its use somebody may take it, or a neighbour of it that a broker uses too: the
    busier the machine, the likelier. That is not what is tested here, so another port is tried.
    """
    for _ in range(PORT_ATTEMPTS):
        port = free_ports()
        try:
            return ServerProcess(label, command(port), home), f"127.0.0.1:{port}"
        except ServerError as problem:
            if "address already in use" not in str(problem).lower():
                raise
    raise ServerError(f"{label}: no port could be had in {PORT_ATTEMPTS} attempts")


def _started(
    label: str, home: Path, command: Callable[[int], Sequence[str]], port: int | None
) -> tuple[ServerProcess, str]:
    """The server at *port*, or at one of the kernel's choice."""
    if port is None:
        return _start(label, home, command)
    return ServerProcess(label, command(port), home), f"127.0.0.1:{port}"


@contextmanager
def apache_name_server(
    apache: Toolchain,
    home: Path,
    certificate: Certificate | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Apache's name server; gives its address."""

    def command(port: int) -> list[str]:
        properties = {"listenPort": str(port), "bindAddress": "127.0.0.1", **(settings or {})}
        conf = _write_properties(home / "namesrv.conf", properties)
        options = [f"-D{name}={value}" for name, value in tls_settings(certificate).items()]
        return apache.command(NAME_SERVER_MAIN_CLASS, "-c", conf, home=home, options=options)

    server, address = _start("Apache's name server", home, command)
    try:
        yield address
    finally:
        server.kill()


@contextmanager
def apache_broker(
    apache: Toolchain,
    home: Path,
    namesrv: str,
    *,
    name: str,
    certificate: Certificate | None = None,
    settings: Mapping[str, str] | None = None,
    port: int | None = None,
    in_order: bool = False,
) -> Iterator[str]:
    """Apache's broker, registered with *namesrv*; gives its address.

    It is killed, for its own stop takes ten seconds, unless it is to be stopped *in_order*. With the home and the
    *port* of one that was stopped, it is that broker again.
    """

    def command(port: int) -> list[str]:
        # Its timer stays on, though it costs 100 MiB of files: without it, Apache 5.5.0 cannot delete a topic.
        properties = {**_broker_properties(namesrv, port, name, home / "store"), **(settings or {})}
        conf = _write_properties(home / "broker.conf", properties)
        options = [f"-D{name}={value}" for name, value in tls_settings(certificate).items()]
        return apache.command(BROKER_MAIN_CLASS, "-c", conf, home=home, options=options)

    server, address = _started("Apache's broker", home, command, port)
    try:
        yield address
        if in_order:
            server.stop(JVM_TERMINATED)
    finally:
        server.kill()


@contextmanager
def pymq_name_server(
    home: Path, certificate: Certificate | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """`python -m pymq.namesrv`; gives its address. Stopped in order at the end of the block."""

    def command(port: int) -> list[str]:
        properties = {"listenPort": str(port), "bindAddress": "127.0.0.1", **tls_settings(certificate)}
        conf = _write_properties(home / "namesrv.conf", {**properties, **(settings or {})})
        return [sys.executable, "-m", "pymq.namesrv", "-c", conf]

    server, address = _start("pymq's name server", home, command)
    try:
        yield address
        server.stop()
    finally:
        server.kill()


@contextmanager
def pymq_broker(
    home: Path,
    namesrv: str,
    *,
    name: str,
    certificate: Certificate | None = None,
    settings: Mapping[str, str] | None = None,
    port: int | None = None,
) -> Iterator[str]:
    """`python -m pymq.broker`, registered with *namesrv*; gives its address. Stopped in order at the end.

    With the home and the *port* of one that was stopped, it is that broker again.
    """

    def command(port: int) -> list[str]:
        properties = {**_broker_properties(namesrv, port, name, home / "store"), **tls_settings(certificate)}
        properties |= settings or {}
        conf = _write_properties(home / "broker.conf", properties)
        return [sys.executable, "-m", "pymq.broker", "-c", conf, "-n", namesrv]

    server, address = _started("pymq's broker", home, command, port)
    try:
        yield address
        server.stop()
    finally:
        server.kill()


@contextmanager
def running_cluster(target: str, apache: Toolchain, home: Path, certificate: Certificate) -> Iterator[Cluster]:
    """One name server and one broker of *target*, both of which also speak TLS."""
    name = "interop-broker"
    with ExitStack() as running:
        if target == "pymq":
            namesrv = running.enter_context(pymq_name_server(home / "namesrv", certificate))
            broker = running.enter_context(pymq_broker(home / "broker", namesrv, name=name, certificate=certificate))
        elif target == "apache":
            namesrv = running.enter_context(apache_name_server(apache, home / "namesrv", certificate))
            broker = running.enter_context(
                apache_broker(apache, home / "broker", namesrv, name=name, certificate=certificate)
            )
            # Apache's broker says it is up, and is registered ten seconds later when the name server was slow to start.
            raw.await_route(namesrv, TOPIC_TO_CREATE_FROM)
        else:
            raise ValueError(f"PYMQ_INTEROP_TARGET is {target!r}: pymq or apache")
        yield Cluster(target, namesrv, broker, name, CLUSTER_NAME)
