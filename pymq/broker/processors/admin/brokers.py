"""The broker itself, for administrators: configuration, runtime information, statistics, cleaning."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pymq import java_properties
from pymq.broker.config_source import all_properties
from pymq.broker.config_update import FORBIDDEN, changed_config, keep_changes
from pymq.broker.data_version import DataVersion
from pymq.broker.disk_jobs import read_for
from pymq.broker.request_fields import text_field
from pymq.broker.runtime_info import broker_info, store_info
from pymq.broker.secret_values import is_mask, masked
from pymq.errors import ConfigError
from pymq.remoting import json_dialect
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import RemotingError
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

# Statistics kept per topic and per group, by BrokerStatsManager's names: (group's?, messages or bytes).
STATISTICS = {
    "TOPIC_PUT_NUMS": (False, "messages"),
    "TOPIC_PUT_SIZE": (False, "bytes"),
    "GROUP_GET_NUMS": (True, "messages"),
    "GROUP_GET_SIZE": (True, "bytes"),
}

log = logging.getLogger("pymq.broker")


class BrokerAdmin:
    """Serves what tools ask about the broker."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*."""
        self._broker = broker
        self._version = DataVersion(timestamp_ms=broker.clock.now_ms())

    def register(self, server: RemotingServer) -> None:
        """Take these codes."""
        server.register(RequestCode.UPDATE_BROKER_CONFIG, self.update_config)
        server.register(RequestCode.GET_BROKER_CONFIG, self.show_config)
        server.register(RequestCode.GET_BROKER_RUNTIME_INFO, self.runtime_info)
        server.register(RequestCode.VIEW_BROKER_STATS_DATA, self.statistics)
        server.register(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, self.clean_queues)
        server.register(RequestCode.DELETE_EXPIRED_COMMITLOG, self.delete_expired)
        server.register(RequestCode.GET_BROKER_HA_STATUS, self.ha_status)
        server.register(RequestCode.GET_ALL_DELAY_OFFSET, self.delay_offsets)

    async def update_config(self, request: Request) -> Command:
        """Change settings: at once where that can be, and in the file."""
        broker = self._broker
        if not request.command.body:
            return request.command.reply()
        try:
            changes = java_properties.to_dict(request.command.body.decode("utf-8"))
        except ValueError as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}") from error
        # Who sends back what was shown to him does not mean to change the secret.
        changes = {key: value for key, value in changes.items() if not is_mask(key, value)}
        log.info("configuration change asked for changes=%s peer=%s", masked(changes), request.peer)
        if FORBIDDEN & changes.keys():
            raise RemotingError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            config = changed_config(broker, changes)
        except ConfigError as error:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        await asyncio.get_running_loop().run_in_executor(broker.executor, keep_changes, broker, changes)
        self._version.advance(broker.clock)
        await broker.apply_config(config)
        return request.command.reply()

    async def show_config(self, request: Request) -> Command:
        """Every setting, as properties, sorted; secrets masked, since whoever can connect can ask."""
        version = json_dialect.dumps(self._version.to_json(), standard=True).decode()
        text = java_properties.render(masked(all_properties(self._broker.config)))
        return request.command.reply(fields={"version": version}, body=text.encode("utf-8"))

    async def runtime_info(self, request: Request) -> Command:
        """How the broker is doing."""
        broker = self._broker
        table = await read_for(broker, request, store_info, broker)
        table |= broker_info(broker)
        return request.command.reply(body=json_dialect.dumps({"table": table}, standard=False))

    async def statistics(self, request: Request) -> Command:
        """One counter over a minute, an hour and a day."""
        name, key = text_field(request.command, "statsName"), text_field(request.command, "statsKey")
        kind = STATISTICS.get(name)
        topic, _, group = key.partition("@")
        if kind is None or kind[0] != bool(group) or self._broker.topics.get(topic) is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        minute, hour, day = self._broker.traffic.windows(topic, group, kind[1])
        body = {"statsDay": day.to_json(), "statsHour": hour.to_json(), "statsMinute": minute.to_json()}
        return request.command.reply(body=json_dialect.dumps(body, standard=False))

    async def clean_queues(self, request: Request) -> Command:
        """Remove files of queues and index whose log is gone."""
        broker = self._broker
        if broker.dumps.held():
            log.info("queues not cleaned because=a dump is being taken")
            return request.command.reply()
        count = await asyncio.get_running_loop().run_in_executor(broker.executor, broker.store.clean_queues)
        log.info("queues cleaned files=%d", count)
        return request.command.reply()

    async def delete_expired(self, request: Request) -> Command:
        """Remove expired log files now."""
        broker = self._broker
        result = await asyncio.get_running_loop().run_in_executor(broker.executor, broker.message_store.delete_expired)
        log.info("expired log removed files=%d", len(result.log_files))
        return request.command.reply()

    async def delay_offsets(self, request: Request) -> Command:
        """How far each delay level has been delivered, as delayOffset.json says it."""
        return request.command.reply(body=self._broker.schedule.offsets.encode())

    async def ha_status(self, request: Request) -> Command:
        """A master without slaves."""
        body = {
            "haClientRuntimeInfo": {
                "lastReadTimestamp": 0,
                "lastWriteTimestamp": 0,
                "masterFlushOffset": 0,
                "maxOffset": 0,
                "transferredByteInSecond": 0,
            },
            "haConnectionInfo": [],
            "inSyncSlaveNums": 0,
            "master": True,
            "masterCommitLogMaxOffset": int(self._broker.store.watermarks()["written"]),
        }
        return request.command.reply(body=json_dialect.dumps(body, standard=False))
