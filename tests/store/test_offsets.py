"""consumerOffset.json: the dialect, what is kept, and how the file is replaced."""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymq.clock import ManualClock
from pymq.durable_file import replace_file
from pymq.errors import InvalidArgumentError
from pymq.store.offsets import OffsetStore, parse_dialect, render_dialect

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden-store" / "store" / "config"
CLOCK = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("name", ["consumerOffset.json", "delayOffset.json", "topics.json", "consumerOrderInfo.json"])
def test_apache_s_own_files_come_back_byte_for_byte(name):
    """Goal: the dialect is exact. Method: parse and render what Apache RocketMQ 5.5.0 wrote."""
    text = (GOLDEN / name).read_text(encoding="utf-8")
    assert render_dialect(parse_dialect(text)) == text


plain_keys = st.text(max_size=8).filter(lambda key: not key.startswith("\0"))
bare_keys = st.integers(-(2**31), 2**63 - 1).map(lambda number: f"\0{number}")
values = st.recursive(
    st.integers() | st.booleans() | st.none() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_keys | bare_keys, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(plain_keys | bare_keys, values, max_size=4))
def test_what_is_rendered_parses_to_the_same(document):
    """Goal: nothing in the file is lost or changed. Method: any document, quotes and colons in texts included."""
    assert parse_dialect(render_dialect(document)) == document


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a":}', '"0:1"'])
def test_what_is_no_object_is_refused(text):
    """Goal: damage is noticed. Method: texts that are no JSON object in either dialect."""
    with pytest.raises((ValueError, TypeError)):
        parse_dialect(text)


def test_numbers_in_texts_are_not_taken_for_keys():
    """Goal: only keys lose their quotes. Method: texts that look like keys."""
    text = '{"a 1:2":"3:4", 5:"\\"6:7", "8":{"9":1}}'
    assert parse_dialect(text) == {"a 1:2": "3:4", "\x005": '"6:7', "8": {"9": 1}}


def test_a_commit_is_in_the_file_when_it_returns(tmp_path):
    """Goal: durable commits. Method: a second reader of the file after each commit."""
    path = tmp_path / "config" / "consumerOffset.json"
    offsets = OffsetStore(path, CLOCK)
    for offset in (1, 5, 3):
        offsets.commit("g", "t", 2, offset)
        assert OffsetStore(path, CLOCK).committed("g", "t", 2) == offset
    assert offsets.save() is False, "nothing is written twice"
    document = parse_dialect(path.read_text())
    assert document["dataVersion"] == {"counter": 3, "stateVersion": 0, "timestamp": CLOCK.now_ms()}


def test_entries_groups_and_forget(tmp_path):
    """Goal: what retention and the tools ask. Method: three groups, one forgotten durably."""
    offsets = OffsetStore(tmp_path / "o.json", CLOCK)
    for group, topic, queue_id, offset in (("b", "t", 1, 7), ("a", "t", 0, 3), ("a", "u", 0, 4)):
        offsets.commit(group, topic, queue_id, offset, durable=False)
    assert offsets.groups() == ["a", "b"]
    assert sorted(offsets.entries()) == [("a", "t", 0, 3), ("a", "u", 0, 4), ("b", "t", 1, 7)]
    offsets.forget("a")
    assert OffsetStore(tmp_path / "o.json", CLOCK).groups() == ["b"]


def test_topics_with_at_signs_in_the_group_part_are_read_as_apache_splits_them(tmp_path):
    """Goal: names in the file are not misread. Method: entries of retry topics, and one without a separator."""
    path = tmp_path / "o.json"
    path.write_text('{"offsetTable":{"%RETRY%g@g":{0:1},"lonely":{0:2}}}')
    offsets = OffsetStore(path, CLOCK)
    assert offsets.committed("g", "%RETRY%g", 0) == 1
    assert offsets.groups() == ["g"]


@pytest.mark.parametrize(("group", "topic"), [("a@b", "t"), ("g", "t@u"), ("g", ""), ("", "t")])
def test_names_that_would_not_come_back_are_refused(tmp_path, group, topic):
    """Goal: topic@group splits again. Method: the separator and emptiness in each part."""
    with pytest.raises(InvalidArgumentError):
        OffsetStore(tmp_path / "o.json", CLOCK).commit(group, topic, 0, 1)


def test_replacing_leaves_old_or_new_at_every_step(tmp_path, monkeypatch):
    """Goal: a crash at any step leaves a readable state. Method: fail at each call in turn; look at the files."""
    path = tmp_path / "f.json"
    replace_file(path, b"zero")
    replace_file(path, b"old")
    steps = ["fsync", "link", "rename", "replace"]
    for step in steps:
        with monkeypatch.context() as patch:

            def fail(*_args, **_kwargs):
                raise OSError(5, "injected")

            patch.setattr(os, step, fail)
            with contextlib.suppress(OSError):
                replace_file(path, b"new")
        assert path.read_bytes() in (b"old", b"new"), step
        assert path.with_name("f.json.bak").read_bytes() in (b"zero", b"old", b"new"), step
        replace_file(path, b"zero")
        replace_file(path, b"old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.with_name("f.json.bak").read_bytes() == b"old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["f.json", "f.json.bak"]
