"""Who is copying the store's files just now: leases that keep retention from removing them under a dump.

A lease is asked for by `python -m pymq.store.dump`, renewed while it copies, and given back at its end; one that is not
renewed expires, so that a dumper that was killed does not keep the disk full. One that is renewed for ever ends as
well, when it is as old as dumpLeaseMaxAgeHours: a dumper that hangs must not. While there is a lease no file of the
log, of queues, index or timer log is removed because of its age. A disk that is too full comes first: log files go all
the same (`pymq.store.retention`), and a dump that lacks one ends with an error.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from pymq.clock import Clock

LEASES_MAX = 16
LEASE_MS_MIN, LEASE_MS_MAX, LEASE_MS_DEFAULT = 1_000, 600_000, 60_000
HOUR_S = 3600


@dataclass(slots=True)
class DumpLease:
    """One dumper's. Times are of the monotonic clock.

    Attributes:
        log_begin: where the log began when it was given: the oldest message that is kept for it.
    """

    begun_s: float
    expires_s: float
    log_begin: int


class DumpLeases:
    """The leases of one broker. Any thread; `_lock` guards the tables."""

    def __init__(self, clock: Clock, max_age_hours: Callable[[], int]) -> None:
        """Nobody copies yet; *max_age_hours* is asked each time, because it can be changed."""
        self._clock = clock
        self._max_age_hours = max_age_hours
        self._lock = threading.Lock()
        self._leases: dict[str, DumpLease] = {}
        self._too_old: list[str] = []  # the last of those that ended by their age: their dumpers are told so

    def begin(self, lease_ms: int, log_begin: int = 0) -> str | None:
        """A new lease of *lease_ms* on the log from *log_begin* on, or None when there are too many."""
        with self._lock:
            self._forget_expired()
            if len(self._leases) >= LEASES_MAX:
                return None
            lease = secrets.token_hex(8)
            now_s = self._clock.monotonic_s()
            self._leases[lease] = DumpLease(now_s, now_s + lease_ms / 1000, log_begin)
            return lease

    def renew(self, lease: str, lease_ms: int) -> bool:
        """Let *lease* last for *lease_ms* from now; False when it has expired, is too old, or was never given."""
        with self._lock:
            self._forget_expired()
            found = self._leases.get(lease)
            if found is None:
                return False
            found.expires_s = self._clock.monotonic_s() + lease_ms / 1000
            return True

    def end(self, lease: str) -> bool:
        """Give *lease* back; whether it was still in force."""
        with self._lock:
            self._forget_expired()
            return self._leases.pop(lease, None) is not None

    def held(self) -> bool:
        """Whether somebody copies files."""
        with self._lock:
            self._forget_expired()
            return bool(self._leases)

    def was_too_old(self, lease: str) -> bool:
        """Whether *lease* ended although it was renewed, because of its age."""
        with self._lock:
            self._forget_expired()
            return lease in self._too_old

    def runtime_info(self) -> dict[str, str]:
        """Rows of GET_BROKER_RUNTIME_INFO: why the disk is not emptied."""
        with self._lock:
            self._forget_expired()
            leases = list(self._leases.values())
        now_s = self._clock.monotonic_s()
        return {
            "pymq.dump.leases": str(len(leases)),
            "pymq.dump.oldest_offset": str(min((lease.log_begin for lease in leases), default=-1)),
            "pymq.dump.oldest_age_s": str(int(max((now_s - lease.begun_s for lease in leases), default=0.0))),
        }

    def _forget_expired(self) -> None:
        now_s = self._clock.monotonic_s()
        begun_s = now_s - self._max_age_hours() * HOUR_S  # whoever has begun until then is too old
        for name, lease in list(self._leases.items()):
            if lease.expires_s <= now_s:
                del self._leases[name]
            elif lease.begun_s <= begun_s:
                del self._leases[name]
                self._too_old = [*self._too_old, name][-LEASES_MAX:]
