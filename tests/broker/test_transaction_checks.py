"""Checks of half messages without an end: whom the broker asks, when, how often, and what becomes of the rest."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

import pymq
from pymq.broker import names
from pymq.broker.transaction import checks
from pymq.broker.transaction.half import Half
from pymq.clock import ManualClock
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.json_dialect import loads
from tests.broker.transactions import ROLLBACK, SMALL, DrivenBroker, Producer, committed
from tests.reference.record import decode_record


@pytest.fixture
def driven(tmp_path):
    """A broker that checks when it is told to."""
    with DrivenBroker(tmp_path) as running:
        yield running


@pytest.fixture
def producer(driven):
    """A live producer of group P."""
    with Producer(driven) as connected:
        yield connected


def test_a_half_without_an_end_is_asked_about(driven, producer):
    """TXN-20..22: put again with its count, and the check carries the message as it was sent, at its new place."""
    producer.half(b"lost", queue_id=3, properties="TAGS\x01a\x02")
    driven.round()
    (check,) = producer.checked()
    first, again = driven.halves()
    assert again.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert again.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert check.fields == {
        "topic": names.HALF_TOPIC,
        "tranStateTableOffset": "1",
        "commitLogOffset": str(again.physical_offset),
        "msgId": first.unique_key,
        "transactionId": first.unique_key,
        "offsetMsgId": again.message_id,
        "bname": "a",
    }
    record = decode_record(check.body)
    assert (record.topic, record.queue_id, record.body) == (b"T", 3, b"lost")
    assert (record.queue_offset, record.physical_offset) == (1, again.physical_offset)
    assert b"TRANSACTION_CHECK_TIMES\x011\x02" in record.properties
    assert producer.answer(check).code == ResponseCode.SUCCESS
    (message,) = driven.messages("T", 3)
    assert (message.body, message.tags) == (b"lost", "a")
    assert message.prepared_transaction_offset == again.physical_offset
    assert driven.progress()[0] == 2


def test_no_half_is_asked_about_before_its_time(driven, producer):
    """TXN-19: transactionTimeOut, at its edge."""
    producer.half()
    driven.round(after_s=6.0)
    assert len(driven.halves()) == 1
    driven.round(after_s=0.001)
    assert len(driven.halves()) == 2


def test_a_clock_that_went_back_keeps_nobody_from_asking(driven, producer):
    """TXN-20: Apache waits until it has caught up."""
    producer.half(b"lost")
    driven.clock.advance(7200)
    producer.heartbeat()
    driven.clock = driven.broker.clock = ManualClock(datetime.now(UTC) - timedelta(hours=1))
    driven.round(0)
    (check,) = producer.checked()
    assert producer.answer(check).code == ResponseCode.SUCCESS


def test_every_place_in_the_log_can_be_asked_for(driven, producer):
    """What a producer says of places is not trusted: any byte of the log, and only the half's own ends it."""
    producer.half(b"a" * 40)
    half = producer.half(b"b" * 40)
    place = int(half.fields["msgId"][-16:], 16)
    for offset in [*range(place - 60, place), *range(place + 1, place + 60), (1 << 63) - 1]:
        answer = producer.end(half, commitLogOffset=str(offset))
        assert answer.code == ResponseCode.SYSTEM_ERROR
    assert not committed(driven)
    assert producer.end(half).code == ResponseCode.SUCCESS


def test_a_half_has_its_own_time(driven, producer):
    """CHECK_IMMUNITY_TIME_IN_SECONDS: it waits without being put again or counted, and is not in the way of others."""
    producer.half(b"slow", properties="CHECK_IMMUNITY_TIME_IN_SECONDS\x01600\x02")
    producer.half(b"lost")
    driven.round(after_s=29.0)
    (check,) = producer.checked()
    assert producer.answer(check).code == ResponseCode.SUCCESS
    for _ in range(19):
        producer.heartbeat()
        driven.round(after_s=30.0)
    assert [half.body for half in driven.halves()] == [b"slow", b"lost", b"lost"]
    assert committed(driven) == [b"lost"]
    driven.round(after_s=2.0)
    (check,) = producer.checked()
    assert b"TRANSACTION_CHECK_TIMES\x011\x02" in decode_record(check.body).properties


def test_a_late_end_of_a_half_with_its_own_time_waits_for_the_check(driven, producer):
    """EndTransactionProcessor.rejectCommitOrRollback: ILLEGAL_OPERATION, and the check decides."""
    half = producer.half(properties="CHECK_IMMUNITY_TIME_IN_SECONDS\x0110\x02")
    driven.clock.advance(10.001)
    assert producer.end(half).code == ResponseCode.ILLEGAL_OPERATION
    driven.round(0)
    (check,) = producer.checked()
    assert producer.answer(check).code == ResponseCode.SUCCESS
    assert committed(driven) == [b"half"]


def test_a_late_commit_of_the_first_copy_ends_the_transaction(driven, producer):
    """The producer was merely slow: Apache stores the message, asks again, and stores it a second time."""
    half = producer.half(b"once")
    driven.round()
    (check,) = producer.checked()
    assert producer.end(half).code == ResponseCode.SUCCESS
    assert producer.answer(check).code == ResponseCode.SUCCESS
    driven.round()
    driven.round()
    assert committed(driven) == [b"once"]
    assert len(driven.halves()) == 2
    assert driven.progress()[0] == 2


def test_after_the_last_check_it_is_given_up(tmp_path):
    """TXN-17, TXN-24: transactionCheckMax checks, then TRANS_CHECK_MAX_TIME_TOPIC; a later commit is refused."""
    with DrivenBroker(tmp_path, transaction_check_max=3) as driven, Producer(driven) as producer:
        half = producer.half(b"nobody knows")
        for _ in range(6):
            driven.round()
        assert [command.fields["tranStateTableOffset"] for command in producer.checked(3)] == ["1", "2", "3"]
        (given_up,) = driven.messages(names.CHECK_MAX_TIME_TOPIC)
        assert given_up.body == b"nobody knows"
        assert given_up.properties["REAL_TOPIC"] == "T"
        assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "3"
        assert driven.broker.topics.get(names.CHECK_MAX_TIME_TOPIC) is not None
        assert len(driven.halves()) == 4
        assert producer.end(half).code == ResponseCode.SYSTEM_ERROR
        assert not committed(driven)
        assert driven.progress() == (4, 1)


def test_an_operator_can_have_it_asked_about_again(tmp_path):
    """RESUME_CHECK_HALF_MESSAGE: as a new half message, once."""
    with DrivenBroker(tmp_path, transaction_check_max=1) as driven, Producer(driven) as producer:
        half = producer.half(b"late")
        driven.round()
        driven.round()
        (aside,) = driven.messages(names.CHECK_MAX_TIME_TOPIC)
        producer.checked()
        assert producer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": aside.message_id}).code == 0
        driven.settled()
        again = producer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": aside.message_id})
        assert (again.code, "resumed before" in again.remark) == (ResponseCode.SYSTEM_ERROR, True)
        driven.round()
        (check,) = producer.checked()
        assert producer.answer(check).code == ResponseCode.SUCCESS
        assert committed(driven) == [b"late"]
        for wrong in (half.fields["msgId"], "nonsense", "7F00000100000000" + "7" * 16):
            answer = producer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": wrong})
            assert answer.code == ResponseCode.SYSTEM_ERROR


def test_without_a_producer_nothing_is_given_up_unasked(driven):
    """Differs from Apache, where 15 rounds without a producer discard a half that nobody was asked about."""
    with Producer(driven) as producer:
        producer.half(b"kept")
    for _ in range(20):
        driven.round()
    assert len(driven.halves()) == 1
    assert not driven.messages(names.CHECK_MAX_TIME_TOPIC)
    with Producer(driven) as producer:
        driven.round()
        (check,) = producer.checked()
        assert producer.answer(check).code == ResponseCode.SUCCESS
    assert committed(driven) == [b"kept"]


def test_a_half_older_than_retention_is_asked_about_once(driven, producer):
    """apache/rocketmq#8311: Apache discards it unasked."""
    producer.half(b"old")
    driven.round(after_s=80 * 3600)
    assert len(producer.checked()) == 1
    driven.round()
    assert [message.body for message in driven.messages(names.CHECK_MAX_TIME_TOPIC)] == [b"old"]


def test_a_half_nobody_can_be_asked_about_survives_retention(driven):
    """It is put again before its record is old enough to be removed; that is no check."""
    with Producer(driven) as producer:
        producer.half(b"kept")
    driven.round(after_s=19 * 3600)
    first, again = driven.halves()
    assert again.properties == first.properties | {"TRAN_PREPARED_QUEUE_OFFSET": "0"}


def test_checks_go_round_the_live_producers(driven):
    """TXN-22: one of the group, another each time; one that left is not asked."""
    with Producer(driven) as one, Producer(driven) as other:
        for _ in range(4):
            one.half()
        driven.round()
        assert len(one.checked(2)) == len(other.checked(2)) == 2
        other.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "x", "producerGroup": "P"})
        driven.round()
        assert len(one.checked(4)) == 4


def test_only_so_many_checks_go_to_one_producer_at_a_time(driven, producer, monkeypatch):
    """A Java producer drops what exceeds its queue; the others follow soon, each once."""
    monkeypatch.setattr(checks, "CHECKS_PER_CONNECTION", 2)
    for _ in range(5):
        producer.half()
    assert driven.round() is True
    assert len(producer.checked(2)) == 2

    async def again():
        return await driven.service.checks.run(scan=False)

    assert driven.call(again()) is True
    assert driven.call(again()) is False
    keys = [check.fields["msgId"] for check in producer.checked(3)]
    assert len(set(keys)) == 3
    assert {half.properties.get("TRANSACTION_CHECK_TIMES", "0") for half in driven.halves()} == {"0", "1"}


def test_what_waits_long_does_not_pile_up_behind_it(driven, monkeypatch):
    """The distance between progress and cursor is bounded: what is in the way is put again, uncounted."""
    monkeypatch.setattr(checks, "SPAN_MAX", 5)
    with Producer(driven, "Dead") as dead, Producer(driven) as producer:
        dead.half(b"dead")
        for _ in range(12):
            producer.end_oneway(producer.half())
    for _ in range(3):
        driven.round()
    assert driven.progress()[0] > 10
    assert [half.body for half in driven.halves() if half.body == b"dead"] == [b"dead"] * 2
    assert driven.halves()[-1].properties.get("TRANSACTION_CHECK_TIMES") is None


def test_many_that_wait_do_not_fill_the_log(driven, monkeypatch):
    """Without a producer, halves beyond the span were all put again in every round, for ever."""
    monkeypatch.setattr(checks, "SPAN_MAX", 5)
    monkeypatch.setattr(checks, "CROWD_MAX", 2)
    with Producer(driven, "Dead") as dead:
        for _ in range(20):
            dead.half()
    for count in range(5):
        driven.round()
        assert len(driven.halves()) == 20 + 2 * (count + 1)


def test_many_that_wait_do_not_hold_up_the_loop(driven):
    """A round over 100,000 pending halves kept heartbeats waiting for seconds."""
    half = Half(0, 0, 0, "Dead", "", "T", 0, 1, driven.clock.now_ms(), -1, 0)

    async def run():
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        for offset in range(20_000):
            driven.service.ledger.wait(half._replace(offset=offset))
        task = asyncio.create_task(others())
        await driven.service.checks.run()
        task.cancel()
        driven.service.ledger.waiting.clear()
        return turns

    assert driven.call(run()) >= 20_000 // checks.YIELD_COUNT


@pytest.mark.parametrize("kill", [False, True])
def test_checks_go_on_after_a_restart(driven, kill):
    """The count is in the log; copies that a lagging progress brings back are known for what they are."""
    with Producer(driven) as producer:
        producer.half(b"lost")
        driven.round()
        producer.checked()
    driven.restart(kill=kill)
    with Producer(driven) as producer:
        driven.round()
        (check,) = producer.checked()
        assert b"TRANSACTION_CHECK_TIMES\x012\x02" in decode_record(check.body).properties
        assert len(driven.halves()) == 3
        assert producer.answer(check).code == ResponseCode.SUCCESS
        driven.round()
    assert committed(driven) == [b"lost"]


def test_a_committed_half_is_never_asked_about_after_a_kill(driven):
    """Its op message was not written: the committed message is found instead."""
    with Producer(driven) as producer:
        for _ in range(3):
            producer.end_oneway(producer.half(b"once"))
    driven.restart(kill=True)
    with Producer(driven) as producer:
        driven.round()
        assert committed(driven) == [b"once"] * 3
        assert len(driven.halves()) == 3
        assert not producer.pushed
        assert driven.progress()[0] == 3


def test_a_half_that_cannot_be_read_is_left_behind(driven, producer):
    """TXN-16: whatever is wrong with one, the next is reached."""
    halves = [producer.half(b"body %d" % number) for number in range(3)]
    driven.broker.store.flush()
    place = int(halves[1].fields["msgId"][-16:], 16)
    (log,) = (driven.broker.store_path / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(place + 88)
        assert file.read(6) == b"body 1"
        file.seek(place + 88)
        file.write(b"damage")
    driven.round()
    assert {decode_record(check.body).body for check in producer.checked(2)} == {b"body 0", b"body 2"}
    assert driven.service.counts["unreadable"] == 1
    assert driven.progress()[0] == 3


def test_a_half_that_cannot_be_asked_about_is_given_up(driven, producer):
    """As Apache may have left them: nobody to ask, nonsense for a queue, no room for a count. The next is reached."""
    full = "PGROUP\x01P\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02UNIQ_KEY\x01K\x02A\x01"
    foreign = {
        b"nobody": "REAL_TOPIC\x01T\x02REAL_QID\x010\x02",
        b"nowhere": "PGROUP\x01P\x02REAL_QID\x010\x02",
        b"nonsense": "PGROUP\x01P\x02REAL_TOPIC\x01T\x02REAL_QID\x01x\x02",
        b"bytes": "\x01\x02\x02PGROUP",
        b"full": full + "x" * (32_767 - len(full) - 1) + "\x02",
    }
    for body, properties in foreign.items():
        driven.broker.serve.put(
            names.HALF_TOPIC, 0, body, properties.encode(), born_host=("127.0.0.1", 1), born_timestamp_ms=1
        )
    producer.half(b"good")
    driven.round()
    (check,) = producer.checked()
    assert decode_record(check.body).body == b"good"
    driven.round()
    assert {message.body for message in driven.messages(names.CHECK_MAX_TIME_TOPIC)} == set(foreign)
    producer.answer(producer.checked()[0])
    assert committed(driven) == [b"good"]
    assert driven.progress()[0] == len(driven.halves())


def test_retention_does_not_stop_the_rounds(driven, producer):
    """Half messages whose files are gone are counted, and the rounds go on behind them."""
    for _ in range(40):
        producer.half(b"x" * 60_000)
    driven.settled()
    driven.broker.store.flush()
    assert driven.broker.store.remove_oldest() is not None
    driven.broker.store.clean_queues()
    producer.half(b"young")
    low = driven.service.queue_range(names.HALF_TOPIC)[0]
    assert low > 0
    driven.round()
    assert len(producer.checked(41 - low)) == 41 - low
    assert driven.service.counts["removed"] == low


def test_progress_waits_for_the_flush(tmp_path):
    """What the saved progress vouches for (a half put again) must not be lost with the power."""
    store = SMALL.replace(flush_interval_commit_log_ms=3_600_000, flush_commit_log_thorough_interval_ms=3_600_000)
    with DrivenBroker(tmp_path, store=store) as driven, Producer(driven) as producer:
        producer.half()
        driven.round()
        producer.checked()
        driven.round()
        assert not driven.broker.serve.offset_query("CID_RMQ_SYS_TRANS", names.HALF_TOPIC, 0)
        assert driven.progress()[0] >= 1


def test_the_broker_says_how_transactions_are_doing(driven, producer):
    """GET_BROKER_RUNTIME_INFO."""
    producer.end(producer.half())
    producer.end(producer.half(), ROLLBACK)
    producer.half()
    driven.round()
    driven.settled()  # the half message was put again, and is pending from where it is in the queue now
    table = loads(producer.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    found = {name: table[f"pymq.transaction.{name}"] for name in ("committed", "rolled_back", "checked", "pending")}
    assert found == {"committed": "1", "rolled_back": "1", "checked": "1", "pending": "1"}


def test_tools_see_the_progress(driven, producer):
    """TXN-14: as the consumer offsets of CID_RMQ_SYS_TRANS."""
    producer.end(producer.half())
    producer.half()
    assert driven.progress() == (1, 1)
    driven.settled()
    answer = producer.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CID_RMQ_SYS_TRANS"})
    table = loads(answer.body)["offsetTable"]
    found = {
        key["topic"]: (row["consumerOffset"], row["brokerOffset"])
        for key, row in ((dict(key), row) for key, row in table.items())
    }
    assert found == {names.HALF_TOPIC: (1, 2), names.OP_HALF_TOPIC: (1, 1)}


@pytest.mark.parametrize("kill", [False, True])
def test_no_client_can_end_transactions_by_committing_an_offset(driven, kill):
    """One UPDATE_CONSUMER_OFFSET for CID_RMQ_SYS_TRANS made all pending half messages vanish at the next start."""
    with Producer(driven) as producer:
        half = producer.half(b"kept")
        for topic in (names.HALF_TOPIC, names.OP_HALF_TOPIC):
            fields = {"consumerGroup": "CID_RMQ_SYS_TRANS", "topic": topic, "queueId": "0", "commitOffset": "1000000"}
            producer.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        driven.call(driven.broker.offsets.save())
    driven.restart(kill=kill)
    assert driven.progress() == (0, 0)
    with Producer(driven) as producer:
        assert producer.end(half).code == ResponseCode.SUCCESS
        assert committed(driven) == [b"kept"]


@pytest.mark.parametrize("plane", ["native", "python"])
def test_checks_come_by_themselves(tmp_path, plane):
    """The background task, on the machine's clock and on both planes."""
    config = pymq.BrokerConfig(
        listen_port=0, namesrv_listen_port=0, data_plane=plane, store_path_root_dir=str(tmp_path), store=SMALL,
        transaction_time_out=50, transaction_check_interval=100, transaction_op_batch_interval=50,
    )  # fmt: skip

    with (
        pymq.Broker(config).running() as broker,
        Producer(SimpleNamespace(broker=broker, clock=broker.clock)) as producer,
    ):
        producer.half(b"lost")
        (check,) = producer.checked()
        assert producer.answer(check).code == ResponseCode.SUCCESS
        assert broker.transactions.counts["committed"] == 1
