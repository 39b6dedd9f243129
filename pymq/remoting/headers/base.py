"""What a header class is: a dataclass whose attributes are the fields of one operation.

On the wire fields are strings by RocketMQ's names; here they are typed and in snake case. An attribute without a
default must be there: without it the request is refused in Apache's words. `Int` and `Long` are Java's ranges.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from pymq.remoting.codes import ResponseCode
from pymq.remoting.errors import RemotingError

Int: TypeAlias = int
Long: TypeAlias = int
H = TypeVar("H", bound="Header")

NUMBER = re.compile(r"[+-]?[0-9]+")
BITS = {"Int": 32, "Long": 64}


class FieldRule(NamedTuple):
    """One attribute: its wire name, how it is read, whether it must be there."""

    attribute: str
    name: str
    read: Callable[[str, str], Any]
    required: bool


@dataclass(slots=True, kw_only=True)
class Header:
    """Reads itself from a command's fields and writes itself into them."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {}  # of attributes whose name is not the camel case of theirs

    @classmethod
    def from_fields(cls: type[H], fields: Mapping[str, str]) -> H:
        """Read *fields*.

        Raises:
            RemotingError: SYSTEM_ERROR, naming the field that is missing or not a number.
        """
        values: dict[str, Any] = {}
        for rule in rules_of(cls):
            text = fields.get(rule.name)
            if text is not None:
                values[rule.attribute] = rule.read(rule.name, text)
            elif rule.required:
                raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the custom field <{rule.name}> is null")
        return cls(**values)

    def to_fields(self) -> dict[str, str]:
        """The fields that have a value, as strings."""
        written = {}
        for rule in rules_of(type(self)):
            value = getattr(self, rule.attribute)
            if value is not None:
                written[rule.name] = ("true" if value else "false") if isinstance(value, bool) else str(value)
        return written


_rules: dict[type[Header], tuple[FieldRule, ...]] = {}


def rules_of(owner: type[Header]) -> tuple[FieldRule, ...]:
    """The rules of a header class, made once."""
    known = _rules.get(owner)
    if known is not None:
        return known
    rules = []
    for item in dataclasses.fields(owner):
        kind = str(item.type).removesuffix(" | None")
        name = owner.WIRE_NAMES.get(item.name) or camel_case(item.name)
        rules.append(FieldRule(item.name, name, reader_of(kind), item.default is dataclasses.MISSING))
    _rules[owner] = tuple(rules)
    return _rules[owner]


def reader_of(kind: str) -> Callable[[str, str], Any]:
    """What reads a field of *kind*."""
    if kind in BITS:
        return functools.partial(read_number, bits=BITS[kind])
    return {"str": read_text, "bool": read_truth}[kind]


def read_text(name: str, text: str) -> str:
    """A text is what it is."""
    return text


def read_truth(name: str, text: str) -> bool:
    """Java's Boolean.parseBoolean: whatever is not "true" is false."""
    return text.lower() == "true"


def read_number(name: str, text: str, *, bits: int) -> int:
    """Java's parseInt and parseLong.

    Raises:
        RemotingError: SYSTEM_ERROR, naming the field.
    """
    if NUMBER.fullmatch(text):
        number = int(text)
        if -(1 << bits - 1) <= number < 1 << bits - 1:
            return number
    raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is no {bits}-bit number: {text!r}")


def camel_case(name: str) -> str:
    """consumer_group as consumerGroup."""
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


@dataclass(slots=True, kw_only=True)
class RpcHeader(Header):
    """What every request to a broker may carry besides its own: namespace, the broker meant."""

    ns: str | None = None
    nsd: bool | None = None
    bname: str | None = None
    oway: bool | None = None


@dataclass(slots=True, kw_only=True)
class TopicHeader(RpcHeader):
    """Of requests about a topic; `lo` says whether its queue mapping is meant as logical."""

    lo: bool | None = None
