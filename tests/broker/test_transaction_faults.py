"""Rounds of checks that meet a bug or a producer that leaves: all others are asked about, and no check is used up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import pymq
from pymq.broker import names
from pymq.broker.transaction import records
from pymq.remoting.codes import ResponseCode
from tests.broker.transactions import SMALL, DrivenBroker, Producer, committed

BAD = 2  # offset of the half that something is wrong with


@pytest.mark.parametrize("place", ["check_command", "half_again"])
def test_a_bug_with_one_half_keeps_no_other_from_being_asked_about(tmp_path, monkeypatch, caplog, place):
    """Goal: whatever one message does, the rest is reached. Method: a failure with one of five, before and after it is
    put again; its own check comes when the bug is gone."""
    real = getattr(records, place)

    def failing(*arguments):
        if any(getattr(one, "offset", None) == BAD for one in arguments):
            raise ZeroDivisionError("a bug")
        return real(*arguments)

    with DrivenBroker(tmp_path) as driven, Producer(driven) as producer:
        keys = [producer.half(b"%d" % number).fields["transactionId"] for number in range(5)]
        monkeypatch.setattr(records, place, failing)
        driven.round()
        asked = {check.fields["transactionId"] for check in producer.checked(4)}
        assert asked == {*keys} - {keys[BAD]}
        assert "a bug" in caplog.text
        monkeypatch.setattr(records, place, real)
        driven.round()
        assert keys[BAD] in {check.fields["transactionId"] for check in producer.checked(5)}


def test_a_bug_in_a_round_does_not_end_the_rounds(tmp_path, monkeypatch, caplog):
    """Goal: checks and op messages go on. Method: the background task, whose first round fails."""
    config = pymq.BrokerConfig(
        listen_port=0, namesrv_listen_port=0, store_path_root_dir=str(tmp_path), store=SMALL,
        transaction_time_out=50, transaction_check_interval=100, transaction_op_batch_interval=50,
    )  # fmt: skip

    with pymq.Broker(config).running() as broker:
        rounds = broker.transactions.checks
        real, left = rounds.run, ["a bug"]

        async def failing(*, scan):
            if left:
                raise ZeroDivisionError(left.pop())
            return await real(scan=scan)

        monkeypatch.setattr(rounds, "run", failing)
        with Producer(SimpleNamespace(broker=broker, clock=broker.clock)) as producer:
            producer.half(b"lost")
            (check,) = producer.checked()
            assert producer.answer(check).code == ResponseCode.SUCCESS
    assert "transaction check failed, tried again later error=a bug" in caplog.text


def test_a_producer_that_leaves_while_its_half_is_read_uses_up_no_check(tmp_path, monkeypatch):
    """Goal: nothing is given up unasked. Method: with two checks allowed, producers that leave in two rounds, then one
    that stays."""
    with DrivenBroker(tmp_path, transaction_check_max=2) as driven:
        producer = Producer(driven)
        producer.half(b"asked in the end")
        rounds = driven.service.checks
        real = rounds._load

        def load(halves):
            found = real(halves)
            producer.close()
            return found

        monkeypatch.setattr(rounds, "_load", load)
        for _ in range(2):
            driven.round()
            producer = Producer(driven)
        monkeypatch.setattr(rounds, "_load", real)
        driven.round()
        (check,) = producer.checked()
        assert not driven.messages(names.CHECK_MAX_TIME_TOPIC)
        assert producer.answer(check).code == ResponseCode.SUCCESS
        assert committed(driven) == [b"asked in the end"]
        producer.close()
