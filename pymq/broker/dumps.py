"""Who is copying the store's files just now: leases that keep retention from removing them under a dump.

A lease is asked for by `python -m pymq.store.dump`, renewed while it copies, and given back at its end; one that is not
renewed expires, so that a dumper that was killed does not keep the disk full. While there is a lease no file of the
log, of queues, index or timer log is removed because of its age. A disk that is too full comes first: above
diskSpaceCleanForciblyRatio files go all the same, and the dump ends with an error.
"""

from __future__ import annotations

import secrets
import threading

from pymq.clock import Clock

LEASES_MAX = 16
LEASE_MS_MIN, LEASE_MS_MAX, LEASE_MS_DEFAULT = 1_000, 600_000, 60_000


class DumpLeases:
    """The leases of one broker. Any thread; `_lock` guards the table."""

    def __init__(self, clock: Clock) -> None:
        """Nobody copies yet."""
        self._clock = clock
        self._lock = threading.Lock()
        self._expires_s: dict[str, float] = {}

    def begin(self, lease_ms: int) -> str | None:
        """A new lease of *lease_ms*, or None when there are too many."""
        with self._lock:
            self._forget_expired()
            if len(self._expires_s) >= LEASES_MAX:
                return None
            lease = secrets.token_hex(8)
            self._expires_s[lease] = self._clock.monotonic_s() + lease_ms / 1000
            return lease

    def renew(self, lease: str, lease_ms: int) -> bool:
        """Let *lease* last for *lease_ms* from now; False when it has expired, or was never given."""
        with self._lock:
            self._forget_expired()
            if lease not in self._expires_s:
                return False
            self._expires_s[lease] = self._clock.monotonic_s() + lease_ms / 1000
            return True

    def end(self, lease: str) -> bool:
        """Give *lease* back; whether it was still in force."""
        with self._lock:
            self._forget_expired()
            return self._expires_s.pop(lease, None) is not None

    def held(self) -> bool:
        """Whether somebody copies files."""
        with self._lock:
            self._forget_expired()
            return bool(self._expires_s)

    def _forget_expired(self) -> None:
        now_s = self._clock.monotonic_s()
        for lease in [lease for lease, expires_s in self._expires_s.items() if expires_s <= now_s]:
            del self._expires_s[lease]
