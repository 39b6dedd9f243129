"""Questions about queues that administrators ask: where they begin and end, and when a message was stored.

These wait for the disk at worst, so they are asked off the control loop.
"""

from __future__ import annotations

from pymq._core._store import Store
from pymq.errors import NotFoundError, StoreError
from pymq.remoting.codes import ResponseCode
from pymq.remoting.errors import RemotingError
from pymq.remoting.json_dialect import ObjectKey

OFFSET_DIGITS = 16  # of a message id, at its end


def queue_range(store: Store, topic: str, queue_id: int) -> tuple[int, int]:
    """First offset and the one behind the last; 0, 0 for a queue nobody has written to."""
    try:
        low, high = store.queue_range(topic, queue_id, settle=False)
    except NotFoundError:
        return 0, 0
    return max(0, low), max(0, high)


def stored_at(store: Store, topic: str, queue_id: int, offset: int) -> int:
    """When the message at *offset* was stored, in milliseconds; 0 when it cannot be told."""
    try:
        found = store.read(topic, queue_id, offset, max_count=1, settle=False)
    except StoreError:
        return 0
    return found[0].store_timestamp_ms if found else 0


def offset_at_time(store: Store, topic: str, queue_id: int, timestamp_ms: int) -> int:
    """The offset a reset to that time means; below 0 means the end."""
    if timestamp_ms < 0:
        return queue_range(store, topic, queue_id)[1]
    try:
        return int(store.offset_by_time(topic, queue_id, timestamp_ms))
    except NotFoundError:
        return 0


def stored_record(store: Store, message_id: str) -> bytes:
    """The record an offset message id (address, port and log offset in hexadecimal) names, as it stands in the log.

    Raises:
        RemotingError: no such id, or nothing stands there any more.
    """
    try:
        record = store.record(int(message_id[-OFFSET_DIGITS:], 16))
    except (ValueError, StoreError) as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"can not find message by id {message_id}: {error}") from error
    if record is None:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"can not find message by id {message_id}: nothing is there")
    return record


def message_queue(broker_name: str, topic: str, queue_id: int) -> ObjectKey:
    """A MessageQueue as a map's key."""
    return ObjectKey({"brokerName": broker_name, "queueId": queue_id, "topic": topic})
