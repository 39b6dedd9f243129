"""The timer log of a running broker's dump: it has what the timer checkpoint says, also when it was interrupted."""

from __future__ import annotations

import pytest

import pymq
from pymq.broker.timer.checkpoint import TimerCheckpoint
from pymq.broker.timer.log import UNIT
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.store.dump import DumpError, take_dump, verify_dump
from pymq.store.dump.copier import Silent
from pymq.store.dump.timers import check_covered
from tests.broker.sides import until
from tests.broker.test_admin import create_topic
from tests.broker.test_dump import address_of, make_config
from tests.broker.wire import Wire, send_fields

FILE_SIZE = 10 * UNIT.size + 20
TIMERS = 45


@pytest.fixture
def broker(tmp_path):
    """A broker with pending timers in five files of its timer log, all of them saved."""
    settings = {"timer_precision_ms": 100, "timer_flush_interval_ms": 50, "mapped_file_size_timer_log": FILE_SIZE}
    config = make_config(tmp_path / "store", **settings)
    with pymq.Broker(config).running() as running, Wire(running.config.listen_port) as wire:
        create_topic(wire, "T")
        for number in range(TIMERS):
            fields = send_fields("T", 0, f"TIMER_DELAY_MS\x013600000\x02UNIQ_KEY\x01timer{number}\x02")
            assert wire.call(RequestCode.SEND_MESSAGE_V2, fields, b"%d" % number).code == ResponseCode.SUCCESS
        until(lambda: running.timer.store.stats.enqueued >= TIMERS)
        running.store.flush()
        until(lambda: running.timer.store.is_saved)
        yield running


class Ending(Silent):
    """Ends an attempt when a file with this beginning is done."""

    def __init__(self, path):
        self.path = path

    def file_done(self, path):
        if path.startswith(self.path):
            raise KeyboardInterrupt


def log_files(store):
    """The timer log's files."""
    return sorted((store / "timerlog").iterdir())


@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_timer_log_that_went_before_it_was_copied_is_not_left_out_in_silence(broker, tmp_path, number):
    """Goal: a dump that is called whole has the units its checkpoint vouches for. Method: end an attempt before the
    timer log; remove a file, as the broker does when it has delivered what is in it; go on."""
    with pytest.raises(KeyboardInterrupt):
        take_dump(address_of(broker), tmp_path / "dump", report=Ending("config/topics.json"))
    files = log_files(broker.store_path)
    assert len(files) == 5
    files[number].unlink()
    with pytest.raises(DumpError, match=f"no units at {number * FILE_SIZE} any more.*begin again"):
        take_dump(address_of(broker), tmp_path / "dump")
    assert not (tmp_path / "dump" / "manifest.json").exists()


def test_a_timer_log_that_is_copied_may_go_between_two_attempts(broker, tmp_path):
    """Goal: only what is missing is missed. Method: end an attempt behind the first file; remove it; go on."""
    with pytest.raises(KeyboardInterrupt):
        take_dump(address_of(broker), tmp_path / "dump", report=Ending("timerlog/"))
    log_files(broker.store_path)[0].unlink()
    result = take_dump(address_of(broker), tmp_path / "dump")
    assert sum(entry.path.startswith("timerlog/") for entry in result.manifest.files) == 5
    assert verify_dump(tmp_path / "dump")[1] == []
    wheel = (tmp_path / "dump" / "timerwheel").read_bytes()
    assert sum(int.from_bytes(wheel[at + 24 : at + 28], "big") for at in range(0, len(wheel), 32)) == TIMERS


def test_a_timer_log_that_was_made_again_and_is_shorter_is_an_error(broker, tmp_path):
    """Goal: positions of one log are not looked up in another. Method: zeros where the last units were."""
    with pytest.raises(KeyboardInterrupt):
        take_dump(address_of(broker), tmp_path / "dump", report=Ending("config/topics.json"))
    with log_files(broker.store_path)[-1].open("r+b") as stream:
        stream.write(bytes(FILE_SIZE))
    with pytest.raises(DumpError, match=r"does not reach .*begin again"):
        take_dump(address_of(broker), tmp_path / "dump")


@pytest.mark.parametrize(
    ("bases", "begin", "end", "missing"),
    [
        ([], 0, 0, None),
        ([], 100, 100, None),
        ([], 0, 1, 0),
        ([0, 100], 0, 200, None),
        ([0, 100], 0, 201, 200),
        ([100], 99, 150, 99),
        ([100], 100, 150, None),
        ([0, 200], 50, 101, 100),
        ([0, 200], 50, 100, None),
    ],
)
def test_the_files_of_a_timer_log_cover_it_or_the_first_gap_is_named(tmp_path, bases, begin, end, missing):
    """Goal: the edges. Method: files of 100 bytes, and checkpoints that need more or less of them."""
    checkpoint = TimerCheckpoint(pending_from=begin, log_end=end)
    sizes = dict.fromkeys(bases, 100)
    if missing is None:
        check_covered(tmp_path, sizes, checkpoint)
    else:
        with pytest.raises(DumpError, match=f"no units at {missing} any more"):
            check_covered(tmp_path, sizes, checkpoint)
