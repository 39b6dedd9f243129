"""The page: well formed, alone in the world, and deaf to what a store whispers."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from spark_jobs.report.model import Finding, Outcome, Store
from spark_jobs.report.page import render
from spark_jobs.report.style import CSS, SCRIPT
from tests.spark_jobs.report_values import Page, audit, full_report, report

EVIL = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></style></script><h1>Clean</h1>",
    "&lt;already&amp;escaped",
    "a\x00b\x1b[31mc\x7f\x9b\ud800",
    "\u202eevil\u202c",
    "]]><!--",
    "{{7*7}} ${7*7} javascript:alert(1)",
    "",
]


@pytest.mark.parametrize("text", EVIL)
def test_page_is_well_formed_whatever_a_store_holds(text):
    """Goal: no message can break or take over the page. Method: the text in every place, a strict parser, same tags."""
    page = Page(render(full_report(text)))
    assert page.faults == []
    plain = Page(render(full_report("plain")))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert {name for _, attributes in page.tags for name in attributes} == {
        name for _, attributes in plain.tags for name in attributes
    }


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "&lt;already&amp;escaped", "' onmouseover='alert(1)"])
def test_page_shows_the_text_itself(text):
    """Goal: escaping loses nothing. Method: the parser's idea of a finding's cells and tooltips is the text."""
    page = Page(render(full_report(text)))
    assert text in page.text_of("span")
    assert any(text in shown for shown in page.text_of("title"))


def test_page_encodes_even_what_is_no_text():
    """Goal: lone surrogates and controls do not keep the page from being written. Method: encode it, look at it."""
    written = render(full_report("a\x00b\x1bc\ud800\u202ed")).encode("utf-8").decode("utf-8")
    assert "a␀b␛c��d" in written
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", written)


def test_page_fetches_nothing():
    """Goal: one file that works without a network. Method: no attribute or style leads anywhere but into the page."""
    text = render(full_report())
    page = Page(text)
    leading = {
        (tag, name, value)
        for tag, attributes in page.tags
        for name, value in attributes.items()
        if name in {"src", "href", "srcset", "action", "data", "poster", "xlink:href", "background"}
    }
    assert leading == {("a", "href", "#findings-A1")}
    assert {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "embed", "base", "form"} == set()
    assert re.search(r"https?:|//[a-z]|@import|url\(|fetch\(|XMLHttpRequest|import\(", text) is None


def test_policy_allows_these_two_texts_and_nothing_else():
    """Goal: a browser refuses any other script. Method: recompute the digests of the style and script elements."""
    page = Page(render(full_report()))
    policy = next(attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes)
    assert page.text_of("style") == [CSS]
    assert page.text_of("script") == [SCRIPT]
    for text in (CSS, SCRIPT):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    attributes = {name for _, attributes in page.tags for name in attributes}
    assert [name for name in attributes if name == "style" or name.startswith("on")] == []


@pytest.mark.parametrize(
    ("outcomes", "verdict", "colour"),
    [
        ([Outcome(audit())], "Clean", "good"),
        ([Outcome(audit()), Outcome(audit("A24"), missing=("against",))], "Clean", "good"),
        ([Outcome(audit(), (Finding("A1", "error"),))], "1 finding in 1 check", "bad"),
        ([Outcome(audit(), (Finding("A1", "error"),), total=3120)], "3,120 findings in 1 check", "bad"),
        ([Outcome(audit(), error="no such column")], "1 check could not run", "warn"),
        (
            [Outcome(audit(), (Finding("A1", "warning"),)), Outcome(audit("A2"), error="x")],
            "1 finding in 1 check, 1 check could not run",
            "bad",
        ),
        ([Outcome(audit(), missing=("ledgers",))], "No check ran", "warn"),
        ([], "No check ran", "warn"),
    ],
)
def test_verdict_is_the_first_thing_on_the_page(outcomes, verdict, colour):
    """Goal: one look is enough. Method: the first heading is the verdict, in its colour, before any table."""
    text = render(report(*outcomes))
    page = Page(text)
    assert page.faults == []
    assert page.text_of("h1") == [verdict]
    assert page.text_of("title")[0] == f"Audit: {verdict}"
    assert text.index(f'class="verdict {colour}"') < text.index("<h1>") < text.index("<table")


def test_every_check_has_a_row_with_its_result():
    """Goal: what was not checked is not taken for checked. Method: the words of all four states, in the table."""
    chips = [text for text in Page(render(full_report("plain"))).text_of("span") if text != "plain"]
    for words in ("1 finding", "clean", "could not run: plain", "not run: needs --against"):
        assert words in chips


def test_the_page_says_what_was_compared_as_what():
    """Goal: nobody takes a replica's verdict for an earlier dump's. Method: the pair's words, below the stores."""
    assert "plain against other: unclear what it is (plain)" in Page(render(full_report("plain"))).text_of("span")


def test_finding_comes_with_the_command_that_shows_its_bytes():
    """Goal: a finding can be acted on. Method: the command, quoted for a shell, stands in the finding's row."""
    page = Page(render(full_report("a b")))
    assert "python -m spark_jobs.show '/dumps/a b' --physical-offset 4096" in page.text_of("code")


def test_page_says_when_it_shows_a_part_only():
    """Goal: nobody takes 1,000 for all. Method: an outcome with more findings than it holds."""
    found = tuple(Finding("A1", "error", "broker-a", offset=offset) for offset in range(3))
    text = render(report(Outcome(audit(), found, total=12_345), output="out"))
    assert "the first 3 of them here" in text
    assert "All are in out/findings.parquet" in text
    assert "the first" not in render(report(Outcome(audit(), found)))


def test_columns_nobody_fills_are_left_out():
    """Goal: a narrow table. Method: the headings of a finding without topic; of one store, and of two."""
    outcome = Outcome(audit(), (Finding("A1", "error", "broker-a", offset=5, expected="x", actual="y"),))
    heads = Page(render(report(outcome))).text_of("th")
    assert heads[4:] == ["severity", "offset", "expected", "actual", "evidence"]
    two = report(outcome, stores=(Store("broker-a", "/a"), Store("broker-b", "/b")))
    assert Page(render(two)).text_of("th")[4:] == ["severity", "store", "offset", "expected", "actual", "evidence"]


def test_page_does_not_say_there_is_none_of_what_nobody_looked_for():
    """Goal: unknown is not zero. Method: the pictures' sentences without the checks that measure, failed, and run."""
    unknown = render(report(Outcome(audit("A1")), map_note="Not drawn: nothing read the log."))
    for sentence in ("A9 did not run", "A15 and A16 did not run", "A13 did not run", "A18 did not run"):
        assert f"Not known: {sentence}." in unknown
    assert unknown.count("Not drawn: nothing read the log.") == 2
    assert "Not known: A13 did not run." in render(report(Outcome(audit("A13"), error="x")))
    looked = render(report(*(Outcome(audit(name)) for name in ("A9", "A13", "A15", "A18"))))
    assert "Not known" not in looked
    assert "No transaction was begun." in looked


def test_numbers_sort_as_numbers():
    """Goal: sorting by offset is by size. Method: cells of numbers carry the plain number, shown with separators."""
    finding = Finding("A1", "error", offset=12_345_678)
    page = Page(render(report(Outcome(audit(), (finding,)))))
    assert ("td", {"class": "n", "data-name": "offset", "data-sort": "12345678"}) in page.tags
    assert "12,345,678" in page.text_of("td")
    assert len([1 for tag, attributes in page.tags if "sortable" in (attributes.get("class") or "").split()]) == 2
