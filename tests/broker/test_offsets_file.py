"""Consumer offsets on disk: dialect, when they are written, what is corrected."""

from __future__ import annotations

import asyncio
import re

import pytest

from pymq.errors import CorruptFileError
from tests.broker.fakes import FakeBroker


def test_offsets_are_written_with_bare_integer_keys_and_read_back(tmp_path):
    """Goal: RocketMQ's dialect. Method: the text itself, then a second broker over it."""
    broker = FakeBroker(tmp_path).load()
    broker.serve.offset_commit("g", "t", 0, 38)
    broker.serve.offset_commit("g", "t", 11, 2)
    assert asyncio.run(broker.offsets.save())
    text = (tmp_path / "config" / "consumerOffset.json").read_text()
    assert re.search(r'"t@g":\{\s*0:38,\s*11:2\s*\}', text)
    again = FakeBroker(tmp_path)
    again.store.ends = {("t", 0): 100, ("t", 11): 100}
    again.load()
    assert again.serve.table == {("g", "t", 0): 38, ("g", "t", 11): 2}


def test_nothing_is_written_when_nothing_moved(tmp_path):
    """Goal: an idle broker does not write. Method: the file's inode over saves without change."""
    broker = FakeBroker(tmp_path).load()
    assert not asyncio.run(broker.offsets.save())
    broker.serve.offset_commit("g", "t", 0, 1)
    assert asyncio.run(broker.offsets.save())
    path = tmp_path / "config" / "consumerOffset.json"
    before = path.stat().st_ino
    assert not asyncio.run(broker.offsets.save())
    broker.serve.offset_commit("g", "t", 0, 1)
    assert not asyncio.run(broker.offsets.save())
    assert path.stat().st_ino == before


def test_offsets_beyond_the_end_of_their_queue_come_back_to_it(tmp_path):
    """Goal: a lost tail skips no message. Method: offsets below, at, above and without a queue's end."""
    broker = FakeBroker(tmp_path).load()
    for queue_id, offset in ((0, 9), (1, 10), (2, 11), (3, 5)):
        broker.serve.offset_commit("g", "t", queue_id, offset)
    asyncio.run(broker.offsets.save())
    again = FakeBroker(tmp_path)
    again.store.ends = {("t", 0): 10, ("t", 1): 10, ("t", 2): 10}
    again.load()
    assert again.serve.table == {("g", "t", 0): 9, ("g", "t", 1): 10, ("g", "t", 2): 10, ("g", "t", 3): 0}


def test_the_golden_offsets_are_loaded_as_they_stand(golden_store):
    """Goal: groups go on where they were. Method: Apache's own file."""
    broker = FakeBroker(golden_store)
    broker.store.ends = {("GoldenA", queue_id): 10**6 for queue_id in range(4)} | {("GoldenB", 0): 10**6}
    broker.load()
    assert broker.serve.table["golden_cg", "GoldenA", 1] == 46


def test_offsets_that_are_no_numbers_are_refused_and_named(tmp_path):
    """Goal: groups do not begin anew by accident. Method: a text where an offset should be."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text('{"offsetTable":{"t@g":{0:"x"}}}')
    with pytest.raises(CorruptFileError, match=r"consumerOffset\.json.*t@g"):
        FakeBroker(tmp_path).load()


def test_get_all_consumer_offset_answers_in_the_dialect(tmp_path):
    """Goal: a slave can read it. Method: the bytes of the answer."""
    broker = FakeBroker(tmp_path).load()
    broker.serve.offset_commit("g", "t", 3, 7)
    assert broker.offsets.encode().endswith(b'"offsetTable":{"t@g":{3:7}}}')
