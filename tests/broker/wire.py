"""A blocking client of one connection, for tests that speak to a broker in another thread or process."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from pymq.remoting.command import FLAG_ONEWAY, Command

ROOT = Path(__file__).resolve().parents[2]
READY = "boot success"


class Wire:
    """Sends commands and waits for answers by opaque; what the server asks is kept in `pushed`."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = 20.0) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._opaque = 0
        self.pushed: list[Command] = []

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """End the connection."""
        self._socket.close()

    def set_timeout(self, timeout_s: float) -> None:
        """How long to wait for a frame."""
        self._socket.settimeout(timeout_s)

    def post(self, command: Command) -> int:
        """Send without waiting; its number."""
        self._opaque += 1
        command.opaque = self._opaque
        self._socket.sendall(command.encode())
        return command.opaque

    def oneway(self, command: Command) -> None:
        """Send what nobody answers."""
        command.flag |= FLAG_ONEWAY
        self.post(command)

    def call(self, code: int, fields: dict | None = None, body: bytes = b"") -> Command:
        """Ask and wait."""
        return self.wait(self.post(Command(int(code), dict(fields or {}), body)))

    def wait(self, opaque: int) -> Command:
        """The answer to *opaque*."""
        while True:
            command = self.receive()
            if command.is_response and command.opaque == opaque:
                return command
            self.pushed.append(command)

    def receive(self) -> Command:
        """The next frame."""
        size = self._exactly(4)
        return Command.decode(size + self._exactly(struct.unpack(">I", size)[0]))

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise EOFError(f"connection closed after {len(data)} of {count} bytes")
            data += piece
        return data


def send_fields(topic: str, queue_id: int = 0, properties: str = "", **more: str) -> dict[str, str]:
    """Fields of SEND_MESSAGE_V2."""
    return {
        "a": "producers", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0",
        "g": str(int(time.time() * 1000)), "h": "0", "i": properties, "j": "0", "k": "false", "m": "false",
        **more,
    }  # fmt: skip


class BrokerProcess:
    """`python -m pymq.broker` in a process of its own, its store in *directory*, kernel-chosen ports."""

    def __init__(self, directory: Path, *arguments: str, environment: dict | None = None) -> None:
        self.log = (directory / "broker.err").open("wb")
        command = [sys.executable, "-m", "pymq.broker", "--storePathRootDir", str(directory / "store")]
        command += ["--listenPort", "0", "--namesrvListenPort", "0", "--mappedFileSizeCommitLog", str(1 << 20)]
        env = {name: value for name, value in os.environ.items() if name not in ("NAMESRV_ADDR", "ROCKETMQ_HOME")}
        self.process = subprocess.Popen(
            [*command, *arguments], cwd=ROOT, env=env | (environment or {}), stdout=subprocess.PIPE, stderr=self.log
        )
        self.port = 0
        self.namesrv_port = 0

    def wait_ready(self, timeout_s: float = 60.0) -> BrokerProcess:
        """Until the ready line is there."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            end_s = time.monotonic() + timeout_s
            text = ""
            while READY not in text or not text.endswith("\n"):
                assert selector.select(max(0.0, end_s - time.monotonic())), f"no ready line in time: {text!r}"
                piece = os.read(self.process.stdout.fileno(), 4096).decode()
                assert piece, f"the broker ended: {text!r}"
                text += piece
        line = next(line for line in text.splitlines() if READY in line)
        self.port = int(line.split("]")[0].rpartition(":")[2])
        self.namesrv_port = int(line.rpartition(":")[2])
        return self

    def stop(self, number: int = 15, timeout_s: float = 30.0) -> int:
        """Signal it and wait; the exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        code = self.process.wait(timeout_s)
        self.process.stdout.close()
        self.log.close()
        return code

    def __enter__(self):
        return self.wait_ready()

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.stop(9)
