"""Order locks against a reference of four lines, on a clock that the test moves."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pymq.broker.locks import LockedQueue, OrderLocks
from pymq.clock import ManualClock

LIVE_S = 60.0
FULL = os.environ.get("PYMQ_FULL") == "1"
GROUPS = st.sampled_from(("g1", "g2"))
CLIENTS = st.sampled_from(("c1", "c2", "c3"))
QUEUES = st.lists(st.builds(LockedQueue, st.sampled_from(("t1", "t2")), st.just("a"), st.integers(0, 2)), max_size=5)
STEPS_S = st.sampled_from((0.0, 0.001, 19.9, 29.999, 30.0, 59.999, 60.0, 60.001, 600.0))


class LockMachine(RuleBasedStateMachine):
    """Clients lock, renew, unlock and fall silent; who holds what is as the reference has it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(datetime(2026, 11, 16, tzinfo=UTC))
        self.locks = OrderLocks(self.clock, int(LIVE_S * 1000))
        self.reference: dict[tuple[str, LockedQueue], tuple[str, float]] = {}

    def owner(self, group, queue):
        """The reference: whoever asked last, for 60 s."""
        client, since_s = self.reference.get((group, queue), ("", 0.0))
        return client if client and self.clock.monotonic_s() - since_s <= LIVE_S else None

    @rule(group=GROUPS, client=CLIENTS, queues=QUEUES)
    def lock(self, group, client, queues):
        """Ask for queues: granted is what nobody else holds."""
        expected = [queue for queue in dict.fromkeys(queues) if self.owner(group, queue) in (None, client)]
        for queue in expected:
            self.reference[group, queue] = (client, self.clock.monotonic_s())
        assert self.locks.lock(group, queues, client) == expected

    @rule(group=GROUPS, client=CLIENTS, queues=QUEUES)
    def unlock(self, group, client, queues):
        """Give queues back, one's own or not."""
        for queue in queues:
            if self.reference.get((group, queue), ("", 0.0))[0] == client:
                del self.reference[group, queue]
        self.locks.unlock(group, queues, client)

    @rule(seconds=STEPS_S)
    def wait(self, seconds):
        """Time passes."""
        self.clock.advance(seconds)

    @rule()
    def forget(self):
        """What the broker does every ten seconds changes nothing anybody can see."""
        self.locks.forget_expired()

    @invariant()
    def holders_agree(self):
        """Every lock in force is the reference's, and none is missing."""
        held = {(group, queue): client for group, queue, client in self.locks.held()}
        expected = {key: self.owner(*key) for key in self.reference if self.owner(*key) is not None}
        assert held == expected
        for group in ("g1", "g2"):
            assert self.locks.is_free(group) == (not any(name == group for name, _ in expected))


TestLocks = LockMachine.TestCase
TestLocks.settings = settings(
    max_examples=5000 if FULL else 150, stateful_step_count=60, deadline=None, derandomize=not FULL
)
