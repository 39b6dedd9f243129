"""Consumer groups: offsets that survive restarts, in RocketMQ's file, at least once."""

from __future__ import annotations

import json
import logging

import pytest

import pymq
from pymq.errors import CorruptFileError, InvalidArgumentError
from pymq.store.offsets import parse_dialect


def test_a_group_reads_on_after_a_restart(open_store):
    """Goal: committed offsets survive. Method: consume some, close, open, consume the rest."""
    mq = open_store()
    mq.send_many("t", [b"%d" % n for n in range(10)])
    reader = mq.group("billing").consume("t", timeout=0)
    assert [next(reader).body for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    reader.close()
    assert mq.group("billing").committed("t") == 3, "the fourth was handed out but the fifth never asked for"
    mq.close()
    mq = open_store()
    assert mq.groups() == ["billing"]
    assert [m.body for m in mq.group("billing").consume("t", timeout=0)] == [b"%d" % n for n in range(3, 10)]
    assert mq.group("billing").lag("t") == {0: 0}


def test_a_durable_commit_survives_a_crash_and_another_does_not_have_to(open_store):
    """Goal: durable means on disk at return. Method: commit both ways, then stop without saving anything."""
    mq = open_store()
    mq.send_many("t", [b"x"] * 10)
    mq.group("a").commit("t", 0, 5)
    mq.group("b").commit("t", 0, 6, durable=False)
    assert mq.group("b").committed("t") == 6
    mq.flush()
    mq.abandon()
    mq = open_store()
    assert mq.group("a").committed("t") == 5
    assert mq.group("b").committed("t") is None


def test_close_saves_what_was_not_durable(open_store):
    """Goal: an orderly stop loses no offset. Method: commit without durable, close, open."""
    mq = open_store()
    mq.send_many("t", [b"x"] * 3)
    mq.group("g").commit("t", 0, 2, durable=False)
    mq.close()
    assert open_store().group("g").committed("t") == 2


def test_offsets_not_durable_are_saved_in_the_background(open_store, data):
    """Goal: a bounded loss. Method: a short interval; wait until the file says so."""
    import time

    mq = open_store(flush_consumer_offset_interval_ms=20)
    mq.send("t", b"x")
    mq.group("g").commit("t", 0, 1, durable=False)
    path = data / "config" / "consumerOffset.json"
    deadline = time.monotonic() + 20
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert parse_dialect(path.read_text())["offsetTable"] == {"t@g": {"\x000": 1}}


def test_groups_do_not_see_each_other(mq):
    """Goal: a topic has many readers. Method: two groups at different places."""
    mq.send_many("t", [b"%d" % n for n in range(4)])
    assert len(list(mq.group("a").consume("t", timeout=0))) == 4
    mq.group("b").commit("t", 0, 3)
    assert [m.body for m in mq.group("b").consume("t", timeout=0)] == [b"3"]


def test_a_new_group_may_start_at_the_end(mq):
    """Goal: start="latest" skips what is there. Method: consume, send, consume."""
    mq.send_many("t", [b"old"] * 3)
    group = mq.group("g")
    reader = group.consume("t", timeout=0.01, start="latest")
    mq.send("t", b"new")
    assert [m.body for m in reader] == [b"new"]
    assert group.committed("t") == 4


def test_readers_divide_a_group_by_queues(mq):
    """Goal: two readers share the work. Method: disjoint queue_ids; every message exactly once."""
    mq.send_many("t", [b"%d" % n for n in range(12)], queue_id=[0, 1, 2, 3])
    group = mq.group("g")
    left = [m.body for m in group.consume("t", [0, 1], timeout=0)]
    right = [m.body for m in group.consume("t", [2, 3], timeout=0)]
    assert sorted(left + right, key=int) == [b"%d" % n for n in range(12)]
    assert group.lag("t") == dict.fromkeys(range(4), 0)


def test_without_auto_commit_only_acknowledge_moves_the_group(mq):
    """Goal: the application decides what is done. Method: read all, acknowledge one, read again."""
    mq.send_many("t", [b"%d" % n for n in range(3)])
    group = mq.group("g")
    messages = list(group.consume("t", timeout=0, auto_commit=False))
    assert group.committed("t") is None
    group.acknowledge(messages[1])
    assert [m.body for m in group.consume("t", timeout=0)] == [b"2"]


def test_an_exception_in_the_consumer_repeats_the_message(mq):
    """Goal: at least once. Method: fail while handling the second message; it comes again."""
    mq.send_many("t", [b"%d" % n for n in range(3)])
    group = mq.group("g")

    def handle():
        for message in group.consume("t", timeout=0):
            assert message.body != b"1", "cannot handle this one"

    with pytest.raises(AssertionError, match="cannot handle"):
        handle()
    assert [m.body for m in group.consume("t", timeout=0)] == [b"1", b"2"]


def test_reset_and_delete(mq):
    """Goal: a group can read again. Method: reset to the middle, then forget it."""
    mq.send_many("t", [b"%d" % n for n in range(4)])
    group = mq.group("g")
    list(group.consume("t", timeout=0))
    group.reset("t", 0, 2)
    assert [m.body for m in group.consume("t", timeout=0)] == [b"2", b"3"]
    group.delete()
    assert mq.groups() == []
    assert len(list(group.consume("t", timeout=0))) == 4


def test_commits_outside_the_queue_are_refused(mq):
    """Goal: no offset that cannot be. Method: -1, the end (fine), one beyond."""
    mq.send_many("t", [b"x"] * 3)
    group = mq.group("g")
    group.commit("t", 0, 3)
    for offset in (-1, 4):
        with pytest.raises(InvalidArgumentError, match=str(offset)):
            group.commit("t", 0, offset)
    assert group.committed("t") == 3


@pytest.mark.parametrize("name", ["", "a b", "a@b", "ä", "x" * 256], ids=["empty", "space", "at", "umlaut", "long"])
def test_names_rocketmq_would_refuse_are_refused(mq, name):
    """Goal: the file stays readable for Apache. Method: names that its validator or the separator forbids."""
    with pytest.raises(InvalidArgumentError, match="group"):
        mq.group(name)


def test_a_committed_offset_whose_messages_are_gone_is_corrected_and_logged(open_store, caplog):
    """Goal: nobody is stuck below the first message. Method: commit 0, remove the first log files, consume."""
    mq = open_store()
    mq.send_many("t", [b"x" * 1000] * 200)
    group = mq.group("slow")
    group.commit("t", 0, 1)
    mq.flush()
    assert mq._store.remove_oldest() == 0
    mq._store.clean_queues()
    first = mq.min_offset("t")
    assert first > 1
    with caplog.at_level(logging.WARNING, "pymq.store"):
        messages = list(group.consume("t", timeout=0))
    assert messages[0].queue_offset == first
    assert len(messages) == 200 - first
    assert "offset corrected" in caplog.text
    assert "group slow" in caplog.text


def test_a_committed_offset_beyond_the_end_is_corrected_and_logged(open_store, data, caplog):
    """Goal: offsets saved ahead of a log that lost its tail do not block. Method: write such a file, then consume."""
    mq = open_store()
    mq.send_many("t", [b"x"] * 3)
    mq.close()
    path = data / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"offsetTable":{"t@g":{0:900}}}')
    mq = open_store()
    with caplog.at_level(logging.WARNING, "pymq.store"):
        assert list(mq.group("g").consume("t", timeout=0)) == []
    assert "the queue ends before it" in caplog.text


def test_apache_s_file_is_read_and_everything_in_it_kept(open_store, golden_store):
    """Goal: the file is shared with Apache RocketMQ. Method: commit in its golden store; compare all the rest."""
    import pymq

    path = golden_store / "config" / "consumerOffset.json"
    before = parse_dialect(path.read_text())
    with pymq.open(golden_store) as mq:
        assert mq.group("golden_cg").committed("GoldenA", 1) == 46
        mq.group("mine").commit("GoldenA", 0, 7)
        mq.group("golden_cg").commit("GoldenA", 1, 45)
    after = parse_dialect(path.read_text())
    assert after["offsetTable"].pop("GoldenA@mine") == {"\x000": 7}
    assert after["offsetTable"]["GoldenA@golden_cg"].pop("\x001") == 45
    assert before["offsetTable"]["GoldenA@golden_cg"].pop("\x001") == 46
    assert after["offsetTable"] == before["offsetTable"]
    assert after["pullOffsetTable"] == before["pullOffsetTable"]
    assert sorted(after["groupTopicMap"]["mine"]) == ["GoldenA"]
    assert after["dataVersion"]["counter"] > before["dataVersion"]["counter"]
    assert "\t\t\t0:7" in path.read_text(), "integer keys stay without quotes"


def test_quoted_and_bare_keys_are_both_read(open_store, data):
    """Goal: any writer's file. Method: the same table in standard JSON."""
    mq = open_store()
    mq.send("t", b"x")
    mq.close()
    path = data / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"offsetTable": {"t@quoted": {"0": 1}}}).replace("}}}", '}, "t@bare": {0:1}}}'))
    mq = open_store()
    assert (mq.group("quoted").committed("t"), mq.group("bare").committed("t")) == (1, 1)


def test_the_backup_holds_the_previous_state_and_is_used_when_the_file_is_broken(open_store, data, caplog):
    """Goal: one bad write does not forget everybody. Method: two commits, break the file, open; then break both."""
    mq = open_store()
    mq.send_many("t", [b"x"] * 5)
    mq.group("g").commit("t", 0, 1)
    mq.group("g").commit("t", 0, 2)
    mq.close()
    path = data / "config" / "consumerOffset.json"
    backup = path.with_name("consumerOffset.json.bak")
    assert parse_dialect(backup.read_text())["offsetTable"] == {"t@g": {"\x000": 1}}
    path.write_text('{"offsetTable":{"t@g"')
    mq = open_store()
    assert mq.group("g").committed("t") == 1
    assert "backup" in caplog.text
    mq.close()
    path.write_text("[1]")
    backup.write_text("nonsense")
    with pytest.raises(CorruptFileError, match=r"consumerOffset\.json.*repair or remove"):
        open_store()
    assert path.read_text() == "[1]", "what cannot be read is not overwritten"


def test_groups_beyond_a_lost_tail_do_not_skip_what_comes_after(open_store, data, caplog):
    """Goal: messages in the places of lost ones are delivered. Method: offsets ahead of two queues, one gone."""
    with open_store() as mq:
        mq.send_many("t", [b"x"] * 3)
    path = data / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"offsetTable":{"t@g":{0:5,1:2},"t@exact":{0:3}}}')
    with open_store() as mq:
        assert (mq.group("g").committed("t", 0), mq.group("g").committed("t", 1)) == (3, 0)
        assert mq.group("exact").committed("t") == 3
        mq.send_many("t", [b"new"] * 6, queue_id=[0, 1])
        assert len(list(mq.group("g").consume("t", timeout=0))) == 6
    assert caplog.text.count("offset corrected") == 2
    assert "group=g topic=t queue=0 offset=5 to=3" in caplog.text


def test_a_topic_whose_offsets_cannot_be_kept_is_refused_before_anything_is_delivered(mq):
    """Goal: what is handed out can be committed. Method: a separator in the topic; call, do not iterate."""
    mq.send("a@b", b"x")
    with pytest.raises(InvalidArgumentError, match="@"):
        mq.group("g").consume("a@b", timeout=0)


def test_a_closed_store_takes_no_commits(open_store):
    """Goal: the file may be another process's by then. Method: acknowledge a message after the close."""
    mq = open_store()
    mq.send("t", b"x")
    group = mq.group("g")
    message = next(group.consume("t", timeout=0))
    mq.close()
    with pytest.raises(pymq.StoreClosedError):
        group.acknowledge(message)
    with pytest.raises(pymq.StoreClosedError):
        group.delete()


MALFORMED = [
    "",
    " \n",
    "[]",
    "nonsense",
    '{"offsetTable":[]}',
    '{"offsetTable":{"a@b":[]}}',
    '{"offsetTable":{"a@b":{"0":"x"}}}',
    '{"offsetTable":{"a@b":{"0":1.5}}}',
    '{"offsetTable":{"a@b":{"0":true}}}',
    '{"offsetTable":{"a@b":{"z":1}}}',
    '{"dataVersion":3,"offsetTable":{}}',
    '{"dataVersion":{"counter":"x"},"offsetTable":{}}',
    '{"a":' * 100_000,
]


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_offset_file_is_named_falls_back_and_leaves_nothing_open(open_store, data, caplog, text):
    """Goal: no silent reset, no raw exception. Method: each damage without a backup, then with one, then a commit."""
    with open_store() as mq:
        mq.send_many("t", [b"x"] * 3)
    path = data / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    for _ in range(2):
        with pytest.raises(CorruptFileError, match=r"consumerOffset\.json.*\.bak.*repair or remove"):
            open_store()
    backup = path.with_name("consumerOffset.json.bak")
    backup.write_text('{"offsetTable":{"t@g":{0:2}}}')
    with open_store() as mq:
        assert mq.group("g").committed("t") == 2
        assert "offsets read from the backup" in caplog.text
        mq.group("g").commit("t", 0, 3)
    assert parse_dialect(backup.read_text())["offsetTable"] == {"t@g": {"\x000": 2}}, "damage is no backup"
    assert parse_dialect(path.read_text())["offsetTable"] == {"t@g": {"\x000": 3}}


def test_an_offset_file_that_cannot_be_read_is_an_error_of_the_store(open_store, data):
    """Goal: one family of errors. Method: a directory in the file's place."""
    (data / "config" / "consumerOffset.json").mkdir(parents=True)
    with pytest.raises(pymq.StoreIOError, match=r"consumerOffset\.json"):
        open_store()
    (data / "config" / "consumerOffset.json").rmdir()
    assert open_store().groups() == []
