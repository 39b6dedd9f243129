"""Which store is compared with which, and as what: names, positions and manifests, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.audits.pairing import earlier_pairs, pairs
from spark_jobs.relations import Pair, PairingError, doubt, matched, pair_up, relation
from spark_jobs.tables import Tables


def stopped(begun_ms: int = 1000, **changes: Any) -> dict[str, Any]:
    """The manifest of a stopped store's dump, as far as it is looked at here."""
    return {
        "format": "pymq-dump", "version": 1, "source": "/data/store", "storePath": "/data/store", "host": "m1",
        "kind": "stopped", "broker": None, "begunMs": begun_ms, "endedMs": begun_ms + 1, "log": {"end": 0},
        "leafSize": 1, "files": [], "configuration": {},
    } | changes  # fmt: skip


def running(begun_ms: int = 1000, name: str = "a", number: str = "0", **changes: Any) -> dict[str, Any]:
    """The manifest of a running broker's."""
    broker = {"name": name, "cluster": "c", "address": changes.pop("address", "10.0.0.7:10911")}
    return stopped(begun_ms, source="localhost:10911", kind="running", broker=broker) | {
        "configuration": {"brokerId": number}, **changes,
    }  # fmt: skip


def dump(path: Path, manifest: dict[str, Any] | None) -> str:
    """A directory, or a dump."""
    path.mkdir(parents=True)
    if manifest is not None:
        (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return str(path)


# ---- who goes with whom --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "theirs", "expected"),
    [
        ("a", "z", "az"),
        ("a b c", "z", "az bz cz"),
        ("a b", "y z", "ay bz"),
        ("a b", "b a", "aa bb"),
        ("a b c", "c a b", "aa bb cc"),
        ("a b", "a z", "aa bz"),
    ],
)
def test_stores_go_by_name_and_else_by_position(own: str, theirs: str, expected: str):
    """Symptom: `x/a x/b --against y/b y/a` compared a with b. Method: one for all, same names, other names."""
    assert matched(own.split(), theirs.split()) == [(pair[0], pair[1]) for pair in expected.split()]


@pytest.mark.parametrize(
    ("own", "theirs", "message"),
    [
        ("a b c", "a b", "3 stores against 2: c would be compared with nothing"),
        ("a", "b c a", "1 store against 3: b, c would be"),
        ("a b c", "y z", "3 stores against 2: a, b, c, y, z would be"),
        ("a b", "b c", "by position a goes with b, and by name it does not"),
    ],
)
def test_nobody_is_left_out_in_silence(own: str, theirs: str, message: str):
    """Symptom: a store was compared with nothing, and clean. Method: too many on either side, and names that cross."""
    with pytest.raises(PairingError, match=message):
        matched(own.split(), theirs.split())


def test_pairs_are_found_by_the_directories_names(tmp_path: Path):
    """Goal: names are those of the column `store`. Method: two sides below other directories, in other orders."""
    own = [dump(tmp_path / "now" / name, None) for name in ("m1", "m2")]
    theirs = [dump(tmp_path / "then" / name, None) for name in ("m2", "m1")]
    assert [(pair.store, pair.other) for pair in pair_up(own, theirs)] == [("m1", "m1"), ("m2", "m2")]
    assert pair_up(own, []) == []
    with pytest.raises(PairingError, match="'cousin'"):
        pair_up(own, theirs, "cousin")


# ---- as what -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "other", "expected", "why"),
    [
        (stopped(2000), stopped(), "earlier", "both of /data/store on m1"),
        (stopped(2000), running(), "earlier", "both of /data/store on m1"),
        (running(2000), stopped(), "earlier", "both of /data/store on m1"),
        (running(2000), running(source="127.0.0.1:10911"), "earlier", "both of /data/store on m1"),
        (running(2000, host=""), running(host=""), "earlier", "both of the broker a at 10.0.0.7:10911"),
        (running(2000, storePath="/new"), running(host="m2"), "earlier", "both of the broker a at 10.0.0.7:10911"),
        (running(2000, number="1"), running(), "replica", "the broker a with brokerId 1 and 0"),
        (stopped(2000), None, "unclear", "a plain directory"),
        (None, stopped(), "unclear", "a plain directory"),
        (stopped(2000), stopped(host="m2"), "unclear", "dumps of /data/store on m1 and on m2"),
        (stopped(2000, host=""), stopped(host=""), "unclear", "does not say on which machine"),
        (stopped(2000, host="localhost"), stopped(host="localhost"), "unclear", "does not say on which machine"),
        (stopped(2000, storePath="/restored"), stopped(), "unclear", "dumps of /restored and /data/store"),
        (stopped(1000), stopped(2000), "unclear", "but --against is the later one"),
        (running(2000, "b"), running(), "unclear", "dumps of the brokers b and a"),
        (running(2000, address="127.0.0.1:1", host="m2"), running(address="127.0.0.1:1"), "unclear", "on m2 and on m1"),
        (stopped(2000, begunMs=None), stopped(), "unclear", "does not say when"),
        ({}, {}, "unclear", "does not say on which machine"),
        (stopped(2000, broker="x", configuration=7), stopped(), "earlier", "both of /data/store on m1"),
    ],
)  # fmt: skip
def test_the_manifests_tell_an_earlier_dump_from_a_replica_or_nothing(own, other, expected, why):
    """Symptom: hot and cold dumps of one broker were replicas, a slave under its master's path an earlier dump.
    Method: what two manifests may have in common, and what not."""
    found = relation(own, other)
    assert found[0] == expected
    assert why in found[1]


def test_the_operators_word_decides(tmp_path: Path):
    """Goal: `--relation` is never overruled. Method: said of plain directories, and of what manifests call earlier."""
    plain, old = dump(tmp_path / "plain", None), dump(tmp_path / "old", stopped())
    new = dump(tmp_path / "new", stopped(2000))
    assert pair_up([plain], [old], "earlier") == [Pair("plain", "old", "earlier", "as --relation says")]
    assert pair_up([new], [old])[0].relation == "earlier"
    assert pair_up([new], [old], "replica")[0].relation == "replica"


def test_what_is_unclear_is_said_with_the_way_out(tmp_path: Path):
    """Symptom: A24 of two dumps whose sources had two names was clean. Method: the sentence, and who raises it."""
    old, new = dump(tmp_path / "old", None), dump(tmp_path / "new", stopped())

    def tables(said: str = "auto") -> Tables:
        return Tables(None, [new], against=Tables(None, [old]), relation=said)  # type: ignore[arg-type]

    unknown = doubt(pairs(tables()))
    assert unknown == (
        "the manifests do not tell whether old is an earlier dump of new (a plain directory does not say whose it is); "
        "say --relation earlier or --relation replica"
    )
    with pytest.raises(PairingError, match="--relation earlier"):
        earlier_pairs(tables())
    assert earlier_pairs(tables("replica")) == []
    assert [pair.relation for pair in earlier_pairs(tables("earlier"))] == ["earlier"]
    assert doubt(pairs(tables("replica"))) == ""
    assert pairs(Tables(None, [new])) == []  # type: ignore[arg-type]
