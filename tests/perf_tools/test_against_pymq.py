"""The generator against pymq's own broker: every mode, both codecs, and ledgers that agree with each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.side_by_side.sides import PymqSide, RunningBroker
from tests.perf_tools.generator import run
from tests.perf_tools.ledgers import Entry, read


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker process over an empty store, with its name server."""
    running = PymqSide().start(tmp_path_factory.mktemp("pymq"), flush_disk_type="ASYNC_FLUSH")
    yield running
    running.stop(clean=True)


def identities(path: Path, kind: str) -> list[tuple[int | str | None, ...]]:
    """What both ends of a message must agree on."""

    def identity(entry: Entry) -> tuple[int | str | None, ...]:
        return entry.queue, entry.queue_offset, entry.msg_id, entry.sender, entry.sequence, entry.intended_ns

    return sorted(identity(entry) for entry in read(path) if entry.kind == kind)


@pytest.mark.parametrize("codec", ["json", "rocketmq"])
@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("properties", ["none", "java-keys"])
def test_what_is_acknowledged_is_what_is_pulled(
    broker: RunningBroker, tmp_path: Path, codec: str, batch: int, properties: str
):
    """Goal: figures are of messages that arrived. Method: the sender's ledger against the consumer's, line by line."""
    common = ("--broker", broker.address, "--topic", f"Smoke-{codec}-{batch}-{properties}", "--codec", codec)
    shape = ("--count", 1600, "--batch", batch, "--properties", properties, "--connections", 3, "--window", 8)
    sent = run("send", *common, *shape, "--ledger", tmp_path / "sent").result
    pulled = run("pull", *common, "--connections", 2, "--ledger", tmp_path / "received").result
    assert (sent["acknowledged"], sent["refused"]) == (1600, 0)
    assert (pulled["received"], pulled["gaps"], pulled["corrupt"]) == (1600, 0, 0)
    assert identities(tmp_path / "sent", "A") == identities(tmp_path / "received", "R")


@pytest.mark.parametrize("codec", ["json", "rocketmq"])
def test_what_is_sent_is_delivered_by_long_polling(broker: RunningBroker, tmp_path: Path, codec: str):
    """Goal: a held pull is woken by what arrives. Method: a schedule of messages, each received once, in one ledger."""
    common = ("--broker", broker.address, "--topic", f"Delivered-{codec}", "--codec", codec, "--queues", 4)
    arguments = (
        "--rate",
        1000,
        "--count",
        500,
        "--window",
        32,
        "--ledger",
        tmp_path / "ledger",
        "--group",
        f"d-{codec}",
    )
    result = run("deliver", *common, *arguments).result
    assert (result["acknowledged"], result["delivery_us"]["count"], result["gaps"]) == (500, 500, 0)
    assert identities(tmp_path / "ledger", "A") == identities(tmp_path / "ledger", "R")


@pytest.mark.parametrize("codec", ["json", "rocketmq"])
@pytest.mark.parametrize(
    ("follow_up", "properties"), [("commit", "TRAN_MSG=true;PGROUP=load"), ("send-back", "colour=blue")]
)
def test_every_message_is_followed_by_its_second_request(
    broker: RunningBroker, codec: str, follow_up: str, properties: str
):
    """Goal: transactions and retries are counted when both halves are done. Method: nothing refused, all settled."""
    common = ("--broker", broker.address, "--topic", f"Follow-{codec}-{follow_up}", "--codec", codec)
    shape = ("--count", 300, "--connections", 2, "--window", 8, "--properties", "java", "--add-properties", properties)
    result = run("follow", *common, *shape, "--follow-up", follow_up).result
    assert (result["sent"], result["acknowledged"], result["refused"]) == (300, 300, 0), result["refusals"]
    assert result["follow_up"]["messages_per_s"] > result["messages_per_s"]


def test_delayed_messages_are_awaited(broker: RunningBroker):
    """Goal: the window of a delivery closes with the last message. Method: level 1, and the topic shows them all."""
    common = ("--broker", broker.address, "--topic", "Delayed", "--queues", 2)
    sent = run("send", *common, "--count", 50, "--add-properties", "DELAY=1", "--no-settle").result
    awaited = run("await", *common, "--count", 50, "--timeout-s", 20).result
    assert (sent["acknowledged"], awaited["reached"]) == (50, 50)
