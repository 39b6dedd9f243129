"""Odd ledgers and the audits that read them, by the command people run: damage is a finding, and never silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pymq import _scan
from spark_jobs.audit import main
from tests.spark_jobs.faults.patch import PatchedStore

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

HEAD = "# pymq-ledger 1\n"
OTHER = _scan.Host(bytes([10, 0, 0, 2]), 10911)


def line(message_id: str, topic: str = "Gone", number: int = 0) -> str:
    """An acknowledged send."""
    return f"A\t{topic}\t0\t{number}\t{message_id}\t1\t{number}\t-\t1\t2\n"


def told(host: str, *offsets: int) -> str:
    """A ledger of a topic no store has: answered with these places of a host."""
    return HEAD + "".join(line(f"{host}00002A9F{at:016X}", number=at) for at in offsets)


@pytest.fixture
def audited(spark, capsys: pytest.CaptureFixture[str]):
    """Run the command; exit code, findings as (check, severity, store, offset), and what a check that failed said."""

    def run(*arguments: Any, checks: str = "A21") -> tuple[int, list[tuple[Any, ...]], list[str]]:
        capsys.readouterr()
        code = main([*map(str, arguments), "--checks", checks, "--json", "--quiet"])
        result = json.loads(capsys.readouterr().out)
        found = [tuple(one[name] for name in ("check", "severity", "store", "offset")) for one in result["findings"]]
        return code, found, [check["error"] for check in result["checks"] if check["error"]]

    return run


@pytest.fixture
def of_another_host(golden: Path) -> Path:
    """The golden store as if another broker had written it."""
    path = golden.rename(golden.with_name("other"))
    store = PatchedStore(path)
    for one in list(store.records()):
        if len(one.record.store_host.address) == len(OTHER.address):
            store.rewrite(one, store_host=OTHER)
    return path


def test_a_broker_that_lost_a_whole_topic_is_found_beside_others(
    audited, golden_shared: Path, of_another_host: Path, tmp_path: Path
):
    """Goal: a store that has no record of the ledger's topics is still spoken of. Method: two stores, lines of one."""
    ledger = tmp_path / "sent.tsv"
    ledger.write_text(told("0A000002", 100, 200), encoding="utf-8")
    lost = [("A21", "error", "other", 100), ("A21", "error", "other", 200)]
    assert audited(of_another_host, "--ledger", ledger) == (1, lost, [])
    assert audited(golden_shared, of_another_host, "--ledger", ledger) == (1, lost, [])


def test_a_ledger_of_a_broker_that_was_not_given_is_no_clean_run(
    audited, golden_shared: Path, of_another_host: Path, tmp_path: Path
):
    """Goal: lines that no store can answer for are told. Method: a third host's, of a producer and a consumer."""
    ledger = tmp_path / "sent.tsv"
    text = told("0A000009", 100, 200)
    ledger.write_text(text + text.removeprefix(HEAD).replace("A\t", "R\t"), encoding="utf-8")
    code, found, errors = audited(golden_shared, of_another_host, "--ledger", ledger, checks="A21,A22")
    assert (code, errors) == (1, [])
    assert found == [("A21", "warning", "golden", None), ("A22", "warning", "golden", None)]


def test_one_odd_line_stops_no_audit(audited, golden_shared: Path, tmp_path: Path):
    """Goal: the other lines still count. Method: no topic, a client's own id, and a send that was lost."""
    ledger = tmp_path / "lost[1].tsv"
    place = f"7F00000100002A9F{100:016X}"
    odd = line(place, topic="-") + line("7F0000012A9F18B4AAC28F3B0D1C0000") + line(place, number=5)
    ledger.write_text(HEAD + odd, encoding="utf-8")
    code, found, errors = audited(golden_shared, "--ledger", ledger, checks="A19,A21,A22")
    assert (code, errors) == (1, [])
    assert sorted(found, key=str) == [
        ("A21", "error", "golden", 5), ("A21", "warning", "golden", None), ("A21", "warning", "golden", None),
    ]  # fmt: skip


def test_a_ledger_without_a_line_is_no_clean_run(audited, golden_shared: Path, tmp_path: Path):
    """Goal: a ledger that was not read proves nothing. Method: an empty file, by itself and by its directory."""
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "sent.tsv").touch()
    for given in (tmp_path / "books" / "sent.tsv", tmp_path / "books"):
        assert audited(golden_shared, "--ledger", given) == (1, [("A21", "warning", "golden", None)], [])
