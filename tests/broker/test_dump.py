"""Dumps of a running broker: what was acknowledged below the position is in it, and nothing else; retention waits."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from datetime import UTC, datetime

import pytest

import pymq
from pymq._scan import read_index
from pymq.broker.dumps import LEASES_MAX, DumpLeases
from pymq.broker.processors.admin.dump import shown_properties
from pymq.clock import ManualClock, SystemClock
from pymq.remoting.codes import OwnRequestCode, RequestCode, ResponseCode, request_name
from pymq.remoting.command import Command
from pymq.store.config import StoreConfig
from pymq.store.dump import DumpError, DumpRefusedError, load_manifest, take_dump, verify_dump
from pymq.store.dump.copier import Silent
from pymq.store.dump.lease import Lease
from pymq.store.offsets import parse_dialect
from tests.broker.sides import age_log, heartbeat, until
from tests.broker.test_admin import create_topic
from tests.broker.wire import BrokerProcess, Wire, send_fields
from tests.store.dumps import dump_json, files_of, read_store

MIB = 1 << 20
OFFSET_DIGITS = 16  # of a message id: where in the log the message is
IN_FLIGHT = 16


def make_config(path, **more):
    """A broker with files that roll often."""
    store = StoreConfig(
        flush_disk_type="ASYNC_FLUSH",
        mapped_file_size_commit_log=200_003,
        mapped_file_size_consume_queue=20 * 101,
        max_hash_slot_num=211,
        max_index_num=1009,
        delete_commit_log_files_interval_ms=0,
        flush_commit_log_thorough_interval_ms=100,
    )
    return pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        broker_name="a",
        store_path_root_dir=str(path),
        broker_fast_failure_enable=False,
        flush_consumer_offset_interval=1000,
        store=store,
        **more,
    )


@pytest.fixture
def broker(tmp_path, disk):
    """A broker of its own for each test."""
    with pymq.Broker(make_config(tmp_path / "store"), disk_probe=disk).running() as running:
        yield running


@pytest.fixture
def wire(wire):
    """With a topic to send to."""
    create_topic(wire, "T")
    return wire


def address_of(broker):
    """What the dumper is given."""
    return f"127.0.0.1:{broker.config.listen_port}"


class Producer(threading.Thread):
    """Sends with keys and tags, many in flight, until told to stop; what was acknowledged, by place in the log."""

    def __init__(self, port, name, topics):
        super().__init__()
        self.port, self.label, self.topics = port, name, topics
        self.acknowledged = {}  # physical offset: (topic, queue, queue offset, body, key)
        self.stopping = threading.Event()

    def run(self):
        """Send."""
        waiting = {}
        number = 0
        with Wire(self.port) as wire:
            while waiting or not self.stopping.is_set():
                while len(waiting) < IN_FLIGHT and not self.stopping.is_set():
                    topic = self.topics[number % len(self.topics)]
                    key = f"{self.label}-{number}"
                    properties = f"UNIQ_KEY\x01{key}\x02KEYS\x01k{number}\x02TAGS\x01t{number % 5}\x02"
                    fields = send_fields(topic, number // 2 % 4, properties)
                    body = b"%s %d " % (self.label.encode(), number) * (1 + number % 30)
                    waiting[wire.post(Command(RequestCode.SEND_MESSAGE_V2, fields, body))] = (topic, body, key)
                    number += 1
                time.sleep(0.001)  # enough is enough: what is sent is read again
                answer = wire.receive()
                topic, body, key = waiting.pop(answer.opaque)
                assert answer.code == ResponseCode.SUCCESS, answer
                fields = answer.fields
                place = topic, int(fields["queueId"]), int(fields["queueOffset"])
                self.acknowledged[int(fields["msgId"][-OFFSET_DIGITS:], 16)] = (*place, body, key)


class Committer(threading.Thread):
    """A consumer that has always read everything: commits the ends of queues as fast as it can."""

    def __init__(self, port):
        super().__init__()
        self.port = port
        self.stopping = threading.Event()

    def run(self):
        """Commit."""
        with Wire(self.port) as wire:
            heartbeat(wire, "G", "T")
            while not self.stopping.is_set():
                for queue_id in range(4):
                    queue = {"topic": "T", "queueId": str(queue_id)}
                    end = wire.call(RequestCode.GET_MAX_OFFSET, queue).fields["offset"]
                    commit = {"consumerGroup": "G", "commitOffset": end, **queue}
                    assert wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUCCESS


# ---- consistent ----------------------------------------------------------------------------------------------------


def test_a_dump_under_load_has_every_acknowledged_message_below_its_position_and_none_above(broker, wire, tmp_path):
    """Goal: the promise. Method: producers and a consumer go on while two dumps are taken; then open each dump."""
    producers = [Producer(broker.config.listen_port, f"p{number}", ["T", f"New{number}"]) for number in range(3)]
    committer = Committer(broker.config.listen_port)
    for thread in (*producers, committer):
        thread.start()
    try:
        until(lambda: all(len(producer.acknowledged) > 300 for producer in producers))
        results = [dump_json(address_of(broker), tmp_path / f"dump{number}") for number in range(2)]
    finally:
        for thread in (*producers, committer):
            thread.stopping.set()
        for thread in (*producers, committer):
            thread.join(60)
    acknowledged = {place: sent for producer in producers for place, sent in producer.acknowledged.items()}
    for number, result in enumerate(results):
        dump = tmp_path / f"dump{number}"
        assert result["kind"] == "running"
        end = result["log"]["end"]
        assert verify_dump(dump)[1] == []
        expected = {sent[:3]: sent[3] for place, sent in acknowledged.items() if place < end}
        assert len(expected) > 900
        assert any(place >= end for place in acknowledged), "nothing was sent behind the position"
        check_cut(dump, end)
        check_offsets(dump, expected)
        found = read_store(dump)
        assert {place: body for place, body in found.items() if not place[0].startswith("rmq_sys")} == expected
        check_keys(dump, end, acknowledged)
    assert [result["log"]["end"] for result in results] == sorted(result["log"]["end"] for result in results)


def check_cut(dump, end):
    """Nothing at or above *end* in any file, before anybody has opened it."""
    manifest = load_manifest(dump)
    for path in (dump / "consumequeue").rglob("0*"):
        if path.is_file():
            data = path.read_bytes()
            offsets = [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 20)]
            assert max(offsets) < end
    for path in (dump / "index").iterdir():
        index = read_index(path, 211)
        assert max(index.items["physical_offset"]) < end
        assert index.header.end_offset == index.items["physical_offset"][-1]
        assert index.header.slot_used == sum(slot != 0 for slot in index.slots)
        assert max(index.slots) < index.header.item_count
    logs = [entry for entry in manifest.files if entry.path.startswith("commitlog/")]
    assert sum(entry.written for entry in logs) == end - manifest.log_begin
    assert {entry.size for entry in logs} == {200_003}
    topics = parse_dialect((dump / "config" / "topics.json").read_text(encoding="utf-8"))["topicConfigTable"]
    assert {path.name for path in (dump / "consumequeue").iterdir()} <= set(topics)
    assert (dump / "abort").exists()


def check_offsets(dump, expected):
    """Consumer offsets lie within their queues."""
    ends = Counter((topic, queue_id) for topic, queue_id, _ in expected)
    table = parse_dialect((dump / "config" / "consumerOffset.json").read_text(encoding="utf-8"))["offsetTable"]
    offsets = {int(queue.strip("\0")): offset for queue, offset in table["T@G"].items()}
    assert max(offsets.values()) > 0
    assert all(offset <= ends["T", queue_id] for queue_id, offset in offsets.items()), (offsets, ends)


def check_keys(dump, end, acknowledged):
    """Messages are found by their keys, and those behind the position are not."""
    with pymq.open(dump) as store:
        assert int(store.watermarks().written) == end
        for place in sorted(acknowledged)[::50]:
            topic, _, _, body, key = acknowledged[place]
            found = [message.body for message in store._store.query(topic, key)]
            assert found == ([body] if place < end else [])


class LaterClock(SystemClock):
    """It is two hours later."""

    def now_ms(self):
        return super().now_ms() + 2 * 3_600_000


def test_a_dump_has_pending_timers_and_delays_and_they_come_once(tmp_path):
    """Goal: timers and delays fit the log. Method: dump with pending and delivered ones; run a broker on it later."""
    config = make_config(tmp_path / "store", timer_precision_ms=100, timer_flush_interval_ms=50)
    delivered, pending = 40, 30
    with pymq.Broker(config).running() as broker, Wire(broker.config.listen_port) as wire:
        create_topic(wire, "T")
        for number in range(delivered + pending):
            asked = f"TIMER_DELAY_MS\x01{100 if number < delivered else 3_600_000}\x02"
            fields = send_fields("T", 0, asked + f"UNIQ_KEY\x01timer{number}\x02")
            assert wire.call(RequestCode.SEND_MESSAGE_V2, fields, b"timer%d" % number).code == ResponseCode.SUCCESS
        for number in range(5):
            fields = send_fields("T", 1, f"DELAY\x01{1 if number < 2 else 16}\x02UNIQ_KEY\x01delay{number}\x02")
            assert wire.call(RequestCode.SEND_MESSAGE_V2, fields, b"delay%d" % number).code == ResponseCode.SUCCESS
        until(lambda: broker.timer.store.stats.delivered >= delivered)
        until(lambda: wire.call(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "1"}).fields["offset"] == "2")
        broker.store.flush()  # what is not on disk is not vouched for, and would come again
        until(lambda: broker.timer.store.is_saved)
        dump = tmp_path / "dump"
        dump_json(address_of(broker), dump)
        slots = broker.timer.store.pending_slots
    wheel = (dump / "timerwheel").read_bytes()
    counts = [int.from_bytes(wheel[at + 24 : at + 28], "big") for at in range(0, len(wheel), 32)]
    assert sum(counts) == pending
    assert sum(count > 0 for count in counts) == slots
    config = make_config(dump, timer_precision_ms=100, timer_flush_interval_ms=50)
    with pymq.Broker(config, clock=LaterClock()).running() as copy:
        expected = {b"timer%d" % number for number in range(delivered + pending)}
        bodies = Counter()
        until(lambda: copy.store.queue_range("T", 0)[1] >= len(expected) and copy.store.queue_range("T", 1)[1] >= 5)
        for queue_id in (0, 1):
            bodies.update(message.body for message in copy.store.read("T", queue_id, 0, 1000))
    assert set(bodies) == expected | {b"delay%d" % number for number in range(5)}
    assert max(bodies.values()) == 1, [body for body, count in bodies.items() if count > 1]


def test_a_topic_removed_under_the_dump_is_removed_in_it(broker, wire, tmp_path):
    """Goal: files that an operator removes do not end a dump. Method: remove a topic when copying has begun."""
    for topic in ("T", "Gone"):
        create_topic(wire, topic)
        for number in range(300):
            wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic, number % 4), b"%d" % number)
    broker.store.wait_dispatched(10_000)

    class Removing(Silent):
        removed = False

        def file_done(self, path):
            if not self.removed and path.startswith(("index/", "consumequeue/Gone")):
                self.removed = True
                assert wire.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}).code == ResponseCode.SUCCESS
                assert not (broker.store_path / "consumequeue" / "Gone").exists()

    report = Removing()
    result = take_dump(address_of(broker), tmp_path / "dump", report=report)
    assert report.removed
    assert not [entry.path for entry in result.manifest.files if "/Gone/" in entry.path]
    assert not (tmp_path / "dump" / "consumequeue" / "Gone").exists()
    line = f"{result.manifest.log_end} 4 Gone\n"
    assert (tmp_path / "dump" / "removedTopics").read_text().endswith(line)
    assert verify_dump(tmp_path / "dump")[1] == []
    assert {topic for topic, _, _ in read_store(tmp_path / "dump")} == {"T"}


# ---- the lease -----------------------------------------------------------------------------------------------------


def ask(wire, action, **fields):
    """DUMP_STORE; its answer's code and document."""
    answer = wire.call(OwnRequestCode.DUMP_STORE, {"action": action, **{k: str(v) for k, v in fields.items()}})
    return answer.code, json.loads(answer.body) if answer.body else answer.remark


def fill_and_age(broker, wire):
    """Some files of log, all of them old."""
    for _ in range(40):
        wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T", 1), b"x" * 20_000)
    age_log(broker)
    return len(broker.store.log_files())


def test_retention_waits_for_the_lease(broker, wire):
    """Goal: no file goes under a dump. Method: old files and DELETE_EXPIRED_COMMITLOG with and without a lease."""
    count = fill_and_age(broker, wire)
    code, answer = ask(wire, "begin", leaseMs=60_000)
    assert code == ResponseCode.SUCCESS
    assert wire.call(RequestCode.DELETE_EXPIRED_COMMITLOG).code == ResponseCode.SUCCESS
    assert wire.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == ResponseCode.SUCCESS
    assert len(broker.store.log_files()) == count
    assert ask(wire, "end", lease=answer["lease"]) == (ResponseCode.SUCCESS, {"held": True})
    assert ask(wire, "end", lease=answer["lease"]) == (ResponseCode.SUCCESS, {"held": False})
    wire.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert len(broker.store.log_files()) < count


def test_a_lease_expires(broker, wire):
    """Goal: a dumper that died keeps nothing. Method: the shortest lease, not renewed; then it is unknown."""
    count = fill_and_age(broker, wire)
    _, answer = ask(wire, "begin", leaseMs=1)
    assert answer["leaseMs"] == 1000
    until(lambda: not broker.dumps.held())
    code, remark = ask(wire, "renew", lease=answer["lease"])
    assert code == ResponseCode.ILLEGAL_OPERATION
    assert "expired" in remark
    assert ask(wire, "position", lease=answer["lease"])[0] == ResponseCode.ILLEGAL_OPERATION
    wire.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert len(broker.store.log_files()) < count


def test_leases_are_counted_renewed_and_forgotten():
    """Goal: the table of leases. Method: a clock of ours, up to the limit and one more."""
    clock = ManualClock(datetime.now(UTC))
    leases = DumpLeases(clock, lambda: 24)
    given = [leases.begin(10_000) for _ in range(LEASES_MAX)]
    assert len(set(given)) == LEASES_MAX
    assert leases.begin(10_000) is None
    clock.advance(9.999)
    assert leases.renew(given[0], 10_000)
    clock.advance(0.001)
    assert not leases.renew(given[1], 10_000)
    assert leases.held()
    assert leases.begin(1000) is not None
    clock.advance(10.0)
    assert not leases.held()


def test_a_disk_that_is_too_full_comes_before_a_dump(broker, wire, disk, tmp_path):
    """Goal: sends matter more; the dump says what happened. Method: fill the disk when copying has begun."""
    fill_and_age(broker, wire)

    class Filling(Silent):
        def begin(self, what, files, total):
            disk.ratio = 0.99
            wire.call(RequestCode.DELETE_EXPIRED_COMMITLOG)

    with pytest.raises(DumpError, match="too full comes before a dump"):
        take_dump(address_of(broker), tmp_path / "dump", report=Filling())


def test_a_position_needs_a_lease_and_is_behind_everything_written(broker, wire):
    """Goal: the request as documented. Method: ask for each action, rightly and wrongly."""
    wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"body")
    assert ask(wire, "position")[0] != ResponseCode.SUCCESS
    assert ask(wire, "position", lease="none")[0] == ResponseCode.ILLEGAL_OPERATION
    code, remark = ask(wire, "steal")
    assert code == ResponseCode.INVALID_PARAMETER
    assert "begin, end, position, renew" in remark
    _, answer = ask(wire, "begin")
    assert answer["storePath"] == str(broker.store_path)
    assert answer["inode"] == broker.store_path.stat().st_ino
    assert answer["configuration"]["mappedFileSizeCommitLog"] == "200003"
    written = int(broker.store.watermarks()["written"])
    _, position = ask(wire, "position", lease=answer["lease"])
    assert position["begin"] == 0
    assert position["end"] == written > 0
    assert ask(wire, "end", lease=answer["lease"])[1] == {"held": True}
    assert request_name(OwnRequestCode.DUMP_STORE) == "DUMP_STORE"


def test_passwords_do_not_get_into_a_dump():
    """Goal: a dump may be given away. Method: names of settings that hold secrets."""
    settings = {"tls.server.keyPassword": "x", "secretKey": "x", "accessKey": "x", "listenPort": "1"}
    assert shown_properties(settings) == {"listenPort": "1"}


def test_a_password_that_a_broker_keeps_does_not_get_into_its_dump(broker, wire, tmp_path):
    """Symptom: config/broker.properties, which updateBrokerConfig writes, was copied like a table of the store."""
    wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
    for password in (b"s3cret", b"s3cret-2"):
        body = b"tls.server.keyPassword=" + password
        assert wire.call(RequestCode.UPDATE_BROKER_CONFIG, {}, body).code == ResponseCode.SUCCESS
    assert b"s3cret-2" in (broker.config_directory / "broker.properties").read_bytes()
    take_dump(address_of(broker), tmp_path / "dump")
    assert not [path for path, data in files_of(tmp_path / "dump").items() if b"s3cret" in data]


# ---- going on, and refusing ----------------------------------------------------------------------------------------


def test_an_interrupted_dump_of_a_broker_keeps_its_position(broker, wire, tmp_path):
    """Goal: the same command, the same position. Method: end an attempt in the middle, send more, go on."""
    for number in range(400):
        wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T", number % 4, f"KEYS\x01k{number}\x02"), b"%d" % number)
    before = int(broker.store.watermarks()["written"])

    class Ending(Silent):
        count = 0

        def file_done(self, path):
            self.count += 1
            if path.startswith("consumequeue"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_dump(address_of(broker), tmp_path / "dump", report=Ending())
    for number in range(400):
        wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T", number % 4, f"KEYS\x01k{number}\x02"), b"more")
    result = take_dump(address_of(broker), tmp_path / "dump")
    assert result.manifest.log_end == before
    assert result.reused > 0
    assert verify_dump(tmp_path / "dump")[1] == []
    assert len(read_store(tmp_path / "dump")) == 400
    assert take_dump(address_of(broker), tmp_path / "dump").already


@pytest.mark.parametrize(("kind", "goes_on"), [("commitlog", True), ("consumequeue", False)])
def test_files_that_are_copied_may_go_between_two_attempts_and_others_may_not(broker, wire, tmp_path, kind, goes_on):
    """Goal: what is in the dump is not needed any more. Method: end an attempt behind the first log file, or before it;
    let retention take that file; go on."""
    fill_and_age(broker, wire)
    expected = int(broker.store.watermarks()["written"])

    class Ending(Silent):
        def file_done(self, path):
            if path.startswith(kind):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_dump(address_of(broker), tmp_path / "dump", report=Ending())
    assert broker.store.remove_oldest() == 0
    if not goes_on:
        with pytest.raises(DumpError, match="retention removed it"):
            take_dump(address_of(broker), tmp_path / "dump")
        return
    result = take_dump(address_of(broker), tmp_path / "dump")
    assert (result.manifest.log_begin, result.manifest.log_end) == (0, expected)
    assert verify_dump(tmp_path / "dump")[1] == []
    assert len(read_store(tmp_path / "dump")) == 40


def test_a_dump_of_another_log_is_not_continued(broker, wire, tmp_path):
    """Goal: two logs do not mix. Method: another store at the same path between two attempts."""
    wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"one")

    class Ending(Silent):
        def file_done(self, path):
            if path.startswith("consumequeue"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_dump(address_of(broker), tmp_path / "dump", report=Ending())
    notes = tmp_path / "dump" / "manifest.json.partial"
    lines = notes.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        value = json.loads(line)
        if "position" in value:
            value["position"]["tail_digest"] = "0" * 16
            lines[number] = json.dumps(value)
    notes.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(DumpRefusedError, match="not the one this dump was begun with"):
        take_dump(address_of(broker), tmp_path / "dump")
    with pytest.raises(DumpRefusedError, match="open in this process"):
        take_dump(str(broker.store_path), tmp_path / "other")


def test_who_does_not_know_the_request_is_said_to_be_no_pymq_broker(broker, tmp_path):
    """Goal: one clear line. Method: ask a name server."""
    with pytest.raises(DumpRefusedError, match="no pymq broker"):
        take_dump(f"127.0.0.1:{broker.name_server.port}", tmp_path / "dump")


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"inode": 1}, "the same path elsewhere"), ({"storePath": "/of/another/machine"}, "run the dump on the broker's")],
)
def test_a_store_that_is_elsewhere_is_refused(broker, tmp_path, monkeypatch, changes, words):
    """Goal: a broker of another machine, or container, is not mistaken. Method: an answer about other files."""
    begin = Lease._begin
    monkeypatch.setattr(Lease, "_begin", lambda self: begin(self) | changes)
    with pytest.raises(DumpRefusedError, match=words):
        take_dump(address_of(broker), tmp_path / "dump")
    assert not (tmp_path / "dump").exists()


def test_a_dump_to_the_store_s_own_disk_does_not_make_it_too_full(broker, wire, tmp_path, monkeypatch):
    """Goal: a dump does not stop the broker's sends. Method: a file system that would be 95 % full afterwards."""
    wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x" * 100_000)
    total = 1000 * MIB
    free = int(total * 0.05) // 4096

    class Disk:
        f_frsize, f_bavail, f_bfree, f_blocks = 4096, free, free, total // 4096

    monkeypatch.setattr("pymq.store.dump.target.os.statvfs", lambda path: Disk)
    with pytest.raises(DumpRefusedError, match="diskSpaceWarningLevelRatio"):
        take_dump(address_of(broker), tmp_path / "dump")


# ---- not in the way ------------------------------------------------------------------------------------------------


def process_io(pid):
    """Bytes a process has read and written by calls."""
    with open(f"/proc/{pid}/io", encoding="ascii") as stream:
        rows = dict(line.split(": ") for line in stream.read().splitlines())
    return int(rows["rchar"]) + int(rows["wchar"])


def test_sends_go_on_while_some_hundred_megabytes_are_dumped(tmp_path):
    """Goal: copying is the dumper's work alone. Method: a dump of 128 MiB beside a producer; what the broker read and
    wrote, how many sends were answered, and by whom, while it ran."""
    with BrokerProcess(tmp_path, "--mappedFileSizeCommitLog", str(64 * MIB)) as process, Wire(process.port) as wire:
        create_topic(wire, "T")
        body = os.urandom(MIB)
        for _ in range(128):
            wire.post(Command(RequestCode.SEND_MESSAGE_V2, send_fields("T"), body))
        while wire.receive().opaque != wire._opaque:
            pass
        latencies, stopping, dumping = [], threading.Event(), threading.Event()

        def produce():
            with Wire(process.port) as own:
                while not stopping.is_set():
                    begun_s = time.monotonic()
                    answer = own.call(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x" * 100)
                    assert answer.code == ResponseCode.SUCCESS
                    latencies.append((dumping.is_set(), time.monotonic() - begun_s))

        producer = threading.Thread(target=produce)
        producer.start()
        time.sleep(0.5)
        moved = process_io(process.process.pid)
        dumping.set()
        result = dump_json(f"127.0.0.1:{process.port}", tmp_path / "dump")
        dumping.clear()
        moved = process_io(process.process.pid) - moved
        stopping.set()
        producer.join()
    during = sorted(seconds for is_during, seconds in latencies if is_during)
    late = sum(seconds > 0.1 for seconds in during)
    took_s = (result["endedMs"] - result["begunMs"]) / 1000
    middle_ms, longest_ms = during[len(during) // 2] * 1000, during[-1] * 1000
    print(f"{result['bytes'] / MIB:.0f} MiB in {took_s:.1f} s; {len(during)} sends meanwhile")
    print(f"median {middle_ms:.2f} ms, longest {longest_ms:.1f} ms, {late} above 100 ms")
    assert result["bytes"] > 128 * MIB
    assert moved < result["bytes"] / 10
    assert len(during) > 50
    assert late * 20 <= len(during), f"{late} of {len(during)} sends took more than 100 ms"
    assert files_of(tmp_path / "dump").keys() >= {"commitlog/00000000000000000000", "checkpoint", "abort"}
