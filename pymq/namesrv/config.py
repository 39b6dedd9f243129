"""Settings of the name server: Apache's keys and defaults, from a file, the command line and requests."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pymq import java_properties
from pymq.properties_file import read_text
from pymq.remoting.tls_context import PROPERTY_NAMES, check_property, check_tls_file

DEFAULT_PORT = 9876
PROTECTED_KEYS = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
# Known to Apache's name server and without a meaning here, each with its default: thread pools, a controller, Netty's
# buffers. None depends on the machine.
IGNORED_KEYS: dict[str, str | None] = {
    "clientRequestThreadPoolNums": "8",
    "clientRequestThreadPoolQueueCapacity": "50000",
    "clusterTest": "false",
    "controllerType": "DLedger",
    "defaultThreadPoolNums": "16",
    "defaultThreadPoolQueueCapacity": "10000",
    "enableControllerInNamesrv": "false",
    "enableShutdownGracefully": "false",
    "productEnvName": "center",
    "rocketmqHome": None,
    "serverAsyncSemaphoreValue": "64",
    "serverCallbackExecutorThreads": "0",
    "serverNettyWorkerGroupEnable": "true",
    "serverOnewaySemaphoreValue": "256",
    "serverPooledByteBufAllocatorEnable": "true",
    "serverSelectorThreads": "3",
    "serverSocketBacklog": "1024",
    "serverSocketRcvBufSize": "0",
    "serverSocketSndBufSize": "0",
    "serverWorkerThreads": "8",
    "shutdownWaitTimeSeconds": "30",
    "unRegisterBrokerQueueCapacity": "3000",
    "useEpollNativeSelector": "false",
    "writeBufferHighWaterMark": "0",
    "writeBufferLowWaterMark": "0",
}
INT32_MAX = (1 << 31) - 1
BOUNDS = {
    "listenPort": (0, 65_535),
    "scanNotActiveBrokerInterval": (10, INT32_MAX),  # a scan without a pause would be all that is done
    "waitSecondsForService": (0, INT32_MAX),
    "serverChannelMaxIdleTimeSeconds": (0, INT32_MAX // 1000),
}


def home(name: str) -> str:
    """`~/namesrv/NAME`, where Apache keeps it."""
    return str(Path.home() / "namesrv" / name)


@dataclass(slots=True)
class NamesrvConfig:
    """What the name server does differently from its defaults."""

    listen_port: int = DEFAULT_PORT
    bind_address: str = "0.0.0.0"  # noqa: S104 - Apache's default; `python -m pymq.broker` alone binds to loopback
    kv_config_path: str = field(default_factory=lambda: home("kvConfig.json"))
    config_store_path: str = field(default_factory=lambda: home("namesrv.properties"))
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    scan_not_active_broker_interval: int = 5000
    support_acting_master: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    notify_min_broker_id_changed: bool = False
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    delete_topic_with_broker_registration: bool = False
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    server_channel_max_idle_time_seconds: int = 120
    strict_config: bool = False
    tls: dict[str, str] = field(default_factory=dict, repr=False)  # `tls.*` keys as given, a password too
    warnings: list[str] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        """Hold every number against its bounds."""
        for key in BOUNDS:
            check_bounds(key, getattr(self, KEYS[key]), "NamesrvConfig")

    def update(self, values: Mapping[str, str], origin: str) -> list[str]:
        """Set *values* by Apache's key names, all of them or none; returns what there is to say about them.

        Raises:
            ValueError: a value does not fit its key, or a key is unknown under strictConfig.
        """
        settings: dict[str, object] = {}
        tls: dict[str, str] = {}
        warnings: list[str] = []
        unknown: list[str] = []
        for key, text in values.items():
            if key in KEYS:
                settings[KEYS[key]] = convert(key, text.strip(), type(getattr(self, KEYS[key])), origin)
            elif key in PROPERTY_NAMES:
                check_property(key, text, origin)
                tls[key] = text
            elif key in IGNORED_KEYS:
                if text.strip().lower() != (IGNORED_KEYS[key] or text.strip()).lower():
                    warnings.append(f"{origin}: {key}={text} has no effect here: pymq does not support it")
            else:
                unknown.append(unknown_key(key, origin))
        if unknown and settings.get("strict_config", self.strict_config):
            raise ValueError("; ".join(unknown) + " (strictConfig=true refuses unknown keys)")
        for name, value in settings.items():
            setattr(self, name, value)
        self.tls |= tls
        return warnings + unknown

    def protected(self) -> frozenset[str]:
        """Keys that a request must not change."""
        return PROTECTED_KEYS | {key for key in self.config_black_list.split(";") if key}

    def to_properties(self) -> dict[str, str]:
        """Every key with its value, as text."""
        return {key: render(getattr(self, name)) for key, name in KEYS.items()}


def unknown_key(key: str, origin: str) -> str:
    """What to say of a key that the name server does not have."""
    near = difflib.get_close_matches(key, [*KEYS, *IGNORED_KEYS, *PROPERTY_NAMES], 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{origin}: {key} is not a key of the name server{hint}"


def check_bounds(key: str, value: int, origin: str) -> None:
    """Refuse a number that its key does not take.

    Raises:
        ValueError: names it and its bounds.
    """
    low, high = BOUNDS[key]
    if not low <= value <= high:
        raise ValueError(f"{origin}: {key}={value}: it lies between {low:,} and {high:,}")


def camel(name: str) -> str:
    """`listen_port` → `listenPort`."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def render(value: object) -> str:
    """A value as Java prints it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def convert(key: str, text: str, kind: type, origin: str) -> object:
    """*text* as a value of *kind*."""
    if kind is bool:
        try:
            return java_properties.parse_bool(text)
        except ValueError:
            raise ValueError(f"{origin}: {key}={text}: true or false was expected") from None
    if kind is int:
        if not re.fullmatch(r"-?\d+", text):
            raise ValueError(f"{origin}: {key}={text}: a whole number was expected")
        check_bounds(key, int(text), origin)
        return int(text)
    return text


KEYS = {
    camel(item.name): item.name for item in dataclasses.fields(NamesrvConfig) if item.name not in ("tls", "warnings")
}


def load(path: str | None, overrides: Mapping[str, str] | None = None) -> NamesrvConfig:
    """Defaults, then the file, then *overrides* (the command line).

    Raises:
        ValueError: a file that is not there or a value that does not fit.
    """
    config = NamesrvConfig()
    line = dict(overrides or {})
    if path is not None:
        try:
            text, _ = read_text(Path(path))
        except OSError as failure:
            raise ValueError(f"{path}: {failure.strerror}; give -c a properties file that can be read") from failure
        # Whether the file is read strictly is the command line's to say, too.
        strict = {key: line[key] for key in ("strictConfig",) if key in line}
        config.warnings += config.update(java_properties.to_dict(text) | strict, path)
        config.config_store_path = str(Path(path).absolute())
    config.warnings += config.update(line, "command line")
    config.warnings += check_tls_file(config.tls, strict=config.strict_config)
    return config
