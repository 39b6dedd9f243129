"""The pairs of some tables, and a table of the others as if it were of the stores they are compared with.

Who goes with whom, and as what, is decided in `spark_jobs.relations`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.relations import EARLIER, Pair, PairingError, doubt, pair_up
from spark_jobs.tables import Tables


def pairs(tables: Tables) -> list[Pair]:
    """The pairs of *tables* and what they are compared with; none without that.

    Raises:
        PairingError: somebody has no partner.
    """
    against = tables.against
    if against is None:
        return []
    return tables.once("pairs", lambda: pair_up(tables.paths, against.paths, tables.relation))


def earlier_pairs(tables: Tables) -> list[Pair]:
    """The pairs of one broker, of a check that compares nothing else.

    Raises:
        PairingError: there is none, and nobody knows whether there should be: no findings would pass for an answer.
    """
    found = pairs(tables)
    earlier = [pair for pair in found if pair.relation == EARLIER]
    if not earlier and (unknown := doubt(found)):
        raise PairingError(unknown)
    return earlier


def paired(tables: Tables, frame: DataFrame, couples: Iterable[Pair]) -> DataFrame:
    """*frame*, a table of the others, as if it were of the stores they are compared with."""
    named = tables.spark.createDataFrame([(one.other, one.store) for one in couples], "other string, store string")
    return frame.withColumnRenamed("store", "other").join(F.broadcast(named), "other").drop("other")
