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
# Known to Apache's name server and without a meaning here: thread pools, a controller, Netty's buffers.
IGNORED_KEYS = frozenset(
    (
        "clientRequestThreadPoolNums",
        "clientRequestThreadPoolQueueCapacity",
        "clusterTest",
        "controllerType",
        "defaultThreadPoolNums",
        "defaultThreadPoolQueueCapacity",
        "enableControllerInNamesrv",
        "enableShutdownGracefully",
        "productEnvName",
        "rocketmqHome",
        "serverAsyncSemaphoreValue",
        "serverCallbackExecutorThreads",
        "serverNettyWorkerGroupEnable",
        "serverOnewaySemaphoreValue",
        "serverPooledByteBufAllocatorEnable",
        "serverSelectorThreads",
        "serverSocketBacklog",
        "serverSocketRcvBufSize",
        "serverSocketSndBufSize",
        "serverWorkerThreads",
        "shutdownWaitTimeSeconds",
        "unRegisterBrokerQueueCapacity",
        "useEpollNativeSelector",
        "writeBufferHighWaterMark",
        "writeBufferLowWaterMark",
    )
)


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

    def update(self, values: Mapping[str, str], origin: str) -> None:
        """Set *values* by Apache's key names.

        Raises:
            ValueError: a value does not fit its key, or a key is unknown under strictConfig.
        """
        if "strictConfig" in values:
            self.strict_config = values["strictConfig"].strip().lower() == "true"
        for key, text in values.items():
            name = KEYS.get(key)
            if name is not None:
                setattr(self, name, convert(key, text.strip(), type(getattr(self, name)), origin))
            elif key in PROPERTY_NAMES:
                check_property(key, text, origin)
                self.tls[key] = text
            elif key in IGNORED_KEYS:
                continue
            else:
                self._unknown(key, origin)

    def _unknown(self, key: str, origin: str) -> None:
        near = difflib.get_close_matches(key, [*KEYS, *IGNORED_KEYS, *PROPERTY_NAMES], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        message = f"{origin}: {key} is not a key of the name server{hint}"
        if self.strict_config:
            raise ValueError(message)
        self.warnings.append(message)

    def protected(self) -> frozenset[str]:
        """Keys that a request must not change."""
        return PROTECTED_KEYS | {key for key in self.config_black_list.split(";") if key}

    def to_properties(self) -> dict[str, str]:
        """Every key with its value, as text."""
        return {key: render(getattr(self, name)) for key, name in KEYS.items()}


def camel(name: str) -> str:
    """`listen_port` → `listenPort`."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def render(value: object) -> str:
    """A value as Java prints it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def convert(key: str, text: str, kind: type, origin: str) -> object:
    """*text* as a value of *kind*."""
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{origin}: {key}={text}: true or false was expected")
        return text.lower() == "true"
    if kind is int:
        if not re.fullmatch(r"-?\d+", text):
            raise ValueError(f"{origin}: {key}={text}: a whole number was expected")
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
    if path is not None:
        try:
            text, _ = read_text(Path(path))
        except OSError as failure:
            raise ValueError(f"{path}: {failure.strerror}; give -c a properties file that can be read") from failure
        config.update(java_properties.to_dict(text), path)
        config.config_store_path = str(Path(path).absolute())
    config.update(overrides or {}, "command line")
    config.warnings.extend(check_tls_file(config.tls, strict=config.strict_config))
    return config
