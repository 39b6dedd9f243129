"""`python -m pymq.store.dump`: the command line. Exit codes: 0 done, 1 not whole or not equal, 2 refused."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import psutil

from pymq.store.dump.copier import Report, Silent
from pymq.store.dump.errors import DumpError
from pymq.store.dump.manifest import Manifest
from pymq.store.dump.progress import MIB, ProgressBar
from pymq.store.dump.taking import LEASE_MS, DumpResult, take_dump
from pymq.store.dump.verify import verify_dump

DONE, FAILED, REFUSED = 0, 1, 2
NICENESS = 10
EXAMPLES = """examples:
  python -m pymq.store.dump /var/lib/pymq/store /backup/monday        a stopped store, pymq's or Apache RocketMQ's
  python -m pymq.store.dump 127.0.0.1:10911 /backup/monday            a running pymq broker's, without a stop
  python -m pymq.store.dump --verify /backup/monday                   read everything again and compare

An interrupted dump is continued by the same command. Exit code 0: whole (or equal); 1: begun and not whole (or not
equal, or not readable); 2: refused before a message was copied, and again until what the line says is done.
"""


def make_parser() -> argparse.ArgumentParser:
    """What can be said."""
    parser = argparse.ArgumentParser(
        prog="python -m pymq.store.dump",
        description="Take a consistent copy of a message store, with a manifest of digests.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "source", nargs="?", metavar="SOURCE", help="a stopped store's directory, or a broker's host:port"
    )
    parser.add_argument(
        "target", nargs="?", metavar="TARGET", help="an empty directory, or an unfinished dump of SOURCE"
    )
    parser.add_argument("--verify", metavar="DUMP", help="compare a dump with its manifest instead")
    parser.add_argument("--rate", type=float, default=0.0, metavar="MIB", help="copy at most so many MiB per second")
    parser.add_argument("--lease", type=float, default=LEASE_MS / 1000, metavar="S", help="how long a broker keeps its "
                        "files for a dumper that is not heard of (default %(default)g)")  # fmt: skip
    parser.add_argument("--tls", action="store_true", help="speak TLS with the broker")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.target is None if options.verify is None else options.source is not None:
        parser.error("give SOURCE and TARGET, or --verify DUMP")
    wrong = wrong_amount(options)
    if wrong:
        return failed(wrong, REFUSED, as_json=options.json)
    report: Report = Silent() if options.quiet else ProgressBar()
    try:
        if options.verify is not None:
            return verify(Path(options.verify), report, as_json=options.json)
        return dump(options, report)
    except DumpError as error:
        return failed(str(error), error.exit_code, as_json=options.json)
    except OSError as error:
        text = f"{error.filename or options.target or options.verify}: {error.strerror or error}"
        more = "" if options.verify is not None else "; the same command continues the dump"
        return failed(text + more, FAILED, as_json=options.json)
    except KeyboardInterrupt:
        return failed("interrupted; the same command continues it", FAILED, as_json=options.json)


def wrong_amount(options: argparse.Namespace) -> str:
    """Which option is no amount (argparse takes nan and inf for numbers) and what would be; "" when all are."""
    if options.rate and not is_amount(options.rate * MIB):
        return f"--rate {options.rate:g}: give MiB per second, a number above 0; or 0, for no bound"
    if not is_amount(options.lease * 1000):
        return f"--lease {options.lease:g}: give seconds, a number above 0; a broker takes 1 to 600"
    return ""


def is_amount(value: float) -> bool:
    """Whether *value* is a whole byte or millisecond at least, and can be counted."""
    return math.isfinite(value) and value >= 1


def failed(text: str, code: int, *, as_json: bool) -> int:
    """Say why, on one line."""
    sys.stderr.write(f"pymq.store.dump: {text}\n")
    if as_json:
        print(json.dumps({"error": text, "exitCode": code}))
    return code


def dump(options: argparse.Namespace, report: Report) -> int:
    """Take a dump."""
    if not Path(options.source).is_dir():
        give_way()
    result = take_dump(
        options.source,
        Path(options.target),
        report=report,
        rate=int(options.rate * MIB),
        lease_ms=int(options.lease * 1000),
        tls=options.tls,
    )
    print(json.dumps(result.to_json()) if options.json else describe(result))
    return DONE


def give_way() -> None:
    """Let the broker have processor and disk first."""
    os.nice(NICENESS)
    with contextlib.suppress(psutil.Error):  # a container may forbid it: then only the disk is shared evenly
        psutil.Process().ionice(psutil.IOPRIO_CLASS_BE, 7)


def describe(result: DumpResult) -> str:
    """The result, for people."""
    manifest = result.manifest
    begun = datetime.fromtimestamp(manifest.begun_ms / 1000).astimezone().isoformat(timespec="seconds")
    size = sum(entry.written for entry in manifest.files)
    text = (
        f"{result.target}: {manifest.source} from {manifest.log_begin} up to {manifest.log_end}, {len(manifest.files)} "
        f"files, {size / MIB:,.1f} MiB, begun {begun}"
    )
    if result.already:
        text += "; it was whole already: for a new dump name another directory"
    elif result.reused:
        text += f"; {result.reused / MIB:,.1f} MiB were there before"
    return text


def verify(directory: Path, report: Report, *, as_json: bool) -> int:
    """Compare a dump with its manifest."""
    manifest, differences = verify_dump(directory, report=report)
    if as_json:
        print(json.dumps(summary(directory, manifest) | {"differences": [item.to_json() for item in differences]}))
    else:
        for difference in differences:
            print(difference)
        verdict = f"{len(differences)} files differ" if differences else "as the manifest says"
        print(f"{directory}: {len(manifest.files)} files, {verdict}")
    return FAILED if differences else DONE


def summary(directory: Path, manifest: Manifest) -> dict[str, object]:
    """What was compared."""
    leaves = sum(len(entry.leaves) for entry in manifest.files)
    return {"dump": str(directory), "files": len(manifest.files), "leaves": leaves}
