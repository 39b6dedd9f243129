"""END_TRANSACTION: a producer's word on its half message, in Apache's order of checks and words. What the reactors do
not end themselves (csrc/serve/end_transaction.c) comes here.

Differs from Apache: a transaction ends once. What repeats its end is answered as the first was, and stored no second
time; what contradicts it is refused. Java's producers ask oneway and see neither.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pymq._core._store import ReceivedMessage
from pymq.broker.processors.send_checks import SLAVE, SendRefused
from pymq.broker.transaction.half import COMMIT_FLAG, ROLLBACK_FLAG, Half
from pymq.broker.transaction.ledger import End
from pymq.errors import StoreError
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.config import Lane
from pymq.remoting.dispatch import address_of
from pymq.remoting.errors import RemotingError
from pymq.remoting.headers.messages import EndTransactionRequestHeader
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

WORDS = {
    End.COMMITTED: "committed",
    End.ROLLED_BACK: "rolled back",
    End.GIVEN_UP: "given up",
    End.ENDED: "rolled back or given up",
}
NOT_FOUND = "Find prepared transaction message failed"
UNDECIDED = 0

log = logging.getLogger("pymq.broker")


class EndTransactionProcessor:
    """Commits and rolls back."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s producers."""
        self._broker = broker
        self._service = broker.transactions

    def register(self, server: RemotingServer) -> None:
        """Take the code. Not in the lane of sends: an end that waits longer than a send may is still wanted."""
        server.register(RequestCode.END_TRANSACTION, self.end, lane=Lane.ADMIN)

    async def end(self, request: Request) -> Command | None:
        """Commit or roll back; a producer that does not know yet gets no answer, as from Apache."""
        command = request.command
        header = EndTransactionRequestHeader.from_fields(command.fields)
        if header.commit_or_rollback not in (UNDECIDED, COMMIT_FLAG, ROLLBACK_FLAG):
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "commitOrRollback field wrong")
        if self._broker.config.broker_role == SLAVE:
            return command.reply(ResponseCode.SLAVE_NOT_AVAILABLE)
        if header.commit_or_rollback == UNDECIDED:
            log.info("transaction undecided key=%s producer=%s", header.transaction_id, address_of(request.peer))
            return None
        found = await self._service.find(header.commit_log_offset)
        if found is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
        message, half = found
        if not header.from_transaction_check and self._is_late(half):
            return command.reply(ResponseCode.ILLEGAL_OPERATION)
        wrong = what_is_wrong(header, half)
        if wrong is not None:
            return command.reply(ResponseCode.SYSTEM_ERROR, wrong)
        try:
            if not await self._service.is_pending(message, half):
                return await self._repeated(request, header, message, half)
            try:
                if header.commit_or_rollback == COMMIT_FLAG:
                    end_offset = self._service.commit(message, half).end_offset
                else:
                    end_offset = self._roll_back(request, half)
            finally:
                self._service.let_go(half)
        except SendRefused as refused:
            return command.reply(refused.code, refused.remark)
        except StoreError as error:
            refusal = self._broker.serve.refusal(error.status)
            return command.reply(refusal.code, refusal.remark)
        return self._answer(request, end_offset)

    def _roll_back(self, request: Request, half: Half) -> int:
        """Roll back; one that is answered is noted in the log first. The log's end then.

        Raises:
            StoreError: it could not be noted; it stays rolled back while this broker runs.
        """
        self._service.roll_back(half)
        if not request.command.is_oneway and not self._service.ops.write():
            raise StoreError("the rollback could not be noted in the log", status="PYMQ_EFAILED")
        return self._service.ops.end_offset

    def _is_late(self, half: Half) -> bool:
        """Whether a half with an immunity time of its own is asked about by now: then only that asking decides."""
        if half.immunity_ms < 0:
            return False
        immunity_ms = max(half.immunity_ms, self._broker.config.transaction_time_out)
        return self._broker.clock.now_ms() - half.born_ms > immunity_ms

    async def _repeated(
        self, request: Request, header: EndTransactionRequestHeader, message: ReceivedMessage, half: Half
    ) -> Command | None:
        """The transaction has ended: the same again is fine, anything else is not.

        Raises:
            StoreError: how it ended cannot be told.
        """
        how = self._service.ledger.how_ended(half.offset)
        if how not in (End.COMMITTED, End.ROLLED_BACK, End.GIVEN_UP):
            how = End.COMMITTED if await self._service.was_committed(message, half) else End.ENDED
        self._service.counts["repeated"] += 1
        if (how is End.COMMITTED) == (header.commit_or_rollback == COMMIT_FLAG):
            return self._answer(request, int(self._broker.store.watermarks()["written"]))
        log.warning("transaction ended otherwise before key=%s how=%s", half.key, how.name)
        remark = f"the transaction is not pending any more: {WORDS[how]}"
        return request.command.reply(ResponseCode.SYSTEM_ERROR, remark)

    def _answer(self, request: Request, end_offset: int) -> Command | None:
        """Success, when the log is flushed up to *end_offset* where answers wait for that."""
        command, store = request.command, self._broker.config.store
        answer = command.reply()
        if command.is_oneway or store.flush_disk_type != "SYNC_FLUSH":
            return answer
        refusal = self._broker.serve.refusal("PYMQ_EFAILED")
        self._broker.serve.park(
            request.connection,
            end_offset,
            answer.encode(),
            command.reply(ResponseCode.FLUSH_DISK_TIMEOUT).encode(),
            command.reply(refusal.code, refusal.remark).encode(),
        )
        return None


def what_is_wrong(header: EndTransactionRequestHeader, half: Half) -> str | None:
    """Why the request does not mean this half message; None when it does.

    Differs: the transaction's id is compared too, where it is given. After a power failure another half may stand where
    the one was that the producer means.
    """
    if half.group != header.producer_group:
        return "The producer group wrong"
    if half.offset != header.tran_state_table_offset:
        return "The transaction state table offset wrong"
    if header.transaction_id and header.transaction_id != half.key:
        return "The transaction id wrong"
    if not half.whole:
        return NOT_FOUND
    return None
