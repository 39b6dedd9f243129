"""The broker's settings as the native layers want them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import psutil

from pymq._core._serve import Serve, ServeConfig
from pymq.broker.config import ASKED_POLICY, NATIVE, BrokerConfig
from pymq.broker.processors.send_checks import SLAVE
from pymq.remoting.config import (
    LANE_BYTES_MAX,
    LANE_COUNTS_MAX,
    RemotingClientConfig,
    RemotingServerConfig,
    TlsMode,
    TransportConfig,
)
from pymq.remoting.tls_context import tls_config
from pymq.store.config import parse_delay_levels

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

TLS_ENABLE = "tls.enable"


def accepts_sends(config: BrokerConfig, now_ms: int) -> bool:
    """Whether the time from which sends are accepted has come."""
    return now_ms >= config.start_accept_send_request_time_stamp


def serve_config(config: BrokerConfig, now_ms: int) -> ServeConfig:
    """What serves requests natively."""
    address, _, port = config.store.store_host.rpartition(":")
    memory = psutil.virtual_memory().total
    return ServeConfig(
        native=config.data_plane == NATIVE and accepts_sends(config, now_ms),
        long_polling=config.long_polling_enable,
        short_polling_ms=config.short_polling_time_mills,
        send_timeout_ms=config.store.sync_flush_timeout_ms,
        transfer_bytes_memory=config.max_transfer_bytes_on_message_in_memory,
        transfer_count_memory=config.max_transfer_count_on_message_in_memory,
        transfer_bytes_disk=config.max_transfer_bytes_on_message_in_disk,
        transfer_count_disk=config.max_transfer_count_on_message_in_disk,
        memory_bytes_max=memory * config.access_message_in_memory_max_ratio // 100,
        message_size_max=config.max_message_size,
        delay_level_max=len(parse_delay_levels(config.store.message_delay_level)),
        transactions=not config.reject_transaction_message and config.broker_role != SLAVE,
        trace_on=config.trace_on,
        slave_read_enable=config.slave_read_enable,
        begin_as_asked=config.new_group_offset_policy == ASKED_POLICY,
        broker_permission=config.broker_permission,
        store_host=(address.strip("[]"), int(port)),
        cluster=config.broker_cluster_name,
        region=config.region_id,
        broker_ip=config.broker_ip1,
    )


def make_serve(broker: Broker) -> Serve:
    """The serving over the broker's store."""
    return Serve(serve_config(broker.config, broker.clock.now_ms()), broker.store)


def server_config(config: BrokerConfig, ports: tuple[int, ...]) -> RemotingServerConfig:
    """Connections, lanes and ports."""
    fast = config.broker_fast_failure_enable
    counts = (
        config.heartbeat_thread_pool_queue_capacity,
        config.send_thread_pool_queue_capacity,
        config.pull_thread_pool_queue_capacity,
        config.admin_broker_thread_pool_queue_capacity,
        *LANE_COUNTS_MAX[4:],
    )
    waits = (
        config.wait_time_mills_in_heartbeat_queue,
        config.wait_time_mills_in_send_queue,
        config.wait_time_mills_in_pull_queue,
        config.wait_time_mills_in_admin_broker_queue,
        0,
        0,
    )
    return RemotingServerConfig(
        addresses=tuple((config.bind_address, port) for port in ports),
        transport=TransportConfig(
            reactors=config.reactor_threads,
            idle_timeout_ms=config.server_channel_max_idle_time_seconds * 1000,
            lane_count_max=counts,
            lane_bytes_max=LANE_BYTES_MAX,
            lane_wait_ms=waits if fast else (0,) * len(waits),
        ),
        tls=tls_config(config.tls),
    )


def client_config(config: BrokerConfig) -> RemotingClientConfig:
    """Connections to name servers.

    # Compat: a server that enforces TLS speaks it as a client too, unless tls.enable says otherwise.
    """
    tls = tls_config(config.tls)
    if tls.server_mode is TlsMode.ENFORCING and TLS_ENABLE not in config.tls:
        tls = dataclasses.replace(tls, client_enable=True)
    return RemotingClientConfig(tls=tls)
