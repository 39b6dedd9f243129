"""Stores small enough that every file rolls within a test, opened and closed for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pymq

SMALL = {
    "mapped_file_size_commit_log": 65_537,
    "mapped_file_size_consume_queue": 51 * 20,
    "max_hash_slot_num": 101,
    "max_index_num": 307,
    "flush_disk_type": "ASYNC_FLUSH",
}

OpenStore = Callable[..., pymq.EmbeddedStore]


@pytest.fixture
def small() -> dict[str, Any]:
    """Settings of a small store, ASYNC_FLUSH for speed."""
    return dict(SMALL)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Where this test's store lives."""
    return tmp_path / "data"


@pytest.fixture
def open_store(data: Path) -> Iterator[OpenStore]:
    """Open (again) the test's store with small files and the settings given; closed after the test."""
    opened: list[pymq.EmbeddedStore] = []

    def opener(**settings: Any) -> pymq.EmbeddedStore:
        store = pymq.open(data, pymq.StoreConfig(**(SMALL | settings)))
        opened.append(store)
        return store

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def mq(open_store: OpenStore) -> pymq.EmbeddedStore:
    """An open, empty, small store."""
    return open_store()
