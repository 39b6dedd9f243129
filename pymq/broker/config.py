"""The settings of one broker that take effect, by RocketMQ's names; `docs/broker-config.md` is generated from them.

An attribute is RocketMQ's key in snake case (`listenPort` is `listen_port`), and its value means what it means there.
Settings of the store stand in `store`. What a file, the command line and the environment say is put together in
`config_source`; every other key of RocketMQ's is known (`known_keys`) and warned about when it is set.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from pymq.broker.timer.settings import TimerSettings
from pymq.errors import ConfigError
from pymq.store.config import ASYNC_FLUSH, INT32_MAX, StoreConfig
from pymq.store.settings import check_settings, setting

LOOPBACK = "127.0.0.1"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the name of it, for comparison
VIP_PORT_DISTANCE = 2  # MixAll.brokerVIPChannel: clients ask at the listen port minus two
PERM_READ, PERM_WRITE = 4, 2
NATIVE, PYTHON = "native", "python"
ROCKETMQ_POLICY, ASKED_POLICY = "rocketmq", "asked"  # of newGroupOffsetPolicy


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(TimerSettings):
    """Everything a broker needs to know.

    Raises:
        ConfigError: a value outside its bounds.

    Example:
        >>> BrokerConfig(listen_port=0, broker_name="a").default_topic_queue_nums
        8
    """

    # ---- who and where -------------------------------------------------------------------------------------------
    broker_name: str = setting(
        "",
        "Name of this broker in routes; a master and its slaves share it. Empty means the machine's name.",
        alias="brokerName",
    )
    broker_cluster_name: str = setting(
        "DefaultCluster",
        "The cluster this broker says it belongs to; tools list brokers by it.",
        alias="brokerClusterName",
    )
    broker_id: int = setting(0, "0 for a master; slaves count from 1.", alias="brokerId", low=0, high=2**63 - 1)
    namesrv_addr: str = setting(
        "",
        "Name servers to register with, `host:port;host:port`. Empty starts one inside this process; NAMESRV_ADDR in "
        "the environment fills it when neither file nor command line do.",
        alias="namesrvAddr",
    )
    namesrv_listen_port: int = setting(
        9876,
        "Port of the name server inside this process, when there is one; 0 lets the kernel choose.",
        low=0,
        high=65535,
    )
    bind_address: str = setting(
        "",
        "Address to listen on. Empty means loopback alone when nothing was configured, otherwise every address; "
        "see [who can reach it](#who-can-reach-it).",
        alias="bindAddress",
    )
    listen_port: int = setting(
        10911,
        "Port for clients; the VIP port is two below it. 0 lets the kernel choose a pair.",
        alias="listenPort",
        low=0,
        high=65535,
    )
    broker_ip1: str = setting(
        "",
        "Address clients are told to connect to, also stamped into records and message ids. Set it where the detected "
        "one cannot be reached, as in containers.",
        alias="brokerIP1",
    )
    broker_ip2: str = setting("", "Address slaves are told to connect to; empty means brokerIP1.", alias="brokerIP2")
    ha_listen_port: int = setting(
        0,
        "Port of replication, registered at the name server; 0 means listenPort + 1.",
        alias="haListenPort",
        low=0,
        high=65535,
    )
    rocketmq_home: str = setting("", "ROCKETMQ_HOME; only printed, nothing is read from it.", alias="rocketmqHome")
    store_path_root_dir: str = setting(
        "",
        "Directory of the store; empty means `store` in the home directory.",
        alias="storePathRootDir",
    )
    store_path_commit_log: str = setting(
        "",
        "Only `commitlog` in storePathRootDir is possible; link it elsewhere if it must be.",
        alias="storePathCommitLog",
    )
    broker_config_path: str = setting(
        "", "The file this configuration came from, where run-time changes are kept.", alias="brokerConfigPath"
    )

    # ---- how it is served ----------------------------------------------------------------------------------------
    data_plane: str = setting(
        NATIVE,
        "`python` sends every request the slow way, through the Python codec and handlers; for comparison and tests.",
        alias="dataPlane",
        choices=(NATIVE, PYTHON),
    )
    strict_config: bool = setting(
        False, "Whether an unknown key in the configuration is an error instead of a warning.", alias="strictConfig"
    )
    reactor_threads: int = setting(
        0,
        "Threads that own connections; 0 chooses by the number of processors.",
        alias="reactorThreads",
        low=0,
        high=16,
    )
    server_channel_max_idle_time_seconds: int = setting(
        120,
        "A connection with no byte either way for so long is closed; 0 never.",
        alias="serverChannelMaxIdleTimeSeconds",
        unit="s",
        low=0,
        high=INT32_MAX // 1000,
    )
    broker_permission: int = setting(
        PERM_READ | PERM_WRITE,
        "What the whole broker allows: 4 read, 2 write, 6 both. Can be changed while running.",
        alias="brokerPermission",
        low=0,
        high=7,
    )
    trace_on: bool = setting(True, "Whether messages say TRACE_ON=true, so that clients trace them.", alias="traceOn")
    region_id: str = setting("DefaultRegion", "MSG_REGION of every message.", alias="regionId")
    long_polling_enable: bool = setting(
        True, "Whether a pull that finds nothing is held as long as it asks.", alias="longPollingEnable"
    )
    short_polling_time_mills: int = setting(
        1000, "How long it is held otherwise.", alias="shortPollingTimeMills", unit="ms", low=0, high=INT32_MAX
    )
    reject_transaction_message: bool = setting(
        False, "Whether transactional sends are refused.", alias="rejectTransactionMessage"
    )
    transaction_time_out: int = setting(
        6000,
        "How old a half message must be before its producer is asked about it, unless it says a time of its own. "
        "Shorter asks about transactions that are merely slow.",
        alias="transactionTimeOut",
        unit="ms",
        low=0,
        high=INT32_MAX,
    )
    transaction_check_interval: int = setting(
        30_000,
        "How often half messages without an end are asked about.",
        alias="transactionCheckInterval",
        unit="ms",
        low=10,
        high=INT32_MAX,
    )
    transaction_check_max: int = setting(
        15,
        "How often at most one half message is asked about; then it goes to TRANS_CHECK_MAX_TIME_TOPIC.",
        alias="transactionCheckMax",
        low=1,
        high=INT32_MAX,
    )
    transaction_op_msg_max_size: int = setting(
        4096,
        "Ends of transactions are noted in the log together, in messages of this size.",
        alias="transactionOpMsgMaxSize",
        unit="bytes",
        low=1,
        high=1 << 20,
    )
    transaction_op_batch_interval: int = setting(
        3000,
        "And at least so often. What a kill forgets is found again by the committed messages themselves.",
        alias="transactionOpBatchInterval",
        unit="ms",
        low=10,
        high=INT32_MAX,
    )
    reject_pull_consumer_enable: bool = setting(
        False, "Whether heartbeats of pull consumers are ignored.", alias="rejectPullConsumerEnable"
    )
    enable_property_filter: bool = setting(
        False, "Whether consumers may filter by SQL92 expressions.", alias="enablePropertyFilter"
    )
    filter_support_retry: bool = setting(
        False,
        "Whether a SQL92 subscription to a retry topic filters by the expression of the topic a message came from.",
        alias="filterSupportRetry",
    )
    filter_data_clean_time_span: int = setting(
        24 * 3600 * 1000,
        "How long the filter of a group without members is kept.",
        alias="filterDataCleanTimeSpan",
        unit="ms",
        low=0,
        high=INT32_MAX,
    )
    expect_consumer_num_use_filter: int = setting(
        32,
        "How many groups are expected to filter: sizes the Bloom data kept for Apache's broker in consumerFilter.json.",
        alias="expectConsumerNumUseFilter",
        low=1,
        high=1 << 20,
    )
    max_error_rate_of_bloom_filter: int = setting(
        20,
        "The Bloom data's error rate in percent; kept for Apache's broker as well.",
        alias="maxErrorRateOfBloomFilter",
        low=1,
        high=99,
    )
    slave_read_enable: bool = setting(False, "Whether readers far behind are sent to a slave.", alias="slaveReadEnable")
    lite_pull_message_enable: bool = setting(
        True, "Whether LITE_PULL_MESSAGE is served.", alias="litePullMessageEnable"
    )
    start_accept_send_request_time_stamp: int = setting(
        0,
        "Wall-clock time before which sends are refused.",
        alias="startAcceptSendRequestTimeStamp",
        unit="ms since 1970",
        low=0,
    )

    dump_lease_max_age_hours: int = setting(
        24,
        "How long one dump at most keeps retention from removing files, however often its dumper asks for more. "
        "Shorter protects the disk from a dumper that hangs; one that needs longer ends with an error, and goes on "
        "when its command is repeated, if what it still lacks was not removed.",
        alias="dumpLeaseMaxAgeHours",
        unit="hours",
        low=1,
        high=24 * 365,
    )

    # ---- topics, groups, clients ---------------------------------------------------------------------------------
    auto_create_topic_enable: bool = setting(
        True,
        "Whether a send to an unknown topic makes it. Production brokers often switch it off.",
        alias="autoCreateTopicEnable",
    )
    default_topic_queue_nums: int = setting(
        8,
        "Queues of TBW102, which bounds those of topics made by sends.",
        alias="defaultTopicQueueNums",
        low=1,
        high=65535,
    )
    auto_create_subscription_group: bool = setting(
        True, "Whether an unknown group gets default settings on first use.", alias="autoCreateSubscriptionGroup"
    )
    cluster_topic_enable: bool = setting(
        True, "Whether the topic named as the cluster is usable.", alias="clusterTopicEnable"
    )
    broker_topic_enable: bool = setting(
        True, "Whether the topic named as the broker is usable.", alias="brokerTopicEnable"
    )
    trace_topic_enable: bool = setting(False, "Whether the trace topic exists.", alias="traceTopicEnable")
    msg_trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC", "Its name.", alias="msgTraceTopicName")
    revive_queue_num: int = setting(8, "Queues of POP's revive topic.", alias="reviveQueueNum", low=1, high=1024)
    enable_create_sys_group: bool = setting(
        True, "Whether the groups of RocketMQ's own tools exist.", alias="enableCreateSysGroup"
    )
    validate_system_topic_when_update_topic: bool = setting(
        True, "Whether administrators are kept from changing system topics.", alias="validateSystemTopicWhenUpdateTopic"
    )
    enable_mixed_message_type: bool = setting(
        False, "Whether a topic may be made for messages of every kind (MIXED).", alias="enableMixedMessageType"
    )
    clear_retry_topic_when_delete_topic: bool = setting(
        True,
        "Whether deleting a topic deletes the POP retry topics made for it.",
        alias="clearRetryTopicWhenDeleteTopic",
    )
    use_server_side_reset_offset: bool = setting(
        True, "Whether a reset is kept at the broker as well as told to clients.", alias="useServerSideResetOffset"
    )
    new_group_offset_policy: str = setting(
        ROCKETMQ_POLICY,
        "Where a group begins that has no offset in a queue whose first message is still in memory. `rocketmq`: at 0, "
        "whatever it asked for, as Apache's broker has it. `asked`: only a queue that is new to a group which already "
        "consumes the topic begins at 0; a new group begins where its consumeFromWhere says.",
        alias="newGroupOffsetPolicy",
        choices=(ROCKETMQ_POLICY, ASKED_POLICY),
    )
    rebalance_lock_max_live_time: int = setting(
        60_000,
        "A queue lock of ordered consumption that its owner has not asked for again within this time is free. Shorter "
        "moves queues of a dead client sooner; below the clients' 30 s two of them may work on one queue.",
        alias="rocketmq.broker.rebalance.lockMaxLiveTime",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    lock_in_strict_mode: bool = setting(
        False,
        "Whether a majority of the replicas must grant a queue lock; of one replica this broker is the majority.",
        alias="lockInStrictMode",
    )
    store_reply_message_enable: bool = setting(
        True,
        "Whether replies to request messages are stored in their reply topic besides being passed on to the asker.",
        alias="storeReplyMessageEnable",
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True, "Whether members are told when their group changes.", alias="notifyConsumerIdsChangedEnable"
    )
    enable_register_producer: bool = setting(
        True, "Whether producers' heartbeats are kept.", alias="enableRegisterProducer"
    )
    channel_expired_timeout: int = setting(
        120_000,
        "A client silent for so long is forgotten.",
        alias="channelExpiredTimeout",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    flush_consumer_offset_interval: int = setting(
        5000,
        "How often consumer offsets are saved; a kill makes groups read so much again.",
        alias="flushConsumerOffsetInterval",
        unit="ms",
        low=10,
        high=INT32_MAX,
    )

    flush_delay_offset_interval: int = setting(
        10_000,
        "How often it is saved how far delay levels have been delivered; a kill repeats so much of it.",
        alias="flushDelayOffsetInterval",
        unit="ms",
        low=10,
        high=INT32_MAX,
    )

    # ---- registration --------------------------------------------------------------------------------------------
    register_name_server_period: int = setting(
        30_000,
        "How often the broker registers, kept within 10 to 60 s.",
        alias="registerNameServerPeriod",
        unit="ms",
        low=1,
    )
    register_broker_timeout_mills: int = setting(
        24_000,
        "How long one registration may take.",
        alias="registerBrokerTimeoutMills",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    force_register: bool = setting(
        True,
        "Whether every registration is sent; otherwise name servers are asked first what they know.",
        alias="forceRegister",
    )
    compressed_register: bool = setting(False, "Whether its body is compressed.", alias="compressedRegister")

    # ---- limits --------------------------------------------------------------------------------------------------
    broker_fast_failure_enable: bool = setting(
        True,
        "Whether requests that waited too long for Python, or to read from disk, are answered SYSTEM_BUSY.",
        alias="brokerFastFailureEnable",
    )
    wait_time_mills_in_send_queue: int = setting(
        200, "How long a send may wait.", alias="waitTimeMillsInSendQueue", unit="ms", low=1, high=INT32_MAX
    )
    wait_time_mills_in_pull_queue: int = setting(
        5000, "How long a pull may wait.", alias="waitTimeMillsInPullQueue", unit="ms", low=1, high=INT32_MAX
    )
    wait_time_mills_in_heartbeat_queue: int = setting(
        31_000,
        "How long a heartbeat may wait.",
        alias="waitTimeMillsInHeartbeatQueue",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    wait_time_mills_in_admin_broker_queue: int = setting(
        5000,
        "How long an administrative request may wait.",
        alias="waitTimeMillsInAdminBrokerQueue",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    send_thread_pool_queue_capacity: int = setting(
        10_000, "Sends waiting for Python.", alias="sendThreadPoolQueueCapacity", unit="requests", low=1, high=INT32_MAX
    )
    pull_thread_pool_queue_capacity: int = setting(
        100_000,
        "Pulls waiting for Python.",
        alias="pullThreadPoolQueueCapacity",
        unit="requests",
        low=1,
        high=INT32_MAX,
    )
    heartbeat_thread_pool_queue_capacity: int = setting(
        50_000, "Heartbeats waiting.", alias="heartbeatThreadPoolQueueCapacity", unit="requests", low=1, high=INT32_MAX
    )
    admin_broker_thread_pool_queue_capacity: int = setting(
        10_000,
        "Administrative requests waiting, for Python or for the disk.",
        alias="adminBrokerThreadPoolQueueCapacity",
        unit="requests",
        low=1,
        high=INT32_MAX,
    )
    max_transfer_bytes_on_message_in_memory: int = setting(
        262_144,
        "Bytes of one pull's answer.",
        alias="maxTransferBytesOnMessageInMemory",
        unit="bytes",
        low=1,
        high=INT32_MAX,
    )
    max_transfer_count_on_message_in_memory: int = setting(
        32,
        "Messages of one pull's answer.",
        alias="maxTransferCountOnMessageInMemory",
        unit="messages",
        low=1,
        high=INT32_MAX,
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        65_536,
        "Bytes, when the messages are old.",
        alias="maxTransferBytesOnMessageInDisk",
        unit="bytes",
        low=1,
        high=INT32_MAX,
    )
    max_transfer_count_on_message_in_disk: int = setting(
        8,
        "Messages, when they are old.",
        alias="maxTransferCountOnMessageInDisk",
        unit="messages",
        low=1,
        high=INT32_MAX,
    )
    access_message_in_memory_max_ratio: int = setting(
        40,
        "Share of memory the log may fill before its older part counts as old.",
        alias="accessMessageInMemoryMaxRatio",
        unit="percent",
        low=1,
        high=100,
    )
    default_query_max_num: int = setting(
        32,
        "Messages a query by key answers at most.",
        alias="defaultQueryMaxNum",
        unit="messages",
        low=1,
        high=INT32_MAX,
    )
    offset_check_in_slave: bool = setting(
        False, "Whether a slave corrects offsets outside its queues.", alias="offsetCheckInSlave"
    )

    store: StoreConfig = field(default_factory=lambda: StoreConfig(flush_disk_type=ASYNC_FLUSH))
    # Not in the repr, because a password may be among them.
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)  # as they stand; pymq.remoting.tls reads them
    others: Mapping[str, str] = field(default_factory=dict, repr=False)  # without effect, kept so that they are shown

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.broker_cluster_name:
            raise ConfigError("brokerClusterName is empty; leave it out for DefaultCluster")
        if self.listen_port and self.listen_port <= VIP_PORT_DISTANCE:
            raise ConfigError(
                f"listenPort is {self.listen_port}; the VIP port is {VIP_PORT_DISTANCE} below it and must exist"
            )

    def replace(self, **changes: Any) -> BrokerConfig:
        """A copy with *changes*, checked like a new one."""
        return dataclasses.replace(self, **changes)

    def resolved(self) -> BrokerConfig:
        """A copy in which what was left to the machine is filled in: names, addresses and paths.

        Nothing configured means loopback alone: a broker that nobody set up is not for the network.

        Raises:
            ConfigError: a log path that is not the store's own, or a name server that is no address.
        """
        closed = not (self.namesrv_addr or self.bind_address or self.broker_ip1 or self.broker_config_path)
        bind = resolve_host("bindAddress", self.bind_address or (LOOPBACK if closed else ANY_ADDRESS))
        ip1 = self.broker_ip1 or (local_address() if bind == ANY_ADDRESS else bind)
        root = os.path.abspath(os.path.expanduser(self.store_path_root_dir or "~/store"))  # noqa: PTH100, PTH111
        check_log_path(self.store_path_commit_log, Path(root))
        check_name_servers(self.namesrv_addr)
        return self.replace(
            broker_id=0,  # Compat: every master is; slaves are refused before
            broker_name=self.broker_name or socket.gethostname() or "DEFAULT_BROKER",
            bind_address=bind,
            broker_ip1=ip1,
            broker_ip2=self.broker_ip2 or ip1,
            store_path_root_dir=root,
            store_path_commit_log=str(Path(root) / "commitlog"),
        )

    @property
    def max_message_size(self) -> int:
        """maxMessageSize, which is the store's."""
        return self.store.max_message_size

    @property
    def broker_role(self) -> str:
        """brokerRole, which is the store's."""
        return self.store.broker_role


def check_log_path(path: str, root: Path) -> None:
    """Refuse a log elsewhere than in the store: found there on a later start, it would look like an empty store."""
    if path and Path(path).expanduser().resolve() != (root / "commitlog").resolve():
        raise ConfigError(
            f"storePathCommitLog is {path}; it can only be {root / 'commitlog'}: leave the key out, or make that a "
            "symbolic link to the directory you mean"
        )


def resolve_host(key: str, host: str) -> str:
    """The address *host* stands for, itself when it is one; brackets of IPv6 are taken off.

    Raises:
        ConfigError: nobody knows it; names *key*, where it was written.
    """
    bare = host.removeprefix("[").removesuffix("]")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(bare, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"{key} is {host!r}, which cannot be resolved: {error.strerror}; give an address") from error
    # An IPv4 address first, as RocketMQ prefers it.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])


def join_host(host: str, port: int) -> str:
    """host:port as a client can split it: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def check_name_servers(addresses: str) -> None:
    """Refuse what cannot be connected to: the broker would run and nobody would ever find it."""
    for address in filter(None, (part.strip() for part in addresses.split(";"))):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"The Name Server Address[{addresses}] illegal: {address!r} is no host:port, please set it as follows, "
                '"127.0.0.1:9876;192.168.0.1:9876"'
            )


def local_address() -> str:
    """An address of this machine that others can reach, as RocketMQ chooses it: IPv4, not 127.*, 192.168.* last."""
    found = [
        address.address
        for name, addresses in psutil.net_if_addrs().items()
        if not name.startswith(("docker", "veth", "br-", "virbr"))
        for address in addresses
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]
    found.sort(key=lambda address: address.startswith("192.168."))
    return found[0] if found else LOOPBACK
