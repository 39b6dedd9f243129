"""Changing the configuration of a running broker: what takes effect at once, and what is kept for the next start.

A change is checked like a start's configuration, all of it or nothing. It is kept in the file given with `-c` (or in
`config/broker.properties` of the store, which a start without `-c` reads), with the lines of that file that nobody
changed left as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pymq.broker.config import BrokerConfig
from pymq.broker.config_source import (
    BROKER_ROWS,
    KEPT_FILE,
    STORE_ROWS,
    Given,
    all_properties,
    build_config,
    unknown_key,
)
from pymq.broker.known_keys import KNOWN_KEYS, OLD_SPELLINGS
from pymq.broker.secret_values import masked_value
from pymq.errors import ConfigError
from pymq.properties_file import edit_file
from pymq.remoting.tls_context import PROPERTY_NAMES

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

ORIGIN = "updateBrokerConfig"
FORBIDDEN = {"configBlackList", "brokerConfigPath"}  # BrokerConfig.configBlackList

# Keys that take effect at once; all others wait for the next start.
LIVE = frozenset(
    {
        "allowRecallWhenBrokerNotWriteable",
        "appendTopicForTimerDeleteKey",
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerPermission",
        "channelExpiredTimeout",
        "clearRetryTopicWhenDeleteTopic",
        "compressedRegister",
        "dataPlane",
        "defaultQueryMaxNum",
        "dumpLeaseMaxAgeHours",
        "enableCreateSysGroup",
        "enableMixedMessageType",
        "enablePropertyFilter",
        "enableRegisterProducer",
        "filterDataCleanTimeSpan",
        "filterSupportRetry",
        "forceRegister",
        "litePullMessageEnable",
        "lockInStrictMode",
        "longPollingEnable",
        "maxTransferBytesOnMessageInDisk",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInDisk",
        "maxTransferCountOnMessageInMemory",
        "newGroupOffsetPolicy",
        "notifyConsumerIdsChangedEnable",
        "recallMessageEnable",
        "registerBrokerTimeoutMills",
        "rejectPullConsumerEnable",
        "rejectTransactionMessage",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "startAcceptSendRequestTimeStamp",
        "storeReplyMessageEnable",
        "timerCongestNumEachSlot",
        "timerFlushIntervalMs",
        "timerMaxDelaySec",
        "timerStopDequeue",
        "timerStopEnqueue",
        "traceOn",
        "useServerSideResetOffset",
        "validateSystemTopicWhenUpdateTopic",
        "transactionCheckInterval",
        "transactionCheckMax",
        "transactionOpBatchInterval",
        "transactionOpMsgMaxSize",
        "transactionTimeOut",
    }
)

# Of the store's keys, those that retention looks at each time.
LIVE_STORE = frozenset(
    {
        "cleanFileForciblyEnable",
        "deleteCommitLogFilesInterval",
        "deleteFileBatchMax",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "fileReservedTime",
    }
)

log = logging.getLogger("pymq.broker")


def changed_config(broker: Broker, changes: Mapping[str, str]) -> BrokerConfig:
    """The configuration with *changes*, those that cannot take effect now left out.

    Raises:
        ConfigError: a key nobody knows, or a value its key does not take; names it.
    """
    known = {*KNOWN_KEYS, *BROKER_ROWS, *STORE_ROWS, *OLD_SPELLINGS, *PROPERTY_NAMES}
    for key, value in changes.items():
        if key not in known:
            raise ConfigError(unknown_key(Given(key, value, ORIGIN)))
    checked = build_config(Given(key, value, ORIGIN) for key, value in changes.items())
    for warning in checked.warnings:
        log.warning("%s", warning)
    before = all_properties(broker.config)
    now: dict[str, Any] = {}
    store: dict[str, Any] = {}
    for key, value in changes.items():
        if key in LIVE:
            now[BROKER_ROWS[key].name] = getattr(checked.config, BROKER_ROWS[key].name)
        elif key in LIVE_STORE:
            store[STORE_ROWS[key].name] = getattr(checked.config.store, STORE_ROWS[key].name)
        elif before.get(key) != value:
            log.warning("kept for the next start key=%s value=%s", key, masked_value(key, value))
    others = {key: value for key, value in changes.items() if key in checked.config.others}
    return broker.config.replace(
        **now, store=broker.config.store.replace(**store), others={**broker.config.others, **others}
    )


def keep_changes(broker: Broker, changes: Mapping[str, str]) -> None:
    """Write *changes* into the configuration file. Waits for the disk.

    Raises:
        OSError: it cannot be written.
    """
    given = broker.config.broker_config_path
    path = Path(given) if given else broker.config_directory / KEPT_FILE
    edit_file(path, changes)
