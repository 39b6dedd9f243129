"""The contract of `contract.py`, run over every kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pymq
from tests.store.contract import CHECKS, KINDS, Opener


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens, again and again, one small store of one kind."""
    opened: list[pymq.EmbeddedStore] = []

    def open_again(**settings: Any) -> pymq.EmbeddedStore:
        sizes = {
            "mapped_file_size_commit_log": 49_999,
            "mapped_file_size_consume_queue": 31 * 20,
            "max_hash_slot_num": 53,
            "max_index_num": 211,
        }
        store = pymq.open(tmp_path / "data", pymq.StoreConfig(**(sizes | request.param | settings)))
        opened.append(store)
        return store

    yield open_again
    for store in opened:
        store.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(opener, check):
    """Goal: every kind of store keeps every promise of the contract. Method: the check's docstring."""
    check(opener)
    assert check.__doc__
