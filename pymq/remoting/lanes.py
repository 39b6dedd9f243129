"""The control loop's side of the lanes: taking what reactors handed over, in turn, and sending back in batches.

The transport's wake descriptor is readable while any lane holds something. Each time the loop finds it so, the pump
works for a slice of about 2 ms: a few entries of every lane in turn, so that a flood in one lane delays the others by a
batch and not by its length; then it returns, and timers and tasks get theirs before the next slice. Entries are taken
one by one and the clock is looked at after each, for some take as long as a slice.

Order. A reactor hands over a connection's frames before it hands over that the connection is closed, but in other
lanes. `closed` is therefore told to the sink only when everything that waited in any lane at that moment has been
taken: a client that commits offsets and hangs up has committed them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol, cast

from pymq.remoting.config import Lane

if TYPE_CHECKING:
    from pymq._core._transport import Handed, Transport

SLICE_S = 0.002
BATCH = 16  # entries of a lane before the next lane; some 50 µs of Python each
EVENT_BATCH = 256
FRAME_LANES = (Lane.REPLY, Lane.CLIENT, Lane.SEND, Lane.PULL, Lane.ADMIN)
KIND_FRAME, KIND_OPENED, KIND_CLOSED, KIND_TLS = 0, 1, 2, 3  # enum pymq_handed_kind


class LaneSink(Protocol):
    """Who is told what was taken. None of these may block or raise."""

    def frame(self, handed: Handed) -> None:
        """A request or a response, still encoded."""

    def opened(self, connection: int, peer: tuple[str, int]) -> None:
        """A connection was accepted."""

    def closed(self, connection: int) -> None:
        """A connection is gone and every frame of it has been given."""

    def tls(self, fd: int, peer: tuple[str, int]) -> None:
        """A connection begins a TLS handshake; *fd* is the sink's now."""


class Fence:
    """Connections that are closed, and how far each lane must have come before that is said.

    Attributes:
        targets: entries of a lane that must have been handled in all; a lane that is not here has none to wait for.
        born: the number of the last take when this was made; only a later one that finds a lane empty says something.
    """

    __slots__ = ("born", "connections", "targets")

    def __init__(self, connections: list[int], targets: dict[Lane, int], born: int) -> None:
        self.connections = connections
        self.targets = targets
        self.born = born


class LanePump:
    """Moves entries from a transport's lanes to a sink, and answers back, on one event loop."""

    def __init__(self, transport: Transport, sink: LaneSink) -> None:
        self.transport = transport
        self.sink = sink
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1
        self._turn = 0
        self._takes = 0
        self._handled = dict.fromkeys(FRAME_LANES, 0)
        self._at_hand: Lane | None = None
        self._fences: deque[Fence] = deque()
        self._outgoing: list[tuple[int, bytes]] = []
        self._in_slice = False
        self._flush_due = False

    @property
    def started(self) -> bool:
        """Whether entries are being taken."""
        return self._fd >= 0

    def start(self) -> None:
        """Begin to listen to the wake descriptor on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._fd = self.transport.wake_fd
        self._loop.add_reader(self._fd, self.work)

    def stop(self) -> None:
        """Listen no more; what was not taken stays in the lanes."""
        if self._loop is not None and self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1
        self.flush()

    def send(self, connection: int, frame: bytes) -> None:
        """Queue a frame; it leaves with all others of this slice, or of this turn of the loop."""
        self._outgoing.append((connection, frame))
        if not self._in_slice and not self._flush_due and self._loop is not None:
            self._flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Give everything queued to the transport."""
        self._flush_due = False
        if self._outgoing:
            outgoing, self._outgoing = self._outgoing, []
            self.transport.send_many(outgoing)

    def work(self) -> None:
        """One slice: take from every lane in turn until all are empty or the slice is over."""
        self._in_slice = True
        try:
            end = time.monotonic() + SLICE_S
            idle = 0
            while idle <= len(FRAME_LANES):
                self.take_events()
                lane = FRAME_LANES[self._turn % len(FRAME_LANES)]
                self._turn += 1
                idle = 0 if self.take_frames(lane, end) else idle + 1
                if time.monotonic() >= end:
                    return
            self.transport.clear_wake()
        finally:
            self._in_slice = False
            self.flush()

    def take_frames(self, lane: Lane, end: float = math.inf) -> bool:
        """Give a batch of *lane* to the sink, no more once it is *end*; whether there was any."""
        count, empty_take = 0, 0
        while count < BATCH and (count == 0 or time.monotonic() < end):
            self._takes += 1
            taken = self.transport.take(lane, 1)
            if not taken:
                empty_take = self._takes
                break
            count += 1
            self._at_hand = lane
            self.sink.frame(taken[0])
            self._at_hand = None
            self._handled[lane] += 1
        if self._fences:
            self.pass_fences(lane, empty_take)
        return count > 0

    def take_events(self) -> None:
        """Give everything of the event lane to the sink, closes behind their fence."""
        while taken := self.transport.take(Lane.EVENT, EVENT_BATCH):
            closed = []
            for handed in taken:
                if handed.kind == KIND_OPENED:
                    self.sink.opened(handed.connection, handed.peer)
                elif handed.kind == KIND_CLOSED:
                    closed.append(handed.connection)
                else:
                    self.sink.tls(handed.fd, handed.peer)
            if closed:
                self._fences.append(Fence(closed, self.targets(), self._takes))
        self.open_fences()

    def targets(self) -> dict[Lane, int]:
        """What must be handled until everything has been that waits now, in lanes and at hand."""
        waiting = cast(tuple[int, ...], self.transport.stats()["lane_waiting"])
        left = {lane: waiting[lane] for lane in FRAME_LANES}
        if self._at_hand is not None:
            left[self._at_hand] += 1
        return {lane: self._handled[lane] + count for lane, count in left.items() if count > 0}

    def pass_fences(self, lane: Lane, empty_take: int) -> None:
        """Note how far *lane* has come, and which take found it empty: then what is missing has expired."""
        for fence in self._fences:
            target = fence.targets.get(lane)
            if target is not None and (self._handled[lane] >= target or empty_take > fence.born):
                del fence.targets[lane]
        self.open_fences()

    def open_fences(self) -> None:
        """Tell the sink of the connections whose frames have all been given."""
        while self._fences and not self._fences[0].targets:
            for connection in self._fences.popleft().connections:
                self.sink.closed(connection)
