"""Connections that cost: many, slow, deaf, cut. The others are served, and the memory returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.abuse.conftest import EchoServer
from tests.abuse.peer import CODE_ECHO, Peer, frame

IDLE_CONNECTIONS = 10_000
DESCRIPTORS_KEPT = 500
CONNECTION_BYTES_MAX = 1500  # of user space: 160 in the core, the rest is Python's dictionaries of peers
MIB = 1 << 20


@contextmanager
def well_behaved(server: EchoServer) -> Iterator[list[int]]:
    """A client that makes round trips all the time; the list has one number, how many. Every one must work."""
    trips = [0]
    failures: list[BaseException] = []
    stop = threading.Event()

    def run() -> None:
        try:
            with server.connect() as peer:
                while not stop.is_set():
                    peer.echo(trips[0], b"x" * (trips[0] % 3000))
                    trips[0] += 1
        except (AssertionError, OSError) as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield trips
        seen = trips[0]
        while trips[0] <= seen + 1 and not failures:  # it is served now, too
            time.sleep(0.001)
    finally:
        stop.set()
        thread.join()
    assert failures == []


def test_ten_thousand_idle_connections_hold_no_buffers_and_leave_the_others_served(
    server: EchoServer, descriptors: int
) -> None:
    """Goal: an idle connection costs next to nothing. Method: open them, watch memory, make round trips among them."""
    count = min(IDLE_CONNECTIONS, descriptors - DESCRIPTORS_KEPT)
    before = server.stats()
    peers: list[Peer] = []
    try:
        with well_behaved(server) as trips:
            peers.extend(server.connect() for _ in range(count))
            during = server.until(lambda stats: stats["open"] == count + 1, "all are open")
            seen = trips[0]
            for index in range(0, count, 997):
                peers[index].echo(index)
            while trips[0] < seen + 50:
                time.sleep(0.001)
        quiet = server.until(lambda stats: stats["buffer_bytes"] == 0, "idle connections hold no buffers")
        grown = (quiet["anonymous_bytes"] - before["anonymous_bytes"]) / count
        print(f"{count} idle connections: {grown:.0f} bytes each, Python's own records of them included")
        assert grown < CONNECTION_BYTES_MAX
        assert during["accepted"] - before["accepted"] == count + 1
    finally:
        for peer in peers:
            peer.socket.close()
    server.until(lambda stats: stats["open"] == 0, "all are closed")
    with server.connect() as peer:
        peer.echo(1)


def test_clients_that_send_byte_by_byte_are_served_in_the_end(server: EchoServer) -> None:
    """Goal: a trickle costs nothing and loses nothing. Method: 40 frames, byte by byte in turn, others meanwhile."""
    request = frame(CODE_ECHO, 7, b"slow")
    peers = [server.connect() for _ in range(40)]
    with well_behaved(server):
        for position in range(len(request) - 1):
            for peer in peers:
                peer.write(request[position : position + 1])
            time.sleep(0.002)
        stats = server.until(lambda stats: stats["frames_in"] > 0, "the others are served")
        assert stats["buffer_bytes"] < 40 * 1024 + 64 * 1024
        for peer in peers:
            peer.write(request[-1:])
            answer = peer.read()
            assert answer is not None
            assert answer.body == b"slow"
            peer.socket.close()
    server.until(lambda stats: stats["buffer_bytes"] == 0, "memory returns")


def test_a_client_that_never_reads_is_not_read_from_and_its_memory_is_bounded(
    start_server: Callable[..., EchoServer],
) -> None:
    """Goal: deafness is bounded. Method: large echoes asked and never read, until the server takes no more requests."""
    server = start_server(output_size_pause=MIB, output_size_max=8 * MIB)
    request = frame(CODE_ECHO, 1, b"x" * 100_000)
    deaf = server.connect(receive_buffer=4096)
    deaf.socket.setblocking(False)
    with well_behaved(server):
        sent, quiet_since = 0, time.monotonic()
        while time.monotonic() - quiet_since < 0.5 and sent < 400 * MIB:
            try:
                sent += deaf.socket.send(request[sent % len(request) :])
                quiet_since = time.monotonic()
            except BlockingIOError:
                time.sleep(0.005)
            except ConnectionError:  # above output_size_max: what the control loop had in hand already
                break
        assert sent < 400 * MIB
        stats = server.stats()
        assert stats["buffer_bytes"] <= 8 * MIB + MIB
    deaf.socket.close()
    server.until(lambda stats: stats["buffer_bytes"] == 0, "memory returns")


def test_large_frames_leave_the_process_as_small_as_it_was(server: EchoServer) -> None:
    """Goal: a burst of large frames costs nothing afterwards. Method: echo them, hold halves, compare memory."""
    with server.connect() as peer:
        peer.echo(1)
    before = server.stats()["anonymous_bytes"]

    def echo_large() -> None:
        with server.connect() as large:
            for number in range(4):
                large.echo(number, b"x" * (15 * MIB))

    threads = [threading.Thread(target=echo_large) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    halves = [server.connect() for _ in range(20)]
    for half in halves:
        half.write(frame(CODE_ECHO, 1, b"x" * (10 * MIB))[: 8 * MIB])
    server.until(lambda stats: stats["buffer_bytes"] >= 160 * MIB, "the halves are held")
    for half in halves:
        half.socket.close()
    after = server.until(lambda stats: stats["buffer_bytes"] == 0, "they are given up")
    assert after["anonymous_bytes"] - before < 40 * MIB


def test_connections_cut_in_the_middle_of_a_frame_leave_nothing_behind(server: EchoServer) -> None:
    """Goal: half a frame is nothing. Method: cut frames of several sizes at several places, by close and by reset."""
    with well_behaved(server):
        for body_size in (0, 10, 20_000, 300_000, 3_000_000):
            request = frame(CODE_ECHO, 1, b"x" * body_size)
            for cut in {1, 3, 4, 7, 8, 50, len(request) // 2, len(request) - 1}:
                peer = server.connect()
                peer.write(request[:cut])
                if cut % 2:
                    peer.socket.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER 0: a reset
                peer.socket.close()
    server.until(lambda stats: stats["open"] == 0 and stats["buffer_bytes"] == 0, "memory returns")
    assert server.stats()["broken_frames"] == 0


def test_connections_above_the_maximum_are_closed_and_places_come_back(
    start_server: Callable[..., EchoServer],
) -> None:
    """Goal: a bound with an answer. Method: one more than allowed, then one less."""
    server = start_server(connections_max=50)
    peers = [server.connect() for _ in range(50)]
    for number, peer in enumerate(peers):
        peer.echo(number)
    with server.connect() as refused:
        assert refused.read() is None
    assert server.stats()["refused"] == 1
    peers.pop().socket.close()
    server.until(lambda stats: stats["open"] == 49, "a place comes back")
    with server.connect() as late:
        late.echo(1)
    for peer in peers:
        peer.echo(2)
        peer.socket.close()
