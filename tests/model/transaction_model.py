"""What transactions promise, as a reference of a few lines, and a producer that pipelines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import FLAG_ONEWAY, Command
from tests.broker.transactions import COMMIT, ROLLBACK, Producer
from tests.broker.wire import send_fields

PENDING, COMMITTED, ROLLED_BACK, GIVEN_UP = "pending", "committed", "rolled back", "given up"
STATE_OF = {COMMIT: COMMITTED, ROLLBACK: ROLLED_BACK}


@dataclass
class Transaction:
    """One half message, as its producer knows it."""

    body: bytes
    answer: Command  # to its half
    state: str = PENDING
    checks: list[Command] = field(default_factory=list)


class Reference:
    """The whole promise: a transaction ends once, and is asked about at most so often."""

    def __init__(self, checks_max: int) -> None:
        self.checks_max = checks_max
        self.all: dict[bytes, Transaction] = {}

    def end(self, transaction: Transaction, how: str) -> int:
        """Ending it, and the code of the answer."""
        if transaction.state == PENDING:
            transaction.state = STATE_OF[how]
        if transaction.state == GIVEN_UP and how == ROLLBACK:
            return ResponseCode.SUCCESS
        return ResponseCode.SUCCESS if transaction.state == STATE_OF[how] else ResponseCode.SYSTEM_ERROR

    def bodies(self, state: str) -> Counter[bytes]:
        """Those in a state, each once."""
        return Counter(body for body, transaction in self.all.items() if transaction.state == state)


class BusyProducer(Producer):
    """Sends many before it waits."""

    def post_halves(self, bodies: list[bytes], queues: int) -> list[Command]:
        """The answers to half messages, pipelined."""
        prepared = f"TRAN_MSG\x01true\x02PGROUP\x01{self.group}\x02"
        now = str(self.driven.clock.now_ms())
        numbers = [
            self.post(
                Command(RequestCode.SEND_MESSAGE_V2, send_fields(self.topic, i % queues, prepared, f="4", g=now), body)
            )
            for i, body in enumerate(bodies)
        ]
        answers = self.take(len(numbers))
        assert all(answer.code == ResponseCode.SUCCESS for answer in answers.values())
        return [answers[number] for number in numbers]

    def take(self, count: int) -> dict[int, Command]:
        """The next *count* answers by number; what the broker asks meanwhile is kept."""
        answers: dict[int, Command] = {}
        while len(answers) < count:
            command = self.receive()
            if command.is_response:
                answers[command.opaque] = command
            else:
                self.pushed.append(command)
        return answers

    def post_end(self, fields: dict[str, str], *, oneway: bool) -> None:
        """END_TRANSACTION, not waited for."""
        command = Command(RequestCode.END_TRANSACTION, fields)
        if oneway:
            command.flag |= FLAG_ONEWAY
        self.post(command)
