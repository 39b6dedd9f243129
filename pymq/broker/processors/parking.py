"""Answers that wait until what they speak of is on stable storage, or on a replica (SYNC_FLUSH, SYNC_MASTER)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymq.remoting.codes import ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.server import Request
from pymq.store.config import SYNC_FLUSH, SYNC_MASTER

if TYPE_CHECKING:
    from pymq.broker.controller import Broker


def answers_wait(broker: Broker) -> bool:
    """Whether an answer waits for anything."""
    store = broker.config.store
    return store.flush_disk_type == SYNC_FLUSH or store.broker_role == SYNC_MASTER


def park(broker: Broker, request: Request, answer: Command, end_offset: int, failed: Command, remark: str = "") -> None:
    """Answer with *answer* once the log is safe up to *end_offset*, with *failed* when it never will be.

    When it takes too long the answer is FLUSH_DISK_TIMEOUT (or _SLAVE_) with the same fields, and *remark*.
    """
    sync = broker.config.store.flush_disk_type == SYNC_FLUSH
    late = ResponseCode.FLUSH_DISK_TIMEOUT if sync else ResponseCode.FLUSH_SLAVE_TIMEOUT
    broker.serve.park(
        request.connection,
        end_offset,
        answer.encode(),
        request.command.reply(late, remark or None, fields=answer.fields).encode(),
        failed.encode(),
    )
