"""The audits, one file each; `ALL` is every one of them in order of its number.

A module called `aNN_noun` exports `AUDIT`; whatever else lies here is shared by some of them and is no audit.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from typing import Any, Final

from spark_jobs.audits.base import Audit

__all__ = ["ALL"]

MODULE: Final = re.compile(r"a(\d\d)_[a-z_]+")


@cache
def collect() -> tuple[Audit, ...]:
    """Every audit of this package.

    Raises:
        ValueError: a module's number is not its audit's.
    """
    found = []
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        number = MODULE.fullmatch(name)
        if number is None:
            continue
        audit: Audit = importlib.import_module(f"{__name__}.{name}").AUDIT
        if audit.name != f"A{int(number[1])}":
            raise ValueError(f"{name}: its audit calls itself {audit.name}")
        found.append(audit)
    return tuple(found)


def __getattr__(name: str) -> Any:
    """`ALL`, when it is first asked for: who wants one audit need not import them all."""
    if name == "ALL":
        return collect()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
