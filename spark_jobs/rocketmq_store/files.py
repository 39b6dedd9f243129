"""What lies in a store's directory, and which directories are none.

Everything else of the data source is told here where the files are, how large they were meant to be, and where a dump
ends. A dump is a store with a `manifest.json` beside its files, so whoever reads one reads the other. The directory is
looked at and never written to, and no more of a file is read than tells the sizes of the index.

What cannot be made sense of is refused here, once, with one line that names the path and the way out; what is merely
damaged is not: that becomes rows with a status, further on.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pymq.errors import PymqError
from pymq.store.layout import (
    INDEX_HEADER,
    INDEX_HEADER_SIZE,
    INDEX_ITEM_SIZE,
    INDEX_NAME,
    INDEX_SEARCH_SIZE_MAX,
    INDEX_SLOT_SIZE,
    OFFSET_NAME,
    find_queue_size,
    index_candidates,
    is_chained,
    named_files,
    regular_files,
)

MANIFEST: Final = "manifest.json"
MANIFEST_PARTIAL: Final = "manifest.json.partial"
MANIFEST_FORMAT: Final = "pymq-dump"
MANIFEST_VERSION: Final = 1

SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=//|/)")
QUEUE_NAME: Final = re.compile(r"[0-9]+")
QUEUE_ID_MAX: Final = (1 << 31) - 1
OFFSET_MAX: Final = (1 << 63) - 1
ITEMS_SAMPLED: Final = 24  # of an index file, to tell its slots from its keys
CHAINED_SHARE_MIN: Final = 0.5  # less than all of them: a damaged item is a finding, not an unknown layout

# Directories that hold what is not read here. Empty ones, left by a trial, are no obstacle.
UNSUPPORTED: Final = {
    "consumequeue_ext": "extended consume queues (enableConsumeQueueExt)",
    "consumequeue_rocksdb": "consume queues in RocksDB",
    "consumequeue_r": "consume queues in RocksDB",
    "batchconsumequeue": "batch consume queues (queue.type=BatchCQ)",
    "dledger-n0": "a DLedger log (enableDLegerCommitLog)",
}


class StoreFilesError(PymqError):
    """These files cannot be read as a store; one line that names the path and the way out."""


class NotAStoreError(StoreFilesError):
    """No directory, or one without a commit log."""


class MissingFilesError(StoreFilesError):
    """Files that have to be there are not: one of the log's, or one that a dump's manifest names."""


class MixedSizesError(StoreFilesError):
    """The log's files were made with different sizes; no offset can be told from their names."""


class UnfinishedDumpError(StoreFilesError):
    """A dump that is still being written, or was given up."""


class BadManifestError(StoreFilesError):
    """`manifest.json` is not one that `pymq.store.dump` wrote."""


class UnsupportedFilesError(StoreFilesError):
    """The directory has a kind of file that is not read here."""


@dataclass(frozen=True)
class LogFile:
    """One file of the commit log; *base* is the physical offset of its first byte."""

    path: Path
    base: int
    size: int


@dataclass(frozen=True)
class QueueFile:
    """One file of a consume queue; *base* is its name: 20 times the queue offset of its first unit."""

    path: Path
    topic: str
    queue_id: int
    base: int
    size: int


@dataclass(frozen=True)
class StoreFiles:
    """A store or a dump of one.

    Attributes:
        name: its value of the `store` column.
        manifest: a dump's; None for a plain store.
        log_file_size: what the log's files were made with; 0 without any.
        log_end: a dump's stated position: nothing at or above it belongs to the dump. None for a plain store.
    """

    name: str
    root: Path
    manifest: dict[str, Any] | None = field(repr=False)
    log_file_size: int
    log_files: tuple[LogFile, ...]
    index_files: tuple[Path, ...]
    log_end: int | None

    @property
    def log_begin(self) -> int:
        """The first physical offset the files hold."""
        return self.log_files[0].base if self.log_files else 0

    @property
    def files_end(self) -> int:
        """Where the last log file ends."""
        return self.log_files[-1].base + self.log_files[-1].size if self.log_files else 0

    @cached_property
    def queue_file_size(self) -> int:
        """What the queues' files were made with; 0 without any."""
        return find_queue_size(self.root / "consumequeue") or 0

    @cached_property
    def index_counts(self) -> tuple[int, int]:
        """Slots and items the index files were made with; 0 and 0 when there are none, or when nothing tells."""
        return stated_index_counts(self.manifest, self.index_files) or find_index_counts(self.index_files)

    @property
    def index_slots(self) -> int:
        """Slots of an index file."""
        return self.index_counts[0]

    @property
    def index_items(self) -> int:
        """Items an index file has room for, the unused one at its beginning included."""
        return self.index_counts[1]

    def queue_files(self) -> Iterator[QueueFile]:
        """Every file of every queue: topics by name, queues by number, files by position."""
        directory = self.root / "consumequeue"
        for topic in sorted(subdirectories(directory)):
            queues = [queue for queue in subdirectories(topic) if QUEUE_NAME.fullmatch(queue.name)]
            for queue in sorted(queues, key=lambda path: int(path.name)):
                for path in named_files(queue, OFFSET_NAME):
                    size = path.stat().st_size
                    yield QueueFile(path, as_text(topic.name), int(queue.name), int(path.name), size)

    def timer_log_files(self) -> list[LogFile]:
        """The timer log's files; *base* is a position of that log."""
        return [sized(path) for path in named_files(self.root / "timerlog", OFFSET_NAME)]

    def all_files(self) -> Iterator[tuple[str, int, int]]:
        """(path below the root, size, bytes that count) of every file: the manifest's, or all of a plain store's."""
        if self.manifest is not None:
            for entry in self.manifest["files"]:
                yield entry["path"], entry["size"], entry["written"]
            return
        for path, status in regular_files(self.root):
            yield as_text(str(path.relative_to(self.root))), status.st_size, status.st_size


def open_stores(paths: Iterable[str | os.PathLike[str]]) -> list[StoreFiles]:
    """The stores at *paths*, in that order.

    Raises:
        StoreFilesError: one of its kinds, for the first path that is no store or cannot be read as one.
    """
    given = [plain_path(path) for path in paths]
    return [open_store(path, name) for path, name in zip(given, names(given), strict=True)]


def open_store(root: Path, name: str) -> StoreFiles:
    """The store at *root*."""
    check_is_store(root)
    manifest = read_manifest(root)
    check_names(root)
    log_files = tuple(sized(path) for path in named_files(root / "commitlog", OFFSET_NAME))
    if manifest is not None:
        check_complete(root, manifest)
    return StoreFiles(
        name=name,
        root=root,
        manifest=manifest,
        log_file_size=check_log(root, log_files),
        log_files=log_files,
        index_files=tuple(named_files(root / "index", INDEX_NAME)),
        log_end=None if manifest is None else int(manifest["log"]["end"]),
    )


def names(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Values of the `store` column: each directory's name, with as many of its parents as make it the only one.

    The same directory given twice is two stores; the second is called `name#2`.
    """
    parts = [plain_path(path).parts for path in paths]
    depths = dict.fromkeys(parts, 1)
    while True:
        found = {part: "/".join(part[-depth:]).replace("//", "/") for part, depth in depths.items()}
        count = Counter(found.values())
        short = [part for part, name in found.items() if count[name] > 1 and depths[part] < len(part)]
        if not short:
            break
        for part in short:
            depths[part] += 1
    seen: Counter[tuple[str, ...]] = Counter()
    unique = []
    for part in parts:
        seen[part] += 1
        unique.append(as_text(found[part]) + (f"#{seen[part]}" if seen[part] > 1 else ""))
    return unique


def plain_path(path: str | os.PathLike[str]) -> Path:
    """An absolute path without dots; `file:` in front is taken off, as Spark's users write it.

    Raises:
        NotAStoreError: another scheme.
    """
    text = os.fspath(path)
    scheme = SCHEME.match(text)
    if scheme:
        if scheme[1].lower() != "file":
            raise NotAStoreError(
                f"{text}: a store is read from a directory; mount it, or copy the dump to a disk first"
            )
        text = "/" + text[scheme.end() :].lstrip("/")
    return Path(os.path.abspath(text))  # noqa: PTH100 - a symbolic link keeps the name it was given by


def check_is_store(root: Path) -> None:
    """Whether *root* is the directory of a store that is read here.

    Raises:
        NotAStoreError, UnfinishedDumpError, UnsupportedFilesError: it is not.
    """
    if not root.exists():
        raise NotAStoreError(f"{root}: no such directory")
    if not root.is_dir():
        raise NotAStoreError(f"{root}: a file; give the directory that has commitlog/ in it")
    if (root / MANIFEST_PARTIAL).exists() and not (root / MANIFEST).exists():  # with both of them it is whole
        raise UnfinishedDumpError(
            f"{root}: a dump that is still being written, or was broken off; run pymq.store.dump on it again to end it"
        )
    for name, what in UNSUPPORTED.items():
        if holds_files(root / name):
            raise UnsupportedFilesError(f"{root}: has {name}/, that is {what}, which is not read here")
    if not (root / "commitlog").is_dir() and not (root / MANIFEST).is_file():  # older dumps left it out when empty
        raise NotAStoreError(f"{root}: not a store, it has no commitlog/{suggestion(root)}")


def suggestion(root: Path) -> str:
    """What was probably meant, as the end of a sentence."""
    if root.name in ("commitlog", "consumequeue", "index", "config") and (root.parent / "commitlog").is_dir():
        return f"; did you mean {root.parent}?"
    below = sorted(child for child in subdirectories(root) if (child / "commitlog").is_dir())
    return f"; did you mean {below[0]}?" if below else ""


def read_manifest(root: Path) -> dict[str, Any] | None:
    """A dump's manifest, checked as far as it is used here; None for a plain store.

    Raises:
        BadManifestError: it cannot be read, or is no dump's.
    """
    path = root / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadManifestError(f"{path}: not JSON ({error}); take the dump again") from None
    trouble = manifest_trouble(manifest)
    if trouble:
        raise BadManifestError(f"{path}: {trouble}; take the dump again, or read the store itself")
    return dict(manifest)


def manifest_trouble(manifest: Any) -> str:
    """What is wrong with a manifest; "" when nothing is."""
    if not isinstance(manifest, dict) or manifest.get("format") != MANIFEST_FORMAT:
        return f"not the manifest of a dump (no format {MANIFEST_FORMAT!r})"
    if manifest.get("version") != MANIFEST_VERSION:
        return f"version {manifest.get('version')!r} of the format, and only {MANIFEST_VERSION} is known here"
    log = manifest.get("log")
    if not isinstance(log, dict) or not isinstance(log.get("end"), int):
        return "says nowhere where the log ends"
    files = manifest.get("files")
    if not isinstance(files, list) or not isinstance(manifest.get("leafSize"), int) or manifest["leafSize"] <= 0:
        return "has no list of files, or no leaf size"
    for entry in files:
        if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
            return "names a file without a path"
        if not all(isinstance(entry.get(key), int) for key in ("size", "written")):
            return f"does not say how large {entry['path']} is"
        if not isinstance(entry.get("leaves"), list):
            return f"has no digests of {entry['path']}"
    return ""


def check_names(root: Path) -> None:
    """Whether names that are numbers are numbers a store can have.

    Raises:
        UnsupportedFilesError: with the first that is none; whatever is in it would belong nowhere.
    """
    numbered = [(path, OFFSET_MAX) for path in named_files(root / "commitlog", OFFSET_NAME)]
    for topic in subdirectories(root / "consumequeue"):
        for queue in subdirectories(topic):
            if queue.name.isdecimal():
                numbered.append((queue, QUEUE_ID_MAX))
                numbered += [(path, OFFSET_MAX) for path in named_files(queue, OFFSET_NAME)]
    odd = sorted(path for path, most in numbered if not path.name.isascii() or int(path.name) > most)
    if odd:
        raise UnsupportedFilesError(
            f"{root}: {as_text(str(odd[0].relative_to(root)))} has a number no store gives; move it elsewhere"
        )


def check_complete(root: Path, manifest: dict[str, Any]) -> None:
    """Every file the manifest names is there; what is in it is the audits' business.

    Raises:
        MissingFilesError: with the first that is not.
    """
    missing = [entry["path"] for entry in manifest["files"] if not (root / entry["path"]).is_file()]
    if missing:
        raise MissingFilesError(
            f"{root}: {len(missing)} of the dump's {len(manifest['files'])} files are missing, the first is "
            f"{missing[0]}; copy the dump again"
        )


def check_log(root: Path, files: Sequence[LogFile]) -> int:
    """The size the log's files were made with; the last may have been cut short, any other has exactly that.

    Raises:
        MissingFilesError: there is a gap.
        MixedSizesError: they do not have one size.
    """
    if len(files) < 2:
        return files[0].size if files else 0
    size = Counter(file.size for file in files[:-1]).most_common(1)[0][0]
    odd = [file for file in files if file.size > size] + [file for file in files[:-1] if file.size != size]
    if odd:
        raise MixedSizesError(
            f"{root}: log files of different sizes: {odd[0].path.name} has {odd[0].size} bytes, others {size}; "
            "a store has one mappedFileSizeCommitLog: put the files of each back together"
        )
    for before, after in itertools.pairwise(files):
        if after.base > before.base + size:
            raise MissingFilesError(
                f"{root}: commitlog/{before.base + size:020d} is missing, and files behind it are there; put it back, "
                "or read a copy without the files before it"
            )
        if after.base < before.base + size:
            raise MixedSizesError(
                f"{root}: log files overlap: {before.path.name} has {size} bytes, and the next is {after.path.name}; "
                "a store has one mappedFileSizeCommitLog: put the files of each back together"
            )
    return size


def stated_index_counts(manifest: Mapping[str, Any] | None, files: Sequence[Path]) -> tuple[int, int] | None:
    """Slots and items as a dump's configuration has them, when an index file is as long as they say."""
    stated = (manifest or {}).get("configuration")
    if not isinstance(stated, dict):
        return None
    words = [str(stated.get(name, "")) for name in ("maxHashSlotNum", "maxIndexNum")]
    if not all(word.isdecimal() and len(word) < 10 for word in words):
        return None
    slots, items = int(words[0]), int(words[1])
    size = INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + items * INDEX_ITEM_SIZE
    return (slots, items) if slots and any(path.stat().st_size == size for path in files) else None


def find_index_counts(files: Sequence[Path]) -> tuple[int, int]:
    """Slots and items the index files were made with, from the chains inside; (0, 0) when nothing tells.

    Damage must not hide the layout: the first pair that most of a file's sample agrees with is taken, whichever file
    that is. Only where no file has items, the usual pair of that length is.
    """
    usual: tuple[int, int] | None = None
    for path in files:
        size = path.stat().st_size
        if size <= INDEX_HEADER_SIZE:
            continue
        with path.open("rb") as file:
            stream = io.BytesIO(file.read()) if size <= INDEX_SEARCH_SIZE_MAX else file
            count = INDEX_HEADER.unpack(stream.read(INDEX_HEADER_SIZE))[5]
            for slots, items in index_candidates(size):
                usual = usual or (slots, items)
                if 1 < count <= items + 1 and is_likely(stream, slots, count):
                    return slots, items
                if count <= 1:
                    break
    return usual if usual is not None and all_empty(files) else (0, 0)


def all_empty(files: Sequence[Path]) -> bool:
    """Whether no index file says that it has items."""
    counts = []
    for path in files:
        with path.open("rb") as file:
            header = file.read(INDEX_HEADER_SIZE)
        counts.append(INDEX_HEADER.unpack(header)[5] if len(header) == INDEX_HEADER_SIZE else 0)
    return all(count <= 1 for count in counts)


def is_likely(stream: Any, slots: int, count: int) -> bool:
    """Whether, with so many slots, most items of a sample hang on the chain their hash says."""
    sample = range(count - 1, max(0, count - 1 - ITEMS_SAMPLED), -1)
    refused_max = int(len(sample) * (1 - CHAINED_SHARE_MIN))
    refused = 0
    for number in sample:
        refused += not is_chained(stream, slots, number, count)
        if refused > refused_max:
            return False
    return True


def sized(path: Path) -> LogFile:
    """A file named by the offset of its first byte."""
    return LogFile(path, int(path.name), path.stat().st_size)


def subdirectories(directory: Path) -> list[Path]:
    """Directories in *directory*; none when there is no such thing."""
    return [path for path in directory.iterdir() if path.is_dir()] if directory.is_dir() else []


def holds_files(directory: Path) -> bool:
    """Whether there is a file with anything in it below *directory*."""
    return any(Path(place, name).stat().st_size for place, _, found in os.walk(directory) for name in found)


def as_text(name: str) -> str:
    """A file name as text that can be written; bytes that are no UTF-8 are replaced."""
    return os.fsencode(name).decode("utf-8", "replace")
