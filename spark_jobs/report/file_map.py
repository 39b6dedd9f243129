"""The map of a store's log: every file as a strip, what is written of it, and what is damaged.

Rows are text beside a strip, as in `plots`. A store of a thousand files gets several of them a row, so that the map
stays a picture; one damaged byte of a terabyte is still two thousandths of a row wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_jobs.report.model import Extent, Store, by_store, bytes_text, count_of
from spark_jobs.report.plots import STRIP, nothing
from spark_jobs.report.svg import Canvas, escape, legend

MAP_ROWS_MAX = 24
MAP_DAMAGE_MAX = 500  # drawn of one file
DAMAGE_WIDTH_MIN = 2.0
UNHURT = {"ok", "done", "blank", "unwritten"}


def file_map(extents: Iterable[Extent], stores: Iterable[Store] = (), note: str = "") -> str:
    """Each store's log, a row a file (several when there are many): what is written, and what is damaged."""
    sizes = {store.name: store.file_size for store in stores}
    grouped = by_store(extents)
    if not grouped:
        return nothing(note or "No log file: nothing to draw.")
    maps = "".join(store_map(name, rows, sizes.get(name, 0)) for name, rows in grouped.items())
    keys = [("written", "written"), ("free", "not written"), ("hurt", "damaged")]
    return legend(keys) + maps


def store_map(store: str, extents: Sequence[Extent], file_size: int) -> str:
    """The map of one store."""
    files: dict[str, list[Extent]] = {}
    for extent in extents:
        files.setdefault(extent.file, []).append(extent)
    bases = {name: file_base(name, own[0].begin) for name, own in files.items()}
    longest = max(extent.end - bases[extent.file] for extent in extents)
    size = max(file_size, longest, 1)
    names = sorted(files, key=bases.__getitem__)
    per_row = -(-len(names) // MAP_ROWS_MAX)
    rows = [
        map_row([(name, bases[name], files[name]) for name in names[index : index + per_row]], per_row, size)
        for index in range(0, len(names), per_row)
    ]
    damage = sum(extent.status not in UNHURT for extent in extents)
    head = f"{count_of(len(names), 'log file')} of {bytes_text(size)}, "
    head += count_of(damage, "damaged range") if damage else "no damage"
    if per_row > 1:
        head += f"; {per_row} files a row"
    return (
        f"<h4>{escape(store)}</h4>"
        f'<p class="caption">{escape(head)}</p><table class="bars map"><tbody>{"".join(rows)}</tbody></table>'
    )


def map_row(row: Sequence[tuple[str, int, list[Extent]]], per_row: int, size: int) -> str:
    """One row of the map: the files (name, base, extents) it holds, drawn to one scale."""
    canvas = Canvas(STRIP, 10, label=f"log file {row[0][0]}", stretch=True, css="strip")
    room = STRIP / per_row
    hurt = 0
    for slot, (_, base, extents) in enumerate(row):
        left, width = slot * room, room - (1.5 if per_row > 1 else 0)

        def across(offset: int, base: int = base, left: float = left, width: float = width) -> float:
            return left + min(max(offset - base, 0) / size, 1.0) * width

        canvas.rect(left, 0, width, 10, "free")
        for extent in extents:
            if extent.status in UNHURT:
                canvas.rect(across(extent.begin), 0, across(extent.end) - across(extent.begin), 10, "written")
        damage = [extent for extent in extents if extent.status not in UNHURT]
        hurt += len(damage)
        for extent in damage[:MAP_DAMAGE_MAX]:
            begin, end = across(extent.begin), across(extent.end)
            title = f"{extent.status} at physical offset {extent.begin}, {extent.end - extent.begin:,} bytes"
            if extent.detail:
                title += f"\n{extent.detail}"
            # Never beyond the strip: damage at the very end of a file is drawn to the left of its place.
            wide = max(end - begin, DAMAGE_WIDTH_MIN)
            canvas.rect(min(begin, left + width - wide), 0, wide, 10, "hurt", title)
    count = f'<td class="n hurt">{hurt:,}</td>' if hurt else '<td class="n"></td>'
    name = escape(short_name(row[0][0]))
    return f'<tr><th scope="row"><code>{name}</code></th><td>{canvas.render()}</td>{count}</tr>'


def short_name(file: str) -> str:
    """The last part of a path."""
    return file.rsplit("/", 1)[-1]


def file_base(file: str, begin: int) -> int:
    """A log file's first physical offset: its name says it; *begin* where it does not."""
    name = short_name(file)
    return int(name) if name.isdecimal() and name.isascii() else begin
