"""A dump of a running pymq broker is a store that Apache RocketMQ opens: exactly the messages below its position."""

from __future__ import annotations

import shutil
from pathlib import Path

import pymq
from pymq.store.dump import take_dump
from tests.broker.sides import until
from tests.broker.test_admin import create_topic
from tests.broker.test_dump import Producer, address_of, make_config
from tests.broker.wire import Wire
from tests.interop.apache import ApacheStore
from tests.interop.apache_toolchain import Toolchain
from tests.store.dumps import read_store

SETTINGS = {
    "mappedFileSizeCommitLog": "200003",
    "mappedFileSizeConsumeQueue": str(20 * 101),
    "maxHashSlotNum": "211",
    "maxIndexNum": "1009",
    "commitLogRecoverMaxNum": "100000",  # the default looks at 10 files from the end, which are small here
}


def test_apache_opens_a_dump_of_a_running_broker(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: a hot dump is whole to Apache too. Method: dump under load; let both open a copy and say what they see."""
    with pymq.Broker(make_config(tmp_path / "store")).running() as broker:
        with Wire(broker.config.listen_port) as wire:
            create_topic(wire, "T")
        producers = [Producer(broker.config.listen_port, f"p{number}", ["T", f"New{number}"]) for number in range(2)]
        for producer in producers:
            producer.start()
        until(lambda: all(len(producer.acknowledged) > 500 for producer in producers))
        end = take_dump(address_of(broker), tmp_path / "dump").manifest.log_end
        for producer in producers:
            producer.stopping.set()
        for producer in producers:
            producer.join(60)
    acknowledged = {place: sent for producer in producers for place, sent in producer.acknowledged.items()}
    below = {place: sent for place, sent in acknowledged.items() if place < end}
    assert 1000 < len(below) < len(acknowledged)

    theirs = ApacheStore(apache, shutil.copytree(tmp_path / "dump", tmp_path / "theirs"), SETTINGS)
    with theirs.open_reader() as reader:
        seen = {message.physical_offset: message for message in reader.messages()}
        assert {place: (*sent[:3], sent[3]) for place, sent in below.items()} == {
            place: (message.topic, message.queue_id, message.queue_offset, message.body)
            for place, message in seen.items()
        }
        for place in [*sorted(below)[:3], *sorted(below)[-3:]]:
            topic, _, _, _, key = below[place]
            assert [message.physical_offset for message in reader.by_key(topic, key)] == [place]
    assert read_store(tmp_path / "dump") == {sent[:3]: sent[3] for sent in below.values()}
