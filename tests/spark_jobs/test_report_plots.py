"""The pictures: nothing, one thing and many things; everything inside its frame and to scale."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from spark_jobs.report import plots
from spark_jobs.report.file_map import MAP_ROWS_MAX, file_map
from spark_jobs.report.model import Extent, Metric, Store
from spark_jobs.report.svg import ticks, time_step
from tests.spark_jobs.report_values import MINUTE, START


def metrics(name, count):
    """Metrics of *count* labels; a series for traffic."""
    at = START if name == "records" else None
    labels = [str(10 * (index + 1)) if name == "lateness_ms" else f"label-{index}" for index in range(count)]
    return [Metric("A1", "s", name, label, at and at + index * MINUTE, index + 1) for index, label in enumerate(labels)]


def extents(count):
    """*count* log files of 1,000 bytes, damaged bytes in each."""
    return [
        extent
        for index in range(count)
        for extent in (
            Extent("s", f"commitlog/{index * 1000:020}", index * 1000, index * 1000 + 900),
            Extent("s", f"commitlog/{index * 1000:020}", index * 1000 + 500, index * 1000 + 600, "bad_crc", "why"),
        )
    ]


PICTURES = {
    "traffic": lambda count: plots.traffic(metrics("records", count)),
    "lag": lambda count: plots.lag(metrics("lag", count)),
    "lateness": lambda count: plots.lateness(metrics("lateness_ms", count)),
    "transactions": lambda count: plots.transactions(metrics("transactions", count)),
    "duplicates": lambda count: plots.duplicates(metrics("duplicates", count)),
    "map": lambda count: file_map(extents(count)),
}


def tree(text):
    """The picture as XML: stricter than HTML, and what an SVG is."""
    return ElementTree.fromstring(f"<div>{text}</div>")


def rects(text, *classes):
    """Rectangles with one of *classes*, as (class, x, y, width, height), of drawings and strips alone."""
    return [
        (rect.get("class"), *(float(rect.get(name, "0")) for name in ("x", "y", "width", "height")))
        for svg in tree(text).iter("svg")
        if svg.get("class") != "key"
        for rect in svg.iter("rect")
        if not classes or rect.get("class") in classes
    ]


@pytest.mark.parametrize("name", PICTURES)
def test_picture_of_nothing_is_a_sentence(name):
    """Goal: no empty axes. Method: no values; a paragraph, and no drawing."""
    root = tree(PICTURES[name](0))
    assert list(root.iter("svg")) == []
    (sentence,) = root.iter("p")
    assert sentence.text.endswith(".")


@pytest.mark.parametrize("count", [1, 2, 7, 500])
@pytest.mark.parametrize("name", PICTURES)
def test_everything_is_drawn_inside_its_frame(name, count):
    """Goal: one value or many, nothing is cut off. Method: every rectangle lies in its drawing's viewBox."""
    root = tree(PICTURES[name](count))
    drawings = [svg for svg in root.iter("svg") if svg.get("class") != "key"]
    assert drawings
    for svg in drawings:
        _, _, width, height = (float(value) for value in svg.get("viewBox").split())
        assert svg.get("aria-label")
        for rect in svg.iter("rect"):
            x, y, wide, tall = (float(rect.get(key, "0")) for key in ("x", "y", "width", "height"))
            assert min(wide, tall, x + 0.01, y + 1.01) >= 0
            assert x + wide <= width + 1.01
            assert y + tall <= height + 0.01


def test_columns_are_as_tall_as_their_values():
    """Goal: the chart is to scale. Method: two minutes with 1 and 3 messages, heights compared."""
    rows = [Metric("s", "s", "records", "t", START, 100), Metric("s", "s", "records", "t", START + MINUTE, 300)]
    first, second = rects(plots.traffic(rows), "c1")
    assert second[4] == pytest.approx(3 * first[4], rel=0.01)
    assert first[2] + first[4] == pytest.approx(second[2] + second[4])


def test_topics_beyond_the_colours_are_one():
    """Goal: readable with a thousand topics. Method: seven of them; six colours and one for the rest."""
    text = plots.traffic(Metric("s", "s", "records", f"t{index}", START, 10 + index) for index in range(9))
    assert sorted({rect[0] for rect in rects(text)}) == ["c0", "c1", "c2", "c3", "c4", "c5", "c6"]
    assert "3 other topics" in text


def test_one_wrong_time_does_not_flatten_the_picture():
    """Goal: a flipped bit in one store time leaves the traffic readable. Method: a record in the year 200,000."""
    rows = [Metric("s", "s", "records", "t", START + index * MINUTE, 1000) for index in range(30)]
    wrong = Metric("s", "s", "records", "t", 2**62, 1)
    drawn = rects(plots.traffic([*rows, wrong]), "c1")
    assert len(drawn) == 30
    assert "not drawn" in plots.traffic([*rows, wrong])
    assert "not drawn" not in plots.traffic(rows)


def test_a_late_stretch_of_traffic_is_drawn():
    """Goal: quiet days between two bursts are no damage. Method: two bursts a week apart, both there."""
    rows = [Metric("s", "s", "records", "t", START + day * 1440 * MINUTE, 1000) for day in (0, 7)]
    assert len(rects(plots.traffic(rows), "c1")) == 2


def test_lag_of_nobody_and_no_lag_are_different_sentences():
    """Goal: unknown is not zero. Method: no groups; two groups without lag."""
    assert "No consumer group" in plots.lag([])
    assert "No lag: 2 groups" in plots.lag([Metric("A9", "s", "lag", name, None, 0) for name in ("a", "b")])


def test_bars_add_up_and_come_longest_first():
    """Goal: a group is one bar whatever its topics. Method: three rows of two groups."""
    rows = [Metric("A9", "s", "lag", "a", None, 5), Metric("A9", "s", "lag", "b", None, 8)]
    text = plots.lag([*rows, Metric("A9", "t", "lag", "a", None, 5)])
    root = tree(text)
    assert [cell.text for cell in root.iter("th")] == ["a", "b"]
    assert [rect[3] for rect in rects(text)] == [1000, 800]


def test_lateness_buckets_are_in_order_of_time():
    """Goal: a distribution reads from left to right. Method: bounds given in no order, words among them."""
    rows = [Metric("A16", "s", "lateness_ms", label, None, 1) for label in ("inf", "60000", "early", "100", "1000")]
    texts = [text.text for text in tree(plots.lateness(rows)).iter("text")]
    assert texts[-5:] == ["early", "≤ 100 ms", "≤ 1 s", "≤ 1 min", "more"]


def test_transactions_share_one_bar():
    """Goal: outcomes as parts of a whole. Method: pieces meet and fill the strip."""
    rows = [Metric("A13", "s", "transactions", name, None, value) for name, value in (("committed", 3), ("pending", 1))]
    first, second = rects(plots.transactions(rows))
    assert (first[1], first[3], second[1], second[3]) == (0, 750, 750, 250)
    assert "75.0%" in plots.transactions(rows)


def test_damage_is_drawn_where_it_is():
    """Goal: the map leads to the place. Method: bytes 500 to 600 of a file of 1,000, the fourth file."""
    text = file_map(extents(4), [Store("s", "/s", file_size=1000)])
    hurt = rects(text, "hurt")
    assert hurt == [("hurt", 500.0, 0.0, 100.0, 10.0)] * 4
    assert rects(text, "written") == [("written", 0.0, 0.0, 900.0, 10.0)] * 4
    assert "bad_crc at physical offset 3500, 100 bytes" in text
    assert "4 damaged ranges" in text


@pytest.mark.parametrize("begin", [0, 999])
def test_one_damaged_byte_is_seen_and_inside(begin):
    """Goal: no damage too small or too far right to see. Method: the first and the last byte of a file."""
    one = [Extent("s", "0" * 20, 0, 1000), Extent("s", "0" * 20, begin, begin + 1, "bad_magic")]
    ((_, x, _, width, _),) = rects(file_map(one), "hurt")
    assert width == 2
    assert 0 <= x <= 998


def test_map_of_a_thousand_files_stays_a_picture():
    """Goal: bounded size. Method: 1,000 files; at most 64 rows, every file and every damage in them."""
    text = file_map(extents(1000))
    assert len(list(tree(text).iter("tr"))) <= MAP_ROWS_MAX
    assert len(rects(text, "free")) == 1000
    assert len(rects(text, "hurt")) == 1000


@pytest.mark.parametrize(("value", "expected"), [(0, [0, 1]), (1, [0, 1]), (4, [0, 1, 2, 3, 4]), (5, [0, 2, 4, 6])])
def test_ticks_are_round_and_reach_the_value(value, expected):
    """Goal: axes people can read. Method: edges by hand, then that larger ones are few and sufficient."""
    assert ticks(value) == expected
    for large in (9, 10, 11, 999, 1000, 1001, 12_345_678):
        steps = ticks(large)
        assert steps[-1] >= large > steps[-2]
        assert 2 <= len(steps) <= 7


@pytest.mark.parametrize("span", [0, 1, 119 * MINUTE, 120 * MINUTE, 10**9, 10**11, 10**14])
def test_time_buckets_are_never_too_many(span):
    """Goal: a bounded number of columns. Method: spans at and around the edges."""
    assert span / time_step(span, 120) < 121
