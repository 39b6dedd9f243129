"""Messages looked up one by one: VIEW_MESSAGE_BY_ID and QUERY_MESSAGE. Both may wait for the disk, and run in the
broker's small pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymq.broker.disk_jobs import read_for
from pymq.errors import StoreError
from pymq.remoting.codes import RequestCode, ResponseCode, SerializeType
from pymq.remoting.command import Command
from pymq.remoting.headers.messages import QueryMessageRequestHeader, ViewMessageRequestHeader
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"  # MixAll.UNIQUE_MSG_QUERY_FLAG
QUERY_COUNT_MAX = 64  # maxMsgsNumBatch
TAG_INDEX = "T"  # MessageConst.INDEX_TAG_TYPE; keys and unique keys share one kind of entry
TIME_MAX_MS = (1 << 63) - 1


class QueryProcessor:
    """Finds messages by their place in the log and by key."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s clients."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take both codes."""
        server.register(RequestCode.VIEW_MESSAGE_BY_ID, self.view)
        server.register(RequestCode.QUERY_MESSAGE, self.query)

    async def view(self, request: Request) -> Command:
        """The message at a physical offset, as it stands in the log."""
        header = ViewMessageRequestHeader.from_fields(request.command.fields)
        record = await read_for(self._broker, request, self._broker.store.record, header.offset)
        if record is None:
            remark = f"can not find message by the offset, {header.offset}"
            return request.command.reply(ResponseCode.SYSTEM_ERROR, remark)
        return request.command.reply(body=record)

    async def query(self, request: Request) -> Command:
        """Messages of a topic by key, unique key or (indexType T) tag, and how far the index has come."""
        command = request.command
        header = QueryMessageRequestHeader.from_fields(command.fields)
        count = header.max_num
        if command.fields.get(UNIQUE_KEY_QUERY, "").lower() == "true":
            count, header.index_type = self._broker.config.default_query_max_num, None
        records, offset, timestamp_ms = await read_for(self._broker, request, self._find, header, count)
        fields = {"indexLastUpdatePhyoffset": str(offset), "indexLastUpdateTimestamp": str(timestamp_ms)}
        if command.serialize_type != SerializeType.JSON:  # Apache's binary codec goes by the class, JSON by the hash
            fields = {name: fields[name] for name in ("indexLastUpdateTimestamp", "indexLastUpdatePhyoffset")}
        if not records:
            remark = "can not find message, maybe time range not correct"
            return command.reply(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        return command.reply(fields=fields, body=b"".join(records))

    def _find(self, header: QueryMessageRequestHeader, count: int) -> tuple[list[bytes], int, int]:
        """Records in the log's order, and the index's end; 0 and 0 when there is none, as Apache says then."""
        store = self._broker.store
        count = min(count, QUERY_COUNT_MAX)
        if count < 1 or not header.topic or not header.key:
            return [], 0, 0
        key = f"{TAG_INDEX}#{header.key}" if header.index_type == TAG_INDEX else header.key
        begin_ms = max(header.begin_timestamp, 0)
        end_ms = min(header.end_timestamp, TIME_MAX_MS)
        try:
            records = store.query_records(header.topic, key, begin_ms, end_ms, count)
        except StoreError:  # no index, or not readable: nothing is found
            return [], 0, 0
        offset, timestamp_ms = store.indexed() if records else (0, 0)
        return records, offset, timestamp_ms
