"""How faults are listed: by a decorator, and called as their function is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.spark_jobs.faults import Case, Expected, Fault

Seed = Callable[[Case], Expected]


class Faults(list[Fault]):
    """A module's faults, in the order they stand in it."""

    def seeds(self, check: str, **how: Any) -> Callable[[Seed], Seed]:
        """List the function below as a fault of *check*; its name without the underscore is the fault's."""

        def list_it(seed: Seed) -> Seed:
            self.append(Fault(check, seed.__name__.lstrip("_"), seed, **how))
            return seed

        return list_it
