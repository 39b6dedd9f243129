"""The ledger of half messages by itself: what is pending after every way a start can find the two queues."""

from __future__ import annotations

import pytest

from pymq.broker.transaction.half import Half
from pymq.broker.transaction.ledger import End, Ledger
from pymq.broker.transaction.ops import read_op


def half(offset, origin=None):
    """A half message of which only the places matter."""
    return Half(offset, offset * 100, offset if origin is None else origin, "P", "K", "T", 0, 0, 0, -1, 0)


def pending(ledger, end):
    """The offsets below *end* that are pending."""
    return [offset for offset in range(end) if not ledger.is_done(offset)]


def test_op_messages_end_what_they_name():
    """And the op queue's progress passes those that name nothing above the half queue's."""
    ledger = Ledger()
    ledger.load(map(half, range(6)), [(0, [0, 1]), (1, []), (2, [5]), (3, [2])])
    assert pending(ledger, 6) == [3, 4]
    assert ledger.pending_count(6) == 2
    ledger.advance()
    assert (ledger.progress, ledger.cursor, ledger.op_progress) == (3, 3, 2)
    assert ledger.end(3, End.COMMITTED) == 3
    assert ledger.end(4, End.ROLLED_BACK) == 4
    ledger.advance()
    assert (ledger.progress, ledger.op_progress) == (6, 4)


@pytest.mark.parametrize("named", [1, 3, 5])
def test_an_op_message_ends_all_copies_whichever_it_names(named):
    """Of half 1, put again at 3 and at 5: Apache names the copy it was asked about, pymq the newest."""
    ledger = Ledger()
    ledger.load([half(0), half(1), half(2), half(3, 1), half(4), half(5, 1)], [(0, [named])])
    assert pending(ledger, 6) == [0, 2, 4]
    assert [ledger.head(offset, 1) for offset in (1, 3, 5)] == [None] * 3


def test_only_the_newest_copy_is_pending():
    """Also when the saved progress lies between the copies."""
    for progress in (0, 2, 4):
        ledger = Ledger(progress)
        ledger.load([copy for copy in (half(1), half(3, 1), half(5, 1)) if copy.offset >= progress], [])
        assert {ledger.head(offset, 1) for offset in (1, 3, 5)} == {5}


def test_a_transaction_ends_once():
    """By any copy; what lies below the progress has ended."""
    ledger = Ledger()
    ledger.wait(half(0))
    ledger.moved(0, 0, 1)
    assert ledger.end(0, End.COMMITTED, 0) == 1
    assert ledger.head(0, 0) is ledger.head(1, 0) is None
    assert ledger.how_ended(0) is End.COMMITTED
    ledger.skip_to(2)
    ledger.advance()
    assert ledger.progress == 2
    assert ledger.head(0, 0) is ledger.head(1, 0) is None


def test_what_waits_holds_the_progress_and_nothing_else():
    """The cursor goes on; memory is kept only from the progress on."""
    ledger = Ledger()
    ledger.wait(half(0))
    for offset in range(1, 50):
        ledger.end(offset, End.COMMITTED)
    ledger.advance()
    assert (ledger.progress, ledger.cursor) == (0, 50)
    ledger.moved(0, 0, 50)
    ledger.advance()
    assert (ledger.progress, ledger.pending_count(51)) == (50, 1)
    assert ledger.head(0, 0) == 50


@pytest.mark.parametrize(
    ("body", "tags", "offsets"),
    [
        (b"1,22,333,", "d", [1, 22, 333]),
        (b"7", "d", [7]),  # before 5.0
        (b"", "d", []),
        (b"x,-1,+2, 3,4", "d", [4]),
        (b"\xff\xfe,5,", "d", [5]),
        (b"9" * 5000 + b",6,", "d", [6]),
        (b"1,", None, []),
        (b"1,", "r", []),
    ],
)
def test_op_messages_are_read_with_care(body, tags, offsets):
    """What cannot be understood names nothing."""
    assert read_op(body, tags) == offsets
