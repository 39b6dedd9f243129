"""Settings of the remoting layer: transport, server, client, TLS.

`TransportConfig` has one attribute per field of `struct pymq_transport_config` (csrc/include/pymq/transport.h), by the
same name; the binding copies them over. The other three say what RocketMQ's NettyServerConfig, NettyClientConfig and
`tls.*` properties say, by RocketMQ's names in `alias`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from pymq.errors import ConfigError
from pymq.store.settings import check_settings, setting

KIB = 1024
MIB = 1024 * KIB
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
REACTORS_MAX = 16
PORT_MAX = 65535
SEMAPHORE_MAX = 65535


class Lane(IntEnum):
    """The queues between reactors and the control loop, each bounded by itself; `enum pymq_lane`."""

    CLIENT = 0
    SEND = 1
    PULL = 2
    ADMIN = 3
    REPLY = 4
    EVENT = 5


# Requests waiting in a lane. Apache's capacities, where it has one for the lane: sendThreadPoolQueueCapacity 10000,
# pullThreadPoolQueueCapacity 100000, heartbeatThreadPoolQueueCapacity 50000, adminBrokerThreadPoolQueueCapacity 10000.
# Differs: clientManagerThreadPoolQueueCapacity is 1,000,000 there and shares the CLIENT lane's 50,000 here, because a
# million waiting frames is an exhausted heap and not a queue; a heartbeat comes again in 30 s.
LANE_COUNTS_MAX = (50_000, 10_000, 100_000, 10_000, 65_536, INT32_MAX)

# Bytes of waiting requests: a lane full of large messages ends here, not in the kernel's out-of-memory killer. Replies
# are what we asked for ourselves, and as many as the semaphores let us ask.
LANE_BYTES_MAX = (32 * MIB, 64 * MIB, 32 * MIB, 64 * MIB, 256 * MIB, INT64_MAX)

# Fast failure: waitTimeMillsInHeartbeatQueue, …SendQueue, …PullQueue, …AdminBrokerQueue. Replies and events stay.
LANE_WAITS_MS = (31_000, 200, 5_000, 5_000, 0, 0)


@dataclass(frozen=True, kw_only=True)
class TransportConfig:
    """What the native transport is given; names and meaning as in `struct pymq_transport_config`."""

    reactors: int = setting(
        0,
        "Threads that serve connections; 0 lets the transport choose by the number of processors. "
        "More threads serve more clients at once and take processors from flushing and dispatching.",
        alias="serverSelectorThreads",
        unit="threads",
        low=0,
        high=REACTORS_MAX,
    )
    connections_max: int = setting(
        0,
        "Connections served at once; 0 takes what RLIMIT_NOFILE leaves. One more is accepted and closed at once.",
        unit="connections",
        low=0,
        high=INT32_MAX,
    )
    frame_size_max: int = setting(
        16 * MIB,
        "Largest frame read. A frame that announces more ends its connection before memory is given to it.",
        alias="com.rocketmq.remoting.frameMaxLength",
        unit="bytes",
        low=KIB,
        high=INT32_MAX,
    )
    idle_timeout_ms: int = setting(
        120_000,
        "A connection with no byte in either direction for so long is closed; 0 never closes one. "
        "Clients beat every 30 s, so a shorter time than that closes healthy ones.",
        alias="serverChannelMaxIdleTimeSeconds",
        unit="ms",
        low=0,
        high=INT32_MAX,
    )
    output_size_max: int = setting(
        64 * MIB,
        "Bytes waiting for one peer that does not read, before it is closed. It bounds what a slow reader costs.",
        unit="bytes",
        low=64 * KIB,
        high=INT64_MAX,
    )
    output_size_pause: int = setting(
        MIB,
        "Bytes waiting for one peer before no more requests are read from it. Smaller values slow pipelining readers.",
        alias="writeBufferHighWaterMark",
        unit="bytes",
        low=KIB,
        high=INT64_MAX,
    )
    pinned_timeout_ms: int = setting(
        10_000,
        "How long a peer may hold pieces of the log in memory by reading slowly; then they are copied for it, "
        "and one that has read nothing at all is closed.",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    lane_count_max: tuple[int, ...] = LANE_COUNTS_MAX
    lane_bytes_max: tuple[int, ...] = LANE_BYTES_MAX
    lane_wait_ms: tuple[int, ...] = LANE_WAITS_MS
    turn_bytes_max: int = setting(
        256 * KIB,
        "Read from one connection before the others get their turn. Larger values favour busy connections.",
        unit="bytes",
        low=KIB,
        high=INT32_MAX,
    )

    def __post_init__(self) -> None:
        """Hold every value against its bounds."""
        check_settings(self)
        for name in ("lane_count_max", "lane_bytes_max", "lane_wait_ms"):
            values: tuple[int, ...] = getattr(self, name)
            if len(values) != len(Lane):
                raise ConfigError(f"{name} has {len(values)} values; it takes one for each of {len(Lane)} lanes")
            if min(values) < 0:
                raise ConfigError(f"{name} is {values}; none of its values can be negative")
        if self.output_size_pause > self.output_size_max:
            raise ConfigError(
                f"output_size_pause is {self.output_size_pause}; "
                f"it must be at most output_size_max, {self.output_size_max}"
            )


class TlsMode(IntEnum):
    """`tls.server.mode`; `enum pymq_tls_mode`."""

    DISABLED = 0
    PERMISSIVE = 1
    ENFORCING = 2


@dataclass(frozen=True, kw_only=True)
class TlsConfig:
    """RocketMQ's `tls.*` properties; see pymq.remoting.tls for what they do and for reading `tls.properties`."""

    server_mode: TlsMode = TlsMode.PERMISSIVE
    client_enable: bool = False
    test_mode_enable: bool = True
    config_file: Path | None = Path("/etc/rocketmq/tls.properties")
    server_need_client_auth: str = "none"
    server_cert_path: Path | None = None
    server_key_path: Path | None = None
    server_key_password: str | None = field(default=None, repr=False)
    server_auth_client: bool = False
    server_trust_cert_path: Path | None = None
    client_cert_path: Path | None = None
    client_key_path: Path | None = None
    client_key_password: str | None = field(default=None, repr=False)
    client_auth_server: bool = False
    client_trust_cert_path: Path | None = None
    ciphers: str | None = None
    protocols: str | None = None
    handshake_timeout_s: float = 10.0
    handshakes_max: int = 256
    watch_interval_s: float = 0.5


@dataclass(frozen=True, kw_only=True)
class RemotingServerConfig:
    """A server: where it listens and how it works; RocketMQ's NettyServerConfig."""

    addresses: tuple[tuple[str, int], ...] = (("0.0.0.0", 0),)  # noqa: S104 - Apache's default; the broker without arguments gives loopback
    transport: TransportConfig = field(default_factory=TransportConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    async_semaphore_value: int = setting(
        64,
        "Requests this server may have asked of its clients and not been answered. "
        "More of them wait for a place within their own time-out.",
        alias="serverAsyncSemaphoreValue",
        unit="requests",
        low=1,
        high=SEMAPHORE_MAX,
    )
    loop_late_ms: int = setting(
        1_000,
        "A control loop later than this is logged and counted. Shorter times report smaller hiccups.",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )

    def __post_init__(self) -> None:
        """Hold every value against its bounds."""
        check_settings(self)
        if not self.addresses:
            raise ConfigError("addresses is empty; a server listens on at least one (host, port)")
        for host, port in self.addresses:
            if not host or not 0 <= port <= PORT_MAX:
                raise ConfigError(f"addresses has ({host!r}, {port}); a port lies between 0 and {PORT_MAX}")


@dataclass(frozen=True, kw_only=True)
class RemotingClientConfig:
    """A client: limits and times; RocketMQ's NettyClientConfig."""

    transport: TransportConfig = field(default_factory=lambda: TransportConfig(reactors=1, idle_timeout_ms=0))
    tls: TlsConfig = field(default_factory=lambda: TlsConfig(server_mode=TlsMode.DISABLED))
    async_semaphore_value: int = setting(
        SEMAPHORE_MAX,
        "Requests sent and not yet answered. Fewer bound memory; more than this wait within their time-out.",
        alias="clientAsyncSemaphoreValue",
        unit="requests",
        low=1,
        high=SEMAPHORE_MAX,
    )
    oneway_semaphore_value: int = setting(
        SEMAPHORE_MAX,
        "Oneway requests being handed to the transport. Fewer bound memory; more than this wait within their time-out.",
        alias="clientOnewaySemaphoreValue",
        unit="requests",
        low=1,
        high=SEMAPHORE_MAX,
    )
    connect_timeout_ms: int = setting(
        3_000,
        "How long making a connection may take, within the time-out of the call that needs it.",
        alias="connectTimeoutMillis",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    close_socket_if_timeout: bool = setting(
        True,
        "Whether a connection is closed when an answer on it did not come in time. "
        "Otherwise a peer that hangs is asked again and again.",
        alias="clientCloseSocketIfTimeout",
    )

    def __post_init__(self) -> None:
        """Hold every value against its bounds."""
        check_settings(self)
