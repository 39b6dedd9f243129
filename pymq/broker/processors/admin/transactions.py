"""RESUME_CHECK_HALF_MESSAGE: an operator has a transaction asked about again that was given up.

Differs from Apache: only what was given up can be resumed, and only once; a second copy would be a second transaction.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pymq.broker import names
from pymq.broker.disk_jobs import read_for
from pymq.broker.request_fields import text_field
from pymq.broker.transaction import records
from pymq.errors import StoreError
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

OFFSET_DIGITS = 16
MESSAGE_ID = re.compile(r"[0-9A-Fa-f]{16,40}[0-9A-Fa-f]{16}")  # host and port, then the place in the log


class TransactionAdmin:
    """What operators do about transactions."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s operators."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take the code."""
        server.register(RequestCode.RESUME_CHECK_HALF_MESSAGE, self.resume)

    async def resume(self, request: Request) -> Command:
        """Put a message of TRANS_CHECK_MAX_TIME_TOPIC back as a half message of its own, not asked about yet."""
        command = request.command
        message_id = text_field(command, "msgId")
        if not MESSAGE_ID.fullmatch(message_id):
            return command.reply(ResponseCode.SYSTEM_ERROR, f"{message_id!r} is no message id")
        physical_offset = int(message_id[-OFFSET_DIGITS:], 16)
        try:
            remark = await read_for(self._broker, request, self._why_not, physical_offset)
            if remark is None:
                (result,) = self._broker.serve.reput([records.resumed(physical_offset)])
                if isinstance(result, str):
                    remark = f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. {result}"
        except StoreError as error:
            remark = f"Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC. {error}"
        return command.reply() if remark is None else command.reply(ResponseCode.SYSTEM_ERROR, remark)

    def _why_not(self, physical_offset: int) -> str | None:
        """Why the message there is not to be resumed; None when it is. Waits for the disk.

        Raises:
            StoreError: there is none, or the index cannot be read.
        """
        store = self._broker.store
        if physical_offset >= 1 << 63:
            return f"there is no message at {physical_offset}"
        message = store.read_record(physical_offset)
        if message.topic != names.CHECK_MAX_TIME_TOPIC:
            return f"the message at {physical_offset} is of {message.topic}, not of {names.CHECK_MAX_TIME_TOPIC}"
        key = message.unique_key
        if key and self._broker.config.store.message_index_enable:
            copies = store.query(names.HALF_TOPIC, key, message.store_timestamp_ms, max_count=records.LOOK_COUNT)
            if any(copy.physical_offset > physical_offset for copy in copies):
                return f"transaction {key} was resumed before"
        return None
