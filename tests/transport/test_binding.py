"""The transport as Python sees it: what its methods give, and what they do after close() and after fork()."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pymq._core import _transport
from pymq._core._transport import Handed, Transport
from pymq.remoting.command import Command
from pymq.remoting.config import Lane, TransportConfig

PATIENCE_S = 20.0
CODE = 105


@pytest.fixture
def transport() -> Iterator[Transport]:
    """A transport with one reactor and nothing that serves natively."""
    opened = Transport(TransportConfig(reactors=1))
    yield opened
    opened.close(0)


@pytest.fixture
def peer(transport: Transport) -> Iterator[socket.socket]:
    """A client of it."""
    port = transport.listen("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connected:
        yield connected


def take(transport: Transport, lane: int, count: int = 1) -> list[Handed]:
    """Wait for *count* entries of *lane*, by the wake descriptor."""
    taken: list[Handed] = []
    end = time.monotonic() + PATIENCE_S
    while len(taken) < count:
        assert time.monotonic() < end, f"{len(taken)} of {count} came"
        select.select([transport.wake_fd], [], [], 1)
        taken += transport.take(lane, count - len(taken))
        transport.clear_wake()
        time.sleep(0.001)
    return taken


def read(peer: socket.socket, size: int) -> bytes:
    """Exactly *size* bytes, or what there is before the end."""
    parts = b""
    while len(parts) < size and (part := peer.recv(size - len(parts))):
        parts += part
    return parts


def until(condition: Callable[[], bool]) -> None:
    """Wait until *condition* holds."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_a_request_is_handed_over_whole_and_its_answer_arrives(transport: Transport, peer: socket.socket) -> None:
    """Goal: the round trip through Python. Method: send a frame, take it, answer, read."""
    transport.set_lane(CODE, Lane.CLIENT)
    frame = Command(CODE, fields={"topic": "T"}, body=b"body", opaque=7).encode()
    peer.sendall(frame)
    (handed,) = take(transport, Lane.CLIENT)
    assert (handed.kind, handed.code, handed.reason, handed.frame) == (_transport.HANDED_FRAME, CODE, 0, frame)
    assert handed.peer == peer.getsockname()
    assert abs(handed.received_us - time.monotonic_ns() // 1000) < PATIENCE_S * 1e6
    (opened,) = take(transport, Lane.EVENT)
    assert (opened.kind, opened.connection) == (_transport.HANDED_OPENED, handed.connection)
    assert transport.send(handed.connection, b"\0\0\0\4abcd")
    assert read(peer, 8) == b"\0\0\0\4abcd"
    large = bytes(300_000)
    assert transport.send_many([(handed.connection, large), (12345, b"nobody"), (handed.connection, b"end")]) == 2
    assert read(peer, 300_003) == large + b"end"
    assert transport.code_counts() == [(CODE, 0, 1)]
    assert transport.stats()["lane_taken"] == (1, 0, 0, 0, 0, 1)


def test_close_connection_tells_the_peer_and_then_the_loop(transport: Transport, peer: socket.socket) -> None:
    """Goal: an orderly end. Method: queue a frame, close, read both, take the event; the id is dead afterwards."""
    (opened,) = take(transport, Lane.EVENT)
    transport.send(opened.connection, b"last words")
    transport.close_connection(opened.connection)
    assert read(peer, 10) == b"last words"
    assert peer.recv(1) == b""
    (closed,) = take(transport, Lane.EVENT)
    assert (closed.kind, closed.connection, closed.peer) == (_transport.HANDED_CLOSED, opened.connection, opened.peer)
    assert not transport.send(opened.connection, b"more")
    transport.close_connection(opened.connection)


def test_an_adopted_socket_has_the_peer_it_was_given(transport: Transport) -> None:
    """Goal: TLS and clients come this way. Method: both ends of a pair, an IPv6 address as its name."""
    inner, outer = socket.socketpair()
    with outer:
        connection = transport.adopt(inner.detach(), ("2001:db8::7", 4711), False)
        outer.sendall(Command(CODE, opaque=1).encode())
        (handed,) = take(transport, Lane.ADMIN)
        assert (handed.connection, handed.peer) == (connection, ("2001:db8::7", 4711))
    with pytest.raises(ValueError, match="not-an-address"):
        transport.adopt(0, ("not-an-address", 1), False)


def test_bad_arguments_are_refused_by_name(transport: Transport) -> None:
    """Goal: errors that help. Method: a taken port, an impossible host, no lane, a frame that is no bytes."""
    port = transport.listen("127.0.0.1", 0)
    with pytest.raises(OSError, match="another process has that port"):
        transport.listen("127.0.0.1", port)
    with pytest.raises(ValueError, match=r"no\.such\.host\.invalid"):
        transport.listen("no.such.host.invalid", 0)
    with pytest.raises(ValueError, match="lane 6"):
        transport.take(6, 1)
    with pytest.raises(ValueError, match="lane -1"):
        transport.set_lane(1, -1)
    with pytest.raises(TypeError):
        transport.send(1, "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        transport.send_many([(1, "text")])  # type: ignore[list-item]


def test_after_close_peers_are_gone_and_the_rest_raises() -> None:
    """Goal: a late answer is no crash. Method: close twice, then everything."""
    transport = Transport(TransportConfig(reactors=2))
    transport.close()
    transport.close()
    assert transport.closed
    assert not transport.send(1, b"frame")
    assert transport.send_many([(1, b"frame")]) == 0
    transport.close_connection(1)
    with pytest.raises(RuntimeError, match="the transport is closed"):
        transport.take(0, 1)
    with pytest.raises(RuntimeError, match="the transport is closed"):
        transport.stats()


def test_a_transport_dropped_open_warns_and_stops_its_threads() -> None:
    """Goal: nothing leaks silently. Method: drop one and count the process's threads."""

    def reactors() -> int:
        names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
        return sum(name.startswith("pymq-reactor") for name in names)

    before = reactors()
    dropped = [Transport(TransportConfig(reactors=2))]
    until(lambda: reactors() == before + 2)
    with pytest.warns(ResourceWarning, match="dropped open"):
        dropped.clear()
    until(lambda: reactors() == before)


def test_in_a_forked_child_every_method_raises_and_the_parent_goes_on(transport: Transport) -> None:
    """Goal: a child frees nothing that is the parent's. Method: fork, try, look at the child's status, go on."""
    port = transport.listen("127.0.0.1", 0)
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (
            lambda: transport.take(0, 1),
            lambda: transport.send(1, b""),
            lambda: transport.close_connection(1),
            transport.stats,
            transport.drain,
            transport.close,
            lambda: transport.wake_fd,
        ):
            try:
                call()
            except RuntimeError as error:
                refused += "parent process" in str(error)
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as peer:
        peer.sendall(Command(CODE, opaque=1).encode())
        assert take(transport, Lane.ADMIN)[0].code == CODE


def test_close_waits_for_calls_of_other_threads(transport: Transport, peer: socket.socket) -> None:
    """Goal: no call meets a freed transport. Method: threads that send large and small frames while it closes."""
    (opened,) = take(transport, Lane.EVENT)
    outcomes: list[bool] = []
    stop = threading.Event()

    def send() -> None:
        large = bytes(200_000)
        while not stop.is_set():
            outcomes.append(transport.send(opened.connection, large))
            outcomes.append(transport.send(opened.connection, b"small"))

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: len(outcomes) > 20)
    transport.close(0)
    until(lambda: outcomes[-1] is False)
    stop.set()
    for thread in threads:
        thread.join()
    assert True in outcomes
    while peer.recv(1 << 20):  # what was written, then the end
        pass


def test_drain_reads_no_more_and_says_when_all_is_answered(transport: Transport, peer: socket.socket) -> None:
    """Goal: an orderly stop. Method: one request before drain() is answered, one after it is not read."""
    peer.sendall(Command(CODE, opaque=1).encode())
    (handed,) = take(transport, Lane.ADMIN)
    take(transport, Lane.EVENT)
    assert not transport.drained
    transport.drain()
    peer.sendall(Command(CODE, opaque=2).encode())
    transport.send(handed.connection, b"answer")
    until(lambda: transport.drained)
    assert read(peer, 6) == b"answer"
    assert transport.stats()["frames_in"] == 1


def test_trim_acts_once_after_a_burst(transport: Transport, peer: socket.socket) -> None:
    """Goal: a tick may call it at no cost. Method: before 20 MiB, just after them, when they are over, and again."""
    assert not transport.trim()
    (opened,) = take(transport, Lane.EVENT)
    for _ in range(20):
        transport.send(opened.connection, bytes(1 << 20))
        assert len(read(peer, 1 << 20)) == 1 << 20
    until(lambda: transport.stats()["buffer_bytes"] == 0)
    assert not transport.trim()
    assert transport.trim()
    assert not transport.trim()


def test_decode_command_reads_what_the_python_codec_writes() -> None:
    """Goal: the C parser can be asked. Method: a frame with fields and a remark; one it leaves to Python."""
    command = Command(11, fields={"a": "1", "b": "ü"}, body=b"xyz", opaque=-5, remark="r")
    code, _, version, opaque, flag, kind, remark, fields, body = _transport.decode_command(command.encode()) or ()
    assert (code, version, opaque, flag, kind, remark, body) == (11, 513, -5, 0, 0, b"r", b"xyz")
    assert fields == [(b"a", b"1"), (b"b", "ü".encode())]
    assert _transport.decode_command(b"\0\0\0\5\0\0\0\1[") is None
