"""Seeded faults: what is done to a clean store, and the one finding that must come of it.

A fault belongs to one check, has a name, and a function that damages the copy it is given and says where the finding
must stand. `store_faults` and `meaning_faults` list them, ten a check; `all_faults()` is the whole list. A fault that
needs something the store at hand does not have (a delayed message, a POP check-point) raises `NothingFitsError`, and
the test goes on to the next kind of store.

    FAULTS = (
        Fault("A1", "bit_of_a_body", flip_body_bit),
        ...
    )

    def flip_body_bit(case: Case) -> Expected:
        store = case.store
        one = store.pick(lambda one: one.record.body, case.random)
        store.flip(one.offset + one.body_at)
        return Expected("A1", offset=one.offset)
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from tests.spark_jobs.faults.patch import NothingFitsError, PatchedStore

__all__ = ["Case", "Expected", "Fault", "NothingFitsError", "PatchedStore", "all_faults"]

MODULES = ("store_faults", "meaning_faults")


@dataclass(frozen=True)
class Expected:
    """The finding a fault must give. None stands for anything, so each fault says as much as it knows."""

    check: str
    topic: str | None = None
    queue: int | None = None
    offset: int | None = None

    def fits(self, finding: Mapping[str, Any]) -> bool:
        """Whether a finding (a row of `spark_jobs.audits.base.FINDINGS` as a dict) is this one."""
        return finding["check"] == self.check and all(
            wanted is None or finding[name] == wanted
            for name, wanted in (("topic", self.topic), ("queue", self.queue), ("offset", self.offset))
        )


@dataclass(frozen=True)
class Case:
    """What a fault is seeded into: copies of its own, so it may write wherever it likes.

    Attributes:
        path: the store that is audited.
        against: what it is compared with (the earlier dump, the master); None unless the fault asked for one.
        ledgers: the clients' ledgers of the run that made the store; empty unless the fault asked for them.
        random: which record, which byte: printed by the test as its seed.
    """

    path: Path
    against: Path | None = None
    ledgers: tuple[Path, ...] = ()
    random: Random = field(default_factory=lambda: Random(0))

    @cached_property
    def store(self) -> PatchedStore:
        """The audited store, under the knife."""
        return PatchedStore(self.path)

    @cached_property
    def other(self) -> PatchedStore:
        """The one it is compared with, under the knife."""
        if self.against is None:
            raise NothingFitsError("the fault needs a second store")
        return PatchedStore(self.against)


@dataclass(frozen=True)
class Fault:
    """One way to be wrong.

    Attributes:
        check: "A1" to "A24".
        name: unique within its check, for people.
        seed: does the damage, and says what finding must come of it.
        kinds: kinds of stores (`tests.spark_jobs.stores`) it can be seeded in; empty for any.
        against: "" or what the second store is: "same" (a copy of the clean store), "earlier" (the same store, dumped
            before it went on), "master" (the store is its slave's).
        ledgers: whether the check looks at ledgers. Such a case is audited in a run of its own, because ledgers speak
            of all stores of a run.
    """

    check: str
    name: str
    seed: Callable[[Case], Expected]
    kinds: tuple[str, ...] = ()
    against: str = ""
    ledgers: bool = False

    @property
    def id(self) -> str:
        """For a test's name."""
        return f"{self.check}-{self.name}"


def all_faults() -> tuple[Fault, ...]:
    """Every fault, of both lists."""
    faults: list[Fault] = []
    for module in MODULES:
        name = f"{__name__}.{module}"
        if importlib.util.find_spec(name) is not None:
            faults += importlib.import_module(name).FAULTS
    names = [fault.id for fault in faults]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise ValueError(f"faults of one name: {', '.join(sorted(doubled))}")
    return tuple(faults)
