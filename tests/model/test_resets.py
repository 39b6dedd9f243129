"""R16: offsets are reset while clients pull and commit. After a reset was answered with success no older commit wins.

The clients here do everything late: a commit is on its way for any number of steps, a queue moves to another client
while its old owner still reads and commits, connections break. What they may do is what RocketMQ's clients do: a client
that gets a queue begins at the offset the broker names; one that is told OFFSET_RESET drops what it has and begins
anew; and what one connection carries arrives in its order. Lite pull clients drop nothing: they go on committing what
they had consumed until somebody polls what they have read since (DefaultLitePullConsumerImpl).

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
REMEMBERED = 4  # PYMQ_RESET_FOLLOWERS
GROUP, TOPIC = "g", "t"
SEED = int(os.environ.get("PYMQ_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


@dataclass
class Client:
    """One member: what it is at, since which reset, and what it has sent and nobody has received."""

    connection: int
    position: int | None = None  # None: the queue is not its own
    epoch: int = 0  # of the reset its position comes from
    in_flight: list[tuple[int, int, int]] = field(default_factory=list)  # (connection, epoch, offset)


def remember(connections: list[int], newest: int) -> None:
    """As the broker does: the last four."""
    if newest not in connections:
        connections.append(newest)
        del connections[:-REMEMBERED]


class Schedule:
    """One schedule on the real tables, and what must be true of it."""

    def __init__(self, serve: Serve, seed: int) -> None:
        self.serve = serve
        self.chance = random.Random(seed)
        self.topic = f"{TOPIC}{seed}"
        self.epoch = 0  # resets so far
        self.expected = 0  # the newest commit or reset that counts
        self.low = self.high = 0  # where the reset went, and the end of what was served from there on
        self.places = (0, 0)  # where the last pull of now began and ended: who goes on there is its client
        self.askers: list[int] = []  # connections that asked where to begin, since the reset
        self.followers: list[int] = []  # and those that did
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
        client.position = self.serve.offset_query(GROUP, self.topic, 0, client.connection)
        client.epoch = self.epoch
        remember(self.askers, client.connection)
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
        asked = client.connection in self.askers and self.low <= client.position <= self.high
        if asked or client.position in (self.expected, *self.places):
            client.epoch = self.epoch  # it stands where the group stands: what it reads on is of now
            remember(self.followers, client.connection)
        if self.chance.random() < 0.3:
            self.commit_now(client.connection, client.epoch, client.position)
        begin, client.position = client.position, min(MESSAGES, client.position + self.chance.randint(1, 9))
        self.serve.pulled(GROUP, self.topic, 0, begin, client.position, client.connection)
        if client.connection in self.followers and self.low <= begin <= self.high:
            self.places = (begin, client.position)
            self.high = max(self.high, client.position)

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

    def reset(self, target: int | None = None) -> None:
        """An administrator resets, to anywhere, and often to where somebody stands already."""
        positions = [client.position for client in self.clients if client.position is not None]
        if target is None:
            target = self.chance.choice([*positions, self.chance.randint(0, MESSAGES)])
        self.serve.offset_reset(GROUP, self.topic, 0, target)
        self.epoch += 1
        self.expected = target
        self.low = self.high = target
        self.places = (target, target)
        self.askers, self.followers = [], []

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


@dataclass
class Given:
    """Messages up to *end*, and the reset since which they were given."""

    end: int
    epoch: int


class LiteSchedule:
    """One lite pull client that reads ahead, is polled late, and commits what was polled last, whatever happens."""

    def __init__(self, serve: Serve, seed: int) -> None:
        self.serve = serve
        self.chance = random.Random(seed)
        self.topic = f"{TOPIC}{seed}"
        self.epoch = self.position = self.target = self.expected = 0
        self.served = 0  # the end of what was given since the reset
        self.was_there = False  # it had consumed just so much: what it has read ahead is what comes next
        self.connection = 1
        self.cached: list[Given] = []
        self.consumed = Given(0, 0)
        self.kept_out = 0
        serve.offset_commit(GROUP, self.topic, 0, 0)

    def pull(self) -> None:
        """Read ahead; told of a reset it goes there and drops nothing."""
        begin = self.serve.pull_begins(GROUP, self.topic, 0, self.position, self.connection)
        if begin is not None:
            self.position = begin
            return
        following = self.position + self.chance.randint(1, 200)
        self.serve.pulled(GROUP, self.topic, 0, self.position, following, self.connection)
        self.cached.append(Given(following, self.epoch))
        self.position = self.served = following

    def poll(self) -> None:
        """The program takes the oldest messages."""
        if self.cached:
            self.consumed = self.cached.pop(0)

    def commit(self) -> None:
        """What was polled last. From before the reset it counts only where that changes nothing, or looks the same."""
        end, epoch = self.consumed.end, self.consumed.epoch
        self.was_there |= end == self.target
        if self.serve.offset_commit(GROUP, self.topic, 0, end, self.connection):
            of_now = epoch == self.epoch or self.was_there or end in (self.served, self.expected)
            assert of_now, f"{end}, consumed before reset {self.epoch} to {self.target}, has won"
            self.expected = end
        else:
            self.kept_out += epoch < self.epoch

    def reconnect(self) -> None:
        """The connection breaks."""
        self.connection += 1

    def reset(self) -> None:
        """An administrator resets, to anywhere or to where the client stands; not to where the group does."""
        target = self.chance.choice([self.position, self.chance.randint(0, self.position)])
        if target == self.expected or (target == self.consumed.end and self.cached):
            return
        self.target = target
        self.serve.offset_reset(GROUP, self.topic, 0, self.target)
        self.expected = self.served = self.target
        self.was_there = False
        self.epoch += 1

    def step(self) -> None:
        """Something happens."""
        actions = (self.pull, self.poll, self.commit, self.reconnect, self.reset)
        self.chance.choices(actions, (8, 6, 6, 1, 1))[0]()
        assert self.serve.offset_query(GROUP, self.topic, 0) == self.expected

    def finish(self) -> None:
        """Everything is polled in the end, and then it counts."""
        self.pull()  # perhaps told
        self.pull()
        while self.cached:
            self.poll()
        self.commit()
        assert self.serve.offset_query(GROUP, self.topic, 0) == self.position


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
    schedule.reset(MESSAGES // 2)
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


def test_lite_pull_client_that_keeps_committing_what_it_had_consumed_does_not_undo_a_reset(serve):
    """Goal: a reset is a fact for lite pull too, and no wall. Method: random schedules of reading ahead and polling."""
    print(f"seed {SEED}, {SCHEDULES} schedules")
    kept_out = 0
    for number in range(SCHEDULES):
        schedule = LiteSchedule(serve, SEED + number)
        for _ in range(STEPS):
            schedule.step()
        schedule.finish()
        kept_out += schedule.kept_out
        serve.offset_remove(GROUP, schedule.topic)
    assert kept_out > SCHEDULES


def test_reset_to_where_the_client_stands_keeps_out_what_it_had_read_before(serve):
    """Goal: skipping to the end is not undone. Method: a client that has read to the end, and consumed half of it."""
    schedule = LiteSchedule(serve, SEED - 2)
    for _ in range(3):
        schedule.pull()
    schedule.poll()
    serve.offset_reset(GROUP, schedule.topic, 0, schedule.position)
    assert serve.pull_begins(GROUP, schedule.topic, 0, schedule.position, schedule.connection) is None
    serve.pulled(GROUP, schedule.topic, 0, schedule.position, schedule.position, schedule.connection)
    assert not serve.offset_commit(GROUP, schedule.topic, 0, schedule.consumed.end, schedule.connection)
    assert serve.offset_query(GROUP, schedule.topic, 0) == schedule.position
    assert serve.offset_commit(GROUP, schedule.topic, 0, schedule.position, schedule.connection)


def test_client_that_reconnects_after_it_followed_a_reset_commits(serve):
    """Goal: a broken connection costs no commits. Method: it pulls on, its last answer lost or not."""
    for lost in (True, False):
        schedule = Schedule(serve, SEED - 3 - lost)
        client = schedule.clients[0]
        schedule.take_over(client)
        schedule.pull(client)
        schedule.reset(MESSAGES // 2)
        schedule.pull(client)
        schedule.take_over(client)
        for _ in range(3):
            before = client.position
            schedule.pull(client)
        client.position = before if lost else client.position
        schedule.reconnect(client)
        schedule.pull(client)
        schedule.post(client)
        schedule.arrive(client)
        assert schedule.expected == client.position
        schedule.check()
