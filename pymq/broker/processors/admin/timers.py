"""The timers, for slaves and tools: GET_TIMER_CHECK_POINT and GET_TIMER_METRICS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker


class TimerAdmin:
    """Shows how far the timers have come, and how many are pending."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take both codes."""
        server.register(RequestCode.GET_TIMER_CHECK_POINT, self.checkpoint)
        server.register(RequestCode.GET_TIMER_METRICS, self.metrics)

    async def checkpoint(self, request: Request) -> Command:
        """As `config/timercheck` begins."""
        timer = self._broker.timer
        if timer is None:
            return request.command.reply(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return request.command.reply(body=timer.store.checkpoint.encode_apache())

    async def metrics(self, request: Request) -> Command:
        """As `config/timermetrics` is written."""
        timer = self._broker.timer
        if timer is None:
            return request.command.reply(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return request.command.reply(body=timer.store.metrics.encode())
