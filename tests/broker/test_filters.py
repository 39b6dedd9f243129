"""Consumer filter data: versions, death and forgetting, and the file, on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import json

import pytest

from pymq.broker.bloom import BloomShape, murmur3_128_low
from pymq.broker.filters import FILTERS_FILE, FilterManager
from pymq.broker.subscriptions import SubscriptionData
from pymq.errors import CorruptFileError
from tests.broker.fakes import FakeBroker

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def broker(tmp_path):
    """A fake one with settings of its own."""
    (tmp_path / "config").mkdir()
    return FakeBroker(tmp_path).load()


def sql(expression, version=1, topic="t", kind="SQL92"):
    """A subscription by expression."""
    return SubscriptionData(topic=topic, sub_string=expression, expression_type=kind, sub_version=version)


def test_versions_decide_and_a_bad_newer_expression_removes_the_older(broker):
    """Goal: ConsumerFilterManager's rules. Method: older, equal, newer, newer and bad."""
    filters = broker.filters
    assert filters.register("g", [sql("a > 1", 5)]) == {"t"}
    assert filters.register("g", [sql("a > 2", 4)]) == set()
    assert filters.register("g", [sql("a > 2", 5)]) == set()
    assert filters.get("t", "g").expression == "a > 1"
    assert filters.register("g", [sql("a > 1", 6)]) == {"t"}
    assert (filters.get("t", "g").client_version, filters.get("t", "g").expression) == (6, "a > 1")
    assert filters.register("g", [sql("a >", 7)]) == {"t"}
    assert filters.get("t", "g") is None
    assert filters.register("g", [sql("a", 8, kind="GROOVY"), SubscriptionData(topic="u")]) == set()


def test_filter_dies_with_its_group_or_topic_and_lives_again(broker):
    """Goal: dead is not gone. Method: leave, unsubscribe, come back with the same version."""
    filters = broker.filters
    filters.register("g", [sql("a > 1"), sql("b > 1", topic="u")])
    filters.register("h", [sql("a > 1")])
    filters.register("g", [sql("a > 1")])
    assert [filters.get(topic, "g").is_dead for topic in ("t", "u")] == [False, True]
    filters.unregister("g")
    assert filters.get("t", "g").is_dead
    assert not filters.get("t", "h").is_dead
    filters.register("g", [sql("a > 1")])
    assert not filters.get("t", "g").is_dead


def test_filter_is_forgotten_a_day_after_its_death(broker):
    """Goal: 24 hours. Method: one millisecond less, then that."""
    filters = broker.filters
    filters.register("g", [sql("a > 1")])
    filters.register("h", [sql("a > 1")])
    broker.clock.advance(5)
    filters.unregister("g")
    broker.clock.advance(DAY_MS / 1000 - 0.001)
    filters.clean()
    assert filters.get("t", "g") is not None
    broker.clock.advance(0.001)
    filters.clean()
    assert filters.get("t", "g") is None
    assert filters.get("t", "h") is not None  # alive for ever


def test_file_is_written_once_and_read_as_dead_since_half_a_minute(broker):
    """Goal: nothing is written twice, nothing is lost. Method: save, save, load in another manager."""
    filters = broker.filters
    filters.register("g", [sql("a > 'it''s'".replace(">", "="), 9)])
    broker.clock.advance(100)
    assert asyncio.run(filters.save())
    assert not asyncio.run(filters.save())
    again = FilterManager(broker)
    again.load()
    known = again.get("t", "g")
    assert known.is_dead
    assert known.dead_ms == broker.clock.now_ms() - 30_000
    assert (known.expression, known.client_version, known.compiled is not None) == ("a = 'it''s'", 9, True)


def test_damaged_file_is_refused_by_name_and_a_bad_entry_is_kept(broker):
    """Goal: no silent loss. Method: nonsense instead of a table; an expression nobody can read; other Bloom bits."""
    path = broker.config_directory / FILTERS_FILE
    path.write_text('{"filterDataByTopic": {"t": {"groupFilterData": [1]}}}')
    with pytest.raises(CorruptFileError, match=r"consumerFilter\.json"):
        FilterManager(broker).load()
    for wrong in (
        {"bornTime": "yesterday"},
        {"clientVersion": 1e999},
        {"bloomFilterData": {"bitPos": ["x"]}},
        [1],
        "x",
    ):
        path.write_text(json.dumps({"filterDataByTopic": {"t": {"groupFilterData": {"g": wrong}}}}))
        with pytest.raises(CorruptFileError, match=r"consumerFilter\.json"):
            FilterManager(broker).load()
    entry = {"bornTime": 1, "deadTime": 0, "expression": "a >", "expressionType": "SQL92", "clientVersion": 3,
             "bloomFilterData": {"bitNum": 8, "bitPos": [1]}}  # fmt: skip
    path.write_text(
        json.dumps({"filterDataByTopic": {"t": {"groupFilterData": {"g": entry}, "topic": "t"}, "u": None}})
    )
    filters = FilterManager(broker)
    filters.load()
    assert filters.get("t", "g").compiled is None
    assert filters.get("t", "g").bloom == BloomShape().data("g", "t")


def test_bloom_bits_are_guavas():
    """Goal: Apache takes our file. Method: positions its own manager wrote, and MurmurHash3's known values."""
    assert BloomShape().data("G", "T").bit_pos == (24, 26, 83)
    assert BloomShape().data("H", "T").bit_pos == (24, 79, 39)
    assert BloomShape().data("G", "U").bit_pos == (66, 62, 85)
    assert (BloomShape().bit_count, BloomShape().hash_count) == (112, 3)
    assert murmur3_128_low(b"") == 0
    assert murmur3_128_low(b"hello") == 0xCBD8A7B341BD9B02
    assert murmur3_128_low(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C
