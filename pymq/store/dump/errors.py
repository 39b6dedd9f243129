"""What can go wrong with a dump, as the command line tells it: refused before it began, or broken on the way."""

from __future__ import annotations

from typing import ClassVar

from pymq.errors import PymqError


class DumpError(PymqError):
    """The dump was begun and cannot go on; where it says so, the same command continues it later."""

    exit_code: ClassVar[int] = 1


class DumpRefusedError(DumpError):
    """No message was copied: the source, the target, the space or an unfinished dump is not as it has to be.

    Repeating the call does not help until what the text says is done.
    """

    exit_code: ClassVar[int] = 2
