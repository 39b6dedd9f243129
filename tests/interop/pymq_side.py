"""pymq's side of the exchange: the same verbs as `ApacheStore`, spoken to the embedded API.

Run as a program it is the writer that gets killed: `python -m tests.interop.pymq_side DIRECTORY WORKLOAD ROUND`
appends one round of a workload, prints one JSON line per acknowledgement, then READY, and waits for SIGKILL.
"""

from __future__ import annotations

import ipaddress
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path

import pymq
from tests.interop.answers import TIMESTAMP_MS_MAX, Boundary
from tests.interop.apache_toolchain import PROJECT_ROOT
from tests.interop.stored import PutResult, Queue, QueueContents, StoredMessage
from tests.interop.workloads import (
    CHECKPOINT_OFTEN_MS,
    WORKLOADS,
    OutMessage,
    Pause,
    Send,
    Step,
    StoreSettings,
    Workload,
)

READY = "READY"


def store_config(settings: StoreSettings) -> pymq.StoreConfig:
    """The same settings under pymq's names."""
    config = pymq.StoreConfig(
        mapped_file_size_commit_log=settings.commit_log_file_size,
        mapped_file_size_consume_queue=settings.consume_queue_file_size,
        max_hash_slot_num=settings.hash_slot_count,
        max_index_num=settings.index_item_count,
        flush_disk_type=settings.flush_disk_type,
        enabled_append_prop_crc=settings.record_crc,
        force_verify_prop_crc=settings.record_crc,
    )
    if settings.checkpoint_often:
        return config.replace(
            flush_interval_consume_queue_ms=CHECKPOINT_OFTEN_MS,
            flush_consume_queue_thorough_interval_ms=CHECKPOINT_OFTEN_MS,
        )
    return config


def append_steps(mq: pymq.EmbeddedStore, steps: Sequence[Step]) -> Iterator[PutResult]:
    """Append *steps* one after the other, yielding each message's acknowledgement as it comes."""
    for step in steps:
        if isinstance(step, Pause):
            time.sleep(step.milliseconds / 1000)
        elif isinstance(step, Send):
            yield _put_result(_send(mq, step.message))
        else:
            first = step.messages[0]
            batch = [_message(message) for message in step.messages]
            results = mq.send_many(first.topic, batch, queue_id=first.queue_id, together=True)
            yield from (_put_result(result) for result in results)


def _send(mq: pymq.EmbeddedStore, message: OutMessage) -> pymq.SendResult:
    return mq.send(
        message.topic,
        message.body,
        queue_id=message.queue_id,
        tags=message.tags,
        keys=message.keys or None,
        properties=message.properties or None,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
    )


def _message(message: OutMessage) -> pymq.Message:
    return pymq.Message(
        body=message.body,
        tags=message.tags,
        keys=message.keys or None,
        properties=message.properties or None,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
    )


def _put_result(result: pymq.SendResult) -> PutResult:
    return PutResult(result.queue_offset, result.physical_offset, result.message_id, result.store_timestamp_ms)


class PymqReader:
    """An open pymq store, with the same questions as `ApacheReader`."""

    def __init__(self, mq: pymq.EmbeddedStore) -> None:
        self._mq = mq
        self.queues: dict[Queue, QueueContents] = {}
        for info in mq.queues():
            self.queues[info.topic, info.queue_id] = QueueContents(
                min_offset=info.min_offset,
                max_offset=info.max_offset,
                messages=[_stored_message(message) for message in mq.iterate(info.topic, info.queue_id)],
            )

    def messages(self) -> list[StoredMessage]:
        """Every queued message, in log order."""
        found = [message for queue in self.queues.values() for message in queue.messages]
        return sorted(found, key=lambda message: message.physical_offset)

    def by_key(
        self, topic: str, key: str, max_count: int, begin_ms: int = 0, end_ms: int = TIMESTAMP_MS_MAX
    ) -> list[StoredMessage]:
        """Look up by key."""
        found = self._mq.query(topic, key, begin=begin_ms, end=end_ms, max_count=max_count)
        return [_stored_message(message) for message in found]

    def by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary) -> int:
        """Look up by time."""
        return self._mq.offset_by_time(
            topic, queue_id, timestamp_ms, boundary="lower" if boundary == "LOWER" else "upper"
        )

    def by_offset(self, physical_offset: int) -> StoredMessage | None:
        """Look up by physical offset."""
        return _stored_message(self._mq.get_by_offset(physical_offset))


class PymqStore:
    """A store directory as pymq sees it."""

    def __init__(self, directory: Path, settings: StoreSettings) -> None:
        self.directory = directory
        self._settings = settings

    @contextmanager
    def open(self) -> Iterator[pymq.EmbeddedStore]:
        """The embedded store itself."""
        with pymq.open(self.directory, config=store_config(self._settings)) as mq:
            yield mq

    def write(self, steps: Sequence[Step]) -> list[PutResult]:
        """Append *steps* and close cleanly."""
        with self.open() as mq:
            return list(append_steps(mq, steps))

    def write_and_kill(self, workload: Workload, round_number: int = 0) -> list[PutResult]:
        """Append a round of *workload* in a process of its own and SIGKILL it once all are acknowledged."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.interop.pymq_side", str(self.directory), workload.name, str(round_number)],
            cwd=PROJECT_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, "")
            puts: list[PutResult] = []
            for line in lines:
                if line.strip() == READY:
                    return puts
                puts.append(PutResult(*json.loads(line)))
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        raise AssertionError(f"the writer ended by itself with status {process.returncode}")

    @contextmanager
    def open_reader(self) -> Iterator[PymqReader]:
        """Open with pymq's recovery; closed cleanly at the end."""
        with self.open() as mq:
            yield PymqReader(mq)


def _stored_message(message: pymq.ReceivedMessage) -> StoredMessage:
    return StoredMessage(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        store_size=message.store_size,
        body=message.body,
        body_crc=message.body_crc,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=java_host(message.born_host),
        store_timestamp_ms=message.store_timestamp_ms,
        store_host=java_host(message.store_host),
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        properties=dict(message.properties),
        message_id=message.message_id,
    )


def java_host(host: str) -> str:
    """A host as Java prints it: IPv6 without the :: abbreviation and without leading zeros."""
    if not host.startswith("["):
        return host
    literal, port = host[1:].rsplit("]:", 1)
    groups = ipaddress.IPv6Address(literal).exploded.split(":")
    return f"[{':'.join(f'{int(group, 16):x}' for group in groups)}]:{port}"


def main(arguments: Sequence[str]) -> None:
    """Write one round, say so, and wait for the end."""
    directory, name, round_number = arguments
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    with PymqStore(Path(directory), workload.settings).open() as mq:
        for put in append_steps(mq, workload.steps(int(round_number))):
            print(json.dumps(astuple(put)))
        print(READY, flush=True)
        while True:
            signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
