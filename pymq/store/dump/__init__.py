"""Dumps: consistent copies of a store, stopped or running, with digests by which they can be verified and compared.

`python -m pymq.store.dump SOURCE TARGET` is the way in; `take_dump` and `verify_dump` are the same for programs.
docs/dump.md describes the command, the manifest and the request a running broker is asked with.
"""

from __future__ import annotations

from pymq.store.dump.errors import DumpError, DumpRefusedError
from pymq.store.dump.manifest import FileEntry, Manifest, load_manifest
from pymq.store.dump.taking import DumpResult, take_dump
from pymq.store.dump.verify import Difference, verify_dump

__all__ = [
    "Difference",
    "DumpError",
    "DumpRefusedError",
    "DumpResult",
    "FileEntry",
    "Manifest",
    "load_manifest",
    "take_dump",
    "verify_dump",
]
