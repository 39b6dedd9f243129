"""R27: every audit finds each of ten seeded faults, exactly once and at its place, and finds nothing in a clean store.

A fault is seeded in a copy of a store that a real run made (`tests.spark_jobs.stores`), and all copies are read by
Spark at once, together with clean ones: the `store` column tells them apart. A faulted store may well give findings of
other checks too; of its own check it must give one, and that must say where.

One fault of each check and a few clean stores by default, chosen by a seed (PYMQ_FAULT_SEED chooses others); all
of them, and twenty clean stores, with PYMQ_FULL=1 (`make audit-full`).
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.audits import ALL
from spark_jobs.ledger import read_ledgers
from spark_jobs.tables import Tables
from tests.spark_jobs.faults import Case, Expected, Fault, NothingFitsError, all_faults
from tests.spark_jobs.faults.patch import copy_store
from tests.spark_jobs.stores import StoreMade, runs
from tests.spark_jobs.stores.gallery import Gallery, Wanted

FULL = os.environ.get("PYMQ_FULL") == "1"
SEED = int(os.environ.get("PYMQ_FAULT_SEED", "1"))
FAULTS_EACH = 10
SAMPLED_EACH = 1
RELATIONS = {"earlier": "earlier", "same": "earlier", "master": "replica"}

# In which stores faults are seeded, the usual first: each fault begins at another one.
BASES: tuple[str, ...] = ("every_kind", "golden", "went_on", "replica", "recovered", "record_crc", "golden_went_on")
CI_BASES = ("every_kind", "golden", "went_on", "replica")

CLEAN: tuple[Wanted, ...] = tuple(
    (kind, seed)
    for kind, seeds in {
        "every_kind": (101, 102, 103),
        "record_crc": (201,),
        "went_on": (301, 302),
        "killed": (401, 402, 403, 404),
        "recovered": (501, 502, 503),
        "retained": (601, 602),
        "replica": (701, 702),
        "golden": (None,),
        "golden_went_on": (801, 802),
    }.items()
    for seed in seeds
)
CI_CLEAN: tuple[Wanted, ...] = (
    ("every_kind", None), ("went_on", None), ("replica", None), ("killed", None), ("retained", None), ("golden", None),
)  # fmt: skip

pytestmark = [pytest.mark.spark, pytest.mark.timeout(7200 if FULL else 1500)]


def sample() -> tuple[Fault, ...]:
    """The faults of this run."""
    chance = random.Random(SEED)
    by_check: dict[str, list[Fault]] = defaultdict(list)
    for fault in all_faults():
        by_check[fault.check].append(fault)
    return tuple(
        fault
        for faults in by_check.values()
        for fault in (faults if FULL else chance.sample(faults, min(SAMPLED_EACH, len(faults))))
    )


FAULTS = sample()
WANTED_CLEAN = CLEAN if FULL else CI_CLEAN
KINDS = BASES if FULL else CI_BASES

if FULL:  # with stores that Apache's broker writes meanwhile, which takes a JDK and Maven
    from tests.interop.apache_toolchain import toolchain
    from tests.interop.spark.apache_run import apache_killed, apache_pair, apache_store

    for apache_run in (apache_store, apache_killed, apache_pair):
        runs.KINDS[apache_run.__name__] = lambda directory, run=apache_run: run(toolchain(), directory)
        WANTED_CLEAN += ((apache_run.__name__, None),)
    KINDS += ("apache_store", "apache_pair")


@dataclass
class Seeded:
    """A fault and the copy it is in."""

    fault: Fault
    kind: str
    case: Case
    expected: Expected
    findings: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Run:
    """All that was audited, with what came of it; findings of clean stores by name of the store."""

    seeded: dict[str, Seeded]
    clean: dict[str, list[dict[str, Any]]]
    errors: list[str]


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Make the stores, seed the faults, audit everything."""
    print(f"detection: {len(FAULTS)} faults, {len(WANTED_CLEAN)} clean stores, seed {SEED}")
    gallery = Gallery(tmp_path_factory.mktemp("gallery"))
    try:
        gallery.begin([(kind, None) for kind in KINDS])
        gallery.begin(WANTED_CLEAN)
        cases = tmp_path_factory.mktemp("cases")
        seeded = {fault.id: seed_fault(fault, number, gallery, cases) for number, fault in enumerate(FAULTS)}
        clean = {name_of(wanted): gallery.get(*wanted) for wanted in WANTED_CLEAN}
        yield audit_all(spark, seeded, clean, cases)
    finally:
        gallery.close()


def name_of(wanted: Wanted) -> str:
    """A clean store's name."""
    return wanted[0] if wanted[1] is None else f"{wanted[0]}-{wanted[1]}"


def seed_fault(fault: Fault, number: int, gallery: Gallery, cases: Path) -> Seeded:
    """Copy the first store it fits in, beginning with another one for each fault, and do the damage."""
    kinds = fault.kinds or KINDS
    for step in range(len(kinds)):
        kind = kinds[(number + step) % len(kinds)]
        made = gallery.get(kind)
        try:
            case = copied(fault, made, cases / f"{step}")
            return Seeded(fault, kind, case, fault.seed(case))
        except NothingFitsError:
            continue
    raise AssertionError(f"{fault.id} can be seeded in none of {', '.join(kinds)}")


def copied(fault: Fault, made: StoreMade, directory: Path) -> Case:
    """A copy of a store, and of what the fault needs besides."""
    sources = {"": None, "same": made.path, "earlier": made.earlier, "master": made.master}
    source = sources[fault.against]
    if fault.against and source is None:
        raise NothingFitsError(f"{made.kind} has nothing that is {fault.against}")
    if fault.ledgers and not made.ledgers:
        raise NothingFitsError(f"{made.kind} has no ledgers")
    against = None if source is None else copy_store(source, directory / "against" / fault.id)
    ledgers = []
    if fault.ledgers:
        books = directory / "books" / fault.id
        books.mkdir(parents=True)
        ledgers = [books / path.name for path in made.ledgers]
        for old, new in zip(made.ledgers, ledgers, strict=True):
            new.write_bytes(old.read_bytes())
    path = copy_store(made.path, directory / "audited" / fault.id)
    return Case(path, against, tuple(ledgers), random.Random(f"{SEED}/{fault.id}"))


def audit_all(spark: SparkSession, seeded: dict[str, Seeded], clean: dict[str, StoreMade], directory: Path) -> Run:
    """As few runs as possible: one of everything that stands alone, one for each relation, few for ledgers."""
    run = Run(seeded, {name: [] for name in clean}, [])
    # Names of directories become names of stores: a clean store is known by its own.
    paths = {name: copy_store(made.path, directory / "clean" / name) for name, made in clean.items()}
    needed = {one.name: one.needs for one in ALL}

    def checks_of(group: Iterable[Seeded], needs: set[str]) -> set[str]:
        return {one.fault.check for one in group} | {name for name, wanted in needed.items() if wanted == needs}

    alone = [one for one in seeded.values() if not one.fault.against and not one.fault.ledgers]
    audit(run, Tables(spark, texts([*(one.case.path for one in alone), *paths.values()])), checks_of([], set()))
    for relation in sorted(set(RELATIONS.values())):
        related = [one for one in seeded.values() if RELATIONS.get(one.fault.against) == relation]
        pairs = [(one.case.path, one.case.against) for one in related]
        for name, made in clean.items():
            other = made.earlier if relation == "earlier" else made.master
            if other is not None:
                pairs.append((paths[name], copy_store(other, directory / "clean-against" / relation / name)))
        against = Tables(spark, texts(other for _, other in pairs))
        tables = Tables(spark, texts(path for path, _ in pairs), against=against, relation=relation)
        audit(run, tables, checks_of(related, {"against"}))
    for batch in batches([one for one in seeded.values() if one.fault.ledgers]):
        ledgers = read_ledgers(spark, texts(path for one in batch for path in one.case.ledgers))
        tables = Tables(spark, texts(one.case.path for one in batch), ledgers=ledgers)
        audit(run, tables, {one.fault.check for one in batch})
    kept = {name: made for name, made in clean.items() if made.ledgers}
    ledgers = read_ledgers(spark, texts(path for made in kept.values() for path in made.ledgers))
    audit(run, Tables(spark, texts(paths[name] for name in kept), ledgers=ledgers), checks_of([], {"ledgers"}))
    return run


def texts(paths: Iterable[Path | None]) -> list[str]:
    """As Spark wants them."""
    return [str(path) for path in paths]


def batches(cases: list[Seeded]) -> list[list[Seeded]]:
    """Cases whose ledgers can be read together: each of another store, for a line tells by its address of which.

    A fault without a place is one of the ledger itself, which is said of the first store there is: it goes alone.
    """
    made: list[list[Seeded]] = []
    for one in cases:
        nowhere = one.expected == Expected(one.fault.check)
        fitting = (batch for batch in made if one.kind not in {other.kind for other in batch})
        batch = None if nowhere else next((batch for batch in fitting if batch[0].expected.topic is not None), None)
        if batch is None:
            made.append([one])
        else:
            batch.append(one)
    return made


def audit(run: Run, tables: Tables, checks: set[str]) -> None:
    """Run some checks, file what they find, and print what each has cost."""
    took = []
    for one in ALL:
        if one.name not in checks:
            continue
        begun_s = time.monotonic()
        try:
            rows = [row.asDict() for row in one.check(tables).collect()]
        except PySparkException as error:
            run.errors.append(f"{one.name}: {error}")
            continue
        took.append(f"{one.name} {time.monotonic() - begun_s:.1f} s")
        for row in rows:
            if row["store"] in run.clean:
                run.clean[row["store"]].append(row)
            elif row["store"] in run.seeded and run.seeded[row["store"]].fault.check == one.name:
                run.seeded[row["store"]].findings.append(row)
            elif row["store"] not in run.seeded:
                run.errors.append(f"{one.name}: a finding of no store: {row}")
    if "scan" in vars(tables):
        tables.scan.unpersist()
    print(f"detection: {len(tables.paths)} stores: {', '.join(took)}")


def test_every_audit_has_ten_faults():
    """Goal: no audit that cannot fail. Method: count the lists; names are told apart by `all_faults` itself."""
    counted = {one.name: 0 for one in ALL}
    for fault in all_faults():
        counted[fault.check] += 1
    assert counted == dict.fromkeys((f"A{number}" for number in range(1, 25)), FAULTS_EACH)


def test_every_audit_runs(run: Run):
    """Goal: whatever is wrong with a store, an audit says so and goes on. Method: all of them, over all faults."""
    assert run.errors == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_seeded_fault_gives_one_finding_at_its_place(run: Run, fault: Fault):
    """Goal: R27, no miss. Method: the findings of the fault's check in its copy are one, and it is the expected one."""
    one = run.seeded[fault.id]
    shown = "\n".join(str(row) for row in one.findings)
    assert len(one.findings) == 1, f"{one.kind}, {one.case.path}, expected {one.expected}; seed {SEED}:\n{shown}"
    assert one.expected.fits(one.findings[0]), f"{one.kind}, {one.case.path}, expected {one.expected}:\n{shown}"


@pytest.mark.parametrize("name", [name_of(wanted) for wanted in WANTED_CLEAN])
def test_a_clean_store_gives_no_finding(run: Run, name: str):
    """Goal: R27, no false alarm. Method: every audit over every clean store, pairs and ledgers included."""
    assert run.clean[name] == [], f"seed {SEED}"
