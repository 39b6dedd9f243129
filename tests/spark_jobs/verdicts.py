"""What an audit must say: nothing of a clean store, and of one flipped bit the record it is in."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from tests.spark_jobs.faults.patch import PatchedStore, Placed, copy_store


def flipped(path: Path, target: Path) -> tuple[Path, Placed]:
    """A copy of a store with one bit of one body turned, and the record that body belongs to."""
    store = PatchedStore(copy_store(path, target))
    one = store.pick(lambda one: one.record.body, Random(6), inner=True)
    store.flip(one.offset + one.body_at)
    return target, one


def assert_clean(code: int, result: dict[str, Any]) -> None:
    """Every check that could run ran, and found nothing."""
    assert result["findings"] == []
    assert (code, result["verdict"], result["total"]) == (0, "Clean", 0)
    assert [check for check in result["checks"] if check["error"]] == []


def assert_found(code: int, result: dict[str, Any], one: Placed) -> None:
    """The damage is found by the check of records, at its record."""
    assert code == 1
    (finding,) = [finding for finding in result["findings"] if finding["check"] == "A1"]
    assert (finding["offset"], finding["topic"], finding["queue"]) == (one.offset, one.topic, one.record.queue_id)
