"""Transactions over the wire: half messages, END_TRANSACTION, checks; each by frames as a producer writes them."""

from __future__ import annotations

import pytest

from pymq.broker import names
from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.transactions import COMMIT, ROLLBACK, SMALL, UNKNOWN, DrivenBroker, Producer, committed
from tests.broker.wire import send_fields

KEY = "UNIQ_KEY\x017F00000100010000000000000000000\x02"


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


# ---- half messages -----------------------------------------------------------------------------------------------


def test_a_half_message_waits_in_the_half_topic(driven, producer):
    """TXN-7: its own topic and queue are in properties, its flag is taken off, the answer names its own queue."""
    answer = producer.half(b"x", queue_id=3, properties=KEY + "TAGS\x01a\x02")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.fields["queueId"] == "3"
    assert answer.fields["queueOffset"] == "0"
    (half,) = driven.halves()
    assert (half.queue_id, half.sys_flag, half.body) == (0, 0, b"x")
    assert half.properties["REAL_TOPIC"] == "T"
    assert half.properties["REAL_QID"] == "3"
    assert half.properties["__transactionId__"] == half.unique_key == answer.fields["transactionId"]
    assert half.properties["PGROUP"] == "P"
    assert not committed(driven, "T", 3)


def test_a_half_message_without_a_key_gets_one(driven, producer):
    """It is the transaction's id."""
    answer = producer.half()
    (half,) = driven.halves()
    assert half.unique_key
    assert half.unique_key == answer.fields["transactionId"] == half.properties["__transactionId__"]


def test_transactions_can_be_refused(tmp_path):
    """TXN-8: rejectTransactionMessage, in Apache's words."""
    with DrivenBroker(tmp_path, reject_transaction_message=True) as driven, Producer(driven) as producer:
        answer = producer.half()
        assert answer.code == ResponseCode.NO_PERMISSION
        address = driven.broker.config.broker_ip1
        assert answer.remark == f"the broker[{address}] sending transaction message is forbidden"


@pytest.mark.parametrize(
    ("properties", "word"),
    [("TRAN_MSG\x01true\x02", "PGROUP"), ("TRAN_MSG\x01true\x02PGROUP\x01P\x02A\x01" + "x" * 32_300 + "\x02", "room")],
)
def test_a_half_that_could_never_be_checked_is_refused(producer, properties, word):
    """Nobody to ask, or no room for what a check adds."""
    answer = producer.call(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, properties, f="4"), b"x")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert word in answer.remark


def test_a_producer_cannot_pass_its_half_off_as_a_copy_of_another(driven, producer):
    """The properties that say of which half it is a copy, and how often it was checked, are the broker's."""
    first = producer.half()
    producer.half(properties="TRAN_PREPARED_QUEUE_OFFSET\x010\x02TRANSACTION_CHECK_TIMES\x0199\x02")
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in driven.halves()[1].properties
    assert "TRANSACTION_CHECK_TIMES" not in driven.halves()[1].properties
    assert producer.end(first).code == ResponseCode.SUCCESS


# ---- the end -----------------------------------------------------------------------------------------------------


def test_a_commit_puts_the_message_where_it_was_sent_to(driven, producer):
    """TXN-9: content of phase one, commit flag, prepared offset; REAL_TOPIC and REAL_QID gone."""
    half = producer.half(b"paid", queue_id=2, properties="TAGS\x01a\x02KEYS\x01k\x02", h="7")
    assert producer.end(half).code == ResponseCode.SUCCESS
    (message,) = driven.messages("T", 2)
    (before,) = driven.halves()
    assert (message.body, message.flag, message.tags, message.keys) == (b"paid", 7, "a", ("k",))
    assert message.sys_flag & 12 == 8
    assert message.prepared_transaction_offset == before.physical_offset
    assert message.born_timestamp_ms == before.born_timestamp_ms
    assert message.born_host == before.born_host
    gone = {"REAL_TOPIC", "REAL_QID"}
    assert message.properties == {name: value for name, value in before.properties.items() if name not in gone}


def test_a_rollback_leaves_nothing_to_see(driven, producer):
    """TXN-10: only the op message."""
    assert producer.end(producer.half(), ROLLBACK).code == ResponseCode.SUCCESS
    assert not committed(driven)
    (op,) = driven.messages(names.OP_HALF_TOPIC)
    assert (op.body, op.tags) == (b"0,", "d")


def test_an_undecided_end_changes_nothing_and_is_not_answered(driven, producer):
    """As from Apache; the half is checked later."""
    half = producer.half()
    producer.end_oneway(half, UNKNOWN)
    assert driven.service.ledger.pending_count(1) == 1
    driven.round()
    assert len(producer.checked()) == 1


@pytest.mark.parametrize(
    ("more", "remark"),
    [
        ({"producerGroup": "Q"}, "The producer group wrong"),
        ({"tranStateTableOffset": "7"}, "The transaction state table offset wrong"),
        ({"transactionId": "X"}, "The transaction id wrong"),
        ({"commitLogOffset": "1"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "99999999"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "-1"}, "Find prepared transaction message failed"),
        ({"commitOrRollback": "4"}, "commitOrRollback field wrong"),
    ],
)
def test_an_end_must_mean_the_half(driven, producer, more, remark):
    """Group, both offsets, the id; a wrong one changes nothing."""
    half = producer.half()
    answer = producer.end(half, **more)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert not committed(driven)
    assert producer.end(half).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "name", ["producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback", "msgId"]
)
def test_a_missing_field_is_named(producer, name):
    """As Apache names it."""
    fields = producer.end_fields(producer.half(), COMMIT)
    del fields[name]
    answer = producer.call(RequestCode.END_TRANSACTION, fields)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")


def test_what_is_no_half_message_cannot_be_committed(driven, producer):
    """Apache trips over it with a null pointer."""
    answer = producer.call(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, "PGROUP\x01P\x02"), b"x")
    driven.settled()
    found = producer.end(answer)
    assert (found.code, found.remark) == (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")


@pytest.mark.parametrize("restart", [None, "stop", "kill"])
def test_a_second_commit_is_answered_and_stored_once(driven, producer, restart):
    """Also after a stop, and after a kill before the op message was written."""
    half = producer.half(b"once")
    producer.end_oneway(half)
    assert committed(driven) == [b"once"]
    if restart:
        assert driven.messages(names.OP_HALF_TOPIC) == []
        driven.restart(kill=restart == "kill")
        assert len(driven.messages(names.OP_HALF_TOPIC)) == (restart == "stop")
    with Producer(driven) as again:
        assert again.end(half).code == ResponseCode.SUCCESS
        assert committed(driven) == [b"once"]
        assert again.end(half, ROLLBACK).code == ResponseCode.SYSTEM_ERROR
    assert committed(driven) == [b"once"]


@pytest.mark.parametrize("restart", [None, "stop", "kill"])
def test_what_was_rolled_back_cannot_be_committed(driven, producer, restart):
    """A rollback that was answered is noted in the log before its answer."""
    half = producer.half()
    assert producer.end(half, ROLLBACK).code == ResponseCode.SUCCESS
    if restart:
        driven.restart(kill=restart == "kill")
    with Producer(driven) as again:
        answer = again.end(half)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "rolled back" in answer.remark
        assert again.end(half, ROLLBACK).code == ResponseCode.SUCCESS
    assert not committed(driven)


def test_a_commit_without_index_is_found_after_a_kill(tmp_path):
    """messageIndexEnable=false: the queue itself is read."""
    store = SMALL.replace(message_index_enable=False)
    with DrivenBroker(tmp_path, store=store) as driven:
        with Producer(driven) as producer:
            half = producer.half(b"once")
            producer.end_oneway(half)
        driven.restart(kill=True)
        with Producer(driven) as producer:
            assert producer.end(half).code == ResponseCode.SUCCESS
            driven.round()
            assert producer.end(producer.half(b"two")).code == ResponseCode.SUCCESS
        assert committed(driven) == [b"once", b"two"]


def test_a_commit_is_found_after_a_kill_when_the_index_was_off_before(tmp_path):
    """Symptom: committed twice, because an index that was switched on since then does not know the first."""
    with DrivenBroker(tmp_path, store=SMALL.replace(message_index_enable=False)) as driven:
        with Producer(driven) as producer:
            halves = [producer.half(b"%d" % number) for number in range(3)]
            for half in halves:
                producer.end_oneway(half)
        driven.restart(kill=True, store=SMALL.replace(message_index_enable=True))
        with Producer(driven) as producer:
            assert {producer.end(half).code for half in halves} == {ResponseCode.SUCCESS}
        assert sorted(committed(driven)) == [b"0", b"1", b"2"]


def test_a_commit_is_found_after_a_kill_among_many_of_its_key(tmp_path):
    """Symptom: committed twice, because only the newest messages of the key were looked at."""
    key = "UNIQ_KEY\x01SAME\x02"
    with DrivenBroker(tmp_path) as driven:
        with Producer(driven) as producer:
            half = producer.half(b"once", properties=key)
            producer.end_oneway(half)
            for _ in range(70):
                producer.call(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, key), b"other")
        driven.restart(kill=True)
        with Producer(driven) as producer:
            assert producer.end(half).code == ResponseCode.SUCCESS
        assert committed(driven).count(b"once") == 1


def test_a_delayed_half_waits_for_its_time_from_its_commit_on(driven, producer):
    """Differs from Apache, which drops it; committed once over a kill as well."""
    half = producer.half(b"later", queue_id=1, properties="DELAY\x013\x02")
    assert len(driven.halves()) == 1
    producer.end_oneway(half)
    driven.restart(kill=True)
    with Producer(driven) as again:
        assert again.end(half).code == ResponseCode.SUCCESS
    (waiting,) = driven.messages(names.SCHEDULE_TOPIC, 2)
    assert waiting.sys_flag & 12 == 8
    assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("T", "1")


@pytest.mark.parametrize("later_s", [0, 7200])
def test_a_timed_half_is_committed_once_over_a_kill(driven, producer, later_s):
    """Also when its time has passed meanwhile, and a commit now would go elsewhere than the one before."""
    half = producer.half(b"timed", queue_id=1, properties="TIMER_DELAY_SEC\x013600\x02")
    deliver_ms = driven.clock.now_ms() + 3600_000
    half_at = producer.half(b"at", queue_id=1, properties=f"TIMER_DELIVER_MS\x01{deliver_ms}\x02")
    producer.end_oneway(half)
    producer.end_oneway(half_at)
    assert [one.body for one in driven.messages(names.TIMER_TOPIC)] == [b"timed", b"at"]
    driven.restart(kill=True)
    driven.clock.advance(later_s)
    with Producer(driven) as again:
        assert again.end(half).code == ResponseCode.SUCCESS
        assert again.end(half_at).code == ResponseCode.SUCCESS
        driven.round()
    assert len([one for one in driven.messages(names.TIMER_TOPIC) if "TIMER_ROLL_TIMES" not in one.properties]) == 2
    assert len(driven.messages("T", 1)) <= 2
    assert len(driven.halves()) == 2


@pytest.mark.parametrize("interval_ms", [1, 300])
def test_a_half_in_the_transient_pool_can_be_ended_at_once(tmp_path, interval_ms):
    """apache/rocketmq#2098: its answer comes before it can be read; the end waits for that."""
    store = SMALL.replace(
        transient_store_pool_enable=True, transient_store_pool_size=3, commit_interval_commit_log_ms=interval_ms
    )
    with DrivenBroker(tmp_path, store=store) as driven, Producer(driven) as producer:
        for number in range(3):
            assert producer.end(producer.half(b"%d" % number)).code == ResponseCode.SUCCESS
        assert committed(driven) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_an_end_is_answered_after_its_flush(tmp_path, how):
    """SYNC_FLUSH: what the answer promises is on stable storage, of a repeated one too."""
    with DrivenBroker(tmp_path, store=SMALL.replace(flush_disk_type="SYNC_FLUSH")) as driven:
        with Producer(driven) as producer:
            half = producer.half(b"safe")
            for _ in range(2):
                before = int(driven.broker.store.watermarks()["flushed"])
                assert producer.end(half, how).code == ResponseCode.SUCCESS
                marks = driven.broker.store.watermarks()
                assert marks["flushed"] == marks["written"] >= before
        assert committed(driven) == ([b"safe"] if how == COMMIT else [])


def test_op_messages_are_written_in_batches(tmp_path):
    """TXN-11: by size; the rest at the next pass, with a comma behind each offset."""
    with (
        DrivenBroker(tmp_path, data_plane="python", transaction_op_msg_max_size=6) as driven,
        Producer(driven) as producer,
    ):
        for _ in range(4):
            producer.end_oneway(producer.half())
        assert [op.body for op in driven.messages(names.OP_HALF_TOPIC)] == [b"0,1,2,"]
        assert driven.progress() == (4, 2)
        assert [op.body for op in driven.messages(names.OP_HALF_TOPIC)] == [b"0,1,2,", b"3,"]
