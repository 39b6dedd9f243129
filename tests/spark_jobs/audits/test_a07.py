"""A7, the index: broken items and lost keys are one finding each, and an index that is only partly there is none."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from pyspark.sql import SparkSession

from pymq import _scan
from spark_jobs.audits import a07_index as a07
from tests.spark_jobs.audits.hand_made import Story, Told, found, pymq_page

pytestmark = pytest.mark.spark

Key = tuple[int, int]  # hash, physical offset


def summed(store: Told, kind: str, key: Key, **more: object) -> None:
    """A key or an item in the scan's sums."""
    digest = hash(key) * 0x9E3779B97F4A7C15 & (2**62 - 1)
    place = {"physical_offset_min": key[1], "physical_offset_end": key[1] + 1}
    store.scan(kind, bucket=key[1] >> 24, digest=digest, **place, **more)


def record(store: Told, physical: int, unique: str, words: str = "", tags: str = "") -> list[Key]:
    """A record with keys; its keys' hashes and place."""
    more = {"uniq_key": unique, "keys": words or None, "tags": tags or None, "store_timestamp": physical}
    store.both(physical, "T", 0, physical // 100)
    store.rows["commitlog"][-1].update(more)
    names = [unique, *words.split(), *([f"T#{tags}"] if tags else [])]
    keys = [(_scan.index_key_hash(b"T", name.encode()), physical) for name in names]
    for key in keys:
        summed(store, "keys", key)
    return keys


def file(store: Told, name: str, items: Iterable[Key], status: str = "ok", **header: int) -> Told:
    """An index file with these items."""
    listed = list(items)
    for number, key in enumerate(listed, 1):
        store.put("index", file=name, item=number, key_hash=key[0], physical_offset=key[1], status="ok")
        summed(store, "items", key, file=name)
    first, last = (listed[0][1], listed[-1][1]) if listed else (None, None)
    said = {"begin_timestamp_ms": first, "end_timestamp_ms": last, "begin_offset": first, "end_offset": last} | header
    place = {"physical_offset_min": first, "physical_offset_end": last, "count": len(listed)}
    return store.scan("index", file=name, status=status, detail=json.dumps(said), **place)


def keyed(store: Told, count: int = 6) -> list[list[Key]]:
    """Some records with three keys each."""
    return [record(store, number * 100, f"id-{number}", f"word-{number}", "tag") for number in range(count)]


def flat(keys: Iterable[Iterable[Key]]) -> list[Key]:
    """All keys."""
    return [key for of_record in keys for key in of_record]


def test_a_broken_index_is_found_where_it_is_broken(spark: SparkSession):
    """Goal: one finding for one fault, whatever else follows from it. Method: a store for each."""
    story = Story()
    item = story.store("item")
    keys = flat(keyed(item))
    file(item, "a", [*keys[:7], (4711, 200), *keys[8:]])
    item.scan("item_fault", file="a", physical_offset_min=200, detail="item 8: slot 3, previous 0", status="bad_chain")
    place = story.store("place")
    keys = flat(keyed(place))
    file(place, "a", [*keys[:7], (keys[7][0], 201), *keys[8:]])
    lost = story.store("lost")
    keys = flat(keyed(lost))
    file(lost, "a", [*keys[:7], *keys[8:]])
    doubled = story.store("doubled")
    keys = flat([*keyed(doubled, 2), record(doubled, 200, "alone"), record(doubled, 300, "id-3")])
    file(doubled, "a", [*keys[:6], keys[0], keys[7]])
    chain = story.store("chain")
    file(chain, "a", flat(keyed(chain)))
    chain.rows["scan"][-1].update(status="bad_header", detail=json.dumps({"trouble": "9 slots used, expected 8"}))
    chain.scan("item_fault", file="a", physical_offset_min=500, detail="item 6: slot 9 holds 0", status="bad_chain")
    header = story.store("header")
    file(header, "a", flat(keyed(header)), end_timestamp_ms=1)
    unreadable = story.store("unreadable")
    keys = flat(keyed(unreadable))
    file(unreadable, "a", keys[:8])
    unreadable.scan("index", file="b", status="bad_header", count=0)
    behind = story.store("behind", **pymq_page(600, pymq_index_end=500))
    keys = flat(keyed(behind))
    file(behind, "a", keys[:9])
    assert found(a07.check(story.tables(spark))) == [
        ("behind", "T", 0, 300),
        ("chain", None, None, 500),
        ("doubled", "T", 0, 200),
        ("header", None, None, 8),
        ("item", None, None, 200),
        ("lost", "T", 0, 200),
        ("place", None, None, 201),
        ("unreadable", None, None, 0),
    ]


def test_an_index_that_is_partly_there_is_legal(spark: SparkSession):
    """Goal: no false alarm for what operators and Apache's recovery do. Method: a store for each."""
    story = Story()
    keyed(story.store("none"))
    later = story.store("begun later")
    file(later, "a", flat(keyed(later))[7:])
    off = story.store("switched off")
    keys = keyed(off)
    file(off, "a", flat(keys[:2] + keys[4:5]))
    dropped = story.store("a file dropped")
    keys = flat(keyed(dropped))
    file(dropped, "a", keys[:4])
    file(dropped, "c", keys[11:])
    twice = story.store("the last record twice")
    keys = flat(keyed(twice))
    file(twice, "a", keys[:9])
    file(twice, "b", keys[6:])
    old = story.store("no tags")
    file(old, "a", [key for of_record in keyed(old) for key in of_record[:2]])
    gone = story.store("log files gone", log_begin=1000)
    file(gone, "a", [(5, 100), (6, 900), *record(gone, 1000, "id")])
    killed = story.store("killed", abort=True, logics_physical_offset=300)
    file(killed, "a", [*flat(keyed(killed))[:10], (7, 550)])
    hurt = story.store("hurt")
    keys = flat(keyed(hurt))
    hurt.scan("damage", status="bad_magic", physical_offset_min=600, physical_offset_end=700)
    file(hurt, "a", [*keys, (99, 600), *record(hurt, 700, "id-7")])
    assert found(a07.check(story.tables(spark))) == []
