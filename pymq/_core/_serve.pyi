"""Types of native serving, as mypy and readers see them; `_serve.pyx` has the reasons."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, final

from pymq._core._store import Store
from pymq._core._transport import Transport
from pymq._core.serve_config import ServeConfig as ServeConfig

REASONS: tuple[str, ...]
REASON_HEADER: int
REASON_PLANE: int
REASON_HOLD_ENDED: int
GET_FOUND: int
GET_NO_MATCHED_MESSAGE: int
GET_MESSAGE_WAS_REMOVING: int
GET_OFFSET_FOUND_NULL: int
GET_OFFSET_OVERFLOW_BADLY: int
GET_OFFSET_OVERFLOW_ONE: int
GET_OFFSET_TOO_SMALL: int
GET_NO_MATCHED_LOGIC_QUEUE: int
GET_NO_MESSAGE_IN_QUEUE: int
GET_COLD: int

class PutResult(NamedTuple):
    """Where a message was put, and the offset to wait for."""

    queue_offset: int
    physical_offset: int
    end_offset: int
    store_timestamp_ms: int

class GetResult(NamedTuple):
    """What a read found: one of GET_…, and records as they stand in the log."""

    status: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggest_slave: bool
    body: bytes
    message_count: int

class Refusal(NamedTuple):
    """How a send that the store refused is answered."""

    code: int
    has_fields: bool
    remark: str

class OffsetState(NamedTuple):
    """Where a group stands with a queue: committed, a reset it has not followed, and how far it has pulled."""

    group: str
    topic: str
    queue_id: int
    offset: int | None
    pending: int | None
    pulled: int | None

class Traffic(NamedTuple):
    """Messages and bytes since start: put to *topic* (group empty), or got from it by *group*."""

    topic: str
    group: str
    messages: int
    bytes: int

class Reput(NamedTuple):
    """A message to be put again: the record at *source*, edited; the rest of it is kept."""

    source: int
    topic: str = ""
    queue_id: int = -1
    remove: bytes = b""
    set: bytes = b""
    sys_flag_clear: int = 0
    sys_flag_set: int = 0
    reconsume_times: int = -1
    prepared_transaction_offset: int = 0

class Due(NamedTuple):
    """What a look at a delay level has delivered, and where and when to look again."""

    next_offset: int
    delivered: int
    next_due_ms: int
    status: str
    last_end_offset: int
    lateness_max_ms: int

def unique_key() -> str: ...

class _ServeHandle:
    def __init__(self, config: ServeConfig, store: Store) -> None: ...
    @property
    def config(self) -> ServeConfig: ...
    @property
    def host_hex(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    @property
    def is_busy(self) -> bool: ...
    def attach(self, transport: Transport) -> None: ...
    def configure(self, config: ServeConfig) -> None: ...
    def close(self) -> None: ...

class _ServeTables(_ServeHandle):
    def publish_topic(
        self,
        name: str,
        *,
        permission: int,
        read_queues: int,
        write_queues: int,
        sys_flag: int = 0,
        send_special: bool = False,
        pull_special: bool = False,
    ) -> None: ...
    def remove_topic(self, name: str, offsets_too: bool = False) -> None: ...
    def publish_group(
        self,
        name: str,
        *,
        disabled: bool = False,
        special: bool = False,
        sys_flag: int = 0,
        broker_id: int = 0,
        broker_id_when_slow: int = 1,
        retry_queues: int = 0,
        retry_max_times: int = 16,
    ) -> None: ...
    def remove_group(self, name: str, offsets_too: bool = False) -> None: ...
    def publish_subscription(
        self,
        group: str,
        topic: str,
        *,
        version: int,
        all: bool = False,
        special: bool = False,
        tag_hashes: Sequence[int] = (),
        program: bytes | None = None,
        expression: str = "",
    ) -> None: ...
    def remove_subscription(self, group: str, topic: str) -> None: ...
    def send_settled(self, connection: int, topic: str) -> None: ...
    def offset_query(self, group: str, topic: str, queue_id: int, connection: int = 0) -> int | None: ...
    def offset_commit(self, group: str, topic: str, queue_id: int, offset: int, connection: int = 0) -> bool: ...
    def offset_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None: ...
    def offset_remove(self, group: str, topic: str) -> None: ...
    def offset_states(self) -> list[OffsetState]: ...
    def offsets(self) -> list[tuple[str, str, int, int]]: ...

class _ServeReput(_ServeTables):
    def reput(self, items: Iterable[Reput]) -> list[PutResult | str]: ...
    def deliver_due(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        now_ms: int,
        count_max: int,
        *,
        remove: bytes,
        correct_max_ms: int = 0,
    ) -> Due: ...

class _ServeTransactions(_ServeReput):
    def transactions_begin(self, floor: int, begin_offset: int) -> None: ...
    def transaction_claim(self, queue_offset: int) -> bool: ...
    def transaction_release(self, queue_offset: int) -> None: ...
    def transactions_ended(self) -> list[tuple[int, int]]: ...
    def transactions_forget(self, floor: int) -> None: ...

@final
class Serve(_ServeTransactions):
    """Native tables, consumer offsets, holds and parked answers over one store."""

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        *,
        born_host: tuple[str, int],
        born_timestamp_ms: int,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> PutResult: ...
    def put_batch(
        self,
        topic: str,
        queue_id: int,
        messages: Sequence[tuple[int, bytes, bytes]],
        *,
        born_host: tuple[str, int],
        born_timestamp_ms: int,
        sys_flag: int = 0,
        reconsume_times: int = 0,
    ) -> list[PutResult]: ...
    def park(self, connection: int, end_offset: int, frame: bytes, late: bytes, failed: bytes) -> bool: ...
    def refusal(self, status: str) -> Refusal: ...
    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int = 0,
        tag_hashes: Sequence[int] | None = None,
        no_wait: bool = False,
        program: bytes | None = None,
    ) -> GetResult: ...
    def hold(
        self,
        connection: int,
        frame: bytes,
        topic: str,
        queue_id: int,
        offset: int,
        group: str,
        timeout_ms: int,
        tag_hashes: Sequence[int] | None = None,
        program: bytes | None = None,
    ) -> bool | None: ...
    def pull_begins(self, group: str, topic: str, queue_id: int, offset: int, connection: int = 0) -> int | None: ...
    def pulled(
        self, group: str, topic: str, queue_id: int, offset: int, next_offset: int, connection: int = 0
    ) -> None: ...
    def count_pull(self, group: str, topic: str, messages: int, size: int) -> None: ...
    def stop_holds(self) -> int: ...
    def end_holds(self, topic: str = "", group: str = "") -> int: ...
    def stats(self) -> dict[str, int]: ...
    def traffic(self) -> list[Traffic]: ...
