"""The ledger: what it says is what the broker has, kind by kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.perf_tools.fake_broker import Behaviour, FakeBroker
from tests.perf_tools.generator import run
from tests.perf_tools.ledgers import read


def target(broker: FakeBroker, ledger: Path) -> tuple[str | Path, ...]:
    """The options every run has."""
    return ("--broker", broker.address, "--topic", "Ledger", "--ledger", ledger, "--timeout-s", "30", "--queues", "3")


@pytest.mark.parametrize("codec", ["json", "rocketmq"])
@pytest.mark.parametrize("batch", [1, 8])
def test_acknowledged_lines_are_the_messages_of_the_broker(tmp_path: Path, codec: str, batch: int):
    """Goal: nothing acknowledged is missing, nothing is invented. Method: queues, offsets and ids of the broker."""
    with FakeBroker() as broker:
        arguments = ("--codec", codec, "--count", 400, "--batch", batch, "--connections", 3, "--window", 5)
        result = run("send", *target(broker, tmp_path / "sent"), *arguments).result
    entries = read(tmp_path / "sent")
    assert {entry.kind for entry in entries} == {"A"}
    stored = {
        (queue, message.queue_offset): (int.from_bytes(message.body[8:16], "big"), message.physical_offset)
        for (_, queue), messages in broker.queues.items()
        for message in messages
    }
    noted = {(entry.queue, entry.queue_offset): (entry.sequence, int(entry.msg_id[-16:], 16)) for entry in entries}
    assert len(entries) == result["acknowledged"] == 400
    assert noted == stored
    assert all(entry.intended_ns <= entry.sent_ns < entry.done_ns for entry in entries)
    assert {(entry.topic, entry.sender) for entry in entries} == {("Ledger", result["sender"])}


@pytest.mark.parametrize("codec", ["json", "rocketmq"])
def test_received_lines_match_the_acknowledged_ones(tmp_path: Path, codec: str):
    """Goal: both ends name a message alike. Method: send, pull, compare id, sender, sequence and intended time."""
    with FakeBroker() as broker:
        run("send", *target(broker, tmp_path / "sent"), "--codec", codec, "--count", 300, "--window", 7)
        run("pull", *target(broker, tmp_path / "received"), "--codec", codec, "--connections", 2)
    sent, received = read(tmp_path / "sent"), read(tmp_path / "received")

    def identity(entry):
        return entry.queue, entry.queue_offset, entry.msg_id, entry.sender, entry.sequence, entry.intended_ns

    assert {entry.kind for entry in received} == {"R"}
    assert sorted(map(identity, sent)) == sorted(map(identity, received))
    assert all(entry.sent_ns is None and entry.done_ns > entry.intended_ns for entry in received)


def test_refused_messages_have_a_line_with_their_code(tmp_path: Path):
    """Goal: refused is not lost. Method: every fifth send refused; its line says so and has no offset."""
    with FakeBroker(Behaviour(refuse_every=5)) as broker:
        run("send", *target(broker, tmp_path / "sent"), "--count", 100, "--window", 4)
    entries = read(tmp_path / "sent")
    refused = [entry for entry in entries if entry.kind == "F"]
    assert len(refused) == 20
    assert {(entry.msg_id, entry.queue_offset) for entry in refused} == {("code:2", None)}
    assert sorted(entry.sequence for entry in entries) == list(range(100))


@pytest.mark.parametrize("batch", [1, 4])
def test_what_was_under_way_at_the_end_is_unknown(tmp_path: Path, batch: int):
    """Goal: a broker that dies leaves no message unaccounted for. Method: it closes after 30 sends; A + U are all."""
    with FakeBroker(Behaviour(close_after=30)) as broker:
        arguments = ("--count", 100_000, "--window", 6, "--batch", batch)
        ended = run("send", *target(broker, tmp_path / "sent"), *arguments)
    entries = read(tmp_path / "sent")
    unknown = [entry for entry in entries if entry.kind == "U"]
    assert ended.status == 4
    assert 1 <= len(unknown) <= 6 * batch
    assert all(entry.done_ns is None and entry.sent_ns is not None for entry in unknown)
    assert sorted(entry.sequence for entry in entries) == list(range(len(entries)))
    assert {entry.sequence for entry in entries if entry.kind == "A"} <= {
        int.from_bytes(message.body[8:16], "big") for message in broker.messages("Ledger")
    }


def test_spoiled_bodies_are_marked_corrupt(tmp_path: Path):
    """Goal: a wrong byte is seen. Method: the broker changes the last byte of each body it returns."""
    with FakeBroker(Behaviour(corrupt_bodies=True)) as broker:
        run("send", *target(broker, tmp_path / "sent"), "--count", 50)
        result = run("pull", *target(broker, tmp_path / "received")).result
    entries = read(tmp_path / "received")
    assert result["corrupt"] == 50
    assert [entry.kind for entry in entries] == ["C"] * 50
    assert {entry.sequence for entry in entries} == {None}


def test_a_long_ledger_is_written_in_pieces_without_losing_lines(tmp_path: Path):
    """Goal: the buffer's edge is no edge of the file. Method: more lines than one buffer holds (1 MiB)."""
    with FakeBroker() as broker:
        arguments = ("--count", 16_000, "--batch", 32, "--window", 8, "--sender-id", 4_000_000_000)
        run("send", *target(broker, tmp_path / "sent"), *arguments)
    assert (tmp_path / "sent").stat().st_size > 1 << 20
    assert sorted(entry.sequence for entry in read(tmp_path / "sent")) == list(range(16_000))


def test_a_ledger_that_cannot_be_written_is_said_at_once(tmp_path: Path):
    """Goal: no run without its evidence. Method: a path in a directory that is not there."""
    with FakeBroker() as broker:
        ended = run("send", *target(broker, tmp_path / "missing" / "ledger"), "--count", 1)
    assert ended.status == 5
    assert "missing/ledger" in ended.err
