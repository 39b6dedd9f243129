"""The runs of pymq, each leaving a store.

every_kind      each kind of message, stopped in order
record_crc      the same, every record with the CRC over itself, by the Python data plane, timers of 100 ms
went_on         stopped, copied, gone on: two dumps in time
recovered       killed three times under load, started again, stopped in order
killed          killed under load and left so: recovery is still to come
retained        its oldest log files have expired
replica         another store's log, its queues and index computed again from it
golden          what Apache RocketMQ 5.5.0 wrote, POP included
golden_went_on  the same, taken over by pymq
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from pymq._core._store import Store
from pymq.remoting.codes import RequestCode
from pymq.store.layout import config_for
from tests.broker.wire import BrokerProcess
from tests.golden.golden_layout import STORE as GOLDEN
from tests.spark_jobs.faults.patch import copy_store
from tests.spark_jobs.stores import StoreMade
from tests.spark_jobs.stores.client import until
from tests.spark_jobs.stores.story import PLAIN, SETTINGS, Story

STORM_S = (0.4, 1.2)


def broker(directory: Path, **settings: str) -> BrokerProcess:
    """A broker whose store is *directory*/store.

    Its records carry an address that no other store's do, so that ledgers of several stores can be told apart.
    """
    own = hashlib.sha256(str(directory).encode()).digest()
    chosen = SETTINGS | {"brokerIP1": f"127.{own[0]}.{own[1]}.{own[2]}"} | settings
    return BrokerProcess(directory, *(text for name, value in chosen.items() for text in (f"--{name}", value)))


def stop(running: BrokerProcess) -> None:
    """In order, and well."""
    code = running.stop()
    assert code == 0, f"the broker ended with {code}"


def every_kind(directory: Path, seed: int = 1, scale: int = 1, **settings: str) -> StoreMade:
    """The whole story."""
    story = Story(directory / "books", seed)
    with broker(directory, **settings) as running:
        story.tell(running.port, scale)
        stop(running)
    return StoreMade("every_kind", directory / "store", story.ledgers)


def record_crc(directory: Path, seed: int = 2) -> StoreMade:
    """The whole story, with what is off by default."""
    settings = {"enabledAppendPropCRC": "true", "dataPlane": "python", "timerPrecisionMs": "100"}
    made = every_kind(directory, seed, flushDiskType="SYNC_FLUSH", **settings)
    return StoreMade("record_crc", made.path, made.ledgers)


def went_on(directory: Path, seed: int = 3) -> StoreMade:
    """Twice the whole story, and a copy in between."""
    story = Story(directory / "books", seed)
    earlier = directory / "earlier"
    for number in range(2):
        with broker(directory) as running:
            story.tell(running.port)
            stop(running)
        if number == 0:
            copy_store(directory / "store", earlier)
    return StoreMade("went_on", directory / "store", story.ledgers, earlier=earlier)


def killed(directory: Path, seed: int = 4, kills: int = 1) -> StoreMade:
    """Under load until SIGKILL, and again; nobody has looked at it since the last."""
    story = Story(directory / "books", seed)
    random = Random(seed)
    for number in range(kills):
        with broker(directory) as running:
            if number == 0:
                with story.producer(running.port) as client:
                    story.create(client)
            port, kill = running.port, lambda running=running: running.stop(9)
            story.storm(port, kill, random.uniform(*STORM_S))
    return StoreMade("killed", directory / "store", story.ledgers)


def recovered(directory: Path, seed: int = 5, kills: int = 3) -> StoreMade:
    """Killed, recovered, gone on and stopped in order."""
    story = Story(directory / "books", seed)
    random = Random(seed)
    with broker(directory) as running:
        story.tell(running.port)
        story.storm(running.port, lambda: running.stop(9), random.uniform(*STORM_S))
    for _ in range(kills - 1):
        with broker(directory) as running:
            story.storm(running.port, lambda running=running: running.stop(9), random.uniform(*STORM_S))
    with broker(directory) as running:
        story.tell(running.port)
        stop(running)
    return StoreMade("recovered", directory / "store", story.ledgers)


def retained(directory: Path, seed: int = 6) -> StoreMade:
    """Nothing waits in it, its first groups have read what there was, and all but the newest of it is old and gone."""
    story = Story(directory / "books", seed)
    with broker(directory, deleteCommitLogFilesInterval="1") as running:
        with story.producer(running.port) as client:
            story.create(client)
            story.plain(client, 400)
            story.ordered(client, 100)
            story.batches(client, 10)
        story.consume(running.port)
        with story.producer(running.port) as client:
            story.plain(client, 200)
        logs = sorted((directory / "store/commitlog").iterdir())
        with story.producer(running.port) as client:

            def expire() -> bool:
                for path in logs[:-2]:
                    with suppress(FileNotFoundError):
                        os.utime(path, (0, 0))  # again and again: pages written back later make it young
                client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
                return not logs[0].exists()

            until(expire, "the first log file to go")
            until(lambda: client.range(PLAIN, 0)[0] > 0, "the first queue to begin later")
            story.plain(client, 20)
        stop(running)
    return StoreMade("retained", directory / "store", story.ledgers)


def replica(directory: Path, seed: int = 7) -> StoreMade:
    """The master's log; its queues and index are computed from it here."""
    master = every_kind(directory / "master", seed)
    path = directory / "store"
    path.mkdir()
    copy_store(master.path / "commitlog", path / "commitlog")
    shutil.copytree(master.path / "config", path / "config")
    config = config_for(master.path)
    Store(path, config).close()
    return StoreMade("replica", path, master.ledgers, master=master.path)


def golden(directory: Path, seed: int = 0) -> StoreMade:
    """A copy of tests/data/golden-store, its wheel unpacked."""
    return StoreMade("golden", copy_store(GOLDEN, directory / "store"))


def golden_went_on(directory: Path, seed: int = 8) -> StoreMade:
    """pymq took over what Apache had left, with Apache's file sizes."""
    earlier = golden(directory / "before").path
    copy_store(earlier, directory / "store")
    story = Story(directory / "books", seed)
    sizes = {
        "mappedFileSizeCommitLog": "65536",
        "mappedFileSizeConsumeQueue": "400",
        "maxHashSlotNum": "100",
        "maxIndexNum": "200",
        "mappedFileSizeTimerLog": "1048576",
    }
    with broker(directory, **sizes) as running:
        story.tell(running.port)
        stop(running)
    return StoreMade("golden_went_on", directory / "store", story.ledgers, earlier=earlier)


KINDS: dict[str, Callable[..., StoreMade]] = {
    function.__name__: function
    for function in (every_kind, record_crc, went_on, killed, recovered, retained, replica, golden, golden_went_on)
}


def make(kind: str, directory: Path, seed: int | None = None) -> StoreMade:
    """A store of *kind* below *directory*, which is made."""
    directory.mkdir(parents=True)
    return KINDS[kind](directory) if seed is None else KINDS[kind](directory, seed)
