"""Flow control (BRK-10 to BRK-12): a refused send says which limit, its value, and the wait."""

from __future__ import annotations

import asyncio
import re
import threading
import time

import pytest

import pymq
from pymq.broker.controller import WORKERS
from pymq.broker.processors.query import QueryProcessor
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.config import Lane
from tests.broker.sides import until
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.wire import Wire, send_fields
from tests.embedded.test_pool_table import NEVER

PLANES = ("native", "python")
LATE = (
    r"\[TIMEOUT_CLEAN_QUEUE\]broker busy, start flow control for a while, period in queue: (\d+)ms, "
    r"size of queue: \d+, limit of lane admin: 300ms"
)
FULL = r"lane admin holds 2[01] of 20 requests"
BUSY = "[REJECTREQUEST]system busy, start flow control for a while: "


def run(directory, plane, **more):
    """A running broker."""
    config = pymq.BrokerConfig(
        listen_port=0, namesrv_listen_port=0, store_path_root_dir=str(directory), data_plane=plane, **more
    )
    return pymq.Broker(config).running()


def send(wire, body=b"body"):
    """One send's answer."""
    return wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("t"), body)


@pytest.mark.parametrize("plane", PLANES)
def test_exhausted_transient_pool_says_its_size_and_sends_go_on_once_it_is_not(tmp_path, plane):
    """BRK-11: nothing is committed until the pool is full; then a commit gives a buffer back."""
    store = SMALL.replace(
        flush_disk_type="ASYNC_FLUSH",
        transient_store_pool_enable=True,
        transient_store_pool_size=2,
        transient_store_pool_wait_ms=0,
        max_message_size=400_000,
        **NEVER,
    )
    with run(tmp_path, plane, store=store) as broker, Wire(broker.config.listen_port) as wire:
        create_topic(wire, "t")
        command = Command(RequestCode.SEND_MESSAGE_V2, send_fields("t"), b"x" * (broker.config.max_message_size // 2))
        refused = None
        for _ in range(100):
            answer = wire.call(command.code, command.fields, command.body)
            if answer.code != ResponseCode.SUCCESS:
                refused = answer
                break
        assert refused is not None, "the pool never was exhausted: the test does not test"
        assert (refused.code, refused.fields) == (ResponseCode.SYSTEM_BUSY, {})
        # A refusal wakes the committer, which may have given one back before the words were made.
        words = re.escape(BUSY) + r"the transient store pool has [0-2] of 2 buffers free \(transientStorePoolSize\)"
        assert re.fullmatch(words, refused.remark)
        until(lambda: send(wire).code == ResponseCode.SUCCESS)


def test_refusals_name_the_limit_its_value_and_the_wait(tmp_path):
    """BRK-10: what a lock held too long and an empty pool are answered with; the words are made in one place."""
    with run(tmp_path, "native", store=SMALL.replace(os_page_cache_busy_timeout_ms=700)) as broker:
        refusal = broker.serve.refusal("PYMQ_ETIMEDOUT")
    assert (refusal.code, refusal.has_fields) == (ResponseCode.SYSTEM_BUSY, False)
    assert refusal.remark == (
        BUSY + "the commit log has been locked for 700ms, limit 700ms (osPageCacheBusyTimeOutMills)"
    )


def test_send_that_waited_too_long_says_how_long_and_the_limit(tmp_path):
    """BRK-12: the control loop is kept busy for longer than waitTimeMillsInSendQueue; what waits is answered."""
    free = threading.Event()
    with (
        run(tmp_path, "python", wait_time_mills_in_send_queue=100, store=SMALL) as broker,
        Wire(broker.config.listen_port) as wire,
    ):
        create_topic(wire, "t")
        loop = broker.server._ticker._loop
        assert isinstance(loop, asyncio.AbstractEventLoop)
        loop.call_soon_threadsafe(free.wait, 30)
        opaque = wire.post(Command(RequestCode.SEND_MESSAGE_V2, send_fields("t"), b"body"))
        answer = wire.wait(opaque)
        free.set()
        assert answer.code == ResponseCode.SYSTEM_BUSY
        found = re.fullmatch(
            r"\[TIMEOUT_CLEAN_QUEUE\]broker busy, start flow control for a while, period in queue: (\d+)ms, "
            r"size of queue: \d+, limit of lane send: 100ms",
            answer.remark,
        )
        assert found is not None, answer.remark
        assert 100 <= int(found[1]) < 30_000
        assert send(wire).code == ResponseCode.SUCCESS


def test_full_send_lane_says_how_many_it_holds(tmp_path):
    """More sends than sendThreadPoolQueueCapacity wait for Python: the next is refused and says so."""
    free = threading.Event()
    with (
        run(
            tmp_path, "python", send_thread_pool_queue_capacity=3, broker_fast_failure_enable=False, store=SMALL
        ) as broker,
        Wire(broker.config.listen_port) as wire,
    ):
        create_topic(wire, "t")
        broker.server._ticker._loop.call_soon_threadsafe(free.wait, 30)
        opaques = [wire.post(Command(RequestCode.SEND_MESSAGE_V2, send_fields("t"), b"body")) for _ in range(6)]
        refused = wire.receive()
        free.set()
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert refused.remark == BUSY + "lane send holds 3 of 3 requests"
        rest = {wire.receive().code for _ in opaques[1:]}
        assert ResponseCode.SUCCESS in rest


def test_requests_that_wait_for_a_slow_disk_are_bounded_and_answered_in_time(tmp_path):
    """Symptom: the lane's capacity and its limit ended where the threads began: 535 requests were in progress of 100
    allowed, and the first answer came after the 6 s that the disk took."""
    free = threading.Event()
    with (
        run(
            tmp_path, "native", admin_broker_thread_pool_queue_capacity=20,
            wait_time_mills_in_admin_broker_queue=300, store=SMALL,
        ) as broker,
        Wire(broker.config.listen_port) as wire,
    ):  # fmt: skip
        try:
            for _ in range(WORKERS):
                broker.executor.submit(free.wait, 30)
            view = Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})
            for _ in range(50):
                wire.post(Command(view.code, dict(view.fields)))
            remarks = [answer.remark for answer in (wire.receive() for _ in range(50))]
            # One too many can be in: a request taken out of the lane counts again when it begins to wait for a thread.
            full = [remark for remark in remarks if re.fullmatch(re.escape(BUSY) + FULL, remark)]
            late = [remark for remark in remarks if remark not in full]
            waits_ms = [int(found[1]) for found in map(re.compile(LATE).fullmatch, late) if found is not None]
            assert full
            assert len(waits_ms) == len(late), late
            assert all(300 <= wait_ms < 30_000 for wait_ms in waits_ms), waits_ms
            lane = Lane.ADMIN
            until(lambda: broker.server.transport.stats()["lane_running"][lane] == 0)
            stats = broker.server.transport.stats()
            assert (stats["lane_refused"][lane], stats["lane_expired"][lane]) == (len(full), len(late))
        finally:
            free.set()
        answer = wire.call(view.code, view.fields)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "can not find message by the offset, 0")


def test_a_read_that_a_thread_has_begun_is_finished_however_long_it_takes(tmp_path, monkeypatch):
    """Goal: the limit is one of waiting. Method: a store that takes longer than the limit."""
    find = QueryProcessor._find
    monkeypatch.setattr(QueryProcessor, "_find", lambda *arguments: time.sleep(0.4) or find(*arguments))
    with (
        run(tmp_path, "native", wait_time_mills_in_admin_broker_queue=100, store=SMALL) as broker,
        Wire(broker.config.listen_port) as wire,
    ):
        create_topic(wire, "t")
        until(lambda: send(wire).code == ResponseCode.SUCCESS)
        fields = {"topic": "t", "key": "none", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": str(2**62)}
        assert wire.call(RequestCode.QUERY_MESSAGE, fields).code == ResponseCode.QUERY_NOT_FOUND
