"""Topics: creation by sends, durability, system topics, the file's format."""

from __future__ import annotations

import asyncio
import json

import pytest

from pymq.broker.topic_config import TopicConfig
from pymq.errors import CorruptFileError
from tests.broker.fakes import FakeBroker

GOLDEN_SYSTEM_TOPICS = {
    "SELF_TEST_TOPIC": (1, 6),
    "TBW102": (8, 7),
    "BenchmarkTest": (1024, 6),
    "DefaultCluster": (16, 7),
    "broker-a": (1, 7),
    "OFFSET_MOVED_EVENT": (1, 6),
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    "DefaultCluster_REPLY_TOPIC": (1, 6),
    "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
    "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 6),
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 6),
    "rmq_sys_wheel_timer": (1, 6),
}


@pytest.fixture
def broker(tmp_path):
    """A broker with fakes around it, loaded."""
    return FakeBroker(tmp_path).load()


def stored(broker):
    """The file as it is now."""
    return json.loads((broker.config_directory / "topics.json").read_text())


def test_a_fresh_broker_has_the_system_topics_of_5_5_0(broker):
    """Goal: routes look as Apache's. Method: names, queues and permissions as read off a fresh 5.5.0."""
    found = {name: (config.write_queue_nums, config.perm) for name, config in broker.topics.all().items()}
    assert found == GOLDEN_SYSTEM_TOPICS


def test_a_send_makes_a_topic_after_the_image_of_tbw102(broker):
    """Goal: auto-creation. Method: the whole configuration, with the inherit bit gone and the request's flag kept."""
    config = asyncio.run(broker.topics.create_on_send("orders", "TBW102", 4, "1.2.3.4:5", 1))
    assert config == TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4, perm=6, topic_sys_flag=1)
    assert broker.topics.get("orders") is config


@pytest.mark.parametrize(("asked", "made"), [(0, 0), (-1, 0), (7, 7), (8, 8), (9, 8), (100, 8)])
def test_queues_of_a_made_topic_are_the_smaller_of_asked_and_default(broker, asked, made):
    """Goal: neither side gets more queues than it allows. Method: counts around TBW102's eight, and below zero."""
    config = asyncio.run(broker.topics.create_on_send("orders", "TBW102", asked, "", 0))
    assert (config.read_queue_nums, config.write_queue_nums) == (made, made)


def test_a_made_topic_is_on_disk_published_and_registered_before_the_call_returns(broker):
    """Goal: an acknowledged send has a topic. Method: look at file, reactors and name server right behind the call."""
    asyncio.run(broker.topics.create_on_send("orders", "TBW102", 4, "", 0))
    assert stored(broker)["topicConfigTable"]["orders"]["writeQueueNums"] == 4
    assert broker.serve.topics["orders"]["write_queues"] == 4
    assert broker.registration.told == ["orders"]


def test_a_topic_is_not_seen_before_it_is_on_disk(broker):
    """Holds the write up and looks: neither get() nor the reactors may know the topic yet."""
    seen = []
    replace = broker.topics._file._write

    def slow_write(data):
        seen.append((broker.topics.get("orders"), "orders" in broker.serve.topics))
        replace(data)

    broker.topics._file._write = slow_write
    asyncio.run(broker.topics.create_on_send("orders", "TBW102", 4, "", 0))
    assert seen == [(None, False)]


def test_concurrent_first_sends_share_one_creation(broker):
    """Goal: one topic, one registration. Method: three creations of one name; all get the first's."""

    async def scenario():
        return await asyncio.gather(*(broker.topics.create_on_send("orders", "TBW102", n, "", 0) for n in (4, 5, 6)))

    results = asyncio.run(scenario())
    assert all(result is results[0] for result in results)
    assert results[0].write_queue_nums == 4
    assert broker.registration.told == ["orders"]


def test_many_topics_made_at_once_cost_few_writes(broker):
    """Goal: a burst of new topics is not a burst of fsyncs. Method: count replacements for a hundred topics."""
    writes = []
    replace = broker.topics._file._write
    broker.topics._file._write = lambda data: (writes.append(data), replace(data))

    async def scenario():
        await asyncio.gather(*(broker.topics.create_on_send(f"t{n}", "TBW102", 4, "", 0) for n in range(100)))

    asyncio.run(scenario())
    assert set(stored(broker)["topicConfigTable"]) >= {f"t{n}" for n in range(100)}
    assert len(writes) <= 3


def test_a_topic_whose_file_cannot_be_written_does_not_exist(broker):
    """Goal: nothing undurable is served. Method: a disk that refuses, then one that does not."""

    def failing(data):
        raise OSError(28, "No space left on device")

    replace, broker.topics._file._write = broker.topics._file._write, failing
    with pytest.raises(OSError, match="No space"):
        asyncio.run(broker.topics.create_on_send("orders", "TBW102", 4, "", 0))
    assert broker.topics.get("orders") is None
    assert "orders" not in broker.serve.topics
    broker.topics._file._write = replace
    assert asyncio.run(broker.topics.create_on_send("orders", "TBW102", 4, "", 0)) is not None


@pytest.mark.parametrize("default", ["missing", "SELF_TEST_TOPIC"])
def test_no_topic_is_made_without_a_default_that_is_inherited(broker, default):
    """Goal: only templates make topics. Method: a default topic that is missing, and one without the inherit bit."""
    assert asyncio.run(broker.topics.create_on_send("orders", default, 4, "", 0)) is None


def test_no_topic_is_made_when_switched_off_even_if_tbw102_is_in_the_file(tmp_path):
    """Goal: autoCreateTopicEnable=false holds. Method: a file written while it was on still has TBW102."""
    made = FakeBroker(tmp_path).load()
    asyncio.run(made.topics.save())
    broker = FakeBroker(tmp_path, auto_create_topic_enable=False).load()
    assert broker.topics.get("TBW102") is not None
    assert asyncio.run(broker.topics.create_on_send("orders", "TBW102", 4, "", 0)) is None


@pytest.mark.parametrize("name", ["", "a b", "x" * 128, "a@b"])
def test_a_bad_name_makes_no_topic(broker, name):
    """Goal: no directory with a strange name. Method: empty, blank inside, too long, a separator."""
    assert asyncio.run(broker.topics.create_on_send(name, "TBW102", 4, "", 0)) is None


def test_what_was_made_is_there_after_a_restart_with_its_data_version(broker, tmp_path):
    """Goal: restarts change nothing. Method: a second manager over the same file."""
    asyncio.run(broker.topics.create_on_send("orders", "TBW102", 4, "", 0))
    again = FakeBroker(tmp_path).load()
    assert again.topics.get("orders") == broker.topics.get("orders")
    assert again.topics.version == broker.topics.version
    assert again.topics.version.counter == 1


def test_the_golden_topics_file_is_read_and_written_back_the_same(golden_store):
    """Goal: Apache reads what we write. Method: Apache's own file, loaded and saved; the same lines in some order."""
    broker = FakeBroker(golden_store)
    before = (golden_store / "config" / "topics.json").read_text()
    broker.topics.load()
    asyncio.run(broker.topics.save())
    after = (golden_store / "config" / "topics.json").read_text()
    assert json.loads(after) == json.loads(before)
    assert sorted(after.splitlines()) == sorted(before.splitlines())


def test_the_backup_is_read_when_the_file_is_empty(broker, tmp_path):
    """Goal: a torn replacement loses one change at most. Method: two changes, then the file emptied."""
    asyncio.run(broker.topics.create_on_send("orders", "TBW102", 4, "", 0))
    asyncio.run(broker.topics.create_on_send("more", "TBW102", 4, "", 0))
    (broker.config_directory / "topics.json").write_text("")
    again = FakeBroker(tmp_path).load()
    assert again.topics.get("orders") is not None
    assert again.topics.get("more") is None


def test_damage_in_both_files_is_refused_and_named(broker, tmp_path):
    """Goal: topics are not silently forgotten. Method: both files overwritten."""
    asyncio.run(broker.topics.create_on_send("orders", "TBW102", 4, "", 0))
    for suffix in ("", ".bak"):
        (broker.config_directory / f"topics.json{suffix}").write_text("{damaged")
    with pytest.raises(CorruptFileError, match=r"topics\.json"):
        FakeBroker(tmp_path).load()


def test_a_deleted_topic_is_gone_from_file_reactors_and_offsets(broker):
    """Goal: nothing of it is left to be served. Method: look everywhere, delete twice."""
    asyncio.run(broker.topics.create_on_send("orders", "TBW102", 4, "", 0))
    broker.serve.offset_commit("g", "orders", 0, 7)
    assert asyncio.run(broker.topics.delete("orders"))
    assert "orders" not in stored(broker)["topicConfigTable"]
    assert "orders" not in broker.serve.topics
    assert broker.serve.table == {}
    assert not asyncio.run(broker.topics.delete("orders"))


def test_a_topic_being_deleted_is_made_again_only_when_its_queues_are_gone(broker):
    """Goal: a send during a deletion gets a whole topic. Method: hold the removal up, then create at the same time."""
    order = []

    async def scenario():
        gate = asyncio.Event()

        async def remove_queues(topic):
            await gate.wait()
            order.append("removed")

        broker.remove_queues = remove_queues
        await broker.topics.create_on_send("orders", "TBW102", 4, "", 0)
        deletion = asyncio.create_task(broker.topics.delete("orders"))
        creation = asyncio.create_task(broker.topics.create_on_send("orders", "TBW102", 2, "", 0))
        creation.add_done_callback(lambda _: order.append("created"))
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert broker.topics.get("orders") is None
        gate.set()
        await deletion
        return await creation

    assert asyncio.run(scenario()).write_queue_nums == 2
    assert order == ["removed", "created"]


def test_attributes_are_altered_by_signs_and_refused_otherwise(broker):
    """Goal: AttributeUtil's rules. Method: set, keep, every refusal, remove."""
    update = broker.topics.update
    asyncio.run(update([TopicConfig(topic_name="t", attributes={"+message.type": "FIFO"})]))
    assert broker.topics.get("t").attributes == {"message.type": "FIFO"}
    asyncio.run(update([TopicConfig(topic_name="t", perm=4)]))
    assert (broker.topics.get("t").attributes, broker.topics.get("t").perm) == ({"message.type": "FIFO"}, 4)
    for bad in ({"message.type": "FIFO"}, {"+message.type": "NONE"}, {"+nothing": "1"}, {"+queue.type": "BatchCQ"}):
        with pytest.raises(ValueError):
            asyncio.run(update([TopicConfig(topic_name="t", attributes=bad)]))
    asyncio.run(update([TopicConfig(topic_name="t", attributes={"-message.type": ""})]))
    assert broker.topics.get("t").attributes == {}


def test_sends_to_reserved_topics_are_left_to_python(broker):
    """Goal: C serves no send it must refuse, and every other. Method: which system topics are published as special."""
    special = {name for name, row in broker.serve.topics.items() if row["send_special"]}
    assert {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"} <= special
    assert not {"BenchmarkTest", "TBW102", "DefaultCluster"} & special
