"""Types of the native transport, as mypy and readers see them; `_transport.pyx` has the reasons."""

from collections.abc import Iterable
from typing import NamedTuple, final

from pymq.remoting.config import TransportConfig

LANE_CLIENT: int
LANE_SEND: int
LANE_PULL: int
LANE_ADMIN: int
LANE_REPLY: int
LANE_EVENT: int
LANES: int
HANDED_FRAME: int
HANDED_OPENED: int
HANDED_CLOSED: int
HANDED_TLS: int

class Handed(NamedTuple):
    """One thing a reactor handed to the control loop."""

    kind: int
    connection: int
    peer: tuple[str, int]
    received_us: int
    code: int
    reason: int
    fd: int
    frame: bytes

class CodeCount(NamedTuple):
    code: int
    reason: int  # -1: natively
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of a row

@final
class Transport:
    """Reactor threads and their connections. Methods may be called from any thread; none waits for the network."""

    def __init__(self, config: TransportConfig, serve: object | None = None) -> None: ...
    @property
    def wake_fd(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def listen(self, host: str, port: int) -> int: ...
    def adopt(self, fd: int, peer: tuple[str, int], is_client: bool) -> int: ...
    def set_tls_mode(self, mode: int) -> None: ...
    def set_lane(self, code: int, lane: int) -> None: ...
    def take(self, lane: int, count_max: int) -> list[Handed]: ...
    def count_running(self, lane: int, requests: int, size: int) -> None: ...
    def count_expired(self, lane: int) -> None: ...
    def clear_wake(self) -> None: ...
    def send(self, connection: int, frame: bytes) -> bool: ...
    def send_many(self, replies: Iterable[tuple[int, bytes]]) -> int: ...
    def close_connection(self, connection: int) -> None: ...
    def drain(self) -> None: ...
    @property
    def drained(self) -> bool: ...
    def close(self, drain_ms: int = 3000) -> None: ...
    def stats(self) -> dict[str, int | tuple[int, ...]]: ...
    def trim(self) -> bool: ...
    def code_counts(self) -> list[CodeCount]: ...

def decode_command(
    frame: bytes,
) -> tuple[int, int, int, int, int, int, bytes | None, list[tuple[bytes, bytes | None]], bytes] | None:
    """The C parser, for tests: code, language, version, opaque, flag, type, remark, fields, body; None: ask Python."""
