"""Requests to the name server: one method per request code.

Answers are Apache's, field for field and remark for remark, because clients and tools read both.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pymq import java_properties
from pymq.durable_file import replace_file
from pymq.namesrv.config import NamesrvConfig
from pymq.namesrv.kv_config import ORDER_TOPIC_CONFIG, KvConfig
from pymq.namesrv.registration import BrokerRegistration, read_body
from pymq.namesrv.routes import MinBrokerIdChange, QueueData, RouteTable
from pymq.properties_file import edit_file
from pymq.remoting import json_dialect
from pymq.remoting.bodies import read_json, read_long
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.dispatch import Handler, Request
from pymq.remoting.errors import RemotingError
from pymq.remoting.server import RemotingServer
from pymq.remoting.turns import Turns

VERSION_4_9_4 = 401  # clients from here on read standard JSON
FAQ_SUFFIX = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

log = logging.getLogger("pymq.namesrv")


class NamesrvProcessor:
    """Answers every request code of Apache's name server."""

    def __init__(
        self,
        config: NamesrvConfig,
        routes: RouteTable,
        kv_config: KvConfig,
        tell: Callable[[MinBrokerIdChange], None] | None = None,
    ) -> None:
        self._config = config
        self._routes = routes
        self._kv_config = kv_config
        self._tell = tell
        self._started_s = time.monotonic()
        self._turns = Turns()
        self._peer: Callable[[int], object | None] = lambda connection: None
        self._saving = asyncio.Lock()  # one file replacement at a time; no thread ever takes it

    def register(self, server: RemotingServer) -> None:
        """Take every request code that is served here."""
        self._peer = server.peer
        handlers: dict[RequestCode, Handler] = {
            RequestCode.PUT_KV_CONFIG: self.put_kv_config,
            RequestCode.GET_KV_CONFIG: self.get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_list,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_broker_member_group,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_permission,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_sub_ununit_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
        }
        for code, handler in handlers.items():
            server.register(code, handler)

    # --- brokers -----------------------------------------------------------------------------------------------

    async def register_broker(self, request: Request) -> Command | None:
        """REGISTER_BROKER: a broker with all its topics, every 30 s and on change."""
        async with self._turns.of(request.connection):
            return await self._register_broker(request)

    async def _register_broker(self, request: Request) -> Command | None:
        command = request.command
        crc = number(command, "bodyCrc32", 0)
        if crc != 0 and zlib.crc32(command.body) & 0x7FFFFFFF != crc:
            return command.reply(ResponseCode.SYSTEM_ERROR, "crc32 not match", fields={})
        broker = BrokerRegistration(
            cluster=needed(command, "clusterName"),
            addr=needed(command, "brokerAddr"),
            broker_name=needed(command, "brokerName"),
            broker_id=number(command, "brokerId"),
            ha_server_addr=optional(command, "haServerAddr"),
            zone_name=optional(command, "__ZONE_NAME"),
        )
        if (timeout := optional(command, "heartbeatTimeoutMillis")) is not None:
            broker.heartbeat_timeout_ms = int(timeout)
        if (acting := optional(command, "enableActingMaster")) is not None:
            broker.enable_acting_master = acting == "true"
        try:
            compressed = optional(command, "compressed") == "true"
            read = partial(read_body, broker, command.body, compressed=compressed, version=command.version)
            if compressed or len(command.body) >= json_dialect.LONG_SIZE_MIN:  # a thousand times as long, perhaps
                await read_long(read)
                if self._peer(request.connection) is None:
                    return None  # gone meanwhile; nobody would take its broker out again
            else:
                read()
        except (ValueError, TypeError, AttributeError) as failure:
            log.warning("registration of %s from %s: %s", broker.broker_name, request.peer, failure)
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "Failed to decode RegisterBrokerBody") from failure
        result = self._routes.register(broker, request.connection, now_ms())
        if not result.accepted:
            return command.reply(ResponseCode.SYSTEM_ERROR, "register broker failed", fields={})
        if result.change is not None:
            self._notify(result.change)
        known = {"haServerAddr": result.ha_server_addr, "masterAddr": result.master_addr}
        fields = {name: value for name, value in known.items() if value is not None}
        body = b""
        if self._config.return_order_topic_config_to_broker:
            table = self._kv_config.namespace(ORDER_TOPIC_CONFIG)
            body = b"" if table is None else json_dialect.dumps({"table": table}, standard=True)
        return command.reply(fields=fields, body=body)

    async def unregister_broker(self, request: Request) -> Command:
        """UNREGISTER_BROKER: a broker says good-bye, after whatever it registered before."""
        async with self._turns.of(request.connection):
            return self._unregister_broker(request)

    def _unregister_broker(self, request: Request) -> Command:
        command = request.command
        needed(command, "brokerName")
        number(command, "brokerId")
        cluster, addr = needed(command, "clusterName"), needed(command, "brokerAddr")
        self.remove(cluster, addr, request.connection)
        return command.reply()

    def remove(self, cluster: str, addr: str, connection: int | None) -> None:
        """Take a broker out of the tables and tell those who must know."""
        for change in self._routes.unregister(cluster, addr, connection):
            self._notify(change)

    def _notify(self, change: MinBrokerIdChange) -> None:
        if self._config.notify_min_broker_id_changed and self._tell is not None:
            self._tell(change)

    def broker_heartbeat(self, request: Request) -> Command:
        """BROKER_HEARTBEAT: alive, without topics."""
        command = request.command
        cluster, addr = needed(command, "clusterName"), needed(command, "brokerAddr")
        self._routes.touch(cluster, addr, request.connection, now_ms())
        return command.reply()

    async def query_data_version(self, request: Request) -> Command:
        """QUERY_DATA_VERSION: whether the broker has to register again."""
        command = request.command
        cluster, addr = needed(command, "clusterName"), needed(command, "brokerAddr")
        version = await json_object(command)
        changed = self._routes.is_changed(cluster, addr, version)
        self._routes.touch(cluster, addr, request.connection, now_ms())
        known = self._routes.data_version(cluster, addr)
        body = b"" if known is None else json_dialect.dumps(known, standard=True)
        return command.reply(fields={"changed": str(changed).lower()}, body=body)

    def get_broker_member_group(self, request: Request) -> Command:
        """GET_BROKER_MEMBER_GROUP: the members of one broker name."""
        command = request.command
        group = self._routes.member_group(needed(command, "clusterName"), needed(command, "brokerName"))
        return command.reply(body=json_dialect.dumps(group, standard=False))

    def get_cluster_info(self, request: Request) -> Command:
        """GET_BROKER_CLUSTER_INFO: all brokers; integer keys stand bare whoever asks, as in Apache."""
        return request.command.reply(body=json_dialect.dumps(self._routes.cluster_info(), standard=False))

    def wipe_write_permission(self, request: Request) -> Command:
        """WIPE_WRITE_PERM_OF_BROKER."""
        count = self._set_write_permission(request, allowed=False)
        return request.command.reply(fields={"wipeTopicCount": str(count)})

    def add_write_permission(self, request: Request) -> Command:
        """ADD_WRITE_PERM_OF_BROKER."""
        count = self._set_write_permission(request, allowed=True)
        return request.command.reply(fields={"addTopicCount": str(count)})

    def _set_write_permission(self, request: Request, *, allowed: bool) -> int:
        name = needed(request.command, "brokerName")
        count = self._routes.set_write_permission(name, allowed=allowed)
        log.info("write permission of %s %s by %s: %d topics", name, allowed, request.peer, count)
        return count

    # --- topics ------------------------------------------------------------------------------------------------

    def get_route(self, request: Request) -> Command:
        """GET_ROUTEINFO_BY_TOPIC: what every client asks every 30 s."""
        command = request.command
        topic = needed(command, "topic")
        waited_s = time.monotonic() - self._started_s
        if self._config.need_wait_for_service and waited_s < self._config.wait_seconds_for_service:
            return command.reply(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self._routes.route(topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {topic}{FAQ_SUFFIX}"
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._config.order_message_enable:
            order = self._kv_config.get(ORDER_TOPIC_CONFIG, topic)
            if order is not None:
                route = {
                    **{key: route[key] for key in ("brokerDatas", "filterServerTable")},
                    "orderTopicConf": order,
                    **{key: value for key, value in route.items() if key not in ("brokerDatas", "filterServerTable")},
                }
        standard = command.version >= VERSION_4_9_4 or optional(command, "acceptStandardJsonOnly") == "true"
        return command.reply(body=json_dialect.dumps(route, standard=standard))

    def get_all_topics(self, request: Request) -> Command:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        return self._topic_list(request, list(self._routes.topics), enabled=self._config.enable_all_topic_list)

    def get_topics_of_cluster(self, request: Request) -> Command:
        """GET_TOPICS_BY_CLUSTER."""
        if not self._config.enable_topic_list:
            return request.command.reply(ResponseCode.SYSTEM_ERROR, "disable")
        return self._topic_list(request, self._routes.topics_of_cluster(needed(request.command, "cluster")))

    def get_unit_topics(self, request: Request) -> Command:
        """GET_UNIT_TOPIC_LIST."""
        topics = self._routes.topics_by_unit(unit=True, unit_sub=None)
        return self._topic_list(request, topics, enabled=self._config.enable_topic_list)

    def get_unit_sub_topics(self, request: Request) -> Command:
        """GET_HAS_UNIT_SUB_TOPIC_LIST."""
        topics = self._routes.topics_by_unit(unit=None, unit_sub=True)
        return self._topic_list(request, topics, enabled=self._config.enable_topic_list)

    def get_unit_sub_ununit_topics(self, request: Request) -> Command:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST."""
        topics = self._routes.topics_by_unit(unit=False, unit_sub=True)
        return self._topic_list(request, topics, enabled=self._config.enable_topic_list)

    @staticmethod
    def _topic_list(request: Request, topics: list[str], *, enabled: bool = True) -> Command:
        if not enabled:
            return request.command.reply(ResponseCode.SYSTEM_ERROR, "disable")
        return request.command.reply(body=json_dialect.dumps({"topicList": topics}, standard=True))

    def get_system_topics(self, request: Request) -> Command:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS."""
        return request.command.reply(body=json_dialect.dumps(self._routes.system_topics(), standard=True))

    def delete_topic(self, request: Request) -> Command:
        """DELETE_TOPIC_IN_NAMESRV."""
        command = request.command
        self._routes.delete_topic(needed(command, "topic"), optional(command, "clusterName"))
        return command.reply()

    async def register_topic(self, request: Request) -> Command:
        """REGISTER_TOPIC_IN_NAMESRV: a topic's queues given by hand."""
        command = request.command
        topic = needed(command, "topic")
        try:
            queue_datas = [
                QueueData(
                    str(item["brokerName"]),
                    int(item["readQueueNums"]),
                    int(item["writeQueueNums"]),
                    int(item["perm"]),
                    int(item.get("topicSysFlag", 0)),
                )
                for item in (await json_object(command)).get("queueDatas") or []
            ]
        except (KeyError, TypeError, ValueError, AttributeError) as failure:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"queueDatas of {topic}: {failure!r}") from failure
        self._routes.put_topic(topic, queue_datas)
        return command.reply()

    # --- configuration -----------------------------------------------------------------------------------------

    async def put_kv_config(self, request: Request) -> Command:
        """PUT_KV_CONFIG: durable before it is answered."""
        command = request.command
        namespace, key = optional(command, "namespace"), optional(command, "key")
        if namespace is None or key is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        self._kv_config.put(namespace, key, needed(command, "value"))
        await self._save_kv_config()
        return command.reply()

    def get_kv_config(self, request: Request) -> Command:
        """GET_KV_CONFIG."""
        command = request.command
        namespace, key = needed(command, "namespace"), needed(command, "key")
        value = self._kv_config.get(namespace, key)
        if value is None:
            remark = f"No config item, Namespace: {namespace} Key: {key}"
            return command.reply(ResponseCode.QUERY_NOT_FOUND, remark, fields={})
        return command.reply(fields={"value": value})

    async def delete_kv_config(self, request: Request) -> Command:
        """DELETE_KV_CONFIG: durable before it is answered."""
        command = request.command
        self._kv_config.delete(needed(command, "namespace"), needed(command, "key"))
        await self._save_kv_config()
        return command.reply()

    def get_kv_list(self, request: Request) -> Command:
        """GET_KVLIST_BY_NAMESPACE."""
        command = request.command
        namespace = needed(command, "namespace")
        table = self._kv_config.namespace(namespace)
        if table is None:
            return command.reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return command.reply(body=json_dialect.dumps({"table": table}, standard=True))

    async def update_config(self, request: Request) -> Command:
        """UPDATE_NAMESRV_CONFIG: properties text; keys that name files are refused, all others of the file stay."""
        command = request.command
        try:
            values = java_properties.to_dict(command.body.decode("utf-8"))
            if not self._config.protected().isdisjoint(values):
                return command.reply(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
            warnings = self._config.update(values, f"request from {request.peer[0]}")
        except ValueError as failure:
            return command.reply(ResponseCode.SYSTEM_ERROR, str(failure))
        for warning in warnings:
            log.warning("%s", warning)
        self._routes.support_acting_master = self._config.support_acting_master
        self._routes.delete_topic_with_registration = self._config.delete_topic_with_broker_registration
        path = Path(self._config.config_store_path)
        await self._save(path, partial(edit_file, path, values))
        return command.reply()

    def get_config(self, request: Request) -> Command:
        """GET_NAMESRV_CONFIG: every key with its value."""
        return request.command.reply(body=java_properties.render(self._config.to_properties()).encode())

    async def _save_kv_config(self) -> None:
        path = self._kv_config.path
        await self._save(path, partial(replace_file, path, self._kv_config.content()))

    async def _save(self, path: Path, write: Callable[[], None]) -> None:
        """Replace the file at *path* off the loop, one after another, so that the last change is what stays.

        Raises:
            RemotingError: the disk refused, or the file cannot be edited; the change holds in memory only, and the
                asker is told so.
        """
        async with self._saving:
            try:
                await asyncio.to_thread(write)
            except (OSError, ValueError) as failure:
                log.error("%s: %s; the change is in memory only", path, failure)
                reason = failure.strerror if isinstance(failure, OSError) else failure
                remark = f"{path.name}: {reason}; the change is in memory only and gone with a restart"
                raise RemotingError(ResponseCode.SYSTEM_ERROR, remark) from failure


def needed(command: Command, name: str) -> str:
    """A field that must be there."""
    value = optional(command, name)
    if value is None:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    return value


def optional(command: Command, name: str) -> str | None:
    """A field that may be there."""
    return (command.fields or {}).get(name)


def number(command: Command, name: str, default: int | None = None) -> int:
    """A field that is a whole number."""
    text = optional(command, name) if default is not None else needed(command, name)
    if text is None:
        return default or 0
    try:
        return int(text)
    except ValueError as failure:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f'For input string: "{text}"') from failure


async def json_object(command: Command) -> dict[str, Any]:
    """The body as a JSON object; none at all counts as an empty one."""
    if not command.body:
        return {}
    try:
        value = await read_json(command.body)
    except ValueError as failure:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the body is no JSON: {failure}") from failure
    if not isinstance(value, dict):
        raise RemotingError(ResponseCode.SYSTEM_ERROR, "the body is no JSON object")
    return value


def now_ms() -> int:
    """Monotonic milliseconds: liveness must not jump with the clock of the wall."""
    return time.monotonic_ns() // 1_000_000
