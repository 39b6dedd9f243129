"""The settings of one store: names, units, bounds, RocketMQ's names, and what each one costs.

`StoreConfig` is the manual: `docs/config.md` is generated from it. Sizes default to Apache RocketMQ's, durability to
the safe side: SYNC_FLUSH, where Apache's broker has ASYNC_FLUSH.

# Differs: flush_disk_type defaults to SYNC_FLUSH, because an embedded user has no replica to fall back on.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from pymq.errors import ConfigError
from pymq.store.settings import check_settings, setting

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
CQ_UNIT_SIZE = 20
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
DELAY_LEVELS_MAX = 64

SYNC_FLUSH = "SYNC_FLUSH"
ASYNC_FLUSH = "ASYNC_FLUSH"
ASYNC_MASTER = "ASYNC_MASTER"
SYNC_MASTER = "SYNC_MASTER"

DELAY_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """Everything a store needs to know, given once when it is opened.

    Raises:
        ConfigError: a value outside its bounds, or thresholds in the wrong order.

    Example:
        >>> StoreConfig(flush_disk_type="ASYNC_FLUSH").sync_flush_timeout_ms
        5000
    """

    # ---- files ---------------------------------------------------------------------------------------------------
    mapped_file_size_commit_log: int = setting(
        GIB,
        "Size of one commit-log file; files are allocated whole when they are made. "
        "Smaller files free space sooner and roll more often; a store is opened with the size it was made with.",
        alias="mappedFileSizeCommitLog",
        unit="bytes",
        low=KIB,
        high=INT32_MAX,
    )
    mapped_file_size_consume_queue: int = setting(
        300_000 * CQ_UNIT_SIZE,
        "Size of one consume-queue file, a multiple of the 20-byte unit. "
        "Smaller files suit many small queues; a store can only be opened with the size it was made with.",
        alias="mappedFileSizeConsumeQueue",
        unit="bytes",
        low=CQ_UNIT_SIZE,
        high=INT32_MAX,
    )
    max_hash_slot_num: int = setting(
        5_000_000,
        "Hash slots of one index file. Fewer slots make smaller files and longer chains, so look-ups by key read more.",
        alias="maxHashSlotNum",
        unit="slots",
        low=1,
        high=500_000_000,
    )
    max_index_num: int = setting(
        20_000_000,
        "Keys one index file holds before the next is begun. "
        "Smaller files are cheaper to make and expire sooner; a query walks more of them.",
        alias="maxIndexNum",
        unit="keys",
        low=2,
        high=100_000_000,
    )
    message_index_enable: bool = setting(
        True,
        "Whether messages can be found by key. Without it sends cost less disk, and query() is refused.",
        alias="messageIndexEnable",
    )
    max_message_size: int = setting(
        4 * MIB,
        "Largest body accepted. Larger messages make every reader's buffers larger and must fit in one log file.",
        alias="maxMessageSize",
        unit="bytes",
        low=1,
        high=INT32_MAX // 2,
    )

    # ---- durability ----------------------------------------------------------------------------------------------
    flush_disk_type: str = setting(
        SYNC_FLUSH,
        "When a send is acknowledged: SYNC_FLUSH once it is on stable storage, ASYNC_FLUSH once it is in memory. "
        "ASYNC_FLUSH is many times faster and loses the last flush interval when the machine stops.",
        alias="flushDiskType",
        choices=(SYNC_FLUSH, ASYNC_FLUSH),
    )
    broker_role: str = setting(
        ASYNC_MASTER,
        "SYNC_MASTER makes acknowledgement and visibility wait for a replica too. "
        "Leave ASYNC_MASTER while nobody replicates this store: nothing would ever be acknowledged.",
        alias="brokerRole",
        choices=(ASYNC_MASTER, SYNC_MASTER),
    )
    sync_flush_timeout_ms: int = setting(
        5000,
        "How long a send waits for its flush before FlushTimeoutError. "
        "A shorter wait reports slow disks sooner; the message may become durable after all.",
        alias="syncFlushTimeout",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    flush_interval_commit_log_ms: int = setting(
        500,
        "How often ASYNC_FLUSH writes the log to disk. "
        "It is also what a power failure can take; shorter means more fsyncs.",
        alias="flushIntervalCommitLog",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    flush_commit_log_least_pages: int = setting(
        4,
        "Dirty pages below which an ASYNC_FLUSH round is left out. "
        "More pages mean fewer, larger writes, bounded by the thorough interval.",
        alias="flushCommitLogLeastPages",
        unit="pages of 4 KiB",
        low=0,
        high=INT32_MAX,
    )
    flush_commit_log_thorough_interval_ms: int = setting(
        10_000,
        "After this long even a single dirty page is flushed. "
        "It bounds what flush_commit_log_least_pages may hold back.",
        alias="flushCommitLogThoroughInterval",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    commit_interval_commit_log_ms: int = setting(
        200,
        "How often the transient pool is copied into the log files. "
        "With ASYNC_FLUSH it is what a kill of this process can take.",
        alias="commitIntervalCommitLog",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    commit_commit_log_least_pages: int = setting(
        4,
        "Dirty pool pages below which a commit round is left out. "
        "More pages mean fewer, larger copies, bounded by the thorough interval.",
        alias="commitCommitLogLeastPages",
        unit="pages of 4 KiB",
        low=0,
        high=INT32_MAX,
    )
    commit_commit_log_thorough_interval_ms: int = setting(
        200,
        "After this long even a single dirty pool page is committed. "
        "Readers see pooled messages only once they are committed, so this is also their delay.",
        alias="commitCommitLogThoroughInterval",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    flush_interval_consume_queue_ms: int = setting(
        1000,
        "How often consume queues are flushed. "
        "They can be rebuilt from the log, so this bounds recovery time, not loss.",
        alias="flushIntervalConsumeQueue",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    flush_consume_queue_least_pages: int = setting(
        2,
        "Dirty pages below which a queue is left for a later round. "
        "More pages mean fewer writes and a longer rebuild after a kill.",
        alias="flushConsumeQueueLeastPages",
        unit="pages of 4 KiB",
        low=0,
        high=INT32_MAX,
    )
    flush_consume_queue_thorough_interval_ms: int = setting(
        60_000,
        "After this long every dirty queue is flushed and the checkpoint written. "
        "It bounds how much log a recovery reads again.",
        alias="flushConsumeQueueThoroughInterval",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    queue_flush_slice: int = setting(
        256,
        "Queues flushed before the flusher looks up again. "
        "A larger slice finishes rounds sooner and answers stop requests later.",
        unit="queues",
        low=1,
        high=INT32_MAX,
    )
    checkpoint_bytes_max: int = setting(
        256 * MIB,
        "A checkpoint is written at the latest after this much log. "
        "It bounds recovery by bytes; smaller means more small writes.",
        unit="bytes",
        low=MIB,
        high=INT64_MAX,
    )
    check_crc_on_recover: bool = setting(
        True,
        "Whether recovery verifies body CRCs. Without it recovery is faster and a torn body may pass until it is read.",
        alias="checkCRCOnRecover",
    )
    enabled_append_prop_crc: bool = setting(
        False,
        "Whether every record gets a CRC over all of it, as a last property of 20 bytes. With it recovery finds a torn "
        "record at every byte; without it wrong properties may pass behind a right body, when other bytes than zeros "
        "lie behind the tear. Properties may then take 20 bytes less.",
        alias="enabledAppendPropCRC",
    )
    force_verify_prop_crc: bool = setting(
        False,
        "Whether recovery demands that CRC of every record it reads, whoever wrote it. A store with a record that has "
        "none is refused, where Apache cuts its log.",
        alias="forceVerifyPropCRC",
    )

    truncate_damaged: bool = setting(
        False,
        "Cut a log that is damaged below its durable end at the damage, instead of refusing to open it. "
        "Everything behind the damage is lost; without it the open fails and nothing is touched.",
    )

    # ---- memory --------------------------------------------------------------------------------------------------
    transient_store_pool_enable: bool = setting(
        False,
        "Write first to locked memory and copy to the files later, which keeps page-cache stalls out of sends. "
        "With ASYNC_FLUSH a kill of this process may lose what only the pool held.",
        alias="transientStorePoolEnable",
    )
    transient_store_pool_size: int = setting(
        5,
        "Buffers in the pool, each as large as one log file. "
        "Every one is locked memory; with too few, sends are refused while all are waiting to be committed.",
        alias="transientStorePoolSize",
        unit="buffers",
        low=2,
        high=63,
    )
    transient_store_pool_wait_ms: int = setting(
        200,
        "How long a send waits for a free pool buffer before PoolExhaustedError. "
        "Longer hides bursts, shorter tells the sender sooner.",
        unit="ms",
        low=0,
        high=INT32_MAX,
    )
    warm_mapped_file_enable: bool = setting(
        False,
        "Touch every page of a new log file before it is used. "
        "It removes first-touch faults and costs a write of the whole file ahead of need.",
        alias="warmMapedFileEnable",
    )
    lock_log_memory: bool = setting(
        False,
        "Keep the part of the log being written in memory with mlock. "
        "It needs the privilege (RLIMIT_MEMLOCK); where refused, the store says so once and runs on.",
        unit="",
    )
    prefault_bytes: int = setting(
        32 * MIB,
        "How far ahead of the write position pages are made present. "
        "More keeps faults out of the append lock; it is memory in use.",
        unit="bytes",
        low=0,
        high=GIB,
    )
    log_window_bytes: int = setting(
        32 * MIB,
        "How much of a log file is mapped at once. "
        "Larger windows are mapped less often and count more against the bound below.",
        unit="bytes",
        low=4 * KIB,
        high=GIB,
    )
    log_map_bytes_max: int = setting(
        512 * MIB,
        "Bound on log bytes mapped at once, over all windows. "
        "Smaller keeps the process small; readers far apart then evict each other's windows.",
        unit="bytes",
        low=MIB,
        high=INT64_MAX,
    )
    queue_map_count_max: int = setting(
        16384,
        "Bound on consume-queue windows mapped at once. "
        "With more busy queues than this, windows are mapped and unmapped in turn.",
        unit="windows",
        low=2,
        high=INT32_MAX,
    )
    os_page_cache_busy_timeout_ms: int = setting(
        1000,
        "Holding the append lock longer than this counts as a busy page cache, shown in the statistics. "
        "Lower warns earlier and more often.",
        alias="osPageCacheBusyTimeOutMills",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )

    # ---- messages ------------------------------------------------------------------------------------------------
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "What the delay levels 1, 2, 3 … wait. "
        "Changing it moves the delivery time of messages that are already waiting.",
        alias="messageDelayLevel",
    )
    store_host: str = setting(
        "127.0.0.1:10911",
        "The address stamped into records and message ids, IPv6 in brackets. "
        "Ids already handed out keep the address they were made with.",
        alias="brokerIP1",
    )

    # ---- retention -----------------------------------------------------------------------------------------------
    file_reserved_time_hours: int = setting(
        72,
        "Age at which a log file may be removed, whether or not its messages were read. "
        "Longer keeps more history and needs the disk for it.",
        alias="fileReservedTime",
        unit="hours",
        low=1,
        high=1_000_000,
    )
    delete_when: str = setting(
        "04",
        'Hours of the day, local time, at which expired files are removed: "04" or "04;16". '
        "Outside them only a full disk or delete_expired() removes files.",
        alias="deleteWhen",
    )
    disk_max_used_space_ratio: int = setting(
        75,
        "Use of the disk above which expired files are removed at any hour. "
        "It removes no file that is not expired; lower reacts earlier.",
        alias="diskMaxUsedSpaceRatio",
        unit="percent",
        low=1,
        high=100,
    )
    disk_space_clean_forcibly_ratio: float = setting(
        0.85,
        "Use of the disk above which the oldest files go whatever their age. "
        "Lower keeps more room and throws history away sooner.",
        alias="diskSpaceCleanForciblyRatio",
        unit="ratio",
        low=0.01,
        high=1.0,
    )
    disk_space_warning_level_ratio: float = setting(
        0.90,
        "Use of the disk above which sends are refused until space returns. "
        "Higher accepts longer and leaves less room for queues and index.",
        alias="diskSpaceWarningLevelRatio",
        unit="ratio",
        low=0.01,
        high=1.0,
    )
    clean_file_forcibly_enable: bool = setting(
        True,
        "Whether a disk above its limit may cost files that are not expired. "
        "Without it the store keeps history and stops accepting instead.",
        alias="cleanFileForciblyEnable",
    )
    clean_resource_interval_ms: int = setting(
        10_000,
        "How often retention looks at ages and disks. "
        "Shorter reacts sooner to a filling disk and costs a look at the file table each time.",
        alias="cleanResourceInterval",
        unit="ms",
        low=10,
        high=INT32_MAX,
    )
    delete_commit_log_files_interval_ms: int = setting(
        100,
        "Pause between two removed log files. Longer spreads the file system's work; a full disk waits for it.",
        alias="deleteCommitLogFilesInterval",
        unit="ms",
        low=0,
        high=60_000,
    )
    delete_file_batch_max: int = setting(
        10,
        "Log files removed in one pass at most. More frees space faster and keeps the disk busier at once.",
        alias="deleteFileBatchMax",
        unit="files",
        low=1,
        high=10_000,
    )
    flush_consumer_offset_interval_ms: int = setting(
        5000,
        "How often offsets committed with durable=False are saved. "
        "It bounds how much a group reads twice after a kill.",
        alias="flushConsumerOffsetInterval",
        unit="ms",
        low=10,
        high=INT32_MAX,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.mapped_file_size_consume_queue % CQ_UNIT_SIZE:
            whole = (self.mapped_file_size_consume_queue // CQ_UNIT_SIZE + 1) * CQ_UNIT_SIZE
            raise ConfigError(
                f"mapped_file_size_consume_queue is {self.mapped_file_size_consume_queue}; it must be a multiple of "
                f"{CQ_UNIT_SIZE}, such as {whole}"
            )
        self.check_disk_levels()
        parse_delay_levels(self.message_delay_level)
        parse_host(self.store_host)
        parse_hours(self.delete_when)

    def check_disk_levels(self) -> None:
        """The three disk levels only make sense in order: remove expired, remove anything, refuse."""
        expired = self.disk_max_used_space_ratio / 100
        forcibly, warning = self.disk_space_clean_forcibly_ratio, self.disk_space_warning_level_ratio
        if not expired <= forcibly <= warning:
            raise ConfigError(
                f"disk_max_used_space_ratio ({expired:.2f}) <= disk_space_clean_forcibly_ratio ({forcibly:.2f}) <= "
                f"disk_space_warning_level_ratio ({warning:.2f}) must hold: files are cleaned before sends are refused"
            )

    def replace(self, **changes: Any) -> StoreConfig:
        """A copy with *changes*, checked like a new one."""
        return dataclasses.replace(self, **changes)


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each delay level of *text*, "1s 5s 1m 2h 1d"; raises ConfigError."""
    words = text.split()
    if not 1 <= len(words) <= DELAY_LEVELS_MAX:
        raise ConfigError(f"message_delay_level has {len(words)} levels; 1 to {DELAY_LEVELS_MAX} are possible")
    levels = []
    for word in words:
        found = re.fullmatch(r"([0-9]{1,9})([smhd])", word)
        if found is None:
            raise ConfigError(f"message_delay_level: {word!r} is not a number with s, m, h or d behind it")
        levels.append(int(found[1]) * DELAY_UNIT_MS[found[2]])
    return tuple(levels)


def parse_host(text: str) -> tuple[bytes, int]:
    """Address bytes (4 or 16) and port of "127.0.0.1:10911" or "[::1]:10911"; raises ConfigError."""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([0-9]{1,5})", text)
    if found is None or int(found[3]) > 65535:
        raise ConfigError(f"store_host is {text!r}; it has the form 127.0.0.1:10911 or [::1]:10911")
    try:
        address = ipaddress.IPv6Address(found[1]) if found[1] else ipaddress.IPv4Address(found[2])
    except ipaddress.AddressValueError as error:
        raise ConfigError(f"store_host is {text!r}: {error}") from error
    return address.packed, int(found[3])


def parse_hours(text: str) -> frozenset[int]:
    """The hours of "04" or "04;16"; raises ConfigError."""
    words = [word.strip() for word in text.split(";") if word.strip()]
    if not words or any(not re.fullmatch(r"[0-9]{1,2}", word) or int(word) > 23 for word in words):
        raise ConfigError(f"delete_when is {text!r}; it lists hours from 00 to 23, separated by semicolons")
    return frozenset(int(word) for word in words)
