"""A store that Apache wrote with enableConsumeQueueExt: refused by name, readable after what the refusal says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pymq.errors import UnsupportedStoreError
from tests.interop.answers import acknowledged, assert_answers_rightly
from tests.interop.apache import ApacheStore
from tests.interop.apache_toolchain import Toolchain
from tests.interop.pymq_side import PymqStore
from tests.interop.workloads import WORKLOADS


def test_store_with_extension_files_is_read_once_its_queues_are_removed(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: no tag or due time is read out of an address. Method: write there, be refused, remove, ask everything."""
    workload = WORKLOADS[0]
    settings = {**workload.settings.for_apache(), "enableConsumeQueueExt": "true"}
    theirs = ApacheStore(apache, tmp_path / "store", settings)
    written = acknowledged(workload.messages(), theirs.write(workload.steps()))
    ours = PymqStore(theirs.directory, workload.settings)
    with pytest.raises(UnsupportedStoreError, match="remove this directory and consumequeue/"), ours.open_reader():
        pytest.fail("it was opened")
    shutil.rmtree(theirs.directory / "consumequeue_ext")
    shutil.rmtree(theirs.directory / "consumequeue")
    with ours.open_reader() as reader:
        assert_answers_rightly(reader, written)
