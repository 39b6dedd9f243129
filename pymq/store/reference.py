"""docs/config.md, generated from `StoreConfig`: `python -m pymq.store.reference > docs/config.md`.

`--check docs/config.md` exits 1 when the page is not what the settings say.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pymq.store.config import StoreConfig
from pymq.store.settings import SettingRow, describe_settings, number

HEAD = """# Settings of the store

Generated from `pymq/store/config.py`; change them there and run `python -m pymq.store.reference > docs/config.md`.

Every setting is given once, when the store is opened: `pymq.open(path, StoreConfig(...))`. None of them changes while
it is open. Sizes must be the ones the store was made with; `pymq.config_for(path, name=value, ...)` keeps the sizes
found on disk and changes the rest. `pymq.open(path)` alone is `config_for(path)`: for a new directory that means 64 MiB
log files, 600,000-byte queue files, and an index of 50,000 slots and 200,000 keys; everything else as below.

Defaults are Apache RocketMQ's, except `flush_disk_type`: a library is safe first.

| setting | default | unit | bounds | RocketMQ's name |
|---|---|---|---|---|
"""


def render_reference() -> str:
    """The whole page."""
    rows = list(describe_settings(StoreConfig))
    table = "".join(
        f"| [`{row.name}`](#{row.name}) | {default_of(row)} | {row.info.unit} | {bounds_of(row)} | {alias_of(row)} |\n"
        for row in rows
    )
    entries = "".join(f"\n## {row.name}\n\n{row.info.doc}\n" for row in rows)
    return HEAD + table + entries


def default_of(row: SettingRow) -> str:
    """The default as a reader writes it."""
    if isinstance(row.default, bool | str):
        return f"`{row.default}`"
    return f"`{number(row.default)}`"


def bounds_of(row: SettingRow) -> str:
    """What is allowed."""
    if row.info.choices:
        return ", ".join(f"`{choice}`" for choice in row.info.choices)
    if row.info.low is None and row.info.high is None:
        return ""
    low = "" if row.info.low is None else number(row.info.low)
    high = "" if row.info.high is None else number(row.info.high)
    return f"{low} … {high}"


def alias_of(row: SettingRow) -> str:
    """RocketMQ's name, where there is one."""
    return f"`{row.info.alias}`" if row.info.alias else ""


def main(arguments: list[str] | None = None) -> int:
    """Print the page, or compare it with a file."""
    parser = argparse.ArgumentParser(prog="python -m pymq.store.reference", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", type=Path, metavar="PAGE", help="exit 1 unless PAGE is up to date")
    options = parser.parse_args(arguments)
    page = render_reference()
    if options.check is None:
        sys.stdout.write(page)
        return 0
    if options.check.read_text(encoding="utf-8") == page:
        return 0
    sys.stderr.write(f"{options.check} is stale; run: python -m pymq.store.reference > {options.check}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
