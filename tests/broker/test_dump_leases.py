"""Leases of dumps: given back however a dump ends, never older than allowed, shown, and no reason for a full disk."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys

import pytest

import pymq
from pymq.remoting.codes import RequestCode
from pymq.store.dump import DumpRefusedError, take_dump
from pymq.store.dump.copier import Silent
from tests.broker.sides import until
from tests.broker.test_admin import create_topic
from tests.broker.test_dump import address_of, make_config
from tests.broker.wire import Wire, send_fields
from tests.store.dumps import ROOT, dump_json


@pytest.fixture
def disk():
    """How full the disk is, to be changed."""
    return {"ratio": 0.1}


@pytest.fixture
def broker(tmp_path, disk):
    """A broker of its own for each test."""
    with pymq.Broker(make_config(tmp_path / "store"), disk_probe=lambda path: disk["ratio"]).running() as running:
        yield running


@pytest.fixture
def wire(broker):
    """A connection to it."""
    with Wire(broker.config.listen_port) as connected:
        create_topic(connected, "T")
        yield connected


# ---- given back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_dump_that_fails_keeps_the_broker_s_files_no_longer(broker, wire, tmp_path, failure):
    """Goal: retention does not wait a minute for nobody. Method: end a dump in the middle; ask for leases at once."""
    wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"body")
    held = []

    class Failing(Silent):
        def file_done(self, path):
            held.append(broker.dumps.held())
            raise failure

    with pytest.raises(type(failure)):
        take_dump(address_of(broker), tmp_path / "dump", report=Failing())
    assert held == [True]
    assert not broker.dumps.held()


def test_a_dump_that_is_refused_or_whole_already_leaves_no_lease(broker, wire, tmp_path):
    """Goal: what copies nothing keeps nothing. Method: the same dump again, and a target that is something else."""
    wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"body")
    dump_json(address_of(broker), tmp_path / "dump")
    assert take_dump(address_of(broker), tmp_path / "dump").already
    assert not broker.dumps.held()
    with pytest.raises(DumpRefusedError):
        take_dump(address_of(broker), broker.store_path / "inside")
    assert not broker.dumps.held()


def test_a_dumper_that_gets_ctrl_c_gives_its_lease_back(broker, wire, tmp_path):
    """Goal: the command does so too. Method: SIGINT to a dumper that copies slowly, with the longest lease."""
    for _ in range(40):
        wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x" * 50_000)
    command = [sys.executable, "-m", "pymq.store.dump", "--quiet", "--rate", "0.05", "--lease", "600"]
    target = tmp_path / "dump"
    with subprocess.Popen([*command, address_of(broker), str(target)], cwd=ROOT, stderr=subprocess.PIPE) as dumper:
        until((target / "commitlog").exists)
        assert broker.dumps.held()
        dumper.send_signal(signal.SIGINT)
        _, said = dumper.communicate(timeout=60)
    assert dumper.returncode == 1
    assert said.decode() == "pymq.store.dump: interrupted; the same command continues it\n"
    assert not broker.dumps.held()
