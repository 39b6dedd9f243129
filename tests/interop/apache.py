"""Apache RocketMQ's store, driven from Python: one `ApacheStore` per directory, one JVM per call.

    store = ApacheStore(toolchain, directory, settings.for_apache())
    store.write(workload.steps())                  # clean shutdown
    store.write_and_kill(workload.steps())         # SIGKILL right after the last acknowledgement
    with store.open_reader() as reader:            # Apache's own recovery, then everything it holds
        reader.queues, reader.by_key(...), reader.by_time(...), reader.by_offset(...)
    with store.hold():                             # the store is in use
        ...

A JVM costs about 1.5 s, and a clean shutdown 3 s more (DefaultMessageStore.shutdown sleeps that long), so readers end
by `halt` unless asked otherwise: use that only on stores nobody opens afterwards, or where a kill is meant.
"""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from tests.interop.answers import TIMESTAMP_MS_MAX, Boundary
from tests.interop.apache_toolchain import HARNESS_MAIN_CLASS, Toolchain
from tests.interop.stored import PutResult, Queue, QueueContents, QueueUnit, StoredMessage
from tests.interop.workloads import OutMessage, Pause, SendBatch, Step

End = Literal["shutdown", "halt", "hang"]
Line = dict[str, Any]

EXIT_WAIT_SECONDS = 60


class ApacheStoreError(Exception):
    """The harness said something unexpected or died; the message carries the end of its stderr."""


class ApacheOpenFailedError(ApacheStoreError):
    """Apache refused to open the store. `stage` is the step that refused: load or start."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(f"{stage}: {message}")
        self.stage = stage


class ApacheProcess:
    """A running harness: JSON lines in and out, stderr and RocketMQ's logs kept under *home* for the curious."""

    def __init__(self, toolchain: Toolchain, home: Path, arguments: Sequence[str]) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._stderr_path = home / "stderr.log"
        with self._stderr_path.open("ab") as stderr:
            self._process = subprocess.Popen(
                toolchain.command(HARNESS_MAIN_CLASS, *arguments, home=home),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """However the block ends, no process outlives it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()

    def send(self, line: Line) -> None:
        """Write one line and push it out."""
        self._stdin.write(json.dumps(line) + "\n")
        self._stdin.flush()

    def send_all(self, lines: Sequence[Line]) -> None:
        """Write all lines and end the input. Only for commands that answer after the end of input."""
        self._stdin.writelines(json.dumps(line) + "\n" for line in lines)
        self.end_input()

    def end_input(self) -> None:
        """Tell the harness that no more will come."""
        self._stdin.close()

    def receive(self) -> Line:
        """The next line; an early end of output is an error with the harness's last words."""
        text = self._stdout.readline()
        if not text:
            status = self._process.wait()
            tail = self._stderr_path.read_text(errors="replace")[-3000:]
            raise ApacheStoreError(f"harness ended with status {status}\n{tail}")
        line: Line = json.loads(text)
        if line["type"] == "failed":
            raise ApacheOpenFailedError(line["stage"], line["message"])
        return line

    def expect(self, kind: str) -> Line:
        """The next line, which must be of this type."""
        line = self.receive()
        if line["type"] != kind:
            raise ApacheStoreError(f"expected {kind!r}, got {line}")
        return line

    def wait(self) -> None:
        """Wait for a voluntary, successful exit."""
        status = self._process.wait(EXIT_WAIT_SECONDS)
        if status != 0:
            raise ApacheStoreError(f"harness ended with status {status}")

    def kill(self) -> None:
        """SIGKILL: no handler runs, what is in the page cache stays there."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def finish(self, end: End) -> None:
        """End as the harness was told to with `--end`."""
        if end == "hang":
            self.expect("hanging")
            self.kill()
            return
        if end == "shutdown" and not self.expect("closed")["clean"]:
            raise ApacheStoreError("Apache's shutdown left its abort file: it did not call the stop clean")
        self.wait()


class ApacheReader:
    """An open Apache store: what it holds, read once at open, and its answers to questions."""

    def __init__(self, process: ApacheProcess) -> None:
        self._process = process
        opening = process.expect("store")
        self.min_physical_offset: int = opening["minPhysicalOffset"]
        self.max_physical_offset: int = opening["maxPhysicalOffset"]
        self.queues: dict[Queue, QueueContents] = {}
        current: QueueContents | None = None
        while (line := process.receive())["type"] != "end":
            if line["type"] == "queue":
                current = QueueContents(line["minOffset"], line["maxOffset"], [], [])
                self.queues[line["topic"], line["queueId"]] = current
                continue
            assert current is not None
            assert current.units is not None
            current.messages.append(_stored_message(line))
            current.units.append(
                QueueUnit(line["unitOffset"], line["unitPhysicalOffset"], line["unitSize"], line["unitTagsCode"])
            )

    def messages(self) -> list[StoredMessage]:
        """Every queued message, in log order."""
        found = [message for queue in self.queues.values() for message in queue.messages]
        return sorted(found, key=lambda message: message.physical_offset)

    def _ask(self, query: Line) -> Line:
        self._process.send(query)
        return self._process.expect("answer")

    def by_key(
        self, topic: str, key: str, max_count: int = 32, begin_ms: int = 0, end_ms: int = TIMESTAMP_MS_MAX
    ) -> list[StoredMessage]:
        """DefaultMessageStore.queryMessage: at most 64, and whatever shares the key's hash comes along."""
        answer = self._ask(
            {"op": "key", "topic": topic, "key": key, "max": max_count, "begin": begin_ms, "end": end_ms}
        )
        return [_stored_message(message) for message in answer["messages"]]

    def by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary | None = None) -> int:
        """DefaultMessageStore.getOffsetInQueueByTime; None takes the overload without a boundary."""
        query = {"op": "time", "topic": topic, "queueId": queue_id, "timestamp": timestamp_ms, "boundary": boundary}
        offset: int = self._ask(query)["offset"]
        return offset

    def by_offset(self, physical_offset: int) -> StoredMessage | None:
        """DefaultMessageStore.lookMessageByOffset."""
        message = self._ask({"op": "offset", "physicalOffset": physical_offset})["message"]
        return None if message is None else _stored_message(message)


class ApacheStore:
    """A store directory as Apache RocketMQ 5.5.0 sees it."""

    def __init__(self, toolchain: Toolchain, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self._toolchain = toolchain
        self._settings = dict(settings)
        self._home = directory.with_name(f"{directory.name}-apache-home")

    def _start(self, command: str, end: End) -> ApacheProcess:
        arguments = [command, "--store", str(self.directory), "--end", end]
        for name, value in self._settings.items():
            arguments += ["--set", f"{name}={value}"]
        return ApacheProcess(self._toolchain, self._home, arguments)

    def write(self, steps: Sequence[Step], *, end: End = "shutdown") -> list[PutResult]:
        """Append *steps*, then stop as *end* says. One result per message, in order; a refused put is an error."""
        with self._start("write", end) as process:
            process.send_all([_step_line(step) for step in steps])
            puts: list[PutResult] = []
            while (line := process.receive())["type"] == "put":
                if line["status"] != "PUT_OK":
                    raise ApacheStoreError(f"put number {len(puts)} was refused: {line['status']}")
                puts.append(
                    PutResult(line["queueOffset"], line["physicalOffset"], line["msgId"], line["storeTimestamp"])
                )
            process.finish(end)
            return puts

    def write_and_kill(self, steps: Sequence[Step]) -> list[PutResult]:
        """Append *steps* and SIGKILL the process once all are acknowledged."""
        return self.write(steps, end="hang")

    @contextmanager
    def open_reader(self, *, end: End = "halt") -> Iterator[ApacheReader]:
        """Open with Apache's own recovery; see the module's note on ends."""
        with self._start("read", end) as process:
            yield ApacheReader(process)
            process.end_input()
            process.finish(end)

    @contextmanager
    def hold(self, *, end: End = "shutdown") -> Iterator[ApacheProcess]:
        """Have the store open, idle, for the length of the block."""
        with self._start("lock", end) as process:
            process.expect("ready")
            yield process
            process.end_input()
            process.finish(end)


def _step_line(step: Step) -> Line:
    if isinstance(step, Pause):
        return {"pauseMs": step.milliseconds}
    if isinstance(step, SendBatch):
        return {"batch": [_message_line(message) for message in step.messages]}
    return _message_line(step.message)


def _message_line(message: OutMessage) -> Line:
    line = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "bodyBase64": base64.b64encode(message.body).decode(),
        "properties": message.stored_properties,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
    }
    if message.born_host is not None:
        line["bornHost"] = message.born_host
    if message.store_host is not None:
        line["storeHost"] = message.store_host
    return line


def _stored_message(line: Line) -> StoredMessage:
    return StoredMessage(
        topic=line["topic"],
        queue_id=line["queueId"],
        queue_offset=line["queueOffset"],
        physical_offset=line["physicalOffset"],
        store_size=line["storeSize"],
        body=base64.b64decode(line["bodyBase64"]),
        body_crc=line["bodyCrc"],
        flag=line["flag"],
        sys_flag=line["sysFlag"],
        born_timestamp_ms=line["bornTimestamp"],
        born_host=line["bornHost"],
        store_timestamp_ms=line["storeTimestamp"],
        store_host=line["storeHost"],
        reconsume_times=line["reconsumeTimes"],
        prepared_transaction_offset=line["preparedTransactionOffset"],
        properties=line["properties"] or {},
        message_id=line["msgId"],
    )
