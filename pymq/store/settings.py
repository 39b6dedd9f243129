"""What a setting is: a dataclass field that carries its own manual entry.

`setting()` makes the field, `check_settings()` holds every value against its bounds, and `describe_settings()` gives
the rows that `pymq.store.reference` renders. One definition, three uses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from pymq.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """The manual entry of one setting.

    Attributes:
        alias: RocketMQ's name, or "" where RocketMQ has no such setting.
        unit: "ms", "bytes", "pages", … or "" for names and switches.
        doc: two sentences: what it does, and what you give up by moving it.
        low, high: inclusive bounds of a number; None means open.
        choices: the allowed words of a text, empty when free.
    """

    alias: str
    unit: str
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting with its name, type and default, ready to be printed."""

    name: str
    type_name: str
    default: Any
    info: SettingInfo


def setting(
    default: Any,
    doc: str,
    *,
    alias: str = "",
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field with its manual entry; typed `Any` so that the annotation beside it decides."""
    info = SettingInfo(alias=alias, unit=unit, doc=doc, low=low, high=high, choices=choices)
    return dataclasses.field(default=default, metadata={"setting": info})


def describe_settings(owner: type) -> Iterator[SettingRow]:
    """Every setting of the dataclass *owner*, in the order it is written down."""
    for item in dataclasses.fields(owner):
        info = item.metadata.get("setting")
        if info is not None:
            yield SettingRow(item.name, str(item.type), item.default, cast(SettingInfo, info))


def check_settings(config: Any) -> None:
    """Hold every value of *config* against its type and bounds.

    Raises:
        ConfigError: names the setting, its value and what is allowed.
    """
    for row in describe_settings(type(config)):
        value = getattr(config, row.name)
        check_type(row, value)
        if row.info.choices and value not in row.info.choices:
            raise ConfigError(f"{row.name} is {value!r}; it can be {' or '.join(row.info.choices)}")
        if row.info.low is not None and value < row.info.low:
            raise ConfigError(
                f"{row.name} is {value}; it must be at least {number(row.info.low)} {row.info.unit}".rstrip()
            )
        if row.info.high is not None and value > row.info.high:
            raise ConfigError(
                f"{row.name} is {value}; it must be at most {number(row.info.high)} {row.info.unit}".rstrip()
            )


def check_type(row: SettingRow, value: object) -> None:
    """Refuse a value of another kind than the setting's; a bool is not a number here."""
    allowed: tuple[type, ...]
    match row.type_name:
        case "bool":
            allowed = (bool,)
        case "int":
            allowed = (int,)
        case "float":
            allowed = (int, float)
        case _:
            allowed = (str,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and row.type_name != "bool"):
        raise ConfigError(f"{row.name} is {value!r}; it takes {row.type_name}")


def number(value: float) -> str:
    """A bound as a reader writes it: 1,024 rather than 1024.0."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value}"
