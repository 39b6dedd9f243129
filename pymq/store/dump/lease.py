"""The dumper's side of DUMP_STORE: asks a running broker, and keeps its lease alive while files are copied."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

from pymq.remoting.client_sync import SyncRemotingClient
from pymq.remoting.codes import OwnRequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.config import RemotingClientConfig
from pymq.remoting.errors import RemotingCallError, RemotingConnectError
from pymq.remoting.tls_context import tls_config
from pymq.store.dump.errors import DumpError, DumpRefusedError

TIMEOUT_S = 30.0
RENEWALS = 5  # in the time of one lease
FAILURES_MAX = 2  # in a row: a broker that does not answer twice is gone
SHOWN = 60  # bytes of an answer that is not understood
GIVE_BACK_S = 5.0  # for a broker that may be what failed

# What an answer must say, by its action.
FIELDS: dict[str, dict[str, type]] = {
    "begin": {"lease": str, "leaseMs": int, "storePath": str, "device": int, "inode": int, "broker": dict,
              "configuration": dict},
    "position": {"begin": int, "end": int, "atMs": int},
    "renew": {"leaseMs": int, "begin": int, "dispatched": int},
    "end": {"held": bool},
}  # fmt: skip


class Lease:
    """A broker that keeps its files for us. `_lock` guards what the renewing thread tells.

    Attributes:
        answer: what `begin` answered.
    """

    def __init__(self, address: str, lease_ms: int, *, tls: bool = False) -> None:
        """Ask the broker at *address* for a lease of *lease_ms*.

        Raises:
            DumpRefusedError: there is no pymq broker, or it refuses.
        """
        self.address = address
        self._lease_ms = lease_ms
        config = RemotingClientConfig(tls=tls_config({"tls.enable": "true"})) if tls else None
        self._client = SyncRemotingClient(config)
        self._lock = threading.Lock()
        self._failure = ""
        self._ended = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew_regularly, name="pymq-dump-lease", daemon=True)
        complete = False
        try:
            self.answer = self._begin()
            self._lease_ms = int(self.answer["leaseMs"])  # within what the broker allows
            complete = True
        finally:
            if not complete:
                self._client.close()
        self._thread.start()

    def _begin(self) -> dict[str, Any]:
        try:
            return self._ask("begin")
        except RemotingConnectError as error:
            raise DumpRefusedError(
                f"no broker at {self.address}: {error}; if it is stopped, give its store's directory instead"
            ) from error
        except RemotingCallError as error:
            raise DumpRefusedError(f"the broker at {self.address} does not answer: {error}") from error
        except DumpError as error:
            raise DumpRefusedError(str(error)) from error

    def _ask(self, action: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        fields = {"action": action, "leaseMs": str(self._lease_ms)}
        if action != "begin":
            fields["lease"] = self.answer["lease"]
        command = Command(int(OwnRequestCode.DUMP_STORE), fields)
        response = self._client.invoke(self.address, command, timeout_s)
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise DumpError(
                f"{self.address} does not know the request for dumps: it is no pymq broker, or an older one; stop it "
                "and give its store's directory instead"
            )
        if response.code == ResponseCode.ILLEGAL_OPERATION:
            raise DumpError(f"{self.address}: {response.remark}; repeat the command to continue")
        if response.code != ResponseCode.SUCCESS:
            raise DumpError(f"the broker at {self.address} refuses: {response.remark}")
        return self._parse(action, response.body or b"")

    def _parse(self, action: str, body: bytes) -> dict[str, Any]:
        """What is said in the answer to *action*.

        Raises:
            DumpError: it is not what a broker says; whoever listens there, we cannot rely on files being kept.
        """
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if isinstance(answer, dict) and all(
            isinstance(answer.get(name), kind) for name, kind in FIELDS[action].items()
        ):
            return answer
        raise DumpError(
            f"{self.address} answered {action} with {body[:SHOWN]!r}, which a pymq broker of this version does not; is "
            "it another, or is something between? stop it and give its store's directory instead"
        )

    def call(self, action: str) -> dict[str, Any]:
        """Ask for *action* under the lease.

        Raises:
            DumpError: the broker is gone, or the lease has expired.
        """
        try:
            return self._ask(action)
        except RemotingCallError as error:
            raise DumpError(self._gone(str(error))) from error

    def check(self) -> None:
        """Whether files may still be copied.

        Raises:
            DumpError: the lease could not be renewed.
        """
        with self._lock:
            failure = self._failure
        if failure:
            raise DumpError(failure)

    def _gone(self, why: str) -> str:
        return (
            f"the broker at {self.address} is gone: {why}; once it runs again, the same command continues the dump "
            "(or remove the target, and dump the stopped store's directory)"
        )

    def _renew_regularly(self) -> None:
        failures = 0
        while not self._stop.wait(self._lease_ms / 1000 / RENEWALS):
            try:
                self._ask("renew")
                failures = 0
                continue
            except RemotingCallError as error:
                failures += 1
                failure = self._gone(str(error))
            except DumpError as error:
                failures = FAILURES_MAX
                failure = str(error)
            if failures >= FAILURES_MAX:
                with self._lock:
                    self._failure = failure
                return

    def end(self) -> None:
        """Give the lease back: everything is copied.

        Raises:
            DumpError: the broker is gone, or has taken the lease back before.
        """
        self._stop.set()
        self._thread.join()
        self.check()
        self.call("renew")  # says why, if it is not in force
        answer = self.call("end")
        self._ended = True
        if not answer.get("held"):
            raise DumpError(f"the broker at {self.address} has let the lease expire; repeat the command to continue")

    def close(self) -> None:
        """Let go of the broker, whatever has happened: a lease that was not given back is, if the broker hears of it.

        Otherwise it expires. Idempotent.
        """
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            if not self._ended:
                self._ended = True
                with contextlib.suppress(RemotingCallError, DumpError):
                    self._ask("end", GIVE_BACK_S)
        finally:
            self._client.close()
