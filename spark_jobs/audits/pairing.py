"""Which store is compared with which, and as what.

Stores and those they are compared with go together one by one when there are as many of each, all with the one when
there is only one, and by name otherwise.

An earlier dump of the same broker promises more than a replica: a replica may be ahead, and its metadata comes when it
comes. Which it is, `Tables.relation` says; "auto" takes it for the same broker where both manifests name one source,
and for a replica otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from pymq.errors import PymqError
from spark_jobs.rocketmq_store.files import names, plain_path, read_manifest
from spark_jobs.tables import Tables

EARLIER: Final = "earlier"
REPLICA: Final = "replica"
AUTO: Final = "auto"


class PairingError(PymqError):
    """It cannot be told which store is to be compared with which."""


class Pair(NamedTuple):
    """A store and what it is compared with, by their names in their tables."""

    store: str
    other: str
    relation: str


def pairs(tables: Tables) -> list[Pair]:
    """The pairs of *tables* and what they are compared with; none without that.

    Raises:
        PairingError: neither number nor names make pairs.
    """
    if tables.against is None:
        return []
    stores, others = list(tables.paths), list(tables.against.paths)
    own, theirs = names(stores), names(others)
    couples = list(zip(own, theirs, strict=False))
    if len(others) == 1:
        couples = [(name, theirs[0]) for name in own]
    elif len(stores) != len(others):
        couples = [(name, name) for name in own if name in theirs]
        if not couples:
            raise PairingError(
                f"{len(stores)} stores against {len(others)}, and no two have one name: give as many of each, or one"
            )
    places = dict(zip(own, stores, strict=True))
    other_places = dict(zip(theirs, others, strict=True))
    return [Pair(name, other, relation(tables.relation, places[name], other_places[other])) for name, other in couples]


def relation(said: str, store: str, other: str) -> str:
    """What *other* is to *store*.

    Raises:
        PairingError: *said* is no relation.
    """
    if said in (EARLIER, REPLICA):
        return said
    if said != AUTO:
        raise PairingError(f"relation {said!r}: it is one of {EARLIER}, {REPLICA}, {AUTO}")
    sources = [source_of(path) for path in (store, other)]
    return EARLIER if sources[0] is not None and sources[0] == sources[1] else REPLICA


def source_of(path: str) -> str | None:
    """Of what a dump was taken; None for a plain directory."""
    manifest = read_manifest(plain_path(path))
    return None if manifest is None else str(manifest.get("source"))


def paired(tables: Tables, frame: DataFrame, couples: Iterable[Pair]) -> DataFrame:
    """*frame*, a table of the others, as if it were of the stores they are compared with."""
    named = tables.spark.createDataFrame([(one.other, one.store) for one in couples], "other string, store string")
    return frame.withColumnRenamed("store", "other").join(F.broadcast(named), "other").drop("other")
