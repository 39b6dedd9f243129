"""DUMP_STORE, a request of pymq's own: what `python -m pymq.store.dump host:port` asks; docs/dump.md has the fields.

    begin      write the configuration files, give a lease, say where the store is
    position   a position of the log: everything below it is in queues and index, and nothing that any file written
               before says goes beyond it
    renew      the lease is still needed
    end        it is not

The copying is done by the dumper's process. Here nothing waits on the loop: files are written by the threads that
always write them, and the position is asked for until dispatch has come as far as the log was written.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pymq.broker.config_source import all_properties
from pymq.broker.dumps import LEASE_MS_DEFAULT, LEASE_MS_MAX, LEASE_MS_MIN
from pymq.broker.request_fields import integer_field, text_field
from pymq.broker.secret_values import is_secret
from pymq.errors import StoreError
from pymq.remoting import json_dialect
from pymq.remoting.codes import OwnRequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import RemotingError
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

POSITION_WAIT_S, POSITION_POLL_S = 10.0, 0.002

log = logging.getLogger("pymq.broker")


class DumpAdmin:
    """Lets a dumper copy the store of a running broker."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s store."""
        self._broker = broker
        self._actions: dict[str, Callable[[Request], Awaitable[dict[str, Any]]]] = {
            "begin": self.begin,
            "position": self.position,
            "renew": self.renew,
            "end": self.end,
        }

    def register(self, server: RemotingServer) -> None:
        """Take the code."""
        server.register(OwnRequestCode.DUMP_STORE, self.serve)

    async def serve(self, request: Request) -> Command:
        """Do what the field `action` says."""
        action = self._actions.get(text_field(request.command, "action"))
        if action is None:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, f"action is one of {', '.join(sorted(self._actions))}")
        answer = await action(request)
        return request.command.reply(body=json_dialect.dumps(answer, standard=True))

    async def begin(self, request: Request) -> dict[str, Any]:
        """A lease, from now on; then every table on disk as it is now."""
        broker = self._broker
        lease_ms = self._lease_ms(request.command)
        lease = broker.dumps.begin(lease_ms, int(broker.store.watermarks()["min"]))
        if lease is None:
            raise RemotingError(ResponseCode.SYSTEM_BUSY, "too many dumps are being taken; wait for one to end")
        complete = False
        try:
            await self._persist()
            where = broker.store_path.stat()
            complete = True
        except (OSError, StoreError) as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the store cannot be written: {error}") from error
        finally:
            if not complete:
                broker.dumps.end(lease)
        log.info("dump begun lease=%r peer=%s", lease, request.peer)
        return {
            "lease": lease,
            "leaseMs": lease_ms,
            "storePath": str(broker.store_path),
            "device": where.st_dev,
            "inode": where.st_ino,
            "broker": {
                "name": broker.config.broker_name,
                "cluster": broker.config.broker_cluster_name,
                "address": broker.address,
                "pid": os.getpid(),
                "openedMs": broker.message_store.opened_at_ms,
                "timers": broker.timer is not None,
            },
            "configuration": shown_properties(all_properties(broker.config)),
        }

    async def _persist(self) -> None:
        """Write what is kept in memory and written now and then; everything else is written when it changes."""
        broker = self._broker
        await broker.offsets.save()
        await broker.filters.save()
        await broker.schedule.offsets.save()
        if broker.timer is not None:
            await broker.timer.save()
        if not (broker.store_path / "checkpoint").exists():  # a new store's comes within a minute
            await asyncio.get_running_loop().run_in_executor(broker.executor, broker.store.checkpoint)

    async def position(self, request: Request) -> dict[str, Any]:
        """How far the log goes. What was written when this was asked is below it: no file can be ahead of it."""
        self._renewed(request.command)
        store = self._broker.store
        marks = store.watermarks()
        wanted = int(marks["written"])
        loop = asyncio.get_running_loop()
        end_s = loop.time() + POSITION_WAIT_S
        while int(marks["dispatched"]) < wanted:
            if loop.time() > end_s:
                raise RemotingError(
                    ResponseCode.SYSTEM_BUSY,
                    f"dispatch stands at {marks['dispatched']}, the log at {wanted}; is the disk full, or a replica "
                    "behind? see GET_BROKER_RUNTIME_INFO",
                )
            await asyncio.sleep(POSITION_POLL_S)
            marks = store.watermarks()
        return {"begin": int(marks["min"]), "end": int(marks["dispatched"]), "atMs": self._broker.clock.now_ms()}

    async def renew(self, request: Request) -> dict[str, Any]:
        """The dumper is alive; where the log begins."""
        lease_ms = self._renewed(request.command)
        marks = self._broker.store.watermarks()
        return {"leaseMs": lease_ms, "begin": int(marks["min"]), "dispatched": int(marks["dispatched"])}

    async def end(self, request: Request) -> dict[str, Any]:
        """The dumper has everything."""
        lease = text_field(request.command, "lease")
        held = self._broker.dumps.end(lease)
        log.info("dump ended lease=%r in_force=%s peer=%s", lease, held, request.peer)
        return {"held": held}

    def _renewed(self, command: Command) -> int:
        """How long the lease lasts from now on.

        Raises:
            RemotingError: it is not in force.
        """
        lease, lease_ms = text_field(command, "lease"), self._lease_ms(command)
        if not self._broker.dumps.renew(lease, lease_ms):
            raise RemotingError(ResponseCode.ILLEGAL_OPERATION, self._why_not(lease))
        return lease_ms

    def _why_not(self, lease: str) -> str:
        """Why *lease* is not in force, and the way out."""
        broker = self._broker
        if broker.dumps.was_too_old(lease):
            return (
                "the lease has ended because it is older than dumpLeaseMaxAgeHours "
                f"({broker.config.dump_lease_max_age_hours}) allows, files may have been removed since; for dumps that "
                "take longer raise that setting of the broker"
            )
        return "the lease has expired, files may have been removed since; begin gives another"

    @staticmethod
    def _lease_ms(command: Command) -> int:
        return min(max(integer_field(command, "leaseMs", LEASE_MS_DEFAULT), LEASE_MS_MIN), LEASE_MS_MAX)


def shown_properties(properties: dict[str, str]) -> dict[str, str]:
    """The settings that may stand in a file beside the messages: without passwords."""
    return {name: value for name, value in properties.items() if not is_secret(name)}
