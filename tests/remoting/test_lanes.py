"""The pump between lanes and loop: turns, slices, and the order of frames and closes."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque

from pymq._core._transport import Handed
from pymq.remoting import lanes
from pymq.remoting.config import Lane
from pymq.remoting.lanes import BATCH, KIND_CLOSED, KIND_FRAME, KIND_OPENED, KIND_TLS, LanePump

PEER = ("127.0.0.1", 4711)


def handed(kind: int, connection: int, frame: bytes = b"", fd: int = -1) -> Handed:
    """Something a reactor handed over."""
    return Handed(kind, connection, PEER, 0, 0, 0, fd, frame)


class FakeTransport:
    """Lanes without reactors."""

    def __init__(self) -> None:
        self.lanes: dict[int, deque[Handed]] = {lane: deque() for lane in Lane}
        self.sent: list[list[tuple[int, bytes]]] = []
        self.cleared = 0
        self.wake_fd, self.wake_end = os.pipe()

    def put(self, lane: Lane, entry: Handed) -> None:
        self.lanes[lane].append(entry)

    def take(self, lane: int, count_max: int) -> list[Handed]:
        queue = self.lanes[lane]
        return [queue.popleft() for _ in range(min(count_max, len(queue)))]

    def stats(self) -> dict[str, tuple[int, ...]]:
        return {"lane_waiting": tuple(len(self.lanes[lane]) for lane in Lane)}

    def clear_wake(self) -> None:
        self.cleared += 1

    def send_many(self, replies: list[tuple[int, bytes]]) -> int:
        self.sent.append(list(replies))
        return len(replies)

    def close(self) -> None:
        os.close(self.wake_fd)
        os.close(self.wake_end)


class Diary:
    """A sink that writes down what it was told, and takes its time if told to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.pause_s = 0.0
        self.pump: LanePump | None = None

    def frame(self, entry: Handed) -> None:
        self.lines.append(f"frame {entry.connection} {entry.frame.decode()}")
        if self.pump is not None:
            self.pump.send(entry.connection, entry.frame)
        time.sleep(self.pause_s)

    def opened(self, connection: int, peer: tuple[str, int]) -> None:
        self.lines.append(f"opened {connection} {peer[1]}")

    def closed(self, connection: int) -> None:
        self.lines.append(f"closed {connection}")

    def tls(self, fd: int, peer: tuple[str, int]) -> None:
        self.lines.append(f"tls {fd}")


def test_a_close_is_told_after_the_frames_that_came_before_it():
    """Goal: a client that commits and hangs up has committed. Method: frames in three lanes, then the close."""
    transport, diary = FakeTransport(), Diary()
    pump = LanePump(transport, diary)
    transport.put(Lane.EVENT, handed(KIND_OPENED, 1))
    for index in range(BATCH * 2 + 1):
        transport.put(Lane.ADMIN, handed(KIND_FRAME, 1, b"commit %d" % index))
    transport.put(Lane.CLIENT, handed(KIND_FRAME, 1, b"leave"))
    transport.put(Lane.EVENT, handed(KIND_CLOSED, 1))
    while not transport.cleared:
        pump.work()
    assert diary.lines[0] == "opened 1 4711"
    assert diary.lines[-1] == "closed 1"
    assert len(diary.lines) == BATCH * 2 + 4
    assert transport.cleared == 1
    transport.close()


def test_a_close_does_not_wait_for_frames_that_came_after_it():
    """Goal: a busy lane delays no close for ever. Method: others' frames keep coming behind the close."""
    transport, diary = FakeTransport(), Diary()
    pump = LanePump(transport, diary)
    transport.put(Lane.ADMIN, handed(KIND_FRAME, 1, b"last"))
    transport.put(Lane.EVENT, handed(KIND_CLOSED, 1))
    pump.take_events()
    for index in range(BATCH * 3):
        transport.put(Lane.ADMIN, handed(KIND_FRAME, 2, b"%d" % index))
    pump.take_frames(Lane.ADMIN)
    assert "closed 1" in diary.lines
    assert len(transport.lanes[Lane.ADMIN]) > 0
    transport.close()


def test_a_close_does_not_wait_for_frames_that_expired():
    """Goal: fast failure takes frames out of lanes, and nobody waits for them. Method: empty the lane by hand."""
    transport, diary = FakeTransport(), Diary()
    pump = LanePump(transport, diary)
    transport.put(Lane.SEND, handed(KIND_FRAME, 1, b"late"))
    transport.put(Lane.EVENT, handed(KIND_CLOSED, 1))
    pump.take_events()
    assert diary.lines == []
    transport.lanes[Lane.SEND].clear()
    pump.take_frames(Lane.SEND)
    assert diary.lines == ["closed 1"]
    transport.close()


def test_a_close_found_in_the_middle_of_a_batch_waits_for_the_rest_of_it():
    """Goal: frames already taken count too. Method: a sink that looks for events while it is given a batch."""
    transport, diary = FakeTransport(), Diary()
    pump = LanePump(transport, diary)

    class Looking(Diary):
        def frame(self, entry: Handed) -> None:
            if entry.frame == b"0":
                transport.put(Lane.EVENT, handed(KIND_CLOSED, 1))
                pump.take_events()
            super().frame(entry)

    diary = pump.sink = Looking()
    for index in range(5):
        transport.put(Lane.ADMIN, handed(KIND_FRAME, 1, b"%d" % index))
    pump.take_frames(Lane.ADMIN)
    assert diary.lines == [*(f"frame 1 {index}" for index in range(5)), "closed 1"]
    transport.close()


def test_a_flood_in_one_lane_delays_another_by_a_batch():
    """Goal: heartbeats do not starve. Method: a thousand sends, one heartbeat; count what came before it."""
    transport, diary = FakeTransport(), Diary()
    pump = LanePump(transport, diary)
    for index in range(1000):
        transport.put(Lane.SEND, handed(KIND_FRAME, 1, b"%d" % index))
    transport.put(Lane.CLIENT, handed(KIND_FRAME, 2, b"beat"))
    while transport.lanes[Lane.SEND] or transport.lanes[Lane.CLIENT]:
        pump.work()
    assert diary.lines.index("frame 2 beat") <= BATCH
    assert [line for line in diary.lines if line.startswith("frame 1")] == [f"frame 1 {index}" for index in range(1000)]
    transport.close()


def test_a_slice_ends_and_leaves_the_rest_for_the_next(monkeypatch):
    """Goal: timers and tasks get their turn. Method: slow frames; one slice takes about a batch, and does not clear."""
    monkeypatch.setattr(lanes, "SLICE_S", 0.0)
    transport, diary = FakeTransport(), Diary()
    pump = LanePump(transport, diary)
    for index in range(BATCH * 4):
        transport.put(Lane.PULL, handed(KIND_FRAME, 1, b"%d" % index))
    before = len(transport.lanes[Lane.PULL])
    for _ in lanes.FRAME_LANES:
        pump.work()
    assert 0 < before - len(transport.lanes[Lane.PULL]) <= BATCH
    assert transport.cleared == 0
    transport.close()


def test_one_frame_that_takes_long_ends_the_slice():
    """Symptom: sixteen costly frames were handled before the clock was looked at, and everybody waited for them all."""
    transport, diary = FakeTransport(), Diary()
    pump = LanePump(transport, diary)
    diary.pause_s = lanes.SLICE_S * 2
    for index in range(BATCH):
        transport.put(Lane.ADMIN, handed(KIND_FRAME, 1, b"%d" % index))
    pump.work()
    assert diary.lines == ["frame 1 0"]
    transport.put(Lane.CLIENT, handed(KIND_FRAME, 2, b"beat"))  # comes while the flood is at work
    pump.work()
    assert diary.lines == ["frame 1 0", "frame 2 beat"]
    assert transport.cleared == 0
    transport.close()


def test_answers_of_a_slice_leave_together(monkeypatch):
    """Goal: one crossing per batch. Method: echo every frame; one send_many."""
    monkeypatch.setattr(lanes, "SLICE_S", 30.0)  # however busy the machine is
    transport, diary = FakeTransport(), Diary()
    pump = diary.pump = LanePump(transport, diary)
    for index in range(5):
        transport.put(Lane.ADMIN, handed(KIND_FRAME, 1, b"%d" % index))
    pump.work()
    assert len(transport.sent) == 1
    assert transport.sent == [[(1, b"%d" % index) for index in range(5)]]
    transport.close()


def test_answers_of_tasks_leave_in_the_same_turn_of_the_loop():
    """Goal: as above for those who answer later. Method: send outside of a slice on a running loop."""
    transport, diary = FakeTransport(), Diary()

    async def scenario() -> None:
        pump = LanePump(transport, diary)
        pump.start()
        pump.send(1, b"a")
        pump.send(2, b"b")
        assert transport.sent == []
        await asyncio.sleep(0)
        assert transport.sent == [[(1, b"a"), (2, b"b")]]
        pump.stop()

    asyncio.run(scenario())
    transport.close()


def test_the_wake_descriptor_starts_a_slice():
    """Goal: nothing waits for a poll. Method: ring it on a running loop."""
    transport, diary = FakeTransport(), Diary()

    async def scenario() -> None:
        pump = LanePump(transport, diary)
        pump.start()
        assert pump.started
        transport.put(Lane.EVENT, handed(KIND_TLS, 0, fd=77))
        os.write(transport.wake_end, b"x")
        for _ in range(100):
            if diary.lines:
                break
            await asyncio.sleep(0.001)
        pump.stop()
        assert not pump.started

    asyncio.run(scenario())
    assert diary.lines == ["tls 77"]
    transport.close()
