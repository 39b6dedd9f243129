"""What the lock is: a POSIX record lock on byte 0 of `lock`, shown on Apache without pymq."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from tests.interop.apache import ApacheOpenFailedError, ApacheStore
from tests.interop.apache_broker import BrokerStartError, running_broker
from tests.interop.apache_toolchain import Toolchain
from tests.interop.workloads import StoreSettings

SETTINGS = StoreSettings().for_apache()


def test_apache_holds_byte_0_of_the_lock_file_and_no_other(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: know exactly what pymq must take. Method: try record locks on single bytes while Apache has the store."""
    with (
        ApacheStore(apache, tmp_path / "store", SETTINGS).hold(end="halt"),
        (tmp_path / "store/lock").open("r+b") as lock,
    ):
        with pytest.raises(BlockingIOError):
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1)
        # The whole-file lock of flock(2) is another kind: it is free, so taking only that would keep nobody out.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert lock.read() == b"lock"


def test_apache_refuses_while_somebody_holds_byte_0(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: a record lock taken outside Java keeps Apache out. Method: take it here, then open there."""
    store = ApacheStore(apache, tmp_path / "store", SETTINGS)
    store.directory.mkdir()
    with (store.directory / "lock").open("w+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        with pytest.raises(ApacheOpenFailedError, match="Lock failed, MQ already started"), store.hold():
            pass


def test_a_real_broker_takes_and_honours_the_same_lock(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: the harness's lock is the broker's. Method: a broker process on the store, then the lock against one."""
    directory = tmp_path / "store"
    with running_broker(apache, directory, SETTINGS) as broker, (directory / "lock").open("r+b") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        broker.kill()
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        with (
            pytest.raises(BrokerStartError, match="Lock failed, MQ already started"),
            running_broker(apache, directory, SETTINGS),
        ):
            pass
