"""The calls that move messages out of a delay level. They may wait for the disk: each runs on a thread of its own."""

from __future__ import annotations

from pymq._core._serve import Due, Reput, Serve
from pymq._core._store import Store
from pymq.broker import names
from pymq.broker.schedule.delivery import LOOK_COUNT, OK, REMOVED_PROPERTIES, Look
from pymq.errors import CorruptRecordError, NotFoundError, StoreError

NEVER_MS = -1


def ask(serve: Serve, store: Store, look: Look, now_ms: int) -> Due:
    """Deliver what *look* says is due at *now_ms*; whatever goes wrong is in the answer's status."""
    try:
        if look.again:
            return deliver_again(serve, store, look)
        return serve.deliver_due(
            names.SCHEDULE_TOPIC,
            look.queue_id,
            look.offset,
            now_ms,
            LOOK_COUNT,
            remove=REMOVED_PROPERTIES,
            correct_max_ms=look.correct_max_ms,
        )
    except StoreError as error:
        return refused(look, error.status)


def deliver_again(serve: Serve, store: Store, look: Look) -> Due:
    """One message, by its place in the log: `deliver_due` would go on with the next one when this one is gone."""
    try:
        found = store.read(names.SCHEDULE_TOPIC, look.queue_id, look.offset, 1, False)
    except CorruptRecordError as error:
        return refused(look, error.status)
    except NotFoundError:
        low, _ = store.queue_range(names.SCHEDULE_TOPIC, look.queue_id, False)
        return Due(max(low, look.offset), 0, NEVER_MS, "PYMQ_ENOTFOUND", 0, 0)
    if not found or found[0].queue_offset != look.offset:  # filler: no message was ever here
        return Due(look.offset + 1, 0, NEVER_MS, "PYMQ_ENOTFOUND", 0, 0)
    (result,) = serve.reput([Reput(source=found[0].physical_offset, remove=REMOVED_PROPERTIES)])
    if isinstance(result, str):
        return refused(look, result)
    # How late it is: from when it was to be delivered, which its unit knew and its record does not. It is not counted.
    return Due(look.offset + 1, 1, NEVER_MS, OK, result.end_offset, 0)


def refused(look: Look, status: str) -> Due:
    """Nothing was delivered."""
    return Due(look.offset, 0, NEVER_MS, status, 0, 0)
