"""Delay levels when the machine's clock is set back: a broker whose clock is ours, by a library loaded before libc."""

from __future__ import annotations

import struct
import subprocess
import time

import pytest

from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.wire import BrokerProcess, Wire, send_fields

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    static volatile long long *shift_ms;
    if (real == NULL) {
        int fd = open(getenv("CLOCK_FILE"), O_RDONLY);
        shift_ms = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int status = real(id, now);
    if (id == CLOCK_REALTIME)
        now->tv_sec += *shift_ms / 1000;
    return status;
}
"""


@pytest.fixture
def clock(tmp_path):
    """(environment, set): the broker's environment, and how to shift its clock by milliseconds."""
    source, library, shift = tmp_path / "shim.c", tmp_path / "shim.so", tmp_path / "shift"
    source.write_text(SHIM)
    shift.write_bytes(struct.pack("<q", 0))
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)

    def set_ms(shift_ms):
        with shift.open("r+b") as stream:
            stream.write(struct.pack("<q", shift_ms))

    return {"LD_PRELOAD": str(library), "CLOCK_FILE": str(shift)}, set_ms


def maximum(wire):
    """The end of the topic's queue."""
    return int(wire.call(RequestCode.GET_MAX_OFFSET, {"topic": "Back", "queueId": "0"}).fields["offset"])


def test_a_message_sent_after_the_clock_was_set_back_waits_for_its_delay(tmp_path, clock):
    """Symptom: for an hour after a step of an hour, no level delayed anything, and retries were used up in a second."""
    environment, set_ms = clock
    with (
        BrokerProcess(tmp_path, "--messageDelayLevel", "3s", environment=environment) as broker,
        Wire(broker.port) as wire,
    ):
        assert wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("Back"), b"before").code == ResponseCode.SUCCESS
        set_ms(-3_600_000)
        begin_s = time.monotonic()
        answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("Back", 0, "DELAY\x011\x02"), b"after")
        assert answer.code == ResponseCode.SUCCESS
        while maximum(wire) < 2:
            assert time.monotonic() - begin_s < 30
            time.sleep(0.02)
        assert time.monotonic() - begin_s >= 3.0
