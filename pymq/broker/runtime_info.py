"""GET_BROKER_RUNTIME_INFO: the table tools print, and how requests were served, code by code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from pymq._core._serve import REASONS
from pymq.errors import StoreError

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

VERSION = "V5_5_0"  # whose protocol is spoken; clients and tools look at it
INT32_MAX = 2**31 - 1
UNKNOWN = "unknown"


def store_info(broker: Broker) -> dict[str, str]:
    """What the store says. Asks the disk."""
    stats = broker.message_store.stats()
    table = stats.runtime_info()
    found, missed = stats.rates.get_found, stats.rates.get_missed
    table["getTotalTps"] = " ".join(f"{one + other:.2f}" for one, other in zip(found, missed, strict=True))
    for key in ("commitLogDiskRatio", "consumeQueueDiskRatio"):
        # Tools read these as numbers.
        table[key] = "-1.0" if table[key] == UNKNOWN else table[key]
    table[f"commitLogDiskRatio_{broker.store_path / 'commitlog'}"] = table["commitLogDiskRatio"]
    if table["remainTransientStoreBufferNumbs"] == UNKNOWN:
        table["remainTransientStoreBufferNumbs"] = str(INT32_MAX)
    for key in ("remainHowManyDataToFlush", "remainHowManyDataToCommit"):
        table[key] = human_bytes(int(table[key]))
    usage = psutil.disk_usage(str(broker.store_path))
    table["commitLogDirCapacity"] = f"Total : {human_bytes(usage.total)}, Free : {human_bytes(usage.free)}."
    table["earliestMessageTimeStamp"] = str(earliest_time(broker))
    return table


def earliest_time(broker: Broker) -> int:
    """When the oldest message in the log was stored, -1 when there is none."""
    try:
        record = broker.store.read_record(int(broker.store.watermarks()["min"]))
    except StoreError:
        return -1
    return record.store_timestamp_ms


def broker_info(broker: Broker) -> dict[str, str]:
    """What the broker itself says."""
    config = broker.config
    today = broker.daily
    stats = broker.serve.stats()
    table = {
        "brokerActive": "true",
        "brokerVersionDesc": VERSION,
        "bootTimestamp": str(broker.message_store.opened_at_ms),
        "startAcceptSendRequestTimeStamp": str(config.start_accept_send_request_time_stamp),
        "msgPutTotalYesterdayMorning": str(today.put_yesterday),
        "msgPutTotalTodayMorning": str(today.put_morning),
        "msgPutTotalTodayNow": str(stats["sent_messages"]),
        "msgGetTotalYesterdayMorning": str(today.get_yesterday),
        "msgGetTotalTodayMorning": str(today.get_morning),
        "msgGetTotalTodayNow": str(stats["pulled_messages"]),
        "getMessageEntireTimeMax": "0",
        "dispatchMaxBuffer": "0",
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": "100000",
    }
    capacities = {
        "send": config.send_thread_pool_queue_capacity,
        "pull": config.pull_thread_pool_queue_capacity,
        "litePull": config.pull_thread_pool_queue_capacity,
        "query": config.admin_broker_thread_pool_queue_capacity,
        "ack": 100_000,
    }
    for name, capacity in capacities.items():
        table[f"{name}ThreadPoolQueueSize"] = "0"
        table[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
        table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    for name in ("timerReadBehind", "timerOffsetBehind", "timerCongestNum"):
        table[name] = "0"
    for name in ("timerEnqueueTps", "timerDequeueTps"):
        table[name] = "0.0"
    if broker.timer is not None:
        table |= broker.timer.runtime_info()
    table["pymq.loop_late_count"] = str(broker.server.loop_late_count)
    table["pymq.loop_late_ms_max"] = str(broker.server.loop_late_ms_max)
    table["pymq.order_locks"] = str(sum(1 for _ in broker.order_locks.held()))
    table |= broker.dumps.runtime_info()
    table |= inconsistencies(broker)
    table |= {f"pymq.{name}": str(value) for name, value in sorted(stats.items())}
    return table | broker.schedule.runtime_info() | broker.transactions.info() | served_info(broker)


def inconsistencies(broker: Broker) -> dict[str, str]:
    """How many groups have members that do not agree, and for each of them what about."""
    found: dict[str, list[str]] = {}
    for group, finding in broker.clients.consistency.all_findings():
        found.setdefault(group, []).append(f"{finding.kind}: {finding}")
    table = {f"pymq.group_inconsistency.{group}": "; ".join(texts) for group, texts in found.items()}
    return {"pymq.groups_inconsistent": str(len(found))} | table


def served_info(broker: Broker) -> dict[str, str]:
    """`pymq.served.<code>.native` and `pymq.served.<code>.python.<reason>`: how many went which way, and why."""
    table: dict[str, str] = {}
    for code, reason, count in broker.server.transport.code_counts():
        way = "native" if reason < 0 else f"python.{REASONS[reason] if reason < len(REASONS) else reason}"
        table[f"pymq.served.{code}.{way}"] = str(count)
    return table


def human_bytes(count: int) -> str:
    """MixAll.humanReadableByteCount: 415 B, 1.5 KiB, 252.0 GiB."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in "KMGTPE":
        value /= 1024
        if value < 1024 or unit == "E":
            return f"{value:.1f} {unit}iB"
    return f"{count} B"
