"""What can go wrong with a dump, as the command line tells it: refused before it began, or broken on the way."""

from __future__ import annotations

from typing import ClassVar

from pymq.errors import PymqError


class DumpError(PymqError):
    """The dump was begun and cannot go on; where it says so, the same command continues it later."""

    exit_code: ClassVar[int] = 1


class DumpRefusedError(DumpError):
    """Nothing was copied: the source, the target or the space is not as it has to be."""

    exit_code: ClassVar[int] = 2
