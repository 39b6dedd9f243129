"""One store, one owner: pymq and Apache RocketMQ keep each other out."""

from __future__ import annotations

from pathlib import Path

import pytest

from pymq.errors import StoreLockedError
from tests.interop.answers import acknowledged, assert_answers_rightly
from tests.interop.apache import ApacheOpenFailedError, ApacheStore
from tests.interop.apache_broker import BrokerStartError, running_broker
from tests.interop.apache_toolchain import Toolchain
from tests.interop.pymq_side import PymqStore, append_steps
from tests.interop.workloads import WORKLOADS

WORKLOAD = WORKLOADS[0]
SETTINGS = WORKLOAD.settings


def test_pymq_refuses_a_store_a_running_broker_has(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: a clear refusal, and no damage. Method: open under a live broker, then again once it is dead."""
    ours = PymqStore(tmp_path / "store", SETTINGS)
    with running_broker(apache, ours.directory, SETTINGS.for_apache()) as broker:
        before = {path: path.stat().st_mtime_ns for path in ours.directory.rglob("*") if path.name != "lock"}
        with pytest.raises(StoreLockedError) as refusal, ours.open():
            pass
        assert str(ours.directory) in str(refusal.value)
        changed = [path for path, modified in before.items() if path.stat().st_mtime_ns != modified]
        # What the broker writes by itself while it runs is not our doing.
        its_own = {"config", "rocksdbstore", "checkpoint"}
        assert not [path for path in changed if not its_own & set(path.parts)]
        broker.kill()
        with ours.open() as mq:
            assert mq.queues() == []


def test_a_broker_refuses_to_start_on_a_store_pymq_has(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: Apache sees pymq's lock. Method: start the harness and a real broker on a store that is open here."""
    ours = PymqStore(tmp_path / "store", SETTINGS)
    with ours.open():
        theirs = ApacheStore(apache, ours.directory, SETTINGS.for_apache())
        with pytest.raises(ApacheOpenFailedError, match="Lock failed, MQ already started"), theirs.hold():
            pass
        with (
            pytest.raises(BrokerStartError, match="Lock failed, MQ already started"),
            running_broker(apache, ours.directory, SETTINGS.for_apache()),
        ):
            pass


def test_a_refused_broker_costs_pymq_no_message(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: an operator's mistake loses nothing that was acknowledged, before it or after.

    Method: Apache recovers a store before it asks for the lock, and so removes the log file allocated ahead and the
    newest index file from under their owner. Send on both sides of such a start, close, reopen, ask everything.
    """
    ours = PymqStore(tmp_path / "store", SETTINGS)
    theirs = ApacheStore(apache, ours.directory, SETTINGS.for_apache())
    with ours.open() as mq:
        puts = list(append_steps(mq, WORKLOAD.steps(0)))
        with pytest.raises(ApacheOpenFailedError, match="Lock failed"), theirs.hold():
            pass
        puts += append_steps(mq, WORKLOAD.steps(1))
    written = acknowledged([*WORKLOAD.messages(0), *WORKLOAD.messages(1)], puts)
    with ours.open_reader() as reader:
        assert_answers_rightly(reader, written)
    with theirs.open_reader() as reader:
        assert_answers_rightly(reader, written)
