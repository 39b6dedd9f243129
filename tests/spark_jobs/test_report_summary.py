"""The table for people and the JSON for programs."""

from __future__ import annotations

import io
import json

import pytest

from spark_jobs.relations import Pair
from spark_jobs.report.commands import command_for
from spark_jobs.report.model import Finding, Outcome, Store, bytes_text, seconds_text
from spark_jobs.report.page import render
from spark_jobs.report.summary import as_json, has_colours, table
from tests.spark_jobs.report_values import audit, full_report, report

PASSWD = "file ../../../etc/passwd at 0"  # as somebody may call a key
CLEAN = Outcome(audit("A1"), seconds=0.5)
FOUND = Outcome(audit("A2", "the log is one walk"), (Finding("A2", "error", "broker-a", offset=7),))
FAILED = Outcome(audit("A3"), error="ValueError: no")
SKIPPED = Outcome(audit("A24"), missing=("against",))


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([CLEAN], 0),
        ([CLEAN, SKIPPED], 0),
        ([CLEAN, FOUND], 1),
        ([CLEAN, FAILED], 2),
        ([FOUND, FAILED, SKIPPED], 2),
        ([SKIPPED], 2),
        ([], 2),
    ],
)
def test_exit_code_says_the_worst(outcomes, code):
    """Goal: 0 clean, 1 findings, 2 could not run. Method: each mixture of outcomes; nothing run is not clean."""
    made = report(*outcomes)
    assert made.exit_code == code
    assert as_json(made)["exitCode"] == code


def test_table_begins_with_the_verdict_and_lists_every_check():
    """Goal: one look is enough. Method: the first line, then a line for each state."""
    text = table(report(CLEAN, FOUND, FAILED, SKIPPED, seconds=72), width=100)
    lines = text.splitlines()
    assert lines[0] == "1 FINDING IN 1 CHECK, 1 CHECK COULD NOT RUN"
    assert lines[1] == "1 of 4 checks clean, 1 not run · 1 store · 1 min 12 s"
    assert [line.split()[0] for line in lines[3:7]] == ["A1", "A2", "A3", "A24"]
    assert lines[6].endswith("not run: needs --against")
    assert "could not run: ValueError: no" in lines[5]
    assert max(map(len, lines)) <= 100


def test_table_and_json_say_what_was_compared_as_what():
    """Symptom: nobody saw that two dumps of one broker were taken for replicas. Method: a pair of each kind."""
    pairs = (Pair("now", "then", "earlier", "both of /s on m1"), Pair("a", "b", "replica"), Pair("c", "d", "unclear"))
    part = Outcome(audit("A9"), note="c not compared with an earlier dump: needs --relation earlier")
    made = report(part, SKIPPED, Outcome(audit("A23"), missing=("earlier",)), pairs=pairs)
    lines = table(made, width=160).splitlines()
    assert lines[2:6] == [
        "now against then: an earlier dump (both of /s on m1)",
        "a against b: a replica",
        "c against d: unclear what it is",
        "",
    ]
    assert lines[6].endswith("clean (c not compared with an earlier dump: needs --relation earlier)")
    assert lines[8].endswith("not run: needs --relation earlier")
    found = as_json(made)
    assert found["pairs"][0] == {"store": "now", "against": "then", "relation": "earlier", "why": "both of /s on m1"}
    assert found["checks"][0]["note"].startswith("c not compared")


def test_table_shows_some_findings_and_where_the_others_are():
    """Goal: a terminal is not flooded. Method: 9 of 2,000 findings; five with their commands, and the number left."""
    found = tuple(Finding("A2", "error", "broker-a", offset=offset) for offset in range(9))
    outcome = Outcome(audit("A2"), found, total=2000)
    text = table(report(outcome, output="out"))
    assert text.count("python -m spark_jobs.show") == 5
    assert "and 1,995 more in out/findings.parquet" in text
    assert "report: out/report.html" in text
    assert "--output DIR keeps them all" in table(report(outcome))


def test_a_store_cannot_talk_to_the_terminal():
    """Goal: no escape sequence of a message is obeyed. Method: controls in every place; only line breaks remain."""
    text = table(full_report("a\x1b[2Jb\x9b31mc\r\nd\u202e"))
    assert [character for character in text if ord(character) < 32 and character != "\n"] == []
    assert not set("\x9b\x7f\u202e") & set(text)


def test_colours_are_for_terminals_whose_owner_wants_them(monkeypatch):
    """Goal: NO_COLOR and pipes are respected. Method: a stream that says it is a terminal, and one that is none."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert has_colours(Terminal())
    assert not has_colours(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colours(Terminal())
    assert "\033[" in table(report(CLEAN), colours=True)
    assert "\033[" not in table(report(CLEAN))


def test_json_holds_everything_a_program_needs():
    """Goal: no parsing of tables. Method: through json and back; states, findings with their commands, needs."""
    made = json.loads(json.dumps(as_json(full_report("x\ud800"))))
    assert made["verdict"] == "1 finding in 1 check, 1 check could not run"
    assert [check["state"] for check in made["checks"]] == ["findings", "clean", "could not run", "not run"]
    assert made["checks"][3]["needs"] == ["against"]
    (finding,) = made["findings"]
    assert finding["offset"] == 4096
    assert finding["command"].endswith("--physical-offset 4096")
    assert [store["role"] for store in made["stores"]] == ["audited", "against"]


@pytest.mark.parametrize(
    ("finding", "place"),
    [
        (Finding("A1", "error", "s", offset=5), "--physical-offset 5"),
        (Finding("A1", "error", "s", "t", 1, 5, evidence="physical offset 77 of file x"), "--physical-offset 77"),
        (Finding("A3", "error", "s", "t", 1, 5), "--queue t 1 5"),
        (Finding("A3", "error", "s", "a b", 1, 5, evidence="queue offset 9"), "--queue 'a b' 1 9"),
        (Finding("A7", "error", "s", evidence="file index/2026 at byte 40"), "--file index/2026 --position 40"),
        (Finding("A7", "error", "s", evidence="file index/2026 at 40, item 3"), "--file index/2026 --position 40"),
        (
            Finding("A15", "error", "s", offset=5, evidence="position 52 of the timer log names physical offset 7"),
            "--timer-log 52",
        ),
        (Finding("A7", "error", "s", offset=5, evidence="item 3 of file index/2026"), "--index-item index/2026 3"),
        (Finding("A7", "error", "s", offset=5, evidence="file index/2026"), "--file index/2026"),
        (
            Finding("A9", "error", "s", "t", 1, 5, evidence="committed by group g in config/consumerOffset.json"),
            "--file config/consumerOffset.json",
        ),
        (
            Finding("A19", "error", "s", "t", 1, 5, evidence=f'key "{PASSWD}" of 1.2.3.4:5 at physical offset 7'),
            "--physical-offset 7",
        ),
        (
            Finding("A9", "error", "s", "t", 1, 5, evidence=f'group "\\"{PASSWD}", and no reset is recorded for it'),
            "--queue t 1 5",
        ),
        (Finding("A9", "error", "s", "t", 1, 5, evidence=PASSWD), None),
        (Finding("A7", "error", "s", offset=5, evidence="item 3 of file /etc/passwd"), None),
        (Finding("A7", "error", "s", offset=5, evidence="file index/../../x"), None),
        (Finding("A9", "error", "s", evidence="queue offset 9"), None),
        (Finding("A9", "error", "s", "t"), None),
        (Finding("A9", "error", "s", offset=-1), None),
        (Finding("A9", "error", "nobody", offset=5), None),
    ],
)
def test_evidence_leads_to_the_command(finding, place):
    """Goal: the right one of three offsets. Method: what evidence may say, and what is taken without it."""
    made = report(stores=(Store("s", "/it's here"), Store("r", "/r")))
    expected = None if place is None else f"python -m spark_jobs.show '/it'\"'\"'s here' {place}"
    assert command_for(finding, made) == expected


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (10 * 2**30, "10.0 GiB"), (2**50, "1024.0 TiB")]
)
def test_sizes_are_written_for_people(size, text):
    """Goal: units change at their edges. Method: the last of one and the first of the next."""
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.9, "9.9 s"), (59, "59 s"), (60, "1 min 0 s"), (3840, "1 h 4 min")]
)
def test_durations_are_written_for_people(seconds, text):
    """Goal: as above, for time. Method: the edges."""
    assert seconds_text(seconds) == text


def test_what_a_check_found_before_it_failed_is_shown():
    """Symptom: its figures overflowed, and the findings behind that were neither printed nor on the page."""
    failed = Outcome(audit("A9"), FOUND.findings, error="ArithmeticException: overflow")
    made = report(failed)
    assert made.exit_code == 2
    assert "A9: 1 finding\n" in table(made, width=100)
    assert 'id="findings-A9"' in render(made)
