"""The settings of native serving, as `pymq_serve_config` has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Settings of a `Serve`; names and meanings are those of csrc/include/pymq/serve.h.

    Attributes:
        native: serve natively what can be; False hands every request over (dataPlane=python).
        holds_max, holds_bytes_max: held pulls, and the bytes of their headers together; beyond, POLLING_FULL.
        parked_max: sends of one reactor that may wait for a flush or a replica; beyond, SYSTEM_BUSY.
        send_timeout_ms: how long they wait before FLUSH_DISK_TIMEOUT or FLUSH_SLAVE_TIMEOUT.
        memory_bytes_max: log bytes behind its end that count as in memory.
        hot_bytes: log bytes behind its end that are taken to be resident without asking.
        delay_level_max: levels of messageDelayLevel; 0 leaves delayed messages to Python.
        transactions: whether half messages are stored natively.
        begin_as_asked: leave it to Python where a group without an offset begins.
        store_host: brokerIP1 and the listen port, as they stand in records and message ids.
    """

    native: bool = True
    long_polling: bool = True
    short_polling_ms: int = 1000
    hold_check_ms: int = 5000
    holds_max: int = 100_000
    holds_bytes_max: int = 64 * 1024 * 1024
    parked_max: int = 100_000
    send_timeout_ms: int = 5000
    transfer_bytes_memory: int = 262_144
    transfer_count_memory: int = 32
    transfer_bytes_disk: int = 65_536
    transfer_count_disk: int = 8
    memory_bytes_max: int = 1 << 62
    hot_bytes: int = 4 * 1024 * 1024
    cold_read_threads: int = 2
    message_size_max: int = 4 * 1024 * 1024
    delay_level_max: int = 0
    transactions: bool = False
    trace_on: bool = True
    slave_read_enable: bool = False
    begin_as_asked: bool = False
    broker_permission: int = 6
    store_host: tuple[str, int] = ("127.0.0.1", 10911)
    cluster: str = "DefaultCluster"
    region: str = "DefaultRegion"
    broker_ip: str = "127.0.0.1"
