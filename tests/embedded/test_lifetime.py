"""The life of a handle: locking, closing, dropping, forking. Nothing crashes, nothing is freed twice."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import pymq
from pymq.errors import FlushTimeoutError, StoreClosedError, StoreError, StoreLockedError, StoreMismatchError

ROOT = Path(__file__).resolve().parents[2]


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run *code* in a fresh interpreter from the repository's root."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def every_call(mq: pymq.EmbeddedStore):
    """Each public method of a store, with harmless arguments."""
    return {
        "send": lambda: mq.send("t", b"x"),
        "send_many": lambda: mq.send_many("t", [b"x"]),
        "read": lambda: mq.read("t"),
        "iterate": lambda: next(mq.iterate("t")),
        "tail": lambda: next(mq.tail("t", timeout=1)),
        "queues": mq.queues,
        "topics": mq.topics,
        "offset_range": lambda: mq.offset_range("t"),
        "min_offset": lambda: mq.min_offset("t"),
        "max_offset": lambda: mq.max_offset("t"),
        "query": lambda: mq.query("t", "k"),
        "get_by_id": lambda: mq.get_by_id("0" * 32),
        "get_by_offset": lambda: mq.get_by_offset(0),
        "offset_by_time": lambda: mq.offset_by_time("t", 0, 0),
        "watermarks": mq.watermarks,
        "stats": mq.stats,
        "flush": mq.flush,
        "checkpoint": mq.checkpoint,
        "delete_expired": mq.delete_expired,
        "consume": lambda: next(mq.group("g").consume("t", timeout=1)),
        "commit": lambda: mq.group("g").commit("t", 0, 0),
        "wait_acknowledged": lambda: mq._store.wait_acknowledged(0),
        "poll_acknowledged": lambda: mq._store.poll_acknowledged(0),
        "wait_dispatched": lambda: mq._store.wait_dispatched(1),
        "wait_arrival": lambda: mq._store.wait_arrival("t", 0, 0, 1),
        "queue_count": mq._store.queue_count,
        "read_tagged": lambda: mq._store.read_tagged("t", 0, 0, ["a"]),
        "set_replica": lambda: mq._store.set_replica(0),
        "set_writable": lambda: mq._store.set_writable(True),
        "writable": lambda: mq._store.writable,
        "listen": lambda: mq._store.listen(0, 1),
        "unlisten": lambda: mq._store.unlisten(0),
        "log_files": mq._store.log_files,
        "remove_oldest": mq._store.remove_oldest,
        "clean_queues": mq._store.clean_queues,
        "core_stats": mq._store.stats,
    }


def test_every_method_after_close_says_so(mq):
    """Goal: use after close is an error, never a crash. Method: call each method once."""
    mq.send("t", b"x")
    mq.close()
    mq.close()
    assert mq.closed
    for name, call in every_call(mq).items():
        with pytest.raises(StoreClosedError, match="closed") as caught:
            call()
        assert caught.value.status == "PYMQ_ECLOSED", name


def test_a_second_open_in_this_process_is_refused(open_store, data):
    """Goal: one handle per directory; POSIX locks do not see their own process. Method: open twice, then again."""
    mq = open_store()
    mq.send("t", b"x")
    with pytest.raises(StoreLockedError, match=str(data)) as caught:
        open_store()
    assert caught.value.status == "PYMQ_ELOCKED"
    mq.close()
    assert len(open_store().read("t")) == 1


def test_a_second_process_is_refused_and_welcome_after_close(open_store, data):
    """Goal: a clear error for the second process. Method: a subprocess while open, and again after close."""
    code = """
        import sys, pymq
        from pymq.errors import StoreLockedError
        try:
            with pymq.open(sys.argv[1]) as mq:
                print("opened", len(mq.read("t")))
        except StoreLockedError as error:
            print("locked", error)
    """
    mq = open_store()
    mq.send("t", b"x")
    refused = run_python(code, data)
    assert refused.stdout.startswith("locked "), refused.stderr
    assert str(data) in refused.stdout
    mq.close()
    assert run_python(code, data).stdout == "opened 1\n"


def test_a_store_opened_with_other_sizes_is_refused_by_name(open_store, data):
    """Goal: never misread a store. Method: each size in turn, then none: the sizes found are used."""
    mq = open_store()
    mq.send("t", b"x", keys="k")
    mq.close()
    for setting, value in (
        ("mapped_file_size_commit_log", 131_072),
        ("mapped_file_size_consume_queue", 2_000),
        ("max_index_num", 400),
    ):
        with pytest.raises(StoreMismatchError) as caught:
            open_store(**{setting: value})
        assert caught.value.status == "PYMQ_EMISMATCH"
        assert str(data) in str(caught.value)
    with pymq.open(data) as found:
        assert found.config.mapped_file_size_commit_log == 65_537
        assert found.config.mapped_file_size_consume_queue == 1_020
        assert (found.config.max_hash_slot_num, found.config.max_index_num) == (101, 307)
        assert [m.body for m in found.query("t", "k")] == [b"x"]


def test_a_dropped_store_warns_and_closes(open_store, small, data):
    """Goal: forgetting close() loses nothing and is told. Method: drop the last reference, then open again."""
    dropped = pymq.open(data, pymq.StoreConfig(**small))
    dropped.send("t", b"x")
    handles = [dropped]
    del dropped
    with pytest.warns(ResourceWarning, match="dropped open"):
        handles.clear()
    assert [m.body for m in open_store().read("t")] == [b"x"]


def test_a_dropped_core_store_warns_and_closes(data, small):
    """Goal: the native handle is safe by itself. Method: drop it without the Python object around it."""
    from pymq._core._store import Store

    core = Store(data, pymq.StoreConfig(**small))
    core.send("t", b"x")
    handles = [core]
    del core
    with pytest.warns(ResourceWarning, match="dropped open"):
        handles.clear()
    assert not (data / "abort").exists()


def test_results_and_messages_outlive_the_store(open_store):
    """Goal: drop order does not matter. Method: drop the store first, then look at everything it made."""
    mq = open_store()
    many = mq.send_many("t", [b"a", b"b"])
    single = mq.send("t", b"c", keys="k")
    messages = mq.read("t")
    group = mq.group("g")
    tail = mq.tail("t")
    mq.close()
    del mq
    gc.collect()
    assert [m.body for m in messages] == [b"a", b"b", b"c"]
    assert messages[0].message_id == many[0].message_id
    assert messages[2].unique_key == single.unique_key
    assert repr(messages[2]).startswith("ReceivedMessage(topic='t'")
    with pytest.raises(StoreClosedError):
        next(tail)
    assert group.committed("t") is None


def test_a_forgotten_store_is_closed_at_exit(data):
    """Goal: a script without close() leaves a clean store. Method: exit with it open, look for the abort file."""
    done = run_python(
        """
        import sys, pymq
        mq = pymq.open(sys.argv[1])
        mq.send("t", b"x")
        print((__import__("pathlib").Path(sys.argv[1]) / "abort").exists())
        """,
        data,
    )
    assert done.stdout == "True\n", done.stderr
    assert not (data / "abort").exists()


def test_a_forked_child_raises_everywhere_and_frees_nothing(data):
    """Goal: a child cannot harm its parent's store. Method: fork, call everything there, then use the parent."""
    done = run_python(
        """
        import gc, os, sys, warnings
        sys.path.insert(0, "tests/embedded")
        import pymq
        from pymq.errors import StoreError
        from test_lifetime import every_call

        with pymq.open(sys.argv[1]) as mq:
            mq.send("t", b"before")
            group = mq.group("g")
            warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is the point
            child = os.fork()
            if child == 0:
                wrong = []
                calls = every_call(mq) | {"close": mq.close, "core": mq._store.close, "abandon": mq._store.abandon}
                calls |= {"committed": lambda: group.committed("t"), "delete": group.delete, "groups": mq.groups}
                for name, call in calls.items():
                    try:
                        call()
                        wrong.append(name)
                    except StoreError as error:
                        if f"opened by process {os.getppid()}" not in str(error):
                            wrong.append(f"{name}: {error}")
                with mq:
                    pass
                del mq, calls, group, call
                gc.collect()
                print("wrong:", wrong, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            mq.send("t", b"after")
            print([m.body for m in mq.read("t")])
        """,
        data,
    )
    assert done.stdout == "wrong: []\n[b'before', b'after']\n", done.stderr
    assert not (data / "abort").exists()


def test_a_child_can_open_what_its_parent_closed(data):
    """Goal: fork first, open then: the usual pattern works. Method: close in the parent, open in the child."""
    done = run_python(
        """
        import os, sys, pymq
        with pymq.open(sys.argv[1]) as mq:
            mq.send("t", b"parent")
        if os.fork() == 0:
            with pymq.open(sys.argv[1]) as mq:
                mq.send("t", b"child")
            os._exit(0)
        os.wait()
        with pymq.open(sys.argv[1]) as mq:
            print([m.body for m in mq.read("t")])
        """,
        data,
    )
    assert done.stdout == "[b'parent', b'child']\n", done.stderr


def test_close_wakes_threads_that_wait(open_store):
    """Goal: close never hangs on a waiter and never frees under one. Method: waiters of every kind, then close."""
    mq = open_store(broker_role="SYNC_MASTER", sync_flush_timeout_ms=60_000)
    mq._store.set_replica(0, in_sync=False)
    mq.send("t", b"x")
    mq._store.set_replica(mq.watermarks().written)
    assert mq.read("t", 0, 0, timeout=60)  # only behind what is seen can a reader wait
    outcomes: dict[str, BaseException | str] = {}

    def run(name, call):
        try:
            call()
            outcomes[name] = "returned"
        except StoreError as error:
            outcomes[name] = error

    calls = {
        "send": lambda: mq.send("t", b"y"),
        "send_many": lambda: mq.send_many("t", [b"y"] * 3),
        "read": lambda: mq.read("t", 0, 1, timeout=60),
        "tail": lambda: next(mq.tail("t")),
        "tail too": lambda: next(mq.tail("t")),
        "consume": lambda: list(mq.group("g").consume("t")),
    }
    threads = [threading.Thread(target=run, args=item) for item in calls.items()]
    for thread in threads:
        thread.start()
    while mq.watermarks().written == mq.watermarks().visible:
        time.sleep(0.001)
    mq.close()
    for thread in threads:
        thread.join(20)
    assert {name: type(outcome) for name, outcome in outcomes.items()} == dict.fromkeys(calls, StoreClosedError)


def test_two_threads_may_close_at_once(open_store):
    """Goal: close is idempotent also at the same moment. Method: eight threads, a barrier, repeated."""
    for _ in range(3):
        mq = open_store()
        mq.send("t", b"x")
        barrier = threading.Barrier(8)
        errors: list[BaseException] = []

        def close(mq=mq, barrier=barrier, errors=errors):
            barrier.wait()
            try:
                mq.close()
                mq._store.close()
            except StoreError as error:
                errors.append(error)

        threads = [threading.Thread(target=close) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert errors == []
        assert mq.closed


def test_close_while_others_send_loses_nothing_acknowledged(open_store):
    """Goal: closing under load is orderly. Method: senders run until refused; all they were told is there then."""
    mq = open_store(flush_disk_type="SYNC_FLUSH")
    told: list[list[int]] = [[] for _ in range(4)]
    refused: list[StoreError] = []

    def work(number):
        try:
            while True:
                told[number].append(mq.send("t", b"x", queue_id=number).queue_offset)
        except StoreClosedError as error:
            refused.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while min(map(len, told)) < 3:
        time.sleep(0.001)
    mq.close()
    for thread in threads:
        thread.join(20)
    assert len(refused) == 4
    again = open_store(flush_disk_type="SYNC_FLUSH")
    for number, offsets in enumerate(told):
        assert offsets == list(range(len(offsets)))
        assert again.max_offset("t", number) >= len(offsets)


def test_a_signal_interrupts_a_waiting_send(data, small):
    """Goal: Ctrl-C works while a send waits. Method: SIGINT to a process whose replica never answers."""
    code = """
        import sys, pymq
        config = pymq.config_for(__import__("pathlib").Path(sys.argv[1]), broker_role="SYNC_MASTER",
                                 sync_flush_timeout_ms=60_000)
        with pymq.open(sys.argv[1], config) as mq:
            mq._store.set_replica(0)
            print("waiting", flush=True)
            try:
                mq.send("t", b"x")
            except KeyboardInterrupt:
                print("interrupted", flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(data)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_failed_open_leaves_nothing_behind(data, small):
    """Goal: an error at open holds no lock and no descriptor. Method: a broken offsets file; count descriptors."""
    with pymq.open(data, pymq.StoreConfig(**small)) as mq:
        mq.send("t", b"x")
    offsets = data / "config" / "consumerOffset.json"
    offsets.parent.mkdir(exist_ok=True)
    offsets.write_text("{ this is not it")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(StoreError, match=r"consumerOffset\.json"):
            pymq.open(data, pymq.StoreConfig(**small))
    assert len(os.listdir("/proc/self/fd")) == before
    offsets.unlink()
    with pymq.open(data, pymq.StoreConfig(**small)) as mq:
        assert len(mq.read("t")) == 1


def test_a_timeout_is_not_mistaken_for_a_close(open_store):
    """Goal: the two waits end differently. Method: a short timeout on an open store, longer than one slice."""
    mq = open_store(broker_role="SYNC_MASTER")
    mq._store.set_replica(0)
    with pytest.raises(FlushTimeoutError):
        mq.send("t", b"x", timeout_ms=120)
    with pytest.raises(FlushTimeoutError):
        mq._store.wait_acknowledged(10**6, timeout_ms=60)


def test_a_relative_path_stays_the_same_store_after_a_change_of_directory(tmp_path, small, monkeypatch):
    """Goal: one store is one directory. Method: open by a relative name, move, roll files, commit, close, move back."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with pymq.open("data", pymq.config_for("data", **small)) as mq:
        mq.send("t", b"first")
        monkeypatch.chdir(tmp_path / "elsewhere")
        mq.send_many("t", [b"x" * 1000] * 300)
        mq.group("g").commit("t", 0, 2)
        assert mq.path == tmp_path / "data"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    monkeypatch.chdir(tmp_path)
    with pymq.open("data") as mq:
        assert (mq.max_offset("t"), mq.group("g").committed("t")) == (301, 2)


def test_a_close_that_fails_says_why_and_what_follows(data):
    """Goal: the text of a failed close helps. Method: no file may be written any more; reopen."""
    text = run_python(
        """
        import resource, signal, sys, pymq
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        mq = pymq.open(sys.argv[1])
        mq.send("t", b"x")
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        try:
            mq.close()
            print("clean")
        except pymq.StoreError as error:
            print(error)
        """,
        data,
    ).stdout
    assert "not cleanly: its last files could not all be written (PYMQ_EIO)" in text
    assert "the next open recovers" in text
    with pymq.open(data) as mq:
        assert mq.read("t")[0].body == b"x"
