"""What was said where: file, command line and environment put together into one `BrokerConfig`.

Later words win: defaults, then the environment (NAMESRV_ADDR, ROCKETMQ_HOME), then the file given with `-c` (without
one, what `updateBrokerConfig` kept in the store), then the command line. Every value remembers where it came from, for
`--explain` and for error texts.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pymq import java_properties
from pymq.broker.config import BrokerConfig
from pymq.broker.known_keys import KNOWN_KEYS, OLD_SPELLINGS
from pymq.broker.secret_values import masked, masked_value, refuse_mask
from pymq.errors import ConfigError
from pymq.java_properties import parse_bool
from pymq.properties_file import read_text
from pymq.remoting.tls_context import PROPERTY_NAMES, check_property, check_tls_file
from pymq.store.config import ASYNC_FLUSH, CQ_UNIT_SIZE, StoreConfig
from pymq.store.settings import SettingRow, describe_settings

KEPT_FILE = "broker.properties"  # in the store's config directory: what updateBrokerConfig changed, without -c
TLS_FILES = {"tls.server.certPath", "tls.server.keyPath", "tls.server.trustCertPath"}
SUGGESTION_CUTOFF = 0.75  # below it, suggestions are noise
# Keys that half the configuration files of the world have and no release ever read.
FIXED_PLACES = {
    "storePathConsumeQueue": "consumequeue",
    "storePathIndex": "index",
    "storeCheckpoint": "checkpoint",
    "abortFile": "abort",
}
NAMESRV_VARIABLE = "NAMESRV_ADDR"
ENVIRONMENT_KEYS = {NAMESRV_VARIABLE: "namesrvAddr", "ROCKETMQ_HOME": "rocketmqHome"}
NOT_OF_THE_STORE = {"brokerIP1", "flushConsumerOffsetInterval"}  # the broker's own; the store has its copy of them
RATIO_KEYS = {"diskSpaceWarningLevelRatio", "diskSpaceCleanForciblyRatio"}
EXPIRED_RATIO_MIN, EXPIRED_RATIO_MAX = 10, 95  # MessageStoreConfig.getDiskMaxUsedSpaceRatio

BROKER_ROWS: dict[str, SettingRow] = {
    row.info.alias or camel: row
    for row, camel in (
        (row, "".join(part.capitalize() if number else part for number, part in enumerate(row.name.split("_"))))
        for row in describe_settings(BrokerConfig)
    )
}
STORE_ROWS: dict[str, SettingRow] = {
    row.info.alias: row
    for row in describe_settings(StoreConfig)
    if row.info.alias and row.info.alias not in NOT_OF_THE_STORE
}


class Given(NamedTuple):
    """One value and where it was said: "broker.conf:12", "command line", "environment NAMESRV_ADDR"."""

    key: str
    value: str
    origin: str


@dataclass(slots=True)
class LoadedConfig:
    """A configuration with what there is to say about it."""

    config: BrokerConfig
    origins: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read_config_file(path: str | Path) -> list[Given]:
    """Every property of the file, with its line.

    Raises:
        ConfigError: it cannot be read or is not what Java's properties look like.
    """
    file = Path(path)
    try:
        text, _ = read_text(file)
        return [Given(item.key, item.value.strip(), f"{file}:{item.line}") for item in java_properties.parse(text)]
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; give -c a properties file that can be read") from error
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from error


def from_environment(environment: Mapping[str, str]) -> list[Given]:
    """What the environment says."""
    return [
        Given(key, environment[name], f"environment {name}")
        for name, key in ENVIRONMENT_KEYS.items()
        if environment.get(name)
    ]


def build_config(given: Iterable[Given], *, config_path: str = "") -> LoadedConfig:
    """Put *given* together, the last word on each key winning.

    Raises:
        ConfigError: a value that is not what its key takes, or, with strictConfig, a key nobody knows.
    """
    last: dict[str, Given] = {}
    for item in given:
        key = OLD_SPELLINGS.get(item.key, item.key)
        last[key] = item._replace(key=key)
    loaded = LoadedConfig(BrokerConfig(), {key: item.origin for key, item in last.items()})
    broker: dict[str, Any] = {"broker_config_path": config_path} if config_path else {}
    store: dict[str, Any] = {}
    tls: dict[str, str] = {}
    others: dict[str, str] = {}
    unknown: list[str] = []
    for key, item in last.items():
        refuse_mask(key, item.value, item.origin)
        if key in BROKER_ROWS:
            broker[BROKER_ROWS[key].name] = convert(BROKER_ROWS[key], item)
        elif key in STORE_ROWS:
            store[STORE_ROWS[key].name] = convert(STORE_ROWS[key], item, ratio=key in RATIO_KEYS)
        elif key in PROPERTY_NAMES:
            check_property(key, item.value, item.origin)
            tls[key] = item.value
        elif key in KNOWN_KEYS:
            others[key] = item.value
            if not KNOWN_KEYS[key].is_default(item.value):
                shown = masked_value(key, item.value)
                loaded.warnings.append(f"{item.origin}: {key}={shown} has no effect here: pymq does not support it")
        elif key in FIXED_PLACES:
            others[key] = item.value
            place = FIXED_PLACES[key]
            loaded.warnings.append(f"{item.origin}: {key} has no effect: it is always {place} in storePathRootDir")
        else:
            others[key] = item.value
            unknown.append(unknown_key(item))
    adapt_store(store, loaded.warnings)
    if broker.get("broker_id"):
        loaded.warnings.append(f"brokerId={broker['broker_id']} is taken as 0: every master is, and this is one")
    if tls.keys() & TLS_FILES and tls.get("tls.test.mode.enable", "true").lower() != "false":
        loaded.warnings.append(
            "tls.server.certPath and its kin have no effect while tls.test.mode.enable is true, which is its default; "
            "set it to false"
        )
    try:
        config = BrokerConfig(**broker, tls=tls, others=others, store=make_store_config(store, loaded.warnings))
    except ConfigError as error:
        raise in_words_of_the_file(error, loaded.origins) from error
    if unknown and config.strict_config:
        raise ConfigError("; ".join(unknown) + " (strictConfig=true refuses unknown keys)")
    loaded.warnings.extend(unknown)
    loaded.config = config
    return loaded


def check_files(loaded: LoadedConfig) -> None:
    """Look into the files that a start will read besides the configuration's own.

    Raises:
        ConfigError: a value that is not what its key takes, or, with strictConfig, a key nobody knows.
    """
    loaded.warnings.extend(check_tls_file(loaded.config.tls, strict=loaded.config.strict_config))


def in_words_of_the_file(error: ConfigError, origins: Mapping[str, str]) -> ConfigError:
    """A refused value by the key and the place it was written at, not by the name of our field."""
    name, _, rest = str(error).partition(" ")
    key = next((key for rows in (BROKER_ROWS, STORE_ROWS) for key, row in rows.items() if row.name == name), None)
    if key is None or key not in origins:
        return error
    return ConfigError(f"{origins[key]}: {key} {rest}")


def unknown_key(item: Given) -> str:
    """What to say of a key that neither RocketMQ nor pymq has."""
    known = [*KNOWN_KEYS, *BROKER_ROWS, *STORE_ROWS, *OLD_SPELLINGS, *PROPERTY_NAMES]
    close = difflib.get_close_matches(item.key, known, n=1, cutoff=SUGGESTION_CUTOFF)
    lowered = {name.lower(): name for name in known}
    suggestion = lowered.get(item.key.lower()) or (close[0] if close else None)
    hint = f"did you mean {suggestion}?" if suggestion else "no key looks like it; remove it"
    return f"{item.origin}: unknown key {item.key}: {hint}"


def convert(row: SettingRow, item: Given, *, ratio: bool = False) -> Any:
    """The value as its setting's type.

    Raises:
        ConfigError: it is no such thing; says where it stands.
    """
    converters: dict[str, Callable[[str], Any]] = {"bool": parse_bool, "int": int, "float": float}
    try:
        value = converters.get(row.type_name, str)(item.value)
    except ValueError:
        raise ConfigError(f"{item.origin}: {item.key}={item.value!r}; it takes {row.type_name}") from None
    # RocketMQ writes these in percent, the store as a share.
    return value / 100 if ratio and value > 1 else value


def adapt_store(store: dict[str, Any], warnings: list[str]) -> None:
    """Bring values that RocketMQ accepts into the bounds that the store has."""
    defaults = StoreConfig()
    store.setdefault("flush_disk_type", ASYNC_FLUSH)
    size = store.get("mapped_file_size_consume_queue")
    if size is not None and size > 0:
        store["mapped_file_size_consume_queue"] = -(-size // CQ_UNIT_SIZE) * CQ_UNIT_SIZE
    warning = store.get("disk_space_warning_level_ratio", defaults.disk_space_warning_level_ratio)
    forcibly = store.get("disk_space_clean_forcibly_ratio", defaults.disk_space_clean_forcibly_ratio)
    if forcibly > warning:
        store["disk_space_clean_forcibly_ratio"] = forcibly = warning
        warnings.append(
            f"diskSpaceCleanForciblyRatio is taken as {warning:.2f}: above the warning level sends are refused"
        )
    expired = store.get("disk_max_used_space_ratio")
    if expired is not None:
        # Above the other level files go whatever their age, so a higher value here says the same as that level.
        kept = min(max(expired, EXPIRED_RATIO_MIN), EXPIRED_RATIO_MAX, int(forcibly * 100))
        if kept != expired:
            store["disk_max_used_space_ratio"] = kept
            warnings.append(
                f"diskMaxUsedSpaceRatio={expired} is taken as {kept}: above that, files are removed in any case"
            )


def make_store_config(store: dict[str, Any], warnings: list[str]) -> StoreConfig:
    """The store's settings; roles that need replication are said to be without it."""
    role = store.get("broker_role")
    if role == "SLAVE":
        raise ConfigError("brokerRole is SLAVE; pymq has no replication yet, run it as ASYNC_MASTER")
    if role == "SYNC_MASTER":
        warnings.append(
            "brokerRole=SYNC_MASTER: pymq has no replication yet; sends are acknowledged by this broker alone"
        )
        store["broker_role"] = "ASYNC_MASTER"
    return StoreConfig(**store)


def all_properties(config: BrokerConfig) -> dict[str, str]:
    """Every key known, with the value in force: what `-p` prints and GET_BROKER_CONFIG answers, masked."""
    values = {
        name: "" if key.default is None or key.default[:1] == "$" else key.default for name, key in KNOWN_KEYS.items()
    }
    values.update(config.others)
    for rows, owner in ((STORE_ROWS, config.store), (BROKER_ROWS, config)):
        values |= {key: render_value(getattr(owner, row.name), percent=key in RATIO_KEYS) for key, row in rows.items()}
    values["brokerRole"] = config.broker_role
    return {**values, **config.tls}


def render_value(value: object, *, percent: bool = False) -> str:
    """A value as RocketMQ prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if percent and isinstance(value, float):
        return str(round(value * 100))
    return str(value)


def important_properties(config: BrokerConfig) -> dict[str, str]:
    """What `-m` prints: the keys RocketMQ calls important, and pymq's own."""
    own = {key for key in BROKER_ROWS if key not in KNOWN_KEYS}
    return {
        key: value
        for key, value in all_properties(config).items()
        if key in own or (key in KNOWN_KEYS and KNOWN_KEYS[key].important)
    }


def explain(loaded: LoadedConfig) -> str:
    """Each value that takes effect and where it came from, then what has none."""
    values = masked(all_properties(loaded.config))
    names = sorted({*BROKER_ROWS, *STORE_ROWS, *loaded.config.tls})
    width = max(len(name) for name in names)
    lines = [f"{name:{width}}  {values[name] or '(empty)'}  [{loaded.origins.get(name, 'default')}]" for name in names]
    lines += [
        f"{name:{width}}  {values[name]}  [{loaded.origins.get(name, '')}; no effect]"
        for name in sorted(loaded.config.others)
    ]
    return "\n".join(lines) + "\n"
