"""Ledgers: what clients know about their messages, one line each, for comparing with what a store holds.

The format is `docs/ledger.md`. `LedgerWriter` writes it, for test clients; the load generator of perf/side_by_side has
a writer of its own, in C. `read_ledgers` makes a data frame of any number of files, read by Spark as text. A line that
is none becomes a row too, with a `status` that says so, and a finding later (A21): a ledger of a client that was killed
may end in the middle of a line. So does a file that does not say what it is, an empty one included: which files there
are is known here, and not from what Spark found in them.

Writing needs no pyspark, and neither does `ledger_files`.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from pymq.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import Column, DataFrame, SparkSession

VERSION: Final = "1"
HEAD: Final = "# pymq-ledger "
COLUMNS: Final = (
    "kind", "topic", "queue", "queueOffset", "msgId", "sender", "sequence", "intendedNs", "sentNs", "doneNs",
)  # fmt: skip
GROUP: Final = "# group "
SUBSCRIPTION: Final = "# subscription "
NONE: Final = "-"

ACKNOWLEDGED, REFUSED, UNKNOWN, RECEIVED, FOREIGN = "A", "F", "U", "R", "C"
PLACED: Final = (ACKNOWLEDGED, RECEIVED, FOREIGN)  # kinds of lines that say where their message lies
UNPLACED: Final = (REFUSED, UNKNOWN)

# Of a data frame, as Spark writes schemas.
SCHEMA: Final = (
    "kind string, topic string, queue_id int, queue_offset long, message_id string, sender long, sequence long, "
    "intended_ns long, sent_ns long, done_ns long, file string, "
    "consumer_group string, "  # whose consumption the file tells; null when it does not say
    "subscription string, "  # what the group had asked for of this line's topic; null for everything
    "status string, "  # ok | bad_line | bad_head (no line says that it is a ledger of this version, or two name groups)
    "line string"  # of a bad one, its text
)


# ---- writing -----------------------------------------------------------------------------------------------------


class LedgerWriter:
    """A ledger being written; any thread may add to it. Lines are whole on disk when `close` returns.

    >>> with LedgerWriter(path) as ledger:
    ...     ledger.acknowledged("Orders", 0, 17, answer.message_id, sender=1, sequence=1, sent_ns=begin, done_ns=end)
    """

    def __init__(self, path: Path, *, group: str = "", subscriptions: Mapping[str, str] | None = None) -> None:
        """Begin *path* anew.

        Args:
            path: the file.
            group: whose consumption is told; empty for a producer's ledger.
            subscriptions: what the group asks for, by topic: "*", tags ("red || green"), or "sql:" and an expression.
                A topic that is not named is read whole.
        """
        self._lock = threading.Lock()
        self._stream = path.open("w", encoding="utf-8", newline="\n")
        self._stream.write(f"{HEAD}{VERSION}\n# " + "\t".join(COLUMNS) + "\n")
        if group:
            self._stream.write(f"{GROUP}{group}\n")
        for topic, expression in (subscriptions or {}).items():
            self._stream.write(f"{SUBSCRIPTION}{topic}\t{expression}\n")

    def acknowledged(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        message_id: str,
        *,
        sender: int | None = None,
        sequence: int | None = None,
        intended_ns: int | None = None,
        sent_ns: int | None = None,
        done_ns: int | None = None,
    ) -> None:
        """A send was answered with success, with this place and this offset message id."""
        self._write(
            ACKNOWLEDGED, topic, queue_id, queue_offset, message_id, sender, sequence, intended_ns, sent_ns, done_ns
        )

    def refused(
        self,
        topic: str,
        queue_id: int,
        code: int,
        *,
        sender: int | None = None,
        sequence: int | None = None,
        intended_ns: int | None = None,
        sent_ns: int | None = None,
        done_ns: int | None = None,
    ) -> None:
        """A send was answered with *code*."""
        self._write(
            REFUSED, topic, queue_id, None, f"code:{code}", sender, sequence, intended_ns, sent_ns, done_ns
        )  # fmt: skip

    def unknown(
        self,
        topic: str,
        queue_id: int,
        *,
        sender: int | None = None,
        sequence: int | None = None,
        intended_ns: int | None = None,
        sent_ns: int | None = None,
    ) -> None:
        """A send was not answered: its message may be stored, or not."""
        self._write(UNKNOWN, topic, queue_id, None, None, sender, sequence, intended_ns, sent_ns, None)

    def received(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        message_id: str,
        *,
        sender: int | None = None,
        sequence: int | None = None,
        intended_ns: int | None = None,
        done_ns: int | None = None,
    ) -> None:
        """A message was handled; *sender* and *sequence* as its body tells them, if the reader looked."""
        self._write(
            RECEIVED, topic, queue_id, queue_offset, message_id, sender, sequence, intended_ns, None, done_ns
        )  # fmt: skip

    def _write(self, *values: object) -> None:
        line = "\t".join(NONE if value is None else str(value) for value in values) + "\n"
        with self._lock:
            self._stream.write(line)

    def close(self) -> None:
        """Write what is left; more than once is once."""
        with self._lock:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# ---- reading -----------------------------------------------------------------------------------------------------


def ledger_files(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The files at *paths*, absolute and each once; a directory stands for the files in it. Names are no patterns.

    Raises:
        ConfigError: a directory without files, what is no file, or a file that Spark would pass over in silence.
        OSError: it cannot be read.
    """
    found: dict[str, None] = {}
    for path in map(Path, paths):
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        if not files:
            raise ConfigError(f"{path}: a directory without a ledger in it")
        for file in files:
            check_file(file)
            found[str(file.parent.resolve() / file.name)] = None
    return list(found)


def check_file(path: Path) -> None:
    """Refuse what could not be read, or would not be.

    Raises:
        ConfigError, OSError: see `ledger_files`.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ConfigError(f"{path}: not a file; give ledgers, or directories that hold nothing else")
    if path.name.startswith(("_", ".")) or path.name.endswith("._COPYING_"):
        raise ConfigError(f"{path}: Spark takes a file of such a name for a hidden one; rename it")
    if ":" in path.name:
        raise ConfigError(f"{path}: Spark does not open a file with a colon in its name; rename it")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(path)!a}: a name that is not UTF-8; rename it") from None
    with path.open("rb"):
        pass


def read_ledgers(spark: SparkSession, paths: Iterable[str | os.PathLike[str]]) -> DataFrame:
    """The lines of all ledgers at *paths* (see `ledger_files`), as SCHEMA."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

    files = ledger_files(paths)
    # Hadoop takes some characters for those of a pattern unless a backslash stands before them.
    literal = ["file://" + re.sub(r"([\\*?\[\]{}])", r"\\\1", file) for file in files]
    # An address as Spark tells it is an encoded one, where a plus sign is a plus sign: not so for url_decode.
    address = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
    file = F.regexp_replace(address, "^file:/+", "/")
    return parse(spark.read.text(literal).select(F.col("value"), file.alias("file")), files)


def parse(text: DataFrame, files: Sequence[str]) -> DataFrame:
    """Lines of text (`value`, `file`) of *files* as SCHEMA; comment lines are left out."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

    words = F.split("value", "\t", -1)
    name, numbers, small = "(?!-\t)[^\t]+", "(-|[0-9]{1,18})", "(-|[0-9]{1,9})"
    placed = f"[{''.join(PLACED)}]\t{name}\t[0-9]{{1,9}}\t[0-9]{{1,18}}\t{name}"
    unplaced = f"[{''.join(UNPLACED)}]\t{name}\t{small}\t{numbers}\t[^\t]+"
    # Java's "$" would also match in front of a last character that Unicode calls the end of a line.
    shape = rf"^({placed}|{unplaced})(\t{numbers}){{5}}\z"

    def number(at: int, kind: str = "long") -> Column:
        # Only a whole line's words are looked at: under ANSI rules a cast of anything else would fail.
        word = F.get(words, F.lit(at))
        return F.when(F.col("whole") & (word != NONE), word).cast(kind)

    def word(at: int) -> Column:
        value = F.get(words, F.lit(at))
        return F.when(F.col("whole") & (value != NONE), value)

    is_entry = ~F.col("value").startswith("#") & (F.col("value") != "")
    entries = text.where(is_entry).withColumn("whole", F.col("value").rlike(shape))
    rows = entries.select(
        word(0).alias("kind"),
        word(1).alias("topic"),
        number(2, "int").alias("queue_id"),
        number(3).alias("queue_offset"),
        word(4).alias("message_id"),
        number(5).alias("sender"),
        number(6).alias("sequence"),
        number(7).alias("intended_ns"),
        number(8).alias("sent_ns"),
        number(9).alias("done_ns"),
        F.col("file"),
        F.when(F.col("whole"), "ok").otherwise("bad_line").alias("status"),
        F.when(~F.col("whole"), F.substring("value", 1, 200)).alias("line"),
    )
    comments = text.where(F.col("value").startswith("#"))
    # A file may have been put together from several of one group; of two groups nobody can tell whose a line is.
    named = F.substring("value", len(GROUP) + 1, 1 << 20)
    groups = (
        comments.where(F.col("value").startswith(GROUP))
        .groupBy("file")
        .agg(F.array_sort(F.collect_set(named)).alias("named"))
        .withColumn("consumer_group", F.when(F.size("named") == 1, F.get("named", F.lit(0))))
    )
    mixed = groups.where(F.size("named") > 1).select(
        "file", F.lit("bad_head").alias("status"), F.concat(F.lit("groups "), F.array_join("named", ", ")).alias("line")
    )
    asked = F.split(F.substring("value", len(SUBSCRIPTION) + 1, 1 << 20), "\t", 2)
    subscriptions = (
        comments.where(F.col("value").startswith(SUBSCRIPTION))
        .select("file", F.get(asked, F.lit(0)).alias("topic"), F.get(asked, F.lit(1)).alias("subscription"))
        .groupBy("file", "topic")
        .agg(F.max("subscription").alias("subscription"))
    )
    heads = comments.where(F.col("value") == HEAD + VERSION).select("file").distinct()
    given = text.sparkSession.createDataFrame([(file,) for file in files], "file string")
    strangers = given.join(F.broadcast(heads), "file", "left_anti").select("file", F.lit("bad_head").alias("status"))
    return (
        rows.unionByName(strangers, allowMissingColumns=True)
        .unionByName(mixed, allowMissingColumns=True)
        .join(F.broadcast(groups.drop("named")), "file", "left")
        .join(F.broadcast(subscriptions), ["file", "topic"], "left")
        .select(*[name.split()[0] for name in SCHEMA.split(", ")])
    )


def message_offset(message_id: Column) -> Column:
    """The physical offset in an offset message id; null where it is none."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

    return F.when(is_offset_id(message_id), F.conv(F.right(message_id, F.lit(16)), 16, 10)).cast("long")


def message_host(message_id: Column) -> Column:
    """The store host in an offset message id, as "1.2.3.4:5"; null where it is none, or of IPv6."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

    bytes_ = [F.conv(F.substring(message_id, 1 + 2 * index, 2), 16, 10) for index in range(4)]
    host = F.concat(F.concat_ws(".", *bytes_), F.lit(":"), F.conv(F.substring(message_id, 9, 8), 16, 10))
    return F.when(is_offset_id(message_id) & (F.length(message_id) == 32), host)


def is_offset_id(message_id: Column) -> Column:
    """Whether it is host (8 or 20 bytes) and physical offset (8) in hexadecimal.

    An offset is not negative: without this a client's own id (UNIQ_KEY is as long) would not fit into a long.
    """
    return message_id.rlike(r"^([0-9A-Fa-f]{16}|[0-9A-Fa-f]{40})[0-7][0-9A-Fa-f]{15}\z")
