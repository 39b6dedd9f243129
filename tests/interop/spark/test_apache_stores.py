"""The audits over stores that Apache RocketMQ 5.5.0 has just written under its own clients: nothing to find.

One broker that was stopped, one that was killed, and a master with its slave, each with POP, transactions, delays,
timers, retries and dead letters in it. They are made side by side, for they mostly wait, and audited by the command
line that people use.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit import main
from tests.interop.apache_toolchain import Toolchain
from tests.interop.spark.apache_run import apache_killed, apache_pair, apache_store
from tests.spark_jobs.faults.patch import PatchedStore, copy_store
from tests.spark_jobs.stores import StoreMade

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Made = dict[str, StoreMade]


@pytest.fixture(scope="module")
def made(apache: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The three runs."""
    home = tmp_path_factory.mktemp("apache")
    with ThreadPoolExecutor(3) as pool:
        runs = {
            run.__name__: pool.submit(run, apache, home / run.__name__)
            for run in (apache_store, apache_killed, apache_pair)
        }
        return {name: run.result() for name, run in runs.items()}


def audited(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """Exit code and result of the audit's command line."""
    capsys.readouterr()
    code = main([*map(str, arguments), "--json", "--quiet"])
    printed = capsys.readouterr()
    assert printed.out, printed.err
    return code, json.loads(printed.out)


def assert_clean(code: int, result: dict[str, Any]) -> None:
    """Nothing was found, and nothing could not be looked at."""
    assert result["findings"] == []
    assert [check for check in result["checks"] if check["error"]] == []
    assert code == 0


@pytest.mark.parametrize("name", ["apache_store", "apache_killed"])
def test_a_store_of_apaches_broker_is_clean(
    spark: SparkSession, made: Made, name: str, capsys: pytest.CaptureFixture[str]
):
    """Goal: no false alarm on Apache's own. Method: all checks, with the ledgers of Apache's clients."""
    assert_clean(*audited(capsys, made[name].path, "--ledger", *made[name].ledgers))


def test_the_runs_hold_what_they_are_for(made: Made):
    """Goal: a clean verdict about something. Method: each kind of message is there, POP's long retry topic included."""
    store = PatchedStore(made["apache_store"].path)
    counted: dict[str, int] = {}
    for one in store.records():
        counted[one.topic] = counted.get(one.topic, 0) + 1
    kinds = {"SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"}
    kinds |= {"%RETRY%failing", "%DLQ%failing", "rmq_sys_REVIVE_LOG_interop-cluster"}
    assert kinds <= counted.keys()
    assert any(topic.startswith("%RETRY%pop-long-") and len(topic) > 127 for topic in counted), sorted(counted)


def test_a_slave_is_clean_and_equals_its_master(spark: SparkSession, made: Made, capsys: pytest.CaptureFixture[str]):
    """Goal: replicas compared, by Apache's own replication. Method: slave against master, then with one bit turned."""
    pair = made["apache_pair"]
    assert pair.master is not None
    assert_clean(*audited(capsys, pair.path, "--against", pair.master))
    assert_clean(*audited(capsys, pair.master))


def test_a_flipped_byte_of_a_slave_is_found_and_located(
    spark: SparkSession, made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Goal: damage in one copy. Method: one bit of one body in the slave's log: found alone, and beside the master."""
    pair = made["apache_pair"]
    store = PatchedStore(copy_store(pair.path, tmp_path / "slave"))
    one = store.pick(lambda one: one.record.body, Random(4), inner=True)
    store.flip(one.offset + one.body_at)
    code, result = audited(capsys, store.root, "--against", str(pair.master), "--checks", "A1,A20")
    assert code == 1
    places = {finding["check"]: finding["offset"] for finding in result["findings"]}
    assert places == {"A1": one.offset, "A20": one.offset}
