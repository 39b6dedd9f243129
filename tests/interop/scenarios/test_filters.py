"""Part 6: who is given what: tags, and SQL over properties.

Expected is what Apache RocketMQ 5.5.0 showed.
"""

from __future__ import annotations

from tests.interop.scenarios.cases import Expected, cases, wanted
from tests.interop.scenarios.conftest import Play
from tests.interop.scenarios.stage import Mode

EXPECTED: Expected = {
    "filter-no-such-tag": {"given": [], "sameHash": ["key-Aa"]},
    "filter-one-tag": {"given": ["key-red"], "sameHash": ["key-Aa"]},
    "filter-several-tags": {"given": ["key-blue", "key-green", "key-red"], "sameHash": ["key-Aa"]},
    "filter-sql-bad-expressions": {
        "good": {"a > 1": 0, "TRUE": 0, "s IN ('x')": 0, "a IS NULL OR b = FALSE": 0},
        "bad": {
            "a >": 23,
            "a = ": 23,
            "(a > 1": 23,
            "a BETWEEN 1": 23,
            "a IN (1, 2)": 23,
            "a > 1 AND": 23,
            "'x'": 23,
            "5": 23,
            "a == 1": 23,
            "s > 'red'": 23,
            "a BETWEEN 5 AND 3": 23,
            "a IN ()": 23,
            "a = 'x": 23,
            "a > 1)": 0,
            "CONTAINS 'x'": 23,
        },
    },
    "filter-sql-bad-push": {"start": "MQClientException 23"},
    "filter-sql-comparisons": {
        "a > 5": "67",
        "a >= 5": "567",
        "a < 5": "01234",
        "a <= 5": "012345",
        "a = 5": "5",
        "a <> 5": "0123467",
        "5 < a": "67",
        "a > -1": "01234567",
        "a = 5.0": "5",
        "a > 4.5": "567",
        "d > 2.5": "67",
        "d = 0.5": "1",
        "a BETWEEN 3 AND 5": "345",
        "a NOT BETWEEN 3 AND 5": "01267",
        "d BETWEEN 0.1 AND 1.7": "123",
    },
    "filter-sql-disabled": {"pull": "MQBrokerException 1", "start": "MQClientException 1", "tags": "ok"},
    "filter-sql-logic": {
        "a > 2 AND a < 6": "345",
        "a < 2 OR a > 6": "017",
        "NOT (a > 5)": "012345",
        "NOT (a > 2 AND a < 6)": "01267",
        "a = 1 OR a = 2 AND a = 3": "1",
        "(a = 1 OR a = 2) AND a = 1": "1",
        "b = TRUE": "036",
        "b = FALSE": "147",
        "b <> TRUE": "147",
        "b IS NULL": "25",
        "TRUE": "01234567",
        "FALSE": "",
        "a > 2 and s = 'red'": "5",
        "a > 2 And s Is Not Null": "3567",
    },
    "filter-sql-push": {"given": ["m0", "m0", "m6", "m6", "m7", "m7"]},
    "filter-sql-retry": {"given": ["m2 0", "m2 1", "m5 0", "m5 1"]},
    "filter-sql-strings": {
        "s = 'red'": "05",
        "s <> 'red'": "12367",
        "s IN ('red', 'green')": "015",
        "s NOT IN ('red', 'green')": "2367",
        "s = 'it''s'": "2",
        "s CONTAINS 'e'": "01356",
        "s NOT CONTAINS 'e'": "27",
        "s STARTSWITH 'r'": "05",
        "s NOT STARTSWITH 'r'": "12367",
        "s ENDSWITH 'n'": "16",
        "s NOT ENDSWITH 'n'": "02357",
        "TAGS = 't1'": "1",
        "TAGS IN ('t0', 't2')": "02",
    },
    "filter-sql-two-groups": {"small": ["m0", "m1", "m2", "m3"], "large": ["m4", "m5", "m6", "m7"]},
    "filter-sql-unknowns": {
        "s IS NULL": "4",
        "s IS NOT NULL": "0123567",
        "nowhere IS NULL": "01234567",
        "nowhere IS NOT NULL": "",
        "nowhere = 1": "",
        "nowhere <> 1": "",
        "nowhere > 0 OR a > 5": "67",
        "nowhere > 0 AND a > 5": "",
        "NOT (nowhere > 0)": "",
        "nowhere IN ('x')": "",
        "nowhere NOT IN ('x')": "",
        "nowhere BETWEEN 1 AND 2": "",
        "nowhere CONTAINS 'x'": "",
        "s = 5": "7",
    },
    "filter-sql-bad-pull": {"a > (1": "01234567", "s > 'red'": "01234567"},
    "filter-class": {"received": 0, "pull": 0},
}

# What pymq does not understand it refuses; Apache lets everything pass when a pull brings it, and runs no class filter.
DIFFERS: Expected = {
    "filter-sql-bad-pull": {"a > (1": "MQBrokerException 23", "s > 'red'": "MQBrokerException 23"},
    "filter-class": {"pull": 1},
}

# Scenarios that are played with client 4.9.8 too, and what is otherwise then, whoever serves it.
OLDER = (
    "filter-several-tags",
    "filter-sql-comparisons",
    "filter-sql-strings",
    "filter-sql-unknowns",
    "filter-sql-logic",
    "filter-sql-push",
    "filter-sql-retry",
    "filter-sql-bad-push",
    "filter-sql-disabled",
)
OF_498: Expected = {}


@cases(EXPECTED, older=OLDER)
def test_filter_scenario(play: Play, target: str, kind: str, scenario: str) -> None:
    """Goal: given what was asked for. Method: play it with Apache's client, compare facts."""
    assert play(kind, scenario, Mode()) == wanted(target, kind, scenario, EXPECTED, DIFFERS, OF_498)
