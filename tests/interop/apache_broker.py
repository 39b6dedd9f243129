"""A real Apache RocketMQ broker process, started as `mqbroker -c broker.conf` starts it, on loopback only.

The store tests need it for one thing, the store's lock; whoever needs a broker to talk to gets its address here too.
It runs without a name server unless given one: it then registers nowhere and serves whoever knows its port.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.interop.apache_toolchain import Toolchain

BROKER_MAIN_CLASS = "org.apache.rocketmq.broker.BrokerStartup"
EXIT_WAIT_SECONDS = 120
PORTS = (15_000, 32_000)  # a range of Linux's that is nobody's


class BrokerStartError(Exception):
    """The broker ended instead of coming up. `output` is all it printed."""

    def __init__(self, status: int, output: str) -> None:
        super().__init__(f"broker ended with status {status}: {output[-2000:]}")
        self.status = status
        self.output = output


class ApacheBroker:
    """A broker that has said "boot success"."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process = process
        self.address = f"127.0.0.1:{port}"

    def stop(self) -> None:
        """SIGTERM, the clean stop; takes about ten seconds, most of them sleeps inside the broker."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(EXIT_WAIT_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()


@contextmanager
def running_broker(toolchain: Toolchain, directory: Path, settings: Mapping[str, str]) -> Iterator[ApacheBroker]:
    """A broker over the store in *directory*; killed at the end of the block unless it was stopped in it.

    Raises:
        BrokerStartError: it ended before it was up, by itself or because the store refused.
    """
    home = directory.with_name(f"{directory.name}-broker-home")
    home.mkdir(parents=True, exist_ok=True)
    port = free_ports()
    configuration = {
        "brokerName": "interop",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port),
        # The timer's wheel and log are 100 MiB files of no interest here.
        "timerWheelEnable": "false",
        "storePathRootDir": str(directory),
        **settings,
    }
    configuration_path = home / "broker.conf"
    configuration_path.write_text("".join(f"{name}={value}\n" for name, value in configuration.items()))
    process = subprocess.Popen(
        toolchain.command(BROKER_MAIN_CLASS, "-c", str(configuration_path), home=home),
        env={**os.environ, "ROCKETMQ_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        _await_boot(process)
        yield ApacheBroker(process, port)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def _await_boot(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    printed: list[str] = []
    for line in process.stdout:
        if "boot success" in line:
            return
        # The logging library reports on its own configuration, at length.
        if "|-INFO" not in line:
            printed.append(line)
    raise BrokerStartError(process.wait(EXIT_WAIT_SECONDS), "".join(printed))


def free_ports() -> int:
    """A port whose neighbours are free too: the broker also takes port - 2 (fast remoting) and port + 1 (HA).

    Below those the kernel gives to the clients' ends: a virtual machine takes seconds to listen, and tests that run
    meanwhile open thousands of connections.
    """
    while True:
        port = random.randrange(*PORTS)
        if all(is_free(candidate) for candidate in (port - 2, port, port + 1)):
            return port


def is_free(port: int) -> bool:
    """Whether a server could listen there: on every address, as the broker's HA does, hence no client's end may be."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
