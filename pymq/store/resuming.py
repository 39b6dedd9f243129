"""Iterators that outlive a damaged record.

A generator is over once it has raised. A reader that meets a damaged record has moved past it by then, so a new
generator over the same reader goes on behind the damage: the error is raised once, and whoever asks for the next
message gets it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator

from pymq.errors import CorruptRecordError
from pymq.message import ReceivedMessage


class Resumable(Iterator[ReceivedMessage]):
    """Messages of the generators that *make* returns, one after another for each CorruptRecordError."""

    def __init__(self, make: Callable[[], Generator[ReceivedMessage, None, None]]) -> None:
        """*make* is called now, and again after each damaged record."""
        self._make = make
        self._generator = make()

    def __next__(self) -> ReceivedMessage:
        try:
            return next(self._generator)
        except CorruptRecordError:
            self._generator = self._make()
            raise

    def close(self) -> None:
        """End the iteration."""
        self._generator.close()


class AsyncResumable(AsyncIterator[ReceivedMessage]):
    """The same for `async for`."""

    def __init__(self, make: Callable[[], AsyncGenerator[ReceivedMessage, None]]) -> None:
        """*make* is called now, and again after each damaged record."""
        self._make = make
        self._generator = make()

    async def __anext__(self) -> ReceivedMessage:
        try:
            return await anext(self._generator)
        except CorruptRecordError:
            self._generator = self._make()
            raise

    async def aclose(self) -> None:
        """End the iteration."""
        await self._generator.aclose()
