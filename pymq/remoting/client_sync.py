"""The client for programs without an event loop: the same calls, blocking, on a loop thread of its own."""

from __future__ import annotations

from types import TracebackType

from pymq.remoting.client import Callback, RemotingClient
from pymq.remoting.command import Command
from pymq.remoting.config import RemotingClientConfig
from pymq.remoting.dispatch import Handler, RpcHook
from pymq.remoting.loop_thread import LoopThread


class SyncRemotingClient:
    """Calls servers by address and waits. Every method may be called from any thread; callbacks run on the loop's."""

    def __init__(self, config: RemotingClientConfig | None = None) -> None:
        self._thread = LoopThread("pymq-remoting-client")
        self._client = self._thread.run(self._make(config))

    async def _make(self, config: RemotingClientConfig | None) -> RemotingClient:
        return RemotingClient(config)

    def invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        """See RemotingClient.invoke."""
        return self._thread.run(self._client.invoke(address, command, timeout_s))

    def oneway(self, address: str, command: Command, timeout_s: float) -> None:
        """See RemotingClient.oneway."""
        self._thread.run(self._client.oneway(address, command, timeout_s))

    def invoke_callback(self, address: str, command: Command, timeout_s: float, callback: Callback) -> None:
        """See RemotingClient.invoke_callback; the callback runs on the client's own thread and must not block it."""
        self._thread.post(self._client.invoke_callback, address, command, timeout_s, callback)

    def register(self, code: int, handler: Handler) -> None:
        """See RemotingClient.register; handlers run on the client's own thread."""
        self._thread.post(self._client.register, code, handler)

    def register_hook(self, hook: RpcHook) -> None:
        """See RemotingClient.register_hook."""
        self._thread.post(self._client.register_hook, hook)

    def close(self) -> None:
        """Close every connection and end the thread. Idempotent."""
        if not self._thread.loop.is_closed():
            self._thread.run(self._client.close())
            self._thread.stop()

    def __enter__(self) -> SyncRemotingClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
