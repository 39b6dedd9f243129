"""The options of `spark.read.format("rocketmq_store")`, checked where the query is written.

    table        which table; commitlog without one
    path, paths  where the stores are: load("/dump"), load(["/a", "/b"]), or option("paths", '["/a", "/b"]')
    body         of commitlog: none, digest (column body_digest) or bytes (column body)
    properties   of commitlog: raw (as stored) or map
    ranges       of commitlog: JSON [[store, begin, end], …]; only what begins at these physical offsets
    topics       of commitlog and consumequeue: JSON [topic, …]; only these topics
    having       of commitlog: JSON [name, …]; only records with one of these properties, and perhaps a few others
    delayLevels  messageDelayLevel of the brokers; without it a dump's own, or RocketMQ's

Spark hands options over as text, with names in any case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pymq.errors import ConfigError, PymqError
from pymq.store.config import parse_delay_levels
from spark_jobs.rocketmq_store.schema import arrow_schema

OPTIONS: Final = ("table", "path", "paths", "body", "properties", "ranges", "topics", "having", "delayLevels")


class OptionError(PymqError, ValueError):
    """An option that is not known or cannot be read; one line that says what is possible."""


@dataclass(frozen=True)
class Request:
    """What is asked for, checked as far as it can be without looking at files."""

    table: str
    paths: tuple[str, ...]
    body: str = "none"
    properties: str = "raw"
    ranges: tuple[tuple[str, int, int], ...] | None = None
    topics: frozenset[str] | None = None
    having: tuple[str, ...] | None = None
    delay_levels: str | None = None

    def arrow_schema(self) -> pa.Schema:
        """The table's columns."""
        return arrow_schema(self.table, body=self.body, properties=self.properties)


def parse_options(given: Mapping[str, str]) -> Request:
    """What *given* options ask for.

    Raises:
        OptionError: an unknown one, or one that cannot be read.
    """
    known = {name.lower(): name for name in OPTIONS}
    unknown = sorted(name for name in given if name.lower() not in known)
    if unknown:
        raise OptionError(f"unknown option {', '.join(unknown)}; there are {', '.join(OPTIONS)}")
    values = {known[name.lower()]: value for name, value in given.items()}
    request = Request(
        table=values.get("table", "commitlog"),
        paths=parse_paths(values),
        body=values.get("body", "none"),
        properties=values.get("properties", "raw"),
        ranges=parse_ranges(values["ranges"]) if "ranges" in values else None,
        topics=frozenset(strings("topics", values["topics"])) if "topics" in values else None,
        having=tuple(strings("having", values["having"])) if "having" in values else None,
        delay_levels=values.get("delayLevels"),
    )
    try:
        request.arrow_schema()
        if request.delay_levels is not None:
            parse_delay_levels(request.delay_levels)
    except ConfigError as error:
        raise OptionError(f"delayLevels: {error}") from None
    except ValueError as error:
        raise OptionError(str(error)) from None
    return request


def parse_paths(values: Mapping[str, str]) -> tuple[str, ...]:
    """Where the stores are."""
    if "path" in values and "paths" in values:
        raise OptionError("path and paths are both given; give one of them")
    paths = [values["path"]] if "path" in values else strings("paths", values["paths"]) if "paths" in values else []
    if not paths or not all(paths):
        raise OptionError("no store is named; give load() the directory of a store or of a dump")
    return tuple(paths)


def parse_ranges(text: str) -> tuple[tuple[str, int, int], ...]:
    """Stretches of the log."""
    found = parse_list("ranges", text, '[["store", 0, 4096]]')
    for one in found:
        shape = isinstance(one, list) and [type(value) for value in one] == [str, int, int]
        if not shape:
            raise OptionError(f'ranges: {json.dumps(one)} is not [store, begin, end], as in ["store", 0, 4096]')
    return tuple((one[0], one[1], one[2]) for one in found)


def strings(name: str, text: str) -> list[str]:
    """A JSON list of texts."""
    found = parse_list(name, text, '["one", "two"]')
    if not all(isinstance(one, str) for one in found):
        raise OptionError(f"{name}: {text!r} is not a JSON list of texts")
    return found


def parse_list(name: str, text: str, example: str) -> list[Any]:
    """A JSON list."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise OptionError(f"{name}: {text!r} is not a JSON list such as {example}")
    return found
