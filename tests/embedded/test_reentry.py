"""Calls inside calls, and calls that fail early: close() neither hangs nor deadlocks."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run *code* in a fresh interpreter; one that hangs fails the test instead of stopping the session."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_an_argument_of_the_wrong_type_does_not_make_close_hang(data):
    """Goal: a refused call is counted out. Method: wrong types for whatever is converted by hand, then close."""
    ran = run_python(
        """
        import sys, pymq
        mq = pymq.open(sys.argv[1])
        calls = [
            lambda: mq.send("t", b"x", timeout_ms="5"),
            lambda: mq.send("t", b"x", born_timestamp_ms="5"),
            lambda: mq.send_many("t", [b"x"], queue_id=None),
            lambda: mq.send_many("t", [b"x"], queue_id="ab"),
            lambda: mq.send_many("t", None),
            lambda: mq.send_many("t", [b"x"], timeout_ms="5"),
            lambda: mq._store.wait_acknowledged(1, timeout_ms="5"),
            lambda: mq._store.read_tagged("t", 0, 0, None),
        ]
        for call in calls:
            try:
                call()
            except TypeError:
                print("refused")
        mq.close()
        print("closed")
        """,
        data,
    )
    assert ran.stdout.split() == ["refused"] * 8 + ["closed"], ran.stderr


@pytest.mark.parametrize(
    "call",
    [
        "mq.group('g').commit('t', 0, 1)",
        "next(mq.tail('t'))",
        "mq.send('t', b'x')",
        "mq._store.wait_arrival('t', 0, 1 << 40, 60_000)",
        "mq.send('t', b'x', properties=Slow(a='b'))",
    ],
    ids=["commit", "tail", "send", "wait", "properties"],
)
def test_close_in_a_signal_handler_raises_instead_of_deadlocking(data, call):
    """Goal: a handler cannot wait for the call it interrupts. Method: interrupt calls until one is met inside."""
    ran = run_python(
        f"""
        import signal, sys, time, pymq
        mq = pymq.open(sys.argv[1])
        mq.send("t", b"x")
        class Slow(dict):
            def items(self):
                time.sleep(0.05)
                return super().items()
        refused = []
        def handler(*_):
            try:
                mq.close()
            except pymq.StoreError as error:
                refused.append(str(error))
                raise
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.013)
        try:
            while True:
                {call}
        except pymq.StoreError:
            signal.setitimer(signal.ITIMER_REAL, 0)
        mq.close()
        print(mq.closed, all("signal handler" in text for text in refused))
        """,
        data,
    )
    assert ran.stdout.split() == ["True", "True"], ran.stderr


def test_a_commit_in_a_signal_handler_does_not_spoil_the_file(data):
    """Goal: one replacement at a time, also on one thread. Method: commits interrupted by commits; reopen."""
    ran = run_python(
        """
        import signal, sys, time, pymq
        mq = pymq.open(sys.argv[1])
        mq.send("t", b"x")
        other, group = mq.group("other"), mq.group("g")
        outcomes = set()
        def handler(*_):
            try:
                other.commit("t", 0, 1)
                outcomes.add("stored")
            except pymq.StoreError as error:
                outcomes.add("refused" if "signal handler" in str(error) else str(error))
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.007)
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            group.commit("t", 0, 1)
        signal.setitimer(signal.ITIMER_REAL, 0)
        mq.close()
        with pymq.open(sys.argv[1]) as mq:
            print(mq.group("g").committed("t"), outcomes <= {"stored", "refused"}, bool(outcomes))
        """,
        data,
    )
    assert ran.stdout.split() == ["1", "True", "True"], ran.stderr
