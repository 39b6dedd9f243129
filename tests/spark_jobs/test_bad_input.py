"""What cannot be read is refused with one line that names it and says what to do; nobody has to read a stack trace."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pymq
from pymq.errors import PymqError
from pymq.store.dump import take_dump, verify_dump
from spark_jobs.audit import size_of
from spark_jobs.rocketmq_store.files import (
    BadManifestError,
    MissingFilesError,
    MixedSizesError,
    NotAStoreError,
    UnfinishedDumpError,
    UnsupportedFilesError,
    open_stores,
)
from spark_jobs.rocketmq_store.options import OptionError, parse_options
from tests.spark_jobs.dumps import write_manifest

LINE_SIZE_MAX = 400


def refusal(paths: Any, kind: type[PymqError]) -> str:
    """The one line with which opening *paths* is refused."""
    with pytest.raises(kind) as caught:
        open_stores(paths if isinstance(paths, list) else [paths])
    text = str(caught.value)
    assert text
    assert "\n" not in text
    assert len(text) < LINE_SIZE_MAX
    return text


def test_missing_directory_is_named(tmp_path: Path):
    """Goal: a typing error is seen at once. Method: a path that is not there, behind one that is."""
    assert refusal([tmp_path / "no" / "such"], NotAStoreError) == f"{tmp_path}/no/such: no such directory"


def test_file_is_no_store(golden: Path):
    """Goal: say what was meant. Method: the path of a log file, the path of the checkpoint."""
    assert "a file; give the directory" in refusal(golden / "checkpoint", NotAStoreError)


@pytest.mark.parametrize(
    ("inside", "meant"), [("commitlog", "golden"), ("consumequeue", "golden"), ("config", "golden")]
)
def test_directory_inside_a_store_leads_to_the_store(golden: Path, inside: str, meant: str):
    """Goal: one word too many in the path is no riddle. Method: directories of a store, given as stores."""
    assert refusal(golden / inside, NotAStoreError).endswith(f"did you mean {golden.parent / meant}?")


def test_directory_above_a_store_leads_to_the_store(golden: Path):
    """Goal: one word too few is no riddle either. Method: the directory the store lies in."""
    assert refusal(golden.parent, NotAStoreError).endswith(f"has no commitlog/; did you mean {golden}?")


def test_any_other_directory_is_no_store(tmp_path: Path):
    """Goal: nothing is guessed. Method: an empty directory."""
    assert refusal(tmp_path, NotAStoreError) == f"{tmp_path}: not a store, it has no commitlog/"


def test_address_that_is_not_mounted_is_refused():
    """Goal: say that a path is wanted. Method: an object store's address."""
    assert "mount it" in refusal("s3a://bucket/dump", NotAStoreError)


def test_dump_still_being_written_is_refused(golden: Path):
    """Goal: half a dump is not audited. Method: the name a manifest has until then; with the manifest it is whole."""
    write_manifest(golden, log_end=131_072)
    (golden / "manifest.json").rename(golden / "manifest.json.partial")
    assert "still being written" in refusal(golden, UnfinishedDumpError)
    write_manifest(golden, log_end=131_072)
    assert open_stores([golden])


def test_missing_log_file_is_named(golden: Path):
    """Goal: a gap in the log is not taken for its end. Method: three files, the middle one gone."""
    shutil.copy(golden / "commitlog" / "00000000000000065536", golden / "commitlog" / "00000000000000131072")
    (golden / "commitlog" / "00000000000000065536").unlink()
    assert "commitlog/00000000000000065536 is missing" in refusal(golden, MissingFilesError)


@pytest.mark.parametrize("name", ["commitlog/00000000000000065536", "consumequeue/GoldenA/1/00000000000000000400"])
def test_file_a_manifest_names_must_be_there(golden: Path, name: str):
    """Goal: a dump that was copied in part is not called clean. Method: remove a log file, a queue file."""
    manifest = write_manifest(golden, log_end=131_072)
    (golden / name).unlink()
    text = refusal(golden, MissingFilesError)
    assert f"1 of the dump's {len(manifest['files'])} files are missing, the first is {name}" in text


@pytest.mark.parametrize(
    ("file", "size"),
    [("00000000000000000000", 65_535), ("00000000000000000000", 131_072), ("00000000000000065536", 65_537)],
)
def test_log_files_of_different_sizes_are_refused(golden: Path, file: str, size: int):
    """Goal: offsets are not guessed. Method: a first file that is shorter or longer, a last one that is longer."""
    os.truncate(golden / "commitlog" / file, size)
    text = refusal(golden, MixedSizesError)
    assert str(size) in text
    assert "mappedFileSizeCommitLog" in text


def test_log_files_that_overlap_are_refused(golden: Path):
    """Goal: two stores in one directory are seen. Method: a name in the middle of a file's span."""
    (golden / "commitlog" / "00000000000000065536").rename(golden / "commitlog" / "00000000000000032768")
    assert "overlap" in refusal(golden, MixedSizesError)


@pytest.mark.parametrize(
    "name", ["consumequeue_ext", "consumequeue_rocksdb", "consumequeue_r", "batchconsumequeue", "dledger-n0"]
)
def test_store_of_an_unread_kind_is_refused_by_name(golden: Path, name: str):
    """Goal: no half reading. Method: each kind with a file in it is refused, an empty directory is no obstacle."""
    (golden / name / "deep").mkdir(parents=True)
    assert open_stores([golden])
    (golden / name / "deep" / "file").write_bytes(b"x")
    assert f"has {name}/" in refusal(golden, UnsupportedFilesError)


MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "not an object": (lambda good: [good], "not the manifest of a dump"),
    "another format": (lambda good: good | {"format": "tar"}, "not the manifest of a dump"),
    "a later version": (lambda good: good | {"version": 2}, "version 2 of the format"),
    "no position": (lambda good: good | {"log": {}}, "where the log ends"),
    "no files": (lambda good: good | {"files": None}, "no list of files"),
    "no leaf size": (lambda good: good | {"leafSize": 0}, "no leaf size"),
    "a file without a path": (lambda good: good | {"files": [{}]}, "without a path"),
    "a file without a size": (lambda good: good | {"files": [{"path": "abort"}]}, "how large abort is"),
    "a file without leaves": (
        lambda good: good | {"files": [{"path": "abort", "size": 0, "written": 0}]},
        "no digests of abort",
    ),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest_that_is_none_is_refused(golden: Path, name: str):
    """Goal: a manifest is believed whole or not at all. Method: one wrong thing each."""
    change, expected = MANIFESTS[name]
    good = write_manifest(golden, log_end=131_072)
    (golden / "manifest.json").write_text(json.dumps(change(good)))
    assert expected in refusal(golden, BadManifestError)


def test_manifest_that_is_not_json_is_refused(golden: Path):
    """Goal: as above. Method: half a file."""
    (golden / "manifest.json").write_text('{"format": "pymq-d')
    assert "not JSON" in refusal(golden, BadManifestError)


OPTIONS = {
    "unknown option": ({"path": "/x", "tabel": "index"}, "unknown option tabel; there are table, path"),
    "unknown table": ({"path": "/x", "table": "queues"}, "table='queues': it is one of commitlog, consumequeue"),
    "unknown body": ({"path": "/x", "body": "all"}, "body='all': it is one of none, digest, bytes"),
    "unknown properties": ({"path": "/x", "properties": "json"}, "properties='json': it is one of raw, map"),
    "no path": ({}, "no store is named"),
    "empty path": ({"path": ""}, "no store is named"),
    "both": ({"path": "/x", "paths": '["/y"]'}, "both given"),
    "paths no list": ({"paths": "/a,/b"}, "paths: '/a,/b' is not a JSON list"),
    "paths no texts": ({"paths": "[1]"}, "not a JSON list of texts"),
    "ranges no list": ({"path": "/x", "ranges": "0-5"}, "ranges: '0-5' is not a JSON list"),
    "range of two": ({"path": "/x", "ranges": '[["a", 5]]'}, "is not [store, begin, end]"),
    "topics no list": ({"path": "/x", "topics": '"a"'}, "topics: '\"a\"' is not a JSON list"),
    "delay levels": ({"path": "/x", "delayLevels": "1s 5x"}, "delayLevels: message_delay_level: '5x'"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_wrong_option_is_refused_with_what_is_possible(name: str):
    """Goal: a typing error is no silent default. Method: one wrong option each."""
    given, expected = OPTIONS[name]
    with pytest.raises(OptionError) as caught:
        parse_options(given)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "consumequeue/GoldenA/99999999999/00000000000000000000",
        "consumequeue/GoldenA/0/99999999999999999980",
        "commitlog/99999999999999999999",
    ],
)
def test_numbers_that_no_store_gives_are_refused_by_name(golden: Path, name: str):
    """Symptom: every check of the scan could not run, with a line that said nothing, or a log file was passed over."""
    path = golden / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(20))
    assert "has a number no store gives; move it elsewhere" in refusal(golden, UnsupportedFilesError)


def test_a_log_behind_a_link_is_listed_and_a_link_to_nowhere_is_not(golden: Path, tmp_path: Path):
    """Symptom: replicas whose commitlog was a link were compared by no leaf and called clean; a dangling link ended
    the audit."""
    before = [name for name, _, _ in open_stores([golden])[0].all_files()]
    shutil.move(golden / "commitlog", tmp_path / "log")
    (golden / "commitlog").symlink_to(tmp_path / "log")
    (golden / "dangling").symlink_to(tmp_path / "nothing")
    assert [name for name, _, _ in open_stores([golden])[0].all_files()] == before
    assert size_of(golden) > 0


def test_a_dump_of_a_store_without_a_message_is_one(tmp_path: Path):
    """Symptom: a new broker could be dumped, the dump verified, and the audit said that it was no store."""
    with pymq.open(tmp_path / "store"):
        pass
    take_dump(str(tmp_path / "store"), tmp_path / "dump")
    assert verify_dump(tmp_path / "dump")[1] == []
    assert open_stores([tmp_path / "store", tmp_path / "dump"])[1].log_end == 0
