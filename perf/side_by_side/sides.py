"""The two sides of the comparison: how each is configured and started.

Both get the same settings where they mean the same thing; what differs is said here, once, with its reason.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from perf.side_by_side.process import Server, free_port, spawn, write_properties
from tests.interop.apache_toolchain import Toolchain

NAMESRV_MAIN_CLASS = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER_MAIN_CLASS = "org.apache.rocketmq.broker.BrokerStartup"
BROKER_NAME = "broker-a"
NOTHING_MORE: Mapping[str, str] = MappingProxyType({})

# As RocketMQ's own runbroker.sh, with 2 GiB for its 8 and without touching the whole heap beforehand: with that switch
# the idle broker would hold 2 GiB of anonymous memory, which would flatter us.
APACHE_JVM_FLAGS = (
    "-server", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow",
    "-XX:MaxDirectMemorySize=1g", "-XX:-UseLargePages", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true",
)  # fmt: skip
APACHE_NAMESRV_JVM_FLAGS = ("-Xms128m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData")


@dataclass
class RunningBroker:
    """A broker that has acknowledged a message, with its name server."""

    side: str
    address: str
    broker: Server
    name_server: Server
    store: Path
    start_s: float

    def stop(self, *, clean: bool = False) -> None:
        """End both processes; *clean* lets the broker close its store."""
        self.broker.stop(clean=clean)
        self.name_server.stop()


class Side(Protocol):
    """One of the two."""

    name: str

    def start(self, home: Path, *, flush_disk_type: str, more: Mapping[str, str] = NOTHING_MORE) -> RunningBroker:
        """Start a name server and a broker over the store in *home*, which may be there from an earlier start."""
        ...


def broker_settings(home: Path, port: int, name_server_port: int, flush_disk_type: str) -> dict[str, str]:
    """What both brokers are told."""
    return {
        "brokerClusterName": "DefaultCluster",
        "brokerName": BROKER_NAME,
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(port),
        "namesrvAddr": f"127.0.0.1:{name_server_port}",
        "storePathRootDir": str(home / "store"),
        "flushDiskType": flush_disk_type,
        "autoCreateTopicEnable": "true",
        "messageIndexEnable": "true",
    }


@dataclass
class ApacheSide:
    """Apache RocketMQ 5.5.0 from Maven Central, its own main classes."""

    toolchain: Toolchain
    name: str = "apache"

    def start(self, home: Path, *, flush_disk_type: str, more: Mapping[str, str] = NOTHING_MORE) -> RunningBroker:
        """See `Side.start`."""
        port, name_server_port = free_port(), free_port()
        name_server_conf = write_properties(home / "namesrv.conf", {"listenPort": str(name_server_port)})
        name_server = self._spawn(
            "apache-namesrv", home, NAMESRV_MAIN_CLASS, name_server_conf, APACHE_NAMESRV_JVM_FLAGS
        )
        try:
            name_server.await_line("boot success")
            settings = {
                **broker_settings(home, port, name_server_port, flush_disk_type),
                **more,
                # No part of what is measured, and 100 MiB of files and a thread that ticks less for Apache.
                "timerWheelEnable": "false",
            }
            broker_conf = write_properties(home / "broker.conf", settings)
            broker = self._spawn("apache-broker", home, BROKER_MAIN_CLASS, broker_conf, APACHE_JVM_FLAGS)
        except BaseException:
            name_server.stop()
            raise
        return _await(self.name, f"127.0.0.1:{port}", broker, name_server, home / "store")

    def _spawn(self, name: str, home: Path, main_class: str, conf: Path, flags: tuple[str, ...]) -> Server:
        command = [
            self.toolchain.java, *flags, f"-Duser.home={home}", f"-Djava.io.tmpdir={home}",
            "-cp", self.toolchain.class_path, main_class, "-c", str(conf),
        ]  # fmt: skip
        return spawn(name, command, home / f"{name}.out", {"ROCKETMQ_HOME": str(home)})


@dataclass
class PymqSide:
    """pymq of this tree, as `python -m` starts it."""

    name: str = "pymq"

    def start(self, home: Path, *, flush_disk_type: str, more: Mapping[str, str] = NOTHING_MORE) -> RunningBroker:
        """See `Side.start`."""
        port, name_server_port = free_port(), free_port()
        name_server_conf = write_properties(home / "namesrv.conf", {"listenPort": str(name_server_port)})
        name_server = spawn(
            "pymq-namesrv",
            [sys.executable, "-m", "pymq.namesrv", "-c", str(name_server_conf)],
            home / "pymq-namesrv.out",
        )
        try:
            name_server.await_line("boot success")
            settings = broker_settings(home, port, name_server_port, flush_disk_type) | dict(more)
            broker_conf = write_properties(home / "broker.conf", settings)
            broker = spawn(
                "pymq-broker",
                [sys.executable, "-m", "pymq.broker", "-c", str(broker_conf), "-n", settings["namesrvAddr"]],
                home / "pymq-broker.out",
            )
        except BaseException:
            name_server.stop()
            raise
        return _await(self.name, f"127.0.0.1:{port}", broker, name_server, home / "store")


def _await(side: str, address: str, broker: Server, name_server: Server, store: Path) -> RunningBroker:
    try:
        start_s = broker.await_serving(address)
    except BaseException:
        print(broker.tail(), file=sys.stderr)
        broker.stop()
        name_server.stop()
        raise
    return RunningBroker(side, address, broker, name_server, store, start_s)
