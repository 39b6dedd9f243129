"""A client program at work: requests and answers as JSON lines, and what its consumers receive meanwhile.

One process serves many producers and consumers, because starting one (a JVM above all) costs more than a test.
Every wait here has a limit, and says what it waited for when the limit is reached.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal

from tests.interop.clients.messages import Identity, OutMessage, Received, SendResult

Mode = Literal["sync", "async", "oneway", "batch", "selector"]
MODES: tuple[Mode, ...] = ("sync", "async", "oneway", "batch", "selector")

CALL_TIMEOUT_SECONDS = 60.0
RECEIVE_TIMEOUT_SECONDS = 60.0
EXIT_TIMEOUT_SECONDS = 30.0


class ClientError(Exception):
    """The client threw, or its program died, or it stayed silent for too long."""


class ClientWorker:
    """One client program. Tests share it: names of producers and consumers must be their own."""

    def __init__(self, label: str, command: Sequence[str], home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.label = label
        self._stderr_path = home / "stderr.log"
        with self._stderr_path.open("ab") as stderr:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "HOME": str(home)},
                encoding="utf-8",
            )
        self._changed = threading.Condition()
        self._next_id = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._received: dict[str, list[Received]] = defaultdict(list)
        self._retired: list[int] = []
        self._ended = False
        self._reader = threading.Thread(target=self._read, name=f"{label} reader", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            with self._changed:
                if line.get("event") == "received":
                    messages = [Received.parse(message) for message in line["messages"]]
                    self._received[line["consumer"]] += messages
                else:
                    self._answers[line["id"]] = line
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: Callable[[], str]) -> None:
        """Wait, holding the lock, until *condition*; `what` says in the end what did not come."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self._ended:
                raise ClientError(f"{self.label} ended while it was to {what()}\n{self._last_words()}")
            rest = deadline - time.monotonic()
            if rest <= 0:
                raise ClientError(f"{self.label} did not {what()} within {timeout_s} s\n{self._last_words()}")
            self._changed.wait(rest)

    def _last_words(self) -> str:
        return self._stderr_path.read_text(errors="replace")[-3000:]

    def begin(self, op: str, **arguments: Any) -> int:
        """Send a request and return its number, for `finish`."""
        assert self._process.stdin is not None
        with self._changed:
            self._next_id += 1
            number = self._next_id
            try:
                self._process.stdin.write(json.dumps({"id": number, "op": op, **arguments}) + "\n")
                self._process.stdin.flush()
            except BrokenPipeError as problem:
                raise ClientError(f"{self.label} is gone\n{self._last_words()}") from problem
            return number

    def finish(self, number: int, timeout_s: float = CALL_TIMEOUT_SECONDS) -> dict[str, Any]:
        """The answer to a request; a client that threw is an error here."""
        with self._changed:
            self._wait(lambda: number in self._answers, timeout_s, lambda: f"answer request {number}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise ClientError(f"{self.label}: {answer['error']}")
        return answer

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return its answer."""
        return self.finish(self.begin(op, **arguments))

    def start_producer(self, name: str, namesrv: str, *, group: str = "interop-producers", vip: bool = False) -> None:
        """Start a producer; the client connects with its first send."""
        self.call("startProducer", name=name, group=group, namesrv=namesrv, vip=vip)

    def send(self, producer: str, mode: Mode, messages: Sequence[OutMessage]) -> list[SendResult]:
        """Send *messages*; one result each, one for the whole batch, none for oneway."""
        lines = [message.line() for message in messages]
        answer = self.call("send", producer=producer, mode=mode, messages=lines)
        return [SendResult.parse(result) for result in answer["results"]]

    def start_push(
        self, name: str, namesrv: str, *, group: str, topic: str, expression: str = "*", sql: str | None = None
    ) -> None:
        """Start a push consumer that reads a topic from its beginning, by tags or (Java) by SQL92; see `received`."""
        selector = {"expression": expression} if sql is None else {"sql": sql}
        self.call("startPush", name=name, namesrv=namesrv, group=group, topic=topic, **selector)

    def start_lite_pull(
        self, name: str, namesrv: str, *, group: str, topic: str, expression: str = "*", sql: str | None = None
    ) -> None:
        """Start a lite pull consumer that commits when it is told to; Java only."""
        selector = {"expression": expression} if sql is None else {"sql": sql}
        self.call("startLitePull", name=name, namesrv=namesrv, group=group, topic=topic, autoCommit=False, **selector)

    def poll(self, consumer: str, *, timeout_ms: int) -> list[Received]:
        """What a lite pull consumer has, waiting up to *timeout_ms* for something."""
        answer = self.call("poll", consumer=consumer, timeoutMs=timeout_ms)
        return [Received.parse(message) for message in answer["messages"]]

    def commit(self, consumer: str) -> None:
        """Commit what a lite pull consumer has been given."""
        self.call("commit", consumer=consumer)

    def queues(self, consumer: str, topic: str) -> set[int]:
        """Ids of the queues that a consumer holds; Java only."""
        return set(self.call("queues", consumer=consumer, topic=topic)["queues"])

    def admin(self, *arguments: str) -> str:
        """What mqadmin prints; a complaint on its standard error is an error. Java only."""
        answer = self.call("admin", arguments=list(arguments))
        if answer["complaints"]:
            raise ClientError(f"mqadmin {' '.join(arguments)}:\n{answer['complaints']}\n{answer['output']}")
        output: str = answer["output"]
        return output

    def close_client(self, name: str) -> None:
        """Shut a producer or consumer down, as a program that ends in order does."""
        self.call("close", name=name)

    def retire(self, *names: str) -> None:
        """Have clients shut down that nobody needs any more, without waiting: Java's may take four seconds each.

        That it went well is checked when the program is closed.
        """
        self._retired += [self.begin("close", name=name) for name in names]

    def received(self, consumer: str) -> list[Received]:
        """Everything a push consumer was given until now, in the order of its listener's calls."""
        with self._changed:
            return list(self._received[consumer])

    def await_received(self, consumer: str, wanted: Collection[Identity]) -> list[Received]:
        """Wait until a push consumer has been given all of *wanted*, and return all it was given."""
        missing = set(wanted)

        def complete() -> bool:
            missing.difference_update(message.identity for message in self._received[consumer])
            return not missing

        def what() -> str:
            some = ", ".join(sorted(key for key, _ in missing)[:5])
            got = len(self._received[consumer])
            return f"give {consumer} {len(missing)} of {len(wanted)} messages ({some} …; it has {got})"

        with self._changed:
            self._wait(complete, RECEIVE_TIMEOUT_SECONDS, what)
            return list(self._received[consumer])

    def close(self) -> None:
        """End the input: the program shuts its clients down and ends by itself, or is killed."""
        assert self._process.stdin is not None
        try:
            for number in self._retired:
                self.finish(number)
            if self._process.poll() is None:
                self._process.stdin.close()
                self._process.wait(EXIT_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as problem:
            raise ClientError(f"{self.label} did not end within {EXIT_TIMEOUT_SECONDS} s") from problem
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL: connections end without a word of farewell."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._reader.join(EXIT_TIMEOUT_SECONDS)
        if not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.stdout.close()
