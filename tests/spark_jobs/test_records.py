"""The commit log as rows: Apache's golden log field by field, every kind of damage at its place, any split."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pymq import _scan
from spark_jobs.rocketmq_store.records import LogRange, RowFilter, read_records, split_points
from spark_jobs.rocketmq_store.schema import BODY_COLUMNS, PROPERTIES_COLUMNS, STATUSES, arrow_schema
from tests.golden import golden_layout
from tests.reference import java_hash, properties
from tests.reference import record as reference
from tests.spark_jobs.made_logs import BASE, FILE_SIZE, MadeLog, whole_range

GOLDEN_LOG = sorted((golden_layout.STORE / "commitlog").iterdir())
GOLDEN_RECORDS = 325


def rows_of(one: LogRange, **options) -> list[dict]:
    """The rows of a range."""
    return [row for batch in read_records(one, **options) for row in batch.to_pylist()]


def plain_rows(path: Path) -> list[dict]:
    """The rows of a clean log by the plain-Python decoder."""
    source, base, position, rows = path.read_bytes(), int(path.name), 0, []
    while position < len(source) and any(source[position : position + 8]):
        found = reference.decode_record(source[position:])
        if isinstance(found, int):
            break
        pairs = properties.decode_properties(found.properties)

        def text(name: bytes, pairs: dict[bytes, bytes] = pairs) -> str | None:
            return pairs[name].decode() if name in pairs else None

        tags_code = java_hash.java_hash(pairs.get(b"TAGS", b""))
        rows.append(
            {
                "physical_offset": base + position,
                "own_offset": found.physical_offset,
                "size": found.total_size,
                "status": "ok",
                "magic": found.magic,
                "topic": found.topic.decode(),
                "queue_id": found.queue_id,
                "queue_offset": found.queue_offset,
                "flag": found.flag,
                "sys_flag": found.sys_flag,
                "born_timestamp": found.born_timestamp_ms,
                "store_timestamp": found.store_timestamp_ms,
                "reconsume_times": found.reconsume_times,
                "prepared_transaction_offset": found.prepared_transaction_offset,
                "body_size": len(found.body),
                "body_crc": found.body_crc,
                "uniq_key": text(b"UNIQ_KEY"),
                "keys": text(b"KEYS"),
                "tags": text(b"TAGS"),
                "tags_code": None if found.topic == b"SCHEDULE_TOPIC_XXXX" else tags_code,
                "body": found.body,
                "properties": {name.decode(): value.decode() for name, value in pairs.items()},
            }
        )
        position += found.total_size
    return rows


def test_golden_rows_are_the_plain_decoders_field_by_field() -> None:
    """Goal: the table says what the log says. Method: Apache's log, both readers, every column."""
    count = 0
    for path in GOLDEN_LOG:
        expected = plain_rows(path)
        found = rows_of(whole_range(path), body="bytes", properties="map")
        assert len(found) == len(expected)
        for row, wanted in zip(found, expected, strict=True):
            row["properties"] = dict(row["properties"])
            if wanted["tags_code"] is None:
                wanted["tags_code"] = row["tags_code"]  # a delivery time: the scan of the queues compares it
            assert {name: row[name] for name in wanted} == wanted
            assert row["store_host"] == "127.0.0.1:10911"
            assert row["file"] == f"commitlog/{path.name}"
        count += len(found)
    assert count == GOLDEN_RECORDS


@pytest.mark.parametrize("body", BODY_COLUMNS)
@pytest.mark.parametrize("properties", PROPERTIES_COLUMNS)
def test_every_option_gives_its_schema_and_its_bytes(body: str, properties: str) -> None:
    """Goal: Spark gets what it was told. Method: every combination; digests and raw properties beside the bytes."""
    path = GOLDEN_LOG[0]
    batches = list(read_records(whole_range(path), body=body, properties=properties))
    assert batches
    assert all(batch.schema.equals(arrow_schema("commitlog", body=body, properties=properties)) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    rows = [row for batch in batches for row in batch.to_pylist()]
    whole = rows_of(whole_range(path), body="bytes")
    if body == "digest":
        assert [row["body_digest"] % 2**64 for row in rows] == [xxhash.xxh3_64_intdigest(row["body"]) for row in whole]
    if properties == "raw":
        assert [row["properties"] for row in rows] == [row["properties"] for row in whole]


def test_hosts_of_both_families_are_text(tmp_path: Path) -> None:
    """Goal: hosts are readable. Method: an IPv4 born host, an IPv6 store host."""
    log = MadeLog().unfinished(2)
    row = rows_of(whole_range(log.write(tmp_path)))[1]
    assert (row["born_host"], row["store_host"]) == ("127.0.0.1:40000", "[::1]:10911")


# ---- damage: what is done to record 3 of a full file, and the status it then has -------------------------------------


def flip(at: int, mask: int = 0x40) -> Callable[[MadeLog, int], None]:
    """Change bits of one byte of the record."""

    def spoil(log: MadeLog, start: int) -> None:
        log.data[start + at] ^= mask

    return spoil


def put(at: int, value: bytes) -> Callable[[MadeLog, int], None]:
    """Write over bytes of the record."""

    def spoil(log: MadeLog, start: int) -> None:
        log.data[start + at : start + at + len(value)] = value

    return spoil


BODY_AT = 100  # of a record with an IPv4 and an IPv6 host; "body of 3" has nine bytes, then comes the topic's size

DAMAGES = {
    "magic": (flip(4), "bad_magic"),
    "magic of a blank tail": (put(4, _scan.MAGIC_BLANK.to_bytes(4, "big")), "bad_blank"),
    "size beyond the file": (put(0, (1 << 20).to_bytes(4, "big")), "bad_size"),
    "size too small": (put(0, (17).to_bytes(4, "big")), "bad_size"),
    "size negative": (flip(0, 0x80), "bad_size"),
    "size a little off": (flip(3, 0x01), "bad_size"),
    "own offset": (flip(35, 0x01), "bad_offset"),
    "body size": (flip(BODY_AT - 1, 0x02), "bad_structure"),
    "topic size": (flip(BODY_AT + 9, 0x01), "bad_structure"),
    "body": (flip(BODY_AT + 4), "bad_crc"),
    "body CRC": (flip(11), "bad_crc"),
    "body CRC's highest bit": (flip(8, 0x80), "bad_crc"),
    "zeros over the head": (put(0, bytes(60)), "bad_magic"),
    "zeros over all of it": (put(0, bytes(150)), "bad_magic"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_one_row_at_its_place_and_nothing_else_changes(tmp_path: Path, name: str) -> None:
    """Goal: a spoilt record is one row with its status; the rest is read as before. Method: spoil record 3, compare."""
    log = MadeLog().fill()
    clean = rows_of(whole_range(log.write(tmp_path)))
    spoil, status = DAMAGES[name]
    spoil(log, log.starts[3])
    rows = rows_of(whole_range(log.write(tmp_path)))
    assert [row["status"] for row in rows] == [status if number == 3 else "ok" for number in range(len(clean))]
    assert rows[:3] + rows[4:] == clean[:3] + clean[4:]
    assert (rows[3]["physical_offset"], rows[3]["size"]) == (clean[3]["physical_offset"], clean[3]["size"])


@pytest.mark.parametrize("name", ["magic", "size a little off", "size beyond the file"])
def test_what_can_still_be_read_of_a_damaged_record_is_told(tmp_path: Path, name: str) -> None:
    """Goal: a finding names topic and queue. Method: damage to magic or size leaves them readable."""
    log = MadeLog().fill()
    DAMAGES[name][0](log, log.starts[3])
    row = rows_of(whole_range(log.write(tmp_path)))[3]
    assert (row["topic"], row["queue_id"], row["queue_offset"], row["uniq_key"]) == ("orders", 1, 3, "ID3")


def test_a_spoilt_first_record_and_a_spoilt_last_one(tmp_path: Path) -> None:
    """Goal: damage at both ends. Method: magic of the first record, then of the last before the blank tail."""
    log = MadeLog().fill()
    count = len(log.starts)
    for number in (0, count - 1):
        log.data[log.starts[number] + 5] ^= 1
    rows = rows_of(whole_range(log.write(tmp_path)))
    assert [row["status"] for row in rows] == ["bad_magic", *["ok"] * (count - 2), "bad_magic"]
    assert rows[-1]["size"] == log.blank_at - log.starts[-1]


def test_a_record_crc_that_does_not_match(tmp_path: Path) -> None:
    """Goal: the optional CRC over the record is looked at. Method: change a property's letter, and nothing else can."""
    log = MadeLog()
    log.add(crc=True)
    log.add(crc=True)
    at = log.data.index(b"ID1")
    log.data[at] ^= 0x02
    log.data += bytes(log.file_size - len(log.data))
    assert [row["status"] for row in rows_of(whole_range(log.write(tmp_path)))] == ["ok", "bad_record_crc"]


def test_the_crc_of_an_empty_body_is_zero(tmp_path: Path) -> None:
    """Goal: no field goes unseen. Method: an empty body whose CRC says something."""
    log = MadeLog()
    log.add(body=b"")
    log.add(body=b"")
    log.data[log.starts[1] + 11] = 7
    log.data += bytes(log.file_size - len(log.data))
    assert [row["status"] for row in rows_of(whole_range(log.write(tmp_path)))] == ["ok", "bad_crc"]


@pytest.mark.parametrize("at", [0, 3])
def test_a_blank_tail_that_does_not_cover_the_rest_is_damage(tmp_path: Path, at: int) -> None:
    """Goal: only legal blank tails. Method: change its size."""
    log = MadeLog().fill()
    log.data[log.blank_at + at] ^= 0x02
    last = rows_of(whole_range(log.write(tmp_path)))[-1]
    assert (last["status"], last["physical_offset"]) == ("bad_blank", BASE + log.blank_at)


def test_a_file_cut_inside_a_record_ends_truncated(tmp_path: Path) -> None:
    """Goal: a short file is told. Method: cut inside the last record; whole ones stay."""
    log = MadeLog().fill()
    path = log.write(tmp_path)
    begin = log.starts[-1]
    for cut in [begin + 4, begin + 7, begin + 8, begin + 40, log.blank_at - 1]:
        path.write_bytes(log.data[:cut])
        rows = rows_of(whole_range(path))
        assert [row["status"] for row in rows] == [*["ok"] * (len(log.starts) - 1), "truncated"]
        assert (rows[-1]["physical_offset"], rows[-1]["size"]) == (BASE + begin, cut - begin)


def test_zeros_at_the_end_are_no_row_unless_the_log_goes_on(tmp_path: Path) -> None:
    """Goal: not written is not damaged. Method: the same zeros as the last file's, before a begun file, below a dump's
    stated end, and before a file that was only made."""
    log = MadeLog().unfinished(4)
    path = log.write(tmp_path)
    end = BASE + log.starts[-1] + 200
    assert [row["status"] for row in rows_of(whole_range(path))] == ["ok"] * 4
    behind = rows_of(whole_range(path, log_end=BASE + FILE_SIZE))
    assert [row["status"] for row in behind] == [*["ok"] * 4, "bad_magic"]
    assert behind[-1]["physical_offset"] + behind[-1]["size"] == BASE + FILE_SIZE
    successor = path.with_name(f"{BASE + FILE_SIZE:020d}")
    successor.write_bytes(bytes(FILE_SIZE))
    assert len(rows_of(whole_range(path))) == 4
    successor.write_bytes(b"\0\0\1\0begun")
    assert [row["status"] for row in rows_of(whole_range(path))] == [*["ok"] * 4, "bad_magic"]
    assert end < BASE + FILE_SIZE


def test_nothing_from_the_stated_end_on_belongs_to_the_log(tmp_path: Path) -> None:
    """Goal: a dump ends where it says. Method: an end between two records, and one inside a record."""
    log = MadeLog().fill()
    path = log.write(tmp_path)
    assert len(rows_of(whole_range(path, log_end=BASE + log.starts[5]))) == 5
    rows = rows_of(whole_range(path, log_end=BASE + log.starts[5] + 50))
    assert [row["status"] for row in rows] == [*["ok"] * 5, "truncated"]


def test_every_status_of_the_schema_is_reached(tmp_path: Path) -> None:
    """Goal: no status is a dead letter. Method: those of the cases above, by name."""
    reached = {status for _, status in DAMAGES.values()} | {"ok", "bad_record_crc", "truncated"}
    assert reached == set(STATUSES)


def test_text_that_is_no_utf8_is_shown_with_replacements(tmp_path: Path) -> None:
    """Goal: Spark's strings are valid whatever the log holds. Method: a topic and a tag with a stray byte."""
    log = MadeLog()
    log.add(topic=b"caf\xe9", properties=b"TAGS\x01\xff\x02")
    log.add()
    log.data += bytes(log.file_size - len(log.data))
    rows = rows_of(whole_range(log.write(tmp_path)), properties="map")
    assert (rows[0]["topic"], rows[0]["tags"], rows[0]["status"]) == ("caf\N{REPLACEMENT CHARACTER}", "\ufffd", "ok")
    assert rows[1]["topic"] == "stock"


def test_a_missing_file_has_no_rows(tmp_path: Path) -> None:
    """Goal: bad input never raises in read. Method: a range of a file that is gone."""
    assert rows_of(LogRange("made", str(tmp_path / "0"), 0, 0, 100, 100)) == []


def test_a_record_longer_than_a_chunk_is_read_whole(tmp_path: Path) -> None:
    """Goal: no limit on a record's size. Method: 20 MiB of body between two small ones."""
    log = MadeLog(file_size=21 << 20)
    log.add()
    log.add(body=bytes(20 << 20))
    log.add()
    log.data += bytes(log.file_size - len(log.data))
    rows = rows_of(whole_range(log.write(tmp_path)))
    assert [(row["status"], row["body_size"]) for row in rows] == [("ok", 9), ("ok", 20 << 20), ("ok", 9)]


# ---- ranges ----------------------------------------------------------------------------------------------------------


def test_split_points_are_record_starts_behind_every_step(tmp_path: Path) -> None:
    """Goal: ranges of about a size that begin with a record. Method: a clean file and one with a spoilt record."""
    log = MadeLog().fill()
    path = log.write(tmp_path)
    starts = [BASE + start for start in log.starts]
    expected = [min(start for start in starts if start >= BASE + step) for step in range(1000, 3001, 1000)]
    assert split_points(path, BASE, FILE_SIZE, 1000) == expected
    log.data[expected[1] - BASE + 4] ^= 1
    log.write(tmp_path)
    assert split_points(path, BASE, FILE_SIZE, 1000)[1] == starts[starts.index(expected[1]) + 1]
    assert split_points(MadeLog().unfinished(2).write(tmp_path / "short"), BASE, FILE_SIZE, 1000) == []


@st.composite
def spoilt_logs(draw: st.DrawFn) -> bytes:
    """A log file after up to four accidents."""
    log = MadeLog().fill() if draw(st.booleans()) else MadeLog().unfinished(draw(st.integers(0, 12)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, FILE_SIZE - 1))
        if draw(st.booleans()):
            log.data[at] ^= draw(st.integers(1, 255))
        else:
            size = draw(st.integers(1, 500))
            log.data[at : at + size] = bytes(len(log.data[at : at + size]))
    return bytes(log.data)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(spoilt_logs(), st.sets(st.integers(BASE, BASE + FILE_SIZE), max_size=5), st.booleans())
def test_any_split_of_a_file_gives_the_same_rows(tmp_path: Path, data: bytes, cuts: set[int], stated: bool) -> None:
    """Goal: a range owns what starts in it, wherever it is cut. Method: spoilt logs, cut anywhere, beside one range."""
    path = tmp_path / f"{BASE:020d}"
    path.write_bytes(data)
    whole = whole_range(path, log_end=BASE + FILE_SIZE if stated else -1)
    expected = rows_of(whole)
    edges = sorted({BASE, BASE + FILE_SIZE} | cuts)
    found = []
    for begin, end in itertools.pairwise(edges):
        found += rows_of(whole._replace(begin=begin, end=end))
    assert found == expected
    for before, after in itertools.pairwise(expected):
        assert before["physical_offset"] + before["size"] == after["physical_offset"]


@given(
    topics=st.none() | st.frozensets(st.sampled_from(["orders", "stock", "none"])),
    queue_ids=st.none() | st.frozensets(st.integers(0, 2)),
    bounds=st.tuples(st.none() | st.integers(BASE - 9, BASE + FILE_SIZE + 9), st.none() | st.integers(0, BASE + 5000)),
    times=st.tuples(st.none() | st.integers(0, 500), st.none() | st.integers(0, 500)),
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_filter_never_loses_a_row_it_was_asked_for(tmp_path: Path, topics, queue_ids, bounds, times) -> None:
    """Goal: pushdown is correct. Method: filter after reading all, and while reading; the second may only have more,
    and has no record that the filter excludes."""
    path = tmp_path / f"{BASE:020d}"
    if not path.exists():
        MadeLog().fill().write(tmp_path)
    low, high = (None if one is None else 1_794_794_160_000 + 1000 * one for one in times)
    wanted = RowFilter(topics, queue_ids, *bounds, low, high)

    def asked_for(row: dict) -> bool:
        return (
            (topics is None or row["topic"] in topics)
            and (queue_ids is None or row["queue_id"] in queue_ids)
            and (bounds[0] is None or row["physical_offset"] >= bounds[0])
            and (bounds[1] is None or row["physical_offset"] < bounds[1])
            and (low is None or row["store_timestamp"] >= low)
            and (high is None or row["store_timestamp"] <= high)
        )

    assert rows_of(whole_range(path), row_filter=wanted) == [
        row for row in rows_of(whole_range(path)) if asked_for(row)
    ]
