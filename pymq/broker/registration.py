"""Telling the name servers who this broker is and which topics it has.

All name servers are told in parallel, at the start, every 30 s, and at once when topics change; one that does not
answer is logged and does not hold up the others. A new topic waits a moment for them, so that the producer's next
route has it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import struct
import zlib
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from pymq.broker.config import PERM_READ, PERM_WRITE
from pymq.broker.data_version import DataVersion, plain_json
from pymq.broker.topic_config import TopicConfig
from pymq.errors import PymqError
from pymq.remoting import json_dialect
from pymq.remoting.client import RemotingClient
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import CodecError, RemotingCallError

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

PERIOD_MIN_MS, PERIOD_MAX_MS = 10_000, 60_000
NEW_TOPIC_WAIT_S = 0.8  # well below the 3 s a producer waits for its first send; the beat tells the others
UNREGISTER_TIMEOUT_S = 3.0

log = logging.getLogger("pymq.broker")


class Registration:
    """The broker's entries at its name servers."""

    def __init__(self, broker: Broker, client: RemotingClient) -> None:
        """Registers through *client*, which is the broker's."""
        self._broker = broker
        self._client = client
        self._addresses: tuple[str, ...] = ()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = False
        self._failing: set[str] = set()
        self._told: DataVersion | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The name servers."""
        return self._addresses

    def use(self, addresses: str) -> None:
        """Register with `host:port;host:port` from now on."""
        self._addresses = tuple(part.strip() for part in addresses.split(";") if part.strip())

    def start(self) -> None:
        """Register every so often, from now on."""
        self._spawn(self._beat())

    async def _beat(self) -> None:
        period_ms = min(max(self._broker.config.register_name_server_period, PERIOD_MIN_MS), PERIOD_MAX_MS)
        await asyncio.sleep(PERIOD_MIN_MS / 1000)
        while True:
            try:
                await self.register_all(force=self._broker.config.force_register)
            except (PymqError, OSError) as error:
                log.error("registration failed error=%s", error)
            await asyncio.sleep(period_ms / 1000)

    async def register_all(self, *, force: bool = True) -> int:
        """Tell every name server of every topic; how many took it. Without *force* only those that know less."""
        configs = self._broker.topics.all().values()
        body = self._body(configs)
        results = await asyncio.gather(*(self._register_one(address, body, force) for address in self._addresses))
        return sum(results)

    async def register_topics(self, configs: Iterable[TopicConfig]) -> None:
        """Tell every name server of these topics alone, and wait for them a little while."""
        if self._ended or not self._addresses:
            return
        # A name server takes a topic it knows already only with a version it does not know: two topics changed at once
        # would be told with the same one, and the second be ignored until something else changes.
        if self._broker.topics.version == self._told:
            self._broker.topics.version.advance(self._broker.clock)
        body = self._body(configs)
        tasks = [self._spawn(self._register_one(address, body, True)) for address in self._addresses]
        await asyncio.wait(tasks, timeout=NEW_TOPIC_WAIT_S)

    async def unregister(self) -> None:
        """Say good-bye to every name server and register no more."""
        self._ended = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        command = (RequestCode.UNREGISTER_BROKER, self._identity())
        await asyncio.gather(*(self._ask(address, *command, b"", UNREGISTER_TIMEOUT_S) for address in self._addresses))

    async def _register_one(self, address: str, body: bytes, force: bool) -> bool:
        if self._ended or not (force or await self._is_behind(address)):
            return False
        config = self._broker.config
        fields = self._identity() | {
            "haServerAddr": self._broker.ha_address,
            "enableActingMaster": "false",
            "compressed": "true" if config.compressed_register else "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        }
        answer = await self._ask(
            address, RequestCode.REGISTER_BROKER, fields, body, config.register_broker_timeout_mills / 1000
        )
        if answer is None:
            return False
        if address in self._failing:
            self._failing.discard(address)
            log.info("registered again name_server=%s", address)
        await self._take_order(address, answer.body)
        return True

    async def _take_order(self, address: str, body: bytes) -> None:
        """A name server answers with its ORDER_TOPIC_CONFIG: those topics are ordered here."""
        if not body:
            return
        try:
            table = json_dialect.loads(body).get("table") or {}
            await self._broker.topics.mark_ordered(table)
        except (CodecError, AttributeError, TypeError) as error:
            log.warning("order configuration cannot be read name_server=%s because=%s", address, error)
        except OSError as error:
            log.error("topics not marked as ordered error=%s", error)

    async def _is_behind(self, address: str) -> bool:
        """Whether that name server knows another version of our topics, or cannot say."""
        version = self._broker.topics.version
        body = json_dialect.dumps(version.to_json(), standard=True)
        timeout_s = self._broker.config.register_broker_timeout_mills / 1000
        answer = await self._ask(address, RequestCode.QUERY_DATA_VERSION, self._identity(), body, timeout_s)
        if answer is None or answer.fields.get("changed", "true") != "false":
            return True
        try:
            known = json_dialect.loads(answer.body) if answer.body else None
        except CodecError:
            return True
        return known is not None and DataVersion.from_json(known) != version

    async def _ask(
        self, address: str, code: int, fields: dict[str, str], body: bytes, timeout_s: float
    ) -> Command | None:
        """One call; None when it failed, which is logged once until it succeeds again."""
        try:
            answer = await self._client.invoke(address, Command(code, dict(fields), body), timeout_s)
        except RemotingCallError as error:
            problem = str(error)
        else:
            if answer.code == ResponseCode.SUCCESS:
                return answer
            problem = f"answer {answer.code}: {answer.remark}"
        level = logging.DEBUG if address in self._failing else logging.ERROR
        self._failing.add(address)
        log.log(level, "name server failed name_server=%s code=%d because=%s", address, code, problem)
        return None

    def _identity(self) -> dict[str, str]:
        config = self._broker.config
        return {
            "brokerName": config.broker_name,
            "brokerAddr": self._broker.address,
            "clusterName": config.broker_cluster_name,
            "brokerId": str(config.broker_id),
        }

    def _body(self, configs: Iterable[TopicConfig]) -> bytes:
        permission = self._broker.config.broker_permission
        both = permission & (PERM_READ | PERM_WRITE) == PERM_READ | PERM_WRITE
        shown = [config if both else dataclasses.replace(config, perm=config.perm & permission) for config in configs]
        version = self._broker.topics.version
        self._told = dataclasses.replace(version)
        if self._broker.config.compressed_register:
            return compressed_body(version, shown)
        document = {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": version.to_json(),
                "mappingDataVersion": DataVersion(timestamp_ms=version.timestamp_ms).to_json(),
                "topicConfigTable": {config.topic_name: config.to_json() for config in shown},
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            },
        }
        return plain_json(document)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def compressed_body(version: DataVersion, configs: Iterable[TopicConfig]) -> bytes:
    """RegisterBrokerBody.encode(true): pieces with a 4-byte length each, deflated together."""
    entries = list(configs)
    pieces = [json_dialect.dumps(version.to_json(), standard=True)]
    texts = [
        f"{config.topic_name} {config.read_queue_nums} {config.write_queue_nums} {config.perm} "
        f"{config.topic_filter_type} {json_dialect.dumps(dict(config.attributes), standard=True).decode()}"
        for config in entries
    ]
    raw = [struct.pack(">i", len(pieces[0])), pieces[0], struct.pack(">i", len(texts))]
    for text in texts:
        encoded = text.encode()
        raw += [struct.pack(">i", len(encoded)), encoded]
    filters = b"[]"
    raw += [struct.pack(">i", len(filters)), filters, struct.pack(">i", 0)]
    return zlib.compress(b"".join(raw), zlib.Z_BEST_COMPRESSION)
