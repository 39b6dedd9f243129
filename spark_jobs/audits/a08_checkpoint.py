"""A8: the checkpoint vouches for nothing that is not there.

Proved: the page is there, whole, and no time on it is later than the last record's, no position beyond the end of the
log; pymq's own block has the CRC it states, its positions are in order (safe ≤ flushed ≤ end of the log) and a record
begins where it says the last one below the safe offset does. `offset` is the byte of the page.

Legal: times and positions that lag behind, also below the beginning of the log; no page in a store that was never
stopped; a page that Apache wrote since (pymq's block is then not looked at); masterFlushedOffset, which is another
broker's, and a slave's confirmPhyOffset, which is its master's. After a crash of Apache's the queues may have been
flushed further than the log: their position and time are not held against a store that waits for recovery.

Cost: one page a store, and one record of each that pymq wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame

from spark_jobs.audits.base import Audit, counted, found
from spark_jobs.audits.facts import Facts, facts
from spark_jobs.tables import ByteRange, Tables

CHECK: Final = "A8"
FILE: Final = "file checkpoint at"

# Field, its byte of the page, its name.
TIMES: Final = (
    ("physic_msg_timestamp", 0, "physicMsgTimestamp"),
    ("logics_msg_timestamp", 8, "logicsMsgTimestamp"),
    ("index_msg_timestamp", 16, "indexMsgTimestamp"),
)
CONFIRM: Final = ("confirm_phy_offset", 32, "confirmPhyOffset")
LOGICS: Final = ("logics_physical_offset", 40, "logicsPhysicalOffset")
SAFE: Final = ("pymq_safe_offset", 2064, "safe offset")
FLUSHED: Final = ("pymq_flushed_offset", 2072, "flushed offset")
LAST_RECORD: Final = ("pymq_last_record", 2088, "last record")
INDEX_END: Final = ("pymq_index_end", 2104, "index end")
BLOCK_AT: Final = 2048

Field = tuple[str, int, str]
Finding = dict[str, Any]


def page_trouble(one: Facts) -> Iterator[Finding]:
    """A page that is not there, or not whole."""
    status = one.page["status"]
    if status == "missing" and (one.records == 0 or one.abort):
        return
    if status != "ok":
        at = BLOCK_AT if status == "bad_crc" else 0
        expected = {
            "missing": "a checkpoint, because the store was stopped cleanly",
            "bad_size": "a page of 4,096 bytes",
            "bad_crc": "pymq's block with the CRC it states",
        }[status]
        yield {
            "store": one.store,
            "offset": at,
            "expected": expected,
            "actual": status,
            "evidence": f"{FILE} {at}",
        }


def wrong(one: Facts, field: Field, bound: str) -> Finding:
    """A field that says more than *bound*."""
    name, at, said = field
    return {
        "store": one.store,
        "offset": at,
        "expected": f"{said} {bound}",
        "actual": str(one.page[name]),
        "evidence": f"{FILE} {at}",
    }


def value(page: Mapping[str, Any], field: Field) -> int | None:
    """A field of the page; None where it could not be read, or is not pymq's."""
    found: int | None = page[field[0]]
    return found


def beyond(one: Facts, field: Field, limit: int, what: str, least: int = 0) -> Iterator[Finding]:
    """A finding when a field lies outside [least, limit]."""
    stated = value(one.page, field)
    if stated is None:
        return
    if stated < least:
        yield wrong(one, field, f"of at least {least}")
    elif stated > limit:
        yield wrong(one, field, f"of at most {limit}, {what}")


def page_beyond(one: Facts) -> Iterator[Finding]:
    """Times and positions of the page that the log does not bear out."""
    waits = one.rebuilds and not one.is_pymq
    if one.last_store_timestamp is not None:
        for field in TIMES:
            if waits and field[0] == "logics_msg_timestamp":
                continue
            yield from beyond(one, field, one.last_store_timestamp, "when the last record was stored")
    end, what = max(one.padded_end, one.stated_end or 0), "where the log ends"
    if not waits:
        yield from beyond(one, LOGICS, end, what)
    if not one.is_pymq:
        return
    yield from beyond(one, CONFIRM, end, what)
    yield from beyond(one, SAFE, value(one.page, FLUSHED) or 0, "the flushed offset")
    yield from beyond(one, FLUSHED, end, what)
    yield from beyond(one, LAST_RECORD, (value(one.page, SAFE) or 0) - 1, "below the safe offset", -1)
    yield from beyond(one, INDEX_END, one.log_end - 1, "a record of the log", -2)


def no_record(tables: Tables, stores: Mapping[str, Facts]) -> list[Finding]:
    """Pages whose last record does not begin where they say."""
    wanted = {
        name: one.page["pymq_last_record"]
        for name, one in stores.items()
        if one.is_pymq and one.log_begin <= (one.page["pymq_last_record"] or -1) < one.log_end
    }
    if not wanted:
        return []
    rows = tables.records([ByteRange(store, offset, offset + 1) for store, offset in wanted.items()])
    there = {row.store for row in rows.where("topic is not null").select("store").collect()}
    return [
        wrong(stores[store], LAST_RECORD, "where a record begins")
        for store in sorted(wanted.keys() - there)
        if not in_damage(tables, store, wanted[store])
    ]


def in_damage(tables: Tables, store: str, offset: int) -> bool:
    """Whether the log is damaged there: then A1 and A2 have said so."""
    damage = tables.kind("damage").where(f"{offset} >= physical_offset_min and {offset} < physical_offset_end")
    return not damage.where(damage.store == store).isEmpty()


def check(tables: Tables) -> DataFrame:
    """One finding for each field that says too much."""
    stores = facts(tables)
    rows: list[Finding] = []
    for one in stores.values():
        rows += page_trouble(one)
        if one.page["status"] == "ok":
            rows += page_beyond(one)
    told = {(row["store"], row["offset"]) for row in rows}
    rows += [row for row in no_record(tables, stores) if (row["store"], row["offset"]) not in told]
    return found(tables.spark, CHECK, rows)


def metrics(tables: Tables) -> DataFrame:
    """How far the checkpoint lags behind the log."""
    rows = []
    for one in facts(tables).values():
        field = SAFE if one.is_pymq else LOGICS
        stated = value(one.page, field)
        rows.append((one.store, "bytes_behind_the_checkpoint", None if stated is None else one.log_end - stated))
    return counted(tables.spark, CHECK, rows)


AUDIT: Final = Audit(
    CHECK,
    "the checkpoint's times and positions are on disk",
    check,
    metrics=metrics,
    tables=("checkpoint", "scan", "commitlog"),
)
