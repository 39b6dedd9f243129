"""Whole runs of the generator against a small broker that keeps what it is sent; under ASan and UBSan."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from tests.perf_tools.fake_broker import Behaviour, FakeBroker
from tests.perf_tools.generator import program, run

USAGE, TIME_OUT, PEER = 2, 3, 4


def target(broker: FakeBroker, topic: str = "T") -> tuple[str, ...]:
    """The options every run has."""
    return ("--broker", broker.address, "--topic", topic, "--timeout-s", "30")


@pytest.mark.parametrize("codec", ["json", "rocketmq"])
@pytest.mark.parametrize(
    "shape",
    [
        ("--connections", 8, "--window", 64),
        ("--connections", 1, "--window", 1),
        ("--connections", 1, "--window", 5),
        ("--connections", 64, "--window", 1),
        ("--connections", 3, "--window", 8, "--batch", 32),
    ],
    ids=lambda shape: "-".join(map(str, shape[1::2])),
)
def test_every_way_of_sending_sends_each_message_once(codec: str, shape: tuple[str | int, ...]):
    """Goal: counts can be believed. Method: what the broker stored has each sequence number once."""
    with FakeBroker() as broker:
        result = run("send", *target(broker), "--codec", codec, "--count", 1920, *shape).result
    sequences = sorted(int.from_bytes(stored.body[8:16], "big") for stored in broker.messages("T"))
    assert result["acknowledged"] == 1920
    assert sequences == list(range(1920))
    assert result["refused"] == 0
    assert result["latency_us"]["count"] == 1920 // result["batch"]
    assert 0 < result["latency_us"]["p50"] <= result["latency_us"]["p99"] <= result["latency_us"]["max"]


def test_the_broker_cpu_of_the_window_is_reported():
    """Goal: CPU is that of the watched process. Method: watch this very process, which is the broker's."""
    with FakeBroker() as broker:
        result = run("send", *target(broker), "--count", 3000, "--window", 16, "--watch-pid", os.getpid()).result
    assert result["broker_cpu"]["total_s"] > 0
    expected = result["broker_cpu"]["total_s"] * 1e6 / 3000
    assert result["broker_cpu"]["s_per_million"] == pytest.approx(expected, rel=1e-4)


def test_refusals_are_counted_apart_with_their_remark():
    """Goal: a busy broker is not a fast one. Method: every tenth send is refused with SYSTEM_BUSY."""
    with FakeBroker(Behaviour(refuse_every=10)) as broker:
        result = run("send", *target(broker), "--count", 500, "--connections", 2, "--window", 8).result
    assert (result["acknowledged"], result["refused"]) == (450, 50)
    assert result["refusals"]["2"] == {"count": 50, "remark": "[TIMEOUT_CLEAN_QUEUE]broker busy"}
    assert result["latency_us"]["count"] == 450


def test_a_broker_that_never_answers_ends_in_a_time_out():
    """Goal: every run ends. Method: a silent broker and a time-out; the sentence says how far it came."""
    with FakeBroker(Behaviour(silent=True)) as broker:
        ended = run("send", "--broker", broker.address, "--topic", "T", "--window", 3, "--timeout-s", 0.5)
    assert ended.status == TIME_OUT
    assert "0 messages acknowledged, 0 refused, 3 under way" in ended.err


def test_a_lost_connection_ends_the_run_with_a_reason():
    """Goal: no figure from a broken run. Method: the broker closes after 20 sends."""
    with FakeBroker(Behaviour(close_after=20)) as broker:
        ended = run("send", *target(broker), "--count", 1000)
    assert ended.status == PEER
    assert "closed the connection" in ended.err
    assert ended.out == ""


def test_nobody_listening_is_said_with_the_address():
    """Goal: the commonest mistake explains itself. Method: a port that was just closed."""
    with FakeBroker() as broker:
        address = broker.address
    ended = run("send", "--broker", address, "--topic", "T")
    assert ended.status == PEER
    assert address in ended.err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("send",), "--broker"),
        (("fly",), "fly"),
        (("send", "--broker", "h:1", "--topic", "T", "--codec", "xml"), "xml"),
        (("send", "--broker", "h:1", "--topic", "T", "--window", "0"), "--window"),
        (("send", "--broker", "h:1", "--topic", "T", "--rate", "9", "--batch", "2"), "--batch"),
        (("deliver", "--broker", "h:1", "--topic", "T"), "--rate"),
        (("send", "--broker", "h:1", "--topic", "T", "extra"), "extra"),
        (("send", "--broker", "nonsense", "--topic", "T"), "nonsense"),
        (("sync-probe",), "--directory"),
    ],
)
def test_a_wrong_command_line_names_what_is_wrong(arguments: tuple[str, ...], word: str):
    """Goal: usage errors are clear. Method: wrong lines; status 2 and the word in the sentence."""
    ended = run(*arguments)
    assert ended.status == USAGE
    assert word in ended.err


def test_sends_on_a_schedule_are_timed_from_their_intended_moment():
    """Goal: no coordinated omission. Method: a schedule the broker cannot follow; delay must pile up."""
    with FakeBroker() as broker:
        result = run("send", *target(broker), "--rate", 200_000, "--count", 4000, "--window", 1).result
    span_us = result["load_s"] * 1e6
    assert result["acknowledged"] == 4000
    # The last message was due after 20 ms and answered at the end: its delay is nearly the whole run's.
    assert result["latency_us"]["max"] > 0.5 * span_us
    assert result["lateness_us"]["max"] > 0.4 * span_us
    assert result["latency_us"]["p50"] >= result["lateness_us"]["p50"]


def test_a_schedule_is_kept_when_the_broker_can():
    """Goal: the rate asked for is the rate sent. Method: 100 messages at 500 a second take no less than 0.198 s."""
    with FakeBroker() as broker:
        result = run("send", *target(broker), "--rate", 500, "--count", 100, "--window", 8, "--connections", 2).result
    assert result["load_s"] >= 99 / 500
    assert result["lateness_us"]["count"] == 100


@pytest.mark.parametrize("codec", ["json", "rocketmq"])
@pytest.mark.parametrize("connections", [1, 3, 9])
def test_catch_up_reads_every_queue_to_its_end_once(codec: str, connections: int):
    """Goal: pulled messages are all of them. Method: odd queue lengths; no gap, none twice, batches of at most 32."""
    with FakeBroker() as broker:
        common = (*target(broker), "--codec", codec, "--queues", 7)
        run("send", *common, "--count", 1003, "--connections", 4, "--window", 9)
        result = run("pull", *common, "--connections", connections, "--window", 2).result
    assert result["received"] == 1003
    assert (result["gaps"], result["corrupt"], result["queues_unfinished"]) == (0, 0, 0)
    assert 1 < result["messages_per_pull"] <= 32


def test_catch_up_of_an_empty_topic_is_over_at_once():
    """Goal: nothing to read is not a hang. Method: a topic that was never sent to."""
    with FakeBroker() as broker:
        result = run("pull", *target(broker, "Empty"), "--queues", 3).result
    assert result["received"] == 0


def test_delivery_is_measured_for_every_message():
    """Goal: end-to-end delay by long polling. Method: all messages on a schedule arrive, each with a delay."""
    with FakeBroker() as broker:
        arguments = ("--rate", 1000, "--count", 300, "--window", 32, "--queues", 4, "--properties", "java")
        result = run("deliver", *target(broker), *arguments).result
    assert (result["acknowledged"], result["received"], result["delivery_us"]["count"]) == (300, 300, 300)
    assert 0 < result["delivery_us"]["p50"] <= result["delivery_us"]["p999"]
    assert (result["gaps"], result["corrupt"]) == (0, 0)


def test_delivery_ignores_what_was_there_before():
    """Goal: a second run measures its own messages. Method: two runs on one topic, each counting its own only."""
    with FakeBroker() as broker:
        arguments = ("--rate", 2000, "--count", 50, "--queues", 2, "--window", 16)
        for _ in range(2):
            result = run("deliver", *target(broker), *arguments).result
            assert (result["received"], result["delivery_us"]["count"]) == (50, 50)


def test_fields_in_another_order_are_understood():
    """Goal: a broker may order its answer as it likes. Method: fields reversed in every answer."""
    with FakeBroker(Behaviour(reverse_answers=True)) as broker:
        result = run("send", *target(broker), "--count", 100, "--window", 4).result
    assert result["acknowledged"] == 100


def test_a_signal_ends_the_load_and_still_reports():
    """Goal: a run beside another ends with it. Method: SIGTERM in the middle of a long run; a result all the same."""
    with FakeBroker() as broker:
        line = [str(program()), "send", *target(broker), "--rate", "500", "--duration-s", "25", "--window", "8"]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 20
        while not broker.messages("T") and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert f'"acknowledged": {len(broker.messages("T"))},' in out


def test_the_sync_probe_times_each_round(tmp_path):
    """Goal: the disk's own figure. Method: a bounded number of rounds; all timed, nothing left behind."""
    result = run("sync-probe", "--directory", tmp_path, "--batch", 64, "--body-size", 356, "--count", 640).result
    assert result["bytes_per_round"] == 64 * 356
    assert result["round_us"]["count"] == 10
    assert result["round_us"]["p50"] > 0
    assert list(tmp_path.iterdir()) == []
