"""Leases of dumps: given back however a dump ends, never older than allowed, shown, and no reason for a full disk."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

import pymq
from pymq.broker.dumps import LEASE_MS_MAX, LEASES_MAX, DumpLeases
from pymq.clock import ManualClock
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.store.dump import DumpError, DumpRefusedError, take_dump, verify_dump
from pymq.store.dump.copier import Silent
from tests.broker.sides import until
from tests.broker.test_admin import create_topic
from tests.broker.test_dump import address_of, ask, fill_and_age, make_config
from tests.broker.wire import send_fields
from tests.store.dumps import ROOT, dump_json, heeding_interrupts


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_dumper_that_is_told_to_end_gives_its_lease_back(broker, wire, tmp_path, number):
    """Goal: the command does so too. Method: a signal to a dumper that copies slowly, with the longest lease."""
    for _ in range(40):
        wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x" * 50_000)
    command = [sys.executable, "-m", "pymq.store.dump", "--quiet", "--rate", "0.05", "--lease", "600"]
    target = tmp_path / "dump"
    command += [address_of(broker), str(target)]
    with heeding_interrupts(), subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as dumper:
        # Once it copies: Python may drop an interrupt that meets it while it imports.
        until(lambda: any(path.stat().st_blocks for path in (target / "commitlog").glob("*")))
        assert broker.dumps.held()
        dumper.send_signal(number)
        _, said = dumper.communicate(timeout=60)
    assert dumper.returncode == 1
    assert said.decode() == "pymq.store.dump: interrupted; the same command continues it\n"
    assert not broker.dumps.held()


# ---- not for ever --------------------------------------------------------------------------------------------------


def renew_until(leases, clock, lease, age_s):
    """Let *lease* become *age_s* old, renewed all the time; whether it was in force until then."""
    for _ in range(age_s // 300):
        clock.advance(300.0)
        if not leases.renew(lease, LEASE_MS_MAX):
            return False
    return True


def test_a_lease_that_is_renewed_for_ever_ends_at_its_largest_age():
    """Goal: a dumper that hangs does not fill the disk. Method: renew up to the age, one second before it, and after
    the age was changed; one that merely expired is told from it."""
    clock = ManualClock(datetime.now(UTC))
    hours = [2]
    leases = DumpLeases(clock, lambda: hours[0])
    lease, silent = leases.begin(LEASE_MS_MAX), leases.begin(1000)
    assert renew_until(leases, clock, lease, 2 * 3600 - 300)
    clock.advance(299.0)
    assert leases.renew(lease, LEASE_MS_MAX)
    assert not leases.was_too_old(lease)
    clock.advance(1.0)
    assert not leases.held()
    assert not leases.renew(lease, LEASE_MS_MAX)
    assert leases.was_too_old(lease)
    assert not leases.was_too_old(silent)
    hours[0] = 3
    lease = leases.begin(LEASE_MS_MAX)
    assert renew_until(leases, clock, lease, 2 * 3600)
    hours[0] = 1
    assert not leases.held()
    for _ in range(2 * LEASES_MAX):
        leases.begin(LEASE_MS_MAX)
        hours[0] = 0
        assert not leases.held()
        hours[0] = 1
    assert len(leases._too_old) == LEASES_MAX


def test_a_dumper_whose_lease_is_too_old_says_so_and_goes_on_later(broker, wire, tmp_path, monkeypatch):
    """Goal: the error names the setting and the way out. Method: hours that last a second, a dump that lasts longer;
    then the same call again."""
    for _ in range(5):
        wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x" * 50_000)
    assert wire.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"dumpLeaseMaxAgeHours=2").code == ResponseCode.SUCCESS
    monkeypatch.setattr("pymq.broker.dumps.HOUR_S", 1)

    class Slow(Silent):
        def file_done(self, path):
            if path.startswith("consumequeue/"):
                until(lambda: not broker.dumps.held())
                time.sleep(0.5)  # for the renewal that is refused

    words = r"dumpLeaseMaxAgeHours \(2\).*raise that setting.*repeat the command"
    with pytest.raises(DumpError, match=words) as caught:
        take_dump(address_of(broker), tmp_path / "dump", report=Slow(), lease_ms=1000)
    assert caught.value.exit_code == 1
    monkeypatch.undo()
    assert take_dump(address_of(broker), tmp_path / "dump").reused > 0


def test_a_lease_that_is_too_old_gives_no_position_and_was_not_held_to_the_end(broker, wire, monkeypatch):
    """Goal: no dump is called whole whose files were not kept. Method: the refusals of an old lease, by request."""
    _, answer = ask(wire, "begin")
    monkeypatch.setattr("pymq.broker.dumps.HOUR_S", 0)
    code, remark = ask(wire, "renew", lease=answer["lease"])
    assert code == ResponseCode.ILLEGAL_OPERATION
    assert "dumpLeaseMaxAgeHours (24)" in remark
    assert ask(wire, "position", lease=answer["lease"])[0] == ResponseCode.ILLEGAL_OPERATION
    assert ask(wire, "end", lease=answer["lease"]) == (ResponseCode.SUCCESS, {"held": False})


# ---- shown ---------------------------------------------------------------------------------------------------------


def lease_rows(wire):
    """What the runtime info says of leases."""
    table = json.loads(wire.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    names = ("leases", "oldest_offset", "oldest_age_s")
    return tuple(int(table[f"pymq.dump.{name}"]) for name in names)


def test_the_runtime_info_says_how_many_leases_there_are_how_old_and_from_where(broker, wire):
    """Goal: an operator sees why the disk is not emptied. Method: leases before and after the first log file went."""
    fill_and_age(broker, wire)
    broker.dumps._clock = clock = ManualClock(datetime.now(UTC))
    assert lease_rows(wire) == (0, -1, 0)
    assert broker.store.remove_oldest() == 0
    begin = int(broker.store.watermarks()["min"])
    assert begin > 0
    _, first = ask(wire, "begin", leaseMs=600_000)
    clock.advance(7.5)
    assert lease_rows(wire) == (1, begin, 7)
    broker.store.remove_oldest()
    _, second = ask(wire, "begin", leaseMs=600_000)
    clock.advance(1.0)
    assert lease_rows(wire) == (2, begin, 8)
    ask(wire, "end", lease=first["lease"])
    assert lease_rows(wire) == (1, int(broker.store.watermarks()["min"]), 1)
    ask(wire, "end", lease=second["lease"])
    assert lease_rows(wire) == (0, -1, 0)


# ---- no reason for a full disk -------------------------------------------------------------------------------------


def refuse_force(wire):
    """Files go because of their age only."""
    assert wire.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"cleanFileForciblyEnable=false").code == 0


@pytest.mark.parametrize(("ratio", "gone"), [(0.89, False), (0.9, False), (0.901, True)])
def test_a_lease_does_not_keep_a_broker_from_taking_messages(broker, wire, disk, ratio, gone):
    """Goal: expired files go under a lease where sends are refused, and not below. Method: without force, a disk that
    is just full enough, and one that is not."""
    count = fill_and_age(broker, wire)
    refuse_force(wire)
    assert ask(wire, "begin")[0] == ResponseCode.SUCCESS
    disk.ratio = ratio
    wire.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert (len(broker.store.log_files()) < count) == gone
    assert broker.dumps.held()


def test_under_a_lease_no_more_goes_from_a_full_disk_than_is_needed(broker, wire, disk, monkeypatch):
    """Goal: nothing else of retention changes. Method: a disk that is empty enough again after two files; then one that
    is full, with files that are young, or are needed by timers."""
    count = fill_and_age(broker, wire)
    refuse_force(wire)
    ask(wire, "begin")
    housekeeper = broker.message_store._housekeeper
    monkeypatch.setattr(housekeeper, "_probe", lambda path: 0.95 if len(broker.store.log_files()) > count - 2 else 0.5)
    wire.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert len(broker.store.log_files()) == count - 2
    monkeypatch.setattr(housekeeper, "_probe", lambda path: 0.95)
    monkeypatch.setattr(housekeeper, "_needed", lambda file: 1)
    wire.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert len(broker.store.log_files()) == count - 2
    monkeypatch.undo()
    disk.ratio = 0.95
    for path in (broker.store_path / "commitlog").iterdir():
        os.utime(path)
    wire.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert len(broker.store.log_files()) == count - 2


@pytest.mark.parametrize(("when", "is_whole"), [("consumequeue/", False), ("commitlog/", True)])
def test_a_dump_under_a_full_disk_needs_only_what_it_has_not_copied(
    broker, wire, tmp_path, monkeypatch, when, is_whole
):
    """Goal: the dumper says what happened, and goes on if it can. Method: without force, a full disk while the first
    queue or the first log file is copied, until the broker has removed one."""
    count = fill_and_age(broker, wire)
    refuse_force(wire)

    class Filling(Silent):
        def file_done(self, path):
            if path.startswith(when) and len(broker.store.log_files()) == count:

                def full(path):
                    return 0.95 if len(broker.store.log_files()) == count else 0.5

                monkeypatch.setattr(broker.message_store._housekeeper, "_probe", full)
                wire.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
                assert len(broker.store.log_files()) == count - 1

    if is_whole:
        assert take_dump(address_of(broker), tmp_path / "dump", report=Filling()).manifest.log_begin == 0
        assert verify_dump(tmp_path / "dump")[1] == []
        return
    words = r"commitlog/0+ was removed .*too full comes before a dump.*make room"
    with pytest.raises(DumpError, match=words) as caught:
        take_dump(address_of(broker), tmp_path / "dump", report=Filling())
    assert caught.value.exit_code == 1
    with pytest.raises(DumpRefusedError, match="retention removed it; remove the target and begin again"):
        take_dump(address_of(broker), tmp_path / "dump")
