"""Faults of consume queues: a record without its unit (A3), a unit without its record (A4), gaps (A5), order (A6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.spark_jobs.faults import Case, Expected, NothingFitsError
from tests.spark_jobs.faults.patch import UNIT, Placed, Unit
from tests.spark_jobs.faults.seeding import Faults

FAULTS = Faults()

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
FILLER = Unit(0, 2**31 - 1, 0)
FAR = 1 << 40

Place = tuple[str, int, int]


def queued(case: Case, wanted: Callable[[Place, dict[int, Unit]], object] = lambda place, units: True) -> Place:
    """A place with a unit whose record the log has, and that is not the first of its topic."""
    begin = int(case.store.log_files()[0].name)
    everything = {queue: case.store.units(*queue) for queue in case.store.queues()}
    first: dict[str, int] = {}
    for (topic, _), units in everything.items():
        for unit in units.values():
            first[topic] = min(first.get(topic, FAR), unit.physical_offset)
    found = [
        (topic, queue, offset)
        for (topic, queue), units in everything.items()
        for offset, unit in units.items()
        if unit.physical_offset > max(first[topic], begin) and wanted((topic, queue, offset), units)
    ]
    if not found:
        raise NothingFitsError("no unit fits")
    return case.random.choice(sorted(found))


def is_inner(place: Place, units: dict[int, Unit]) -> bool:
    """Whether units stand before and behind it, two of each."""
    return all(place[2] + step in units for step in (-2, -1, 1, 2))


def is_last(place: Place, units: dict[int, Unit]) -> bool:
    """Whether it is its queue's last."""
    return place[2] == max(units) and len(units) > 1


def changed(case: Case, place: Place, **fields: int) -> None:
    """Another value in a unit."""
    case.store.put_unit(*place, case.store.unit(*place)._replace(**fields))


def expected(check: str, place: Place) -> Expected:
    """A finding at a place."""
    return Expected(check, *place)


def another_queues_record(case: Case, place: Place) -> Placed:
    """A record of another queue."""
    return case.store.pick(lambda one: one.queue != place[:2], case.random)


def log_end(case: Case) -> int:
    """Behind the last record."""
    return case.store.log_end()


# ---- A3: every record has its unit -----------------------------------------------------------------------------------


@FAULTS.seeds("A3")
def _no_unit(case: Case) -> Expected:
    place = queued(case, is_inner)
    case.store.zero_unit(*place)
    return expected("A3", place)


@FAULTS.seeds("A3")
def _no_last_unit(case: Case) -> Expected:
    place = queued(case, is_last)
    case.store.zero_unit(*place)
    return expected("A3", place)


@FAULTS.seeds("A3")
def _no_last_three_units(case: Case) -> Expected:
    topic, queue, last = queued(case, lambda place, units: is_last(place, units) and len(units) > 4)
    place = (topic, queue, last - 2)
    case.store.cut_queue(*place)
    return expected("A3", place)


@FAULTS.seeds("A3")
def _the_next_records_unit(case: Case) -> Expected:
    place = queued(case, is_inner)
    case.store.put_unit(*place, case.store.unit(place[0], place[1], place[2] + 1))
    return expected("A3", place)


@FAULTS.seeds("A3")
def _a_byte_beside_the_record(case: Case) -> Expected:
    place = queued(case)
    changed(case, place, physical_offset=case.store.unit(*place).physical_offset + 1)
    return expected("A3", place)


@FAULTS.seeds("A3")
def _a_filler_for_the_record(case: Case) -> Expected:
    place = queued(case, is_inner)
    case.store.put_unit(*place, FILLER)
    return expected("A3", place)


@FAULTS.seeds("A3")
def _two_units_changed_places(case: Case) -> Expected:
    place = queued(case, is_inner)
    behind = (place[0], place[1], place[2] + 1)
    one, other = case.store.unit(*place), case.store.unit(*behind)
    case.store.put_unit(*place, other)
    case.store.put_unit(*behind, one)
    return expected("A3", place)


@FAULTS.seeds("A3")
def _a_record_nobody_dispatched(case: Case) -> Expected:
    place = queued(case, is_last)
    model = case.store.at(case.store.unit(*place).physical_offset)
    appended = case.store.append(replace(model.record, queue_offset=place[2] + 1))
    return Expected("A3", place[0], place[1], appended.record.queue_offset)


@FAULTS.seeds("A3")
def _a_record_of_another_offset(case: Case) -> Expected:
    place = queued(case, is_inner)
    one = case.store.at(case.store.unit(*place).physical_offset)
    behind = max(case.store.units(*place[:2])) + case.random.randrange(10, 100)
    case.store.rewrite(one, queue_offset=behind)
    return Expected("A3", place[0], place[1], behind)


@FAULTS.seeds("A3")
def _a_record_of_another_queue(case: Case) -> Expected:
    place = queued(case, is_inner)
    one = case.store.at(case.store.unit(*place).physical_offset)
    nowhere = max(queue for topic, queue in case.store.queues() if topic == place[0]) + 7
    case.store.rewrite(one, queue_id=nowhere)
    return Expected("A3", place[0], nowhere, place[2])


# ---- A4: every unit has its record -----------------------------------------------------------------------------------


@FAULTS.seeds("A4")
def _another_size(case: Case) -> Expected:
    place = queued(case)
    changed(case, place, size=case.store.unit(*place).size + case.random.choice((-1, 1, 256)))
    return expected("A4", place)


@FAULTS.seeds("A4")
def _other_tags(case: Case) -> Expected:
    place = queued(case, lambda place, units: place[0] != SCHEDULE_TOPIC)
    changed(case, place, tags_code=case.store.unit(*place).tags_code ^ 1 << case.random.randrange(32))
    return expected("A4", place)


@FAULTS.seeds("A4")
def _no_tags(case: Case) -> Expected:
    place = queued(case, lambda place, units: place[0] != SCHEDULE_TOPIC and units[place[2]].tags_code)
    changed(case, place, tags_code=0)
    return expected("A4", place)


@FAULTS.seeds("A4")
def _a_byte_further(case: Case) -> Expected:
    place = queued(case)
    changed(case, place, physical_offset=case.store.unit(*place).physical_offset + 1)
    return expected("A4", place)


@FAULTS.seeds("A4")
def _beyond_the_log(case: Case) -> Expected:
    place = queued(case)
    changed(case, place, physical_offset=log_end(case) + case.random.randrange(1, 1 << 30))
    return expected("A4", place)


@FAULTS.seeds("A4")
def _below_zero(case: Case) -> Expected:
    place = queued(case)
    changed(case, place, physical_offset=-case.random.randrange(1, 1 << 30))
    return expected("A4", place)


@FAULTS.seeds("A4")
def _a_record_of_another_queue_there(case: Case) -> Expected:
    place = queued(case)
    other = another_queues_record(case, place)
    changed(case, place, physical_offset=other.offset, size=other.size)
    return expected("A4", place)


@FAULTS.seeds("A4")
def _the_record_says_another_offset(case: Case) -> Expected:
    place = queued(case, is_inner)
    one = case.store.at(case.store.unit(*place).physical_offset)
    case.store.rewrite(one, queue_offset=place[2] + (1 << 20))
    return expected("A4", place)


@FAULTS.seeds("A4")
def _one_unit_too_many(case: Case) -> Expected:
    topic, queue, last = queued(case, is_last)
    place = (topic, queue, last + 1)
    other = another_queues_record(case, place)
    case.store.put_unit(*place, Unit(other.offset, other.size, 0))
    return expected("A4", place)


@FAULTS.seeds("A4")
def _delivered_later(case: Case) -> Expected:
    place = queued(case, lambda place, units: place[0] == SCHEDULE_TOPIC)
    changed(case, place, tags_code=case.store.unit(*place).tags_code + 1000)
    return expected("A4", place)


# ---- A5: offsets are dense -------------------------------------------------------------------------------------------


@FAULTS.seeds("A5")
def _a_hole(case: Case) -> Expected:
    place = queued(case, is_inner)
    case.store.zero_unit(*place)
    return expected("A5", place)


@FAULTS.seeds("A5")
def _a_hole_of_two(case: Case) -> Expected:
    place = queued(case, is_inner)
    case.store.zero_unit(*place)
    case.store.zero_unit(place[0], place[1], place[2] + 1)
    return expected("A5", place)


@FAULTS.seeds("A5")
def _a_hole_at_the_beginning(case: Case) -> Expected:
    topic, queue = case.store.pick_queue(case.random, units_min=2)
    place = (topic, queue, min(case.store.units(topic, queue)))
    case.store.zero_unit(*place)
    return expected("A5", place)


@FAULTS.seeds("A5")
def _a_hole_before_the_last(case: Case) -> Expected:
    topic, queue = case.store.pick_queue(case.random, units_min=3)
    place = (topic, queue, max(case.store.units(topic, queue)) - 1)
    case.store.zero_unit(*place)
    return expected("A5", place)


@FAULTS.seeds("A5")
def _no_size(case: Case) -> Expected:
    place = queued(case, is_inner)
    changed(case, place, size=0)
    return expected("A5", place)


@FAULTS.seeds("A5")
def _a_size_below_zero(case: Case) -> Expected:
    place = queued(case, is_inner)
    changed(case, place, size=-case.random.randrange(1, 1 << 20))
    return expected("A5", place)


@FAULTS.seeds("A5")
def _a_filler_inside(case: Case) -> Expected:
    place = queued(case, is_inner)
    case.store.put_unit(*place, FILLER)
    return expected("A5", place)


def filed(case: Case, files_min: int) -> tuple[str, int]:
    """A queue with at least so many files that have units."""
    per_file = case.store.queue_file_size // UNIT.size
    return case.store.pick_queue(
        case.random,
        wanted=lambda topic, queue: (
            (len(units := case.store.units(topic, queue)) and max(units) // per_file - min(units) // per_file)
            >= files_min - 1
        ),
    )


@FAULTS.seeds("A5")
def _a_file_missing(case: Case) -> Expected:
    topic, queue = filed(case, 3)
    path = case.store.queue_files(topic, queue)[1]
    path.unlink()
    return Expected("A5", topic, queue, int(path.name) // UNIT.size)


@FAULTS.seeds("A5")
def _a_file_cut_short(case: Case) -> Expected:
    topic, queue = filed(case, 2)
    path = case.store.queue_files(topic, queue)[0]
    kept = case.random.randrange(1, case.store.queue_file_size // UNIT.size)
    with path.open("r+b") as stream:
        stream.truncate(kept * UNIT.size)
    return Expected("A5", topic, queue, int(path.name) // UNIT.size + kept)


@FAULTS.seeds("A5")
def _a_hole_across_two_files(case: Case) -> Expected:
    topic, queue = filed(case, 2)
    seam = int(case.store.queue_files(topic, queue)[1].name) // UNIT.size
    units = case.store.units(topic, queue)
    if not {seam - 2, seam - 1, seam, seam + 1} <= units.keys():
        raise NothingFitsError("nothing behind the seam")
    case.store.zero_unit(topic, queue, seam - 1)
    case.store.zero_unit(topic, queue, seam)
    return Expected("A5", topic, queue, seam - 1)


# ---- A6: physical offsets increase -----------------------------------------------------------------------------------


def long_queue(case: Case) -> tuple[str, int, dict[int, Unit]]:
    """A queue of some length, with its units."""
    topic, queue = case.store.pick_queue(case.random, units_min=6)
    return topic, queue, case.store.units(topic, queue)


@FAULTS.seeds("A6")
def _back_to_the_beginning(case: Case) -> Expected:
    place = queued(case, is_inner)
    units = case.store.units(*place[:2])
    changed(case, place, physical_offset=units[min(units)].physical_offset)
    return expected("A6", place)


@FAULTS.seeds("A6")
def _far_ahead(case: Case) -> Expected:
    place = queued(case, is_inner)
    changed(case, place, physical_offset=log_end(case) + case.random.randrange(1 << 30))
    return expected("A6", place)


@FAULTS.seeds("A6")
def _further_than_the_next(case: Case) -> Expected:
    place = queued(case, is_inner)
    behind = case.store.unit(place[0], place[1], place[2] + 1)
    changed(case, place, physical_offset=behind.physical_offset + 1)
    return expected("A6", place)


@FAULTS.seeds("A6")
def _two_changed_places(case: Case) -> Expected:
    place = queued(case, is_inner)
    behind = (place[0], place[1], place[2] + 1)
    one, other = case.store.unit(*place), case.store.unit(*behind)
    case.store.put_unit(*place, other)
    case.store.put_unit(*behind, one)
    return expected("A6", place)


@FAULTS.seeds("A6")
def _the_same_twice(case: Case) -> Expected:
    place = queued(case, is_inner)
    case.store.put_unit(*place, case.store.unit(place[0], place[1], place[2] - 1))
    return expected("A6", place)


@FAULTS.seeds("A6")
def _the_first_far_ahead(case: Case) -> Expected:
    topic, queue, units = long_queue(case)
    place = (topic, queue, min(units))
    changed(case, place, physical_offset=units[max(units)].physical_offset + 1)
    return expected("A6", place)


@FAULTS.seeds("A6")
def _the_last_behind(case: Case) -> Expected:
    topic, queue, units = long_queue(case)
    place = (topic, queue, max(units))
    changed(case, place, physical_offset=units[min(units)].physical_offset)
    return expected("A6", place)


@FAULTS.seeds("A6")
def _nowhere(case: Case) -> Expected:
    place = queued(case, is_inner)
    changed(case, place, physical_offset=-case.random.randrange(1, 1 << 30))
    return expected("A6", place)


def at_a_seam(case: Case) -> tuple[str, int, int]:
    """A queue of two files or more, and the first offset of its second, with units around."""
    topic, queue = filed(case, 2)
    seam = int(case.store.queue_files(topic, queue)[1].name) // UNIT.size
    if not {seam - 2, seam - 1, seam, seam + 1} <= case.store.units(topic, queue).keys():
        raise NothingFitsError("nothing behind the seam")
    return topic, queue, seam


@FAULTS.seeds("A6")
def _a_file_begins_behind(case: Case) -> Expected:
    topic, queue, seam = at_a_seam(case)
    changed(case, (topic, queue, seam), physical_offset=case.store.unit(topic, queue, seam - 2).physical_offset)
    return Expected("A6", topic, queue, seam)


@FAULTS.seeds("A6")
def _a_file_ends_ahead(case: Case) -> Expected:
    topic, queue, seam = at_a_seam(case)
    changed(case, (topic, queue, seam - 1), physical_offset=case.store.unit(topic, queue, seam).physical_offset + 1)
    return Expected("A6", topic, queue, seam - 1)
