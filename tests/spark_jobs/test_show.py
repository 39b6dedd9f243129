"""The command below each finding: the right bytes, said in words, whatever is wrong with them."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from pymq import _scan
from spark_jobs.show import main

GOLDEN = Path(__file__).resolve().parents[1] / "data/golden-store/store"
FIRST_SIZE = 300  # of the golden store's first record


@pytest.fixture
def store(tmp_path):
    """A copy of the golden store's log and queues that may be damaged."""
    for name in ("commitlog", "consumequeue"):
        shutil.copytree(GOLDEN / name, tmp_path / "s" / name)
    return tmp_path / "s"


@pytest.fixture
def show(capsys):
    """Run the command; its exit code, and the lines of stdout or of stderr."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return code, (shown.out or shown.err)

    return run


def patch(store, position, data):
    """Write *data* into the first log file."""
    with (store / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_record_is_shown_field_by_field(show):
    """Goal: bytes and their meaning side by side. Method: the record that docs/formats.md prints."""
    code, text = show(GOLDEN, "--physical-offset", 0)
    assert code == 0
    assert "record of 300 bytes, as it should be" in text
    for line in (
        "   0  0000012c          total size            300",
        "   8  1b19caf5          body CRC              0x1b19caf5",
        "  64  7f00000100002a9f  store host            127.0.0.1:10911",
        "topic         GoldenA",
        "property      KEYS = KA-0 common",
        "41 2d 30 2d 61 68 6f 76  63 6a 71 78 65 6c 73 7a  |A-0-ahovcjqxelsz|",
    ):
        assert line in text


def test_queue_offset_leads_to_unit_and_record(show):
    """Goal: from a finding of a queue to the log. Method: the second unit that docs/formats.md prints."""
    code, text = show(GOLDEN, "--queue", "GoldenA", 0, 1)
    assert code == 0
    assert "unit: physical offset 1397, size 431, tags code 2598919" in text
    assert "record of 431 bytes, as it should be" in text


def test_flipped_body_byte_is_named(store, show):
    """Goal: what is wrong is said where it is wrong. Method: one bit of a body."""
    patch(store, 88, b"B")
    _, text = show(store, "--physical-offset", 0)
    body = b"B" + b"-0-ahovcjqxelszgnub"
    assert "record of 300 bytes, damaged" in text
    assert f"<- WRONG: the body has 0x{_scan.crc32(body) & 0x7FFFFFFF:08x}" in text


def test_record_that_says_another_place_is_named(store, show):
    """Goal: as above, for a record that was moved. Method: its own offset changed."""
    patch(store, 28, struct.pack(">q", 4242))
    assert "4242   <- WRONG: it stands at 0" in show(store, "--physical-offset", 0)[1]


@pytest.mark.parametrize(
    ("position", "data", "reason"),
    [
        (4, b"\x01\x02\x03\x04", "no record: 0x01020304 is no record's magic"),
        (0, b"\x7f\xff\xff\xff", "a total size of 2,147,483,647 cannot be"),
        (0, b"\x00\x00\x00\x07", "a total size of 7 cannot be"),
        (84, b"\x00\x00\x00\x15", "its sizes, topic and properties contradict each other"),
        (0, bytes(300), "zeros, 256 bytes of them at least"),
    ],
)
def test_damage_is_shown_with_the_next_record(store, show, position, data, reason):
    """Goal: damage has a reason and an end. Method: header fields of the first record, one at a time."""
    patch(store, position, data)
    code, text = show(store, "--physical-offset", 0)
    assert code == 0
    assert reason in text
    assert f"the next whole record begins at physical offset {FIRST_SIZE}, {FIRST_SIZE} bytes on" in text


def test_blank_tail_and_unwritten_end_are_no_damage(tmp_path, show):
    """Goal: legal ends are called what they are. Method: a file of one record and a blank tail; one of zeros."""
    record = _scan.encode_record(_scan.Record(topic=b"T", body=b"x"))
    blank = struct.pack(">iI", 1000 - len(record), _scan.MAGIC_BLANK)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes((record + blank).ljust(1000, b"\0"))
    (tmp_path / "commitlog" / f"{1000:020}").write_bytes(bytes(1000))
    left = f"blank tail of {1000 - len(record):,} bytes, the rest of its file"
    assert left in show(tmp_path, "--physical-offset", len(record))[1]
    text = show(tmp_path, "--physical-offset", 1000)[1]
    assert "zeros, 256 bytes" in text
    assert "no whole record within 16 MiB" in text


def test_only_what_was_asked_for_is_dumped(show):
    """Goal: a body of megabytes does not scroll by. Method: a size below the properties' one."""
    text = show(GOLDEN, "--physical-offset", 0, "--size", 32)[1]
    assert "160 more bytes; --size 192 shows them" in text


def test_timer_unit_leads_to_its_record(store, show):
    """Goal: from a finding of a timer to its message. Method: the golden timer log's first unit, and its unused end."""
    shutil.copytree(GOLDEN / "timerlog", store / "timerlog")
    (file,) = (store / "timerlog").iterdir()
    offset = struct.unpack(">q", file.read_bytes()[28:36])[0]
    code, text = show(store, "--timer-log", 0)
    assert code == 0
    assert "unit size         52\n" in text
    assert f"(physical offset {offset})" in text
    assert "topic         rmq_sys_wheel_timer" in text
    assert "no unit" in show(store, "--timer-log", file.stat().st_size - 60)[1]


def test_index_item_leads_to_slot_and_record(show):
    """Goal: from a finding of the index to the message. Method: the golden index's first item; one too many."""
    file = min((GOLDEN / "index").iterdir())
    code, text = show(GOLDEN, "--index-item", f"index/{file.name}", 1)
    assert code == 0
    assert "(item 1)" in text
    assert "previous item 0" in text
    assert "record of 300 bytes, as it should be" in text
    code, text = show(GOLDEN, "--index-item", f"index/{file.name}", 10**9)
    assert code == 2
    assert "no item 1000000000, they go to " in text


def test_any_file_can_be_shown(store, show):
    """Goal: index, checkpoint and timer log have bytes too. Method: a marked line; paths of log and queue."""
    (store / "checkpoint").write_bytes(bytes(range(200)))
    text = show(store, "--file", "checkpoint", "--position", 100, "--size", 64)[1]
    assert ">           96  60 61 62 63 64" in text
    assert "  64  40 41" in text
    assert "physical offset 300)" in show(store, "--file", "commitlog/" + "0" * 20, "--position", 300)[1]
    assert "(queue offset 1)" in show(store, "--file", "consumequeue/GoldenA/0/" + "0" * 20, "--position", 39)[1]


def test_a_dump_says_what_does_not_belong_to_it(store, show):
    """Goal: bytes behind a dump's position mislead nobody. Method: a manifest that ends before the second record."""
    (store / "manifest.json").write_text(json.dumps({"log": {"end": 300}}))
    assert "the dump ends at 300: this does not belong to it" in show(store, "--physical-offset", 300)[1]
    assert "does not belong" not in show(store, "--physical-offset", 0)[1]


def test_message_cannot_talk_to_the_terminal(tmp_path, show):
    """Goal: properties and topics are shown, not obeyed. Method: escape sequences in them."""
    properties = _scan.encode_properties([(b"KEYS", b"\x1b[2Jk"), (b"\xff", b"\xc2\x9b1m")])
    record = _scan.encode_record(_scan.Record(topic=b"T\x1bx", body=b"\x1b", properties=properties))
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(record)
    text = show(tmp_path, "--physical-offset", 0)[1]
    assert "KEYS = ␛[2Jk" in text
    assert not set("\x1b\x9b") & set(text)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--physical-offset", 131_072], "no byte 131072 in it, its files hold 0 to 131071"),
        (["--physical-offset", -1], "no byte -1 in it"),
        (["--queue", "GoldenA", 0, 10**9], "no unit 1000000000 in its files"),
        (["--queue", "GoldenA", 0, -1], "no unit -1 in its files"),
        (["--queue", "Nobody", 0, 0], "no unit 0 in its files"),
        (["--queue", "../commitlog", 0, 0], "no name a queue is filed under"),
        (["--queue", "GoldenA", "x", 0], "--queue: x 0 should be whole numbers"),
        (["--index-item", "index/nothing", 1], "no file index/nothing in it"),
        (["--file", "../../README"], "no file ../../README in it"),
        (["--file", "checkpoint", "--position", 5000], "has 4096 bytes, and none at 5000"),
    ],
)
def test_nothing_to_show_is_one_line(show, arguments, line):
    """Goal: no stack for a wrong number. Method: places that are not there, at the edges and outside of the store."""
    code, text = show(GOLDEN, *arguments)
    assert code == 2
    assert line in text
    assert text.startswith("show: ")
    assert text.count("\n") == 1


def test_directory_that_is_none_is_one_line(tmp_path, show):
    """Goal: as above. Method: no directory, and one without a log."""
    assert show(tmp_path / "no", "--physical-offset", 0) == (2, f"show: {tmp_path / 'no'}: no such directory\n")
    assert "no log file in it" in show(tmp_path, "--physical-offset", 0)[1]
