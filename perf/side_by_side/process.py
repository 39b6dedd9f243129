"""A broker as a process: started, waited for, watched through /proc, stopped by its own pid."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perf.side_by_side.wire import await_serving

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


class ProcessEndedError(Exception):
    """A server ended when it should have served; the message carries the end of its output."""


def free_port() -> int:
    """A listen port whose neighbours are free too: brokers also take port - 2 (VIP) and port + 1 (HA)."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if 2048 < port < 65000 and all(_is_free(candidate) for candidate in (port - 2, port, port + 1)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    """A configuration file as `mqbroker -c` reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return path


@dataclass
class Server:
    """One server process and the file its output goes to."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path
    spawned_at: float

    @property
    def pid(self) -> int:
        """The process whose CPU and memory are the server's."""
        return self.process.pid

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def stop(self, *, clean: bool = False) -> None:
        """End the process: SIGTERM and a wait when *clean*, otherwise SIGKILL."""
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM if clean else signal.SIGKILL)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def anonymous_mib(self) -> float:
        """Anonymous memory in MiB: heap, stacks and buffers, not mapped log files; descendants included."""
        return sum(_anonymous_kib(pid) for pid in _with_descendants(self.pid)) / 1024

    def read_bytes(self) -> int:
        """Bytes the process has made the disk read."""
        for line in Path(f"/proc/{self.pid}/io").read_text(encoding="ascii").splitlines():
            if line.startswith("read_bytes:"):
                return int(line.split()[1])
        return 0

    def await_line(self, text: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the server has printed *text*.

        Raises:
            ProcessEndedError: it ended, or said nothing of the kind in time.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if text in self.output.read_text(encoding="utf-8", errors="replace"):
                return
            if not self.is_alive():
                break
            time.sleep(0.02)
        raise ProcessEndedError(f"{self.name} did not say {text!r}:\n{self.tail()}")

    def await_serving(self, address: str) -> float:
        """Seconds from the spawn to the first acknowledged message."""
        await_serving(address, START_TIMEOUT_S, self.is_alive)
        return time.monotonic() - self.spawned_at

    def tail(self) -> str:
        """The end of what it printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")[-3000:]


def spawn(name: str, command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None) -> Server:
    """Start *command* with its output going to *output*."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as sink:
        spawned_at = time.monotonic()
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
    return Server(name=name, process=process, output=output, spawned_at=spawned_at)


def _with_descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it ended while we looked
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, pending = [], [pid]
    while pending:
        at = pending.pop()
        found.append(at)
        pending += children.get(at, [])
    return found


def _anonymous_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1])
    return 0
