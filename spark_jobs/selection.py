"""Which checks `--checks` means: names, ranges and groups, as `A1,A3-A7,meaning`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pymq.errors import ConfigError
from spark_jobs.relations import ALONE
from spark_jobs.report.model import NEEDS

if TYPE_CHECKING:
    from spark_jobs.audits.base import Audit

RANGE = re.compile(r"A?(\d+)(?:\s*-\s*A?(\d+))?", re.IGNORECASE)


class Selection(NamedTuple):
    """The checks that were chosen, and what those of them lack that cannot run."""

    chosen: list[Audit]
    missing: dict[str, tuple[str, ...]]


def select(text: str, audits: Sequence[Audit], given: Iterable[str], doubt: str = "") -> Selection:
    """The audits that *text* names, in their own order, parted by whether what they need is *given*.

    *doubt* says what is not known about the stores that are compared (`spark_jobs.relations.doubt`).

    A check that was asked for by its name must be able to run: an exit code of 0 would be taken for its answer. Out of
    a range, a group or `all` it is only listed.

    Raises:
        ConfigError: a word that is no check, range or group; a named check without what it needs, or of which a part
            would be left out because of a doubt.
    """
    wanted: set[str] = set()
    for word in filter(None, (word.strip() for word in text.split(","))):
        members = members_of(word, audits)
        if not members:
            raise ConfigError(f"--checks {word}: it is {choices(audits)}")
        if len(members) == 1 and "-" not in word:
            if doubt and members[0].earlier:
                raise ConfigError(f"--checks {word}: {doubt}")
            if lacking := missing_of(members[0], given):
                options = " and ".join(NEEDS[need] for need in lacking)
                raise ConfigError(f"--checks {word}: {members[0].name} ({members[0].title}) needs {options}")
        wanted |= {audit.name for audit in members}
    if not wanted:
        raise ConfigError(f"--checks names no check: it is {choices(audits)}")
    chosen = [audit for audit in audits if audit.name in wanted]
    missing = {audit.name: missing_of(audit, given) for audit in chosen}
    return Selection(chosen, {name: lacking for name, lacking in missing.items() if lacking})


def members_of(word: str, audits: Sequence[Audit]) -> list[Audit]:
    """The audits one word stands for."""
    if word.lower() == "all":
        return list(audits)
    if found := RANGE.fullmatch(word):
        first, last = int(found[1]), int(found[2] or found[1])
        return [audit for audit in audits if first <= number_of(audit) <= last]
    return [audit for audit in audits if audit.group == word.lower()]


def missing_of(audit: Audit, given: Iterable[str]) -> tuple[str, ...]:
    """What *audit* needs and was not given."""
    there = set(given)
    lacking = audit.needs - there
    if not lacking and audit.earlier == ALONE and "earlier" not in there:
        return ("earlier",)
    return tuple(sorted(lacking))


def number_of(audit: Audit) -> int:
    """7 of "A7"."""
    return int(audit.name.lstrip("A"))


def choices(audits: Sequence[Audit]) -> str:
    """What may be said instead."""
    groups = sorted({audit.group for audit in audits})
    if not audits:
        return "of no use: there are no checks"
    first, last = audits[0].name, audits[-1].name
    return f"one of {first} to {last}, a range as {first}-{last}, {', '.join(groups)} or all"
