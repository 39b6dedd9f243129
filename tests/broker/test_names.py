"""Names: which are allowed, and TopicValidator's words for those that are not."""

from __future__ import annotations

import pytest

from pymq.broker.names import check_group_name, check_topic_name


@pytest.mark.parametrize("name", ["a", "a" * 127, "A-z_0|9%", "%RETRY%" + "g" * 248, "%DLQ%g"])
def test_allowed_topics(name):
    """Goal: every name Apache allows. Method: each kind of character, each limit."""
    assert check_topic_name(name) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a" * 128, "longer than topic max length: 127"),
        ("%RETRY%" + "g" * 249, "longer than topic max length: 255"),
        ("a b", "illegal characters"),
        ("ä", "illegal characters"),
        ("a.b", "illegal characters"),
    ],
)
def test_refused_topics(name, words):
    """Goal: Apache's words. Method: one name beyond each rule."""
    assert words in check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "blank"), ("g" * 121, "longer than group max length: 120"), ("g g", "illegal characters")],
)
def test_refused_groups(name, words):
    """Goal: Apache's words. Method: one name beyond each rule, and one at the limit."""
    assert check_group_name("g" * 120) is None
    assert words in check_group_name(name)
