"""Profiles of the property tests, and memory that ends where a mapping ends."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

# `fast` is for every run, `full` for the long ones; the same properties, more examples. No deadline: machines vary.
COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
settings.register_profile("fast", max_examples=300, **COMMON)
settings.register_profile("full", max_examples=10_000, **COMMON)
settings.load_profile(os.environ.get("PYMQ_HYPOTHESIS_PROFILE", "fast"))

PROT_NONE = 0
GUARDED_PAGES = 24  # room for the largest example, before the page that must not be touched


class GuardedMemory:
    """Memory between two pages that may not be touched: a read outside is a crash, not a silent success."""

    def __init__(self) -> None:
        self.page = mmap.PAGESIZE
        self.size = GUARDED_PAGES * self.page
        self.map = mmap.mmap(-1, self.size + 2 * self.page)
        self.anchor = ctypes.c_char.from_buffer(self.map)
        address = ctypes.addressof(self.anchor)
        libc = ctypes.CDLL(None, use_errno=True)
        for guard in (address, address + self.page + self.size):
            if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(self.page), PROT_NONE) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        self.view = memoryview(self.map)

    def at_end(self, source: bytes) -> memoryview:
        """*source*, its last byte directly before a guard page."""
        assert len(source) <= self.size
        start = self.page + self.size - len(source)
        self.view[start : start + len(source)] = source
        return self.view[start : start + len(source)]

    def at_start(self, source: bytes) -> memoryview:
        """*source*, its first byte directly behind a guard page."""
        assert len(source) <= self.size
        self.view[self.page : self.page + len(source)] = source
        return self.view[self.page : self.page + len(source)]


@pytest.fixture(scope="session")
def guarded_memory() -> GuardedMemory:
    """One guarded region for the session; an example overwrites the one before."""
    return GuardedMemory()


@pytest.fixture
def guarded(guarded_memory: GuardedMemory) -> Callable[[bytes], memoryview]:
    """Places bytes so that reading one byte beyond them crashes."""
    return guarded_memory.at_end


@pytest.fixture
def guarded_start(guarded_memory: GuardedMemory) -> Callable[[bytes], memoryview]:
    """Places bytes so that reading one byte before them crashes."""
    return guarded_memory.at_start
