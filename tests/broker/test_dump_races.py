"""A dump beside a broker that removes files or answers nonsense: one clear error, or none; never a traceback."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.store.dump import DumpError, DumpRefusedError, running, take_dump, verify_dump
from pymq.store.dump.lease import Lease
from tests.broker.sides import until
from tests.broker.test_admin import create_topic
from tests.broker.test_dump import address_of, make_config
from tests.broker.wire import Wire, send_fields

UNITS = 101  # of a queue's file


@pytest.fixture
def broker(tmp_path):
    """A broker with a queue of four files, all of it dispatched."""
    with (
        pymq.Broker(make_config(tmp_path / "store")).running() as running,
        Wire(running.config.listen_port) as wire,
    ):
        create_topic(wire, "T")
        for number in range(4 * UNITS):
            fields = send_fields("T", 1, f"KEYS\x01k{number}\x02")
            assert wire.call(RequestCode.SEND_MESSAGE_V2, fields, b"%d" % number).code == ResponseCode.SUCCESS
        running.store.wait_dispatched(10_000)
        yield running


# ---- files that go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "directory"), [("queue_jobs", "consumequeue/T/1"), ("index_jobs", "index")])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_oldest_files_that_go_while_they_are_listed_are_not_an_error(
    broker, tmp_path, monkeypatch, name, directory, times
):
    """Goal: retention beside a dump is no traceback, however often. Method: remove the oldest file between listing the
    directory and looking at it, some times in a row."""
    original = getattr(running, name)
    removed = []

    def losing(*arguments):
        files = sorted((broker.store_path / directory).iterdir())
        if (name == "index_jobs" or arguments[1].match(directory)) and len(removed) < times:
            removed.append(files[0].name)
            if name == "queue_jobs":
                files[0].unlink()
            raise FileNotFoundError(2, "No such file or directory", str(files[0]))
        yield from original(*arguments)

    monkeypatch.setattr(running, name, losing)
    result = take_dump(address_of(broker), tmp_path / "dump")
    assert len(removed) == times
    paths = [entry.path for entry in result.manifest.files if entry.path.startswith(directory)]
    assert len(paths) == len(set(paths)) == len(list((broker.store_path / directory).iterdir()))
    assert verify_dump(tmp_path / "dump")[1] == []


def test_files_that_go_for_ever_while_they_are_listed_are_one_clear_error(broker, tmp_path, monkeypatch):
    """Goal: an end. Method: a queue whose files are never there when they are looked at."""

    def losing(*arguments):
        raise FileNotFoundError(2, "No such file or directory", "x")

    monkeypatch.setattr(running, "queue_jobs", losing)
    with pytest.raises(DumpError, match="removed faster than they are listed; repeat the command") as caught:
        take_dump(address_of(broker), tmp_path / "dump")
    assert caught.value.exit_code == 1


def test_a_log_file_that_goes_while_it_is_listed_is_named(broker, tmp_path, monkeypatch):
    """Goal: the same words as for one that went before. Method: a listing with a file that is not there."""
    original = running.LogReader

    def listing(directory):
        reader = original(directory)
        reader.files[0] = directory / "commitlog" / "gone"
        return reader

    monkeypatch.setattr(running, "LogReader", listing)
    with pytest.raises(DumpError, match=r"commitlog/0+ is gone: retention removed it"):
        take_dump(address_of(broker), tmp_path / "dump")


# ---- answers -------------------------------------------------------------------------------------------------------

NONSENSE = [b"", b"{", b"\xff\xfe", b"[]", b"null", b"{}", json.dumps({"leaseMs": "x"}).encode()]


@pytest.mark.parametrize("body", NONSENSE)
def test_nonsense_for_a_renewal_ends_the_dump_instead_of_the_thread_that_renews(broker, monkeypatch, body):
    """Goal: a dump does not go on without a lease. Method: answers that are no JSON, or not what is expected."""
    lease = Lease(address_of(broker), 1000)
    try:
        monkeypatch.setattr(
            lease,
            "_client",
            SimpleNamespace(invoke=lambda *_: Command(ResponseCode.SUCCESS, {}, body), close=lease._client.close),
        )
        until(lambda: not lease._thread.is_alive(), 5)
        with pytest.raises(DumpError, match="answered renew with"):
            lease.check()
    finally:
        lease.close()


@pytest.mark.parametrize("body", NONSENSE)
def test_nonsense_instead_of_a_lease_is_refused(broker, tmp_path, monkeypatch, body):
    """Goal: one line, and nothing is left. Method: the same for the first request."""
    monkeypatch.setattr(
        "pymq.store.dump.lease.SyncRemotingClient.invoke", lambda *_: Command(ResponseCode.SUCCESS, {}, body)
    )
    with pytest.raises(DumpRefusedError, match="answered begin with"):
        take_dump(address_of(broker), tmp_path / "dump")
    assert not (tmp_path / "dump").exists()
