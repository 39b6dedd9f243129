"""R16: offsets are reset while clients pull and commit. After a reset was answered with success no older commit wins.

The clients here do everything late: a commit is on its way for any number of steps, a queue moves to another client
while its old owner still reads and commits, connections break. What they may do is what RocketMQ's clients do: a client
that gets a queue begins at the offset the broker names; one that is told OFFSET_RESET drops what it has and begins
anew; and what one connection carries arrives in its order.

Every schedule is drawn from a seed that is printed when it fails: `PYMQ_SEED=… pytest tests/model/test_resets.py`.
5,000 schedules, 100,000 with PYMQ_FULL=1.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest

from pymq._core._serve import Serve, ServeConfig
from pymq._core._store import Store
from tests.broker.test_admin import SMALL

FULL = os.environ.get("PYMQ_FULL") == "1"
SCHEDULES = 100_000 if FULL else 5000
STEPS = 60
MESSAGES = 1000
GROUP, TOPIC = "g", "t"
SEED = int(os.environ.get("PYMQ_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


@dataclass
class Client:
    """One member: what it is at, since which reset, and what it has sent and nobody has received."""

    connection: int
    position: int | None = None  # None: the queue is not its own
    epoch: int = 0  # of the reset its position comes from
    in_flight: list[tuple[int, int, int]] = field(default_factory=list)  # (connection, epoch, offset)


class Schedule:
    """One schedule on the real tables, and what must be true of it."""

    def __init__(self, serve: Serve, seed: int) -> None:
        self.serve = serve
        self.chance = random.Random(seed)
        self.topic = f"{TOPIC}{seed}"
        self.epoch = 0  # resets so far
        self.expected = 0  # the newest commit or reset that counts
        self.connections = 0
        self.clients = [Client(self.connect()) for _ in range(3)]
        serve.offset_commit(GROUP, self.topic, 0, 0)

    def connect(self) -> int:
        """A connection nobody had before."""
        self.connections += 1
        return self.connections

    # ---- what clients do -----------------------------------------------------------------------------------------

    def take_over(self, client: Client) -> None:
        """Rebalance gives it the queue: it asks where to begin. The old owner may not have noticed yet."""
        client.position = self.serve.offset_query(GROUP, self.topic, 0)
        client.epoch = self.epoch
        assert client.position == self.expected

    def pull(self, client: Client) -> None:
        """Read a few messages, perhaps with a commit riding on the pull."""
        if client.position is None:
            return
        while client.in_flight and client.in_flight[-1][0] == client.connection:
            self.arrive(client)  # sent earlier on the same connection
        begin = self.serve.pull_begins(GROUP, self.topic, 0, client.position, client.connection)
        if begin is not None:
            assert client.epoch < self.epoch, "told of a reset that it comes from"
            client.position = None  # dropped; it comes back by take_over
            return
        if client.position == self.expected:
            client.epoch = self.epoch  # it stands where the group stands: what it reads on is of now
        if self.chance.random() < 0.3:
            self.commit_now(client.connection, client.epoch, client.position)
        client.position = min(MESSAGES, client.position + self.chance.randint(1, 9))

    def post(self, client: Client) -> None:
        """Send a commit that arrives some time."""
        if client.position is not None:
            client.in_flight.append((client.connection, client.epoch, client.position))

    def arrive(self, client: Client) -> None:
        """The oldest commit on its way arrives; those of one connection keep their order."""
        if client.in_flight:
            self.commit_now(*client.in_flight.pop(0))

    def commit_now(self, connection: int, epoch: int, offset: int) -> None:
        """A commit is received. If it is older than the last reset it must not count."""
        stored = self.serve.offset_commit(GROUP, self.topic, 0, offset, connection)
        if stored:
            assert epoch == self.epoch, f"a commit of {offset} from before reset {self.epoch} has won"
            self.expected = offset

    def reconnect(self, client: Client) -> None:
        """The connection breaks; what was on its way may still arrive under the old one."""
        client.connection = self.connect()

    # ---- what others do ------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """An administrator resets, to anywhere."""
        target = self.chance.randint(0, MESSAGES)
        while any(client.position == target for client in self.clients):
            target = self.chance.randint(0, MESSAGES)  # who stands there already is where it shall be
        self.serve.offset_reset(GROUP, self.topic, 0, target)
        self.epoch += 1
        self.expected = target

    def check(self) -> None:
        """What everybody sees is the newest word that counts."""
        assert self.serve.offset_query(GROUP, self.topic, 0) == self.expected

    def step(self) -> None:
        """Something happens to somebody."""
        client = self.chance.choice(self.clients)
        action = self.chance.choices(
            (self.pull, self.post, self.arrive, self.take_over, self.reconnect), (8, 6, 6, 2, 1)
        )[0]
        if self.chance.random() < 0.04:
            self.reset()
        else:
            action(client)
        self.check()


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """Native tables over a store of their own."""
    store = Store(tmp_path_factory.mktemp("store"), SMALL)
    tables = Serve(ServeConfig(), store)
    yield tables
    tables.close()
    store.close()


def test_no_older_commit_wins_after_a_reset_whatever_the_schedule(serve):
    """Goal: a reset is a fact. Method: random schedules of pulls, late commits, rebalances, broken connections."""
    print(f"seed {SEED}, {SCHEDULES} schedules")
    kept_out = resets = 0
    for number in range(SCHEDULES):
        schedule = Schedule(serve, SEED + number)
        for _ in range(STEPS):
            schedule.step()
        for client in schedule.clients:  # whatever is still on its way arrives in the end
            while client.in_flight:
                epoch, before = client.in_flight[0][1], schedule.expected
                schedule.arrive(client)
                kept_out += epoch < schedule.epoch and schedule.expected == before
        schedule.check()
        resets += schedule.epoch
        serve.offset_remove(GROUP, schedule.topic)
    assert resets > SCHEDULES  # it was about resets
    assert kept_out > SCHEDULES / 10  # and about commits that came too late


def test_group_goes_on_after_a_reset(serve):
    """Goal: the guard is no wall. Method: the owner that follows a reset commits, and so does the next owner."""
    schedule = Schedule(serve, SEED - 1)
    owner, heir, _ = schedule.clients
    schedule.take_over(owner)
    schedule.pull(owner)
    schedule.reset()
    schedule.pull(owner)  # told where to begin
    assert owner.position is None
    for client in (owner, heir):
        schedule.take_over(client)
        for _ in range(3):
            schedule.pull(client)
        schedule.post(client)
        schedule.arrive(client)
        assert schedule.expected == client.position
        schedule.check()
