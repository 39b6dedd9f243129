"""What audits know of a store as a whole: its ends, and how far it can be judged."""

from __future__ import annotations

from pyspark.sql import Row

from spark_jobs.audits.facts import LONG_MAX, Facts, facts_of

PAGE = {
    "store": "one", "abort": False, "log_begin": 1000, "log_end": 9999, "dump": None, "logics_physical_offset": 4000,
    "pymq_safe_offset": None, "pymq_flushed_offset": None, "pymq_clean_end": None,
}  # fmt: skip
OWN = {"pymq_safe_offset": 3000, "pymq_flushed_offset": 5000, "pymq_clean_end": 6000}


def known(tail: tuple[int, int] | None = None, *, end: int = 6000, front: int = 6000, **page: object) -> Facts:
    """The facts of a store whose walk came to *end*; *tail* is its last damage that is no record."""
    measured = Row(
        walk_end=end,
        blank_at=None,
        last_begin=1000,
        tail=None if tail is None else Row(begin=tail[0], end=tail[1]),
        front=front,
        records=7,
        bytes=700,
        last_store_timestamp=42,
    )
    return facts_of(PAGE | page, measured)


def test_a_clean_store_is_judged_to_its_end():
    """Goal: no excuse where none is due. Method: stores of both brokers, stopped cleanly."""
    for one in (known(), known(**OWN)):
        assert (one.log_begin, one.log_end, one.judged_end, one.rebuilds) == (1000, 6000, 6000, False)
        assert one.torn_from == LONG_MAX


def test_a_killed_store_is_judged_as_far_as_it_was_durable():
    """Goal: what recovery rebuilds is not judged. Method: `abort`, and what each broker's page vouches for."""
    pymq, apache = known(abort=True, **OWN), known(abort=True)
    assert (pymq.judged_end, pymq.torn_from, pymq.rebuilds) == (3000, 5000, True)
    assert (apache.judged_end, apache.torn_from, apache.rebuilds) == (4000, 4000, True)
    assert known(abort=True, logics_physical_offset=0).judged_end == 1000  # never below the log's beginning


def test_a_stop_before_dispatch_had_caught_up_is_judged_as_a_killed_one():
    """Goal: pymq's page says so, and no `abort` is left. Method: a page without a clean end."""
    one = known(**(OWN | {"pymq_clean_end": -1}))
    assert (one.judged_end, one.rebuilds) == (3000, True)


def test_a_dump_of_a_running_broker_is_judged_to_its_position():
    """Goal: its `abort` is the broker's, and its queues are cut at the position. Method: the dump's kind."""
    one = known(abort=True, dump="running", **OWN)
    assert (one.judged_end, one.rebuilds, one.torn_from) == (6000, False, LONG_MAX)


def test_damage_at_the_very_end_is_behind_the_log():
    """Goal: a torn tail is no part of the log. Method: the walk's end is the damage's."""
    one = known((5500, 6000), front=5500)
    assert (one.log_end, one.written_end) == (5500, 6000)
    assert known((2000, 2100)).log_end == 6000  # damage further in front is not the end


def test_stale_bytes_behind_the_end_are_apaches_alone():
    """Goal: Apache's recovery leaves them, pymq wipes them. Method: a torn tail, with and without units of it."""
    assert known((5500, 6000), front=5500).torn_from == 5500
    assert known((5500, 6000), front=5600).torn_from == LONG_MAX
    assert known((5500, 6000), front=5500, **OWN).torn_from == LONG_MAX


def test_an_empty_store_has_facts():
    """Goal: nothing to look at is no error. Method: no measures at all."""
    one = facts_of(PAGE, None)
    assert (one.log_begin, one.log_end, one.records) == (1000, 1000, 0)
