"""A flame graph from `perf script`: stacks counted, then drawn as one SVG without scripts.

Widths are samples; a frame stands on its caller. Colours tell whose code it is (kernel, pymq's C, the C library and
the interpreter), and every frame's name and share are in its tooltip.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

WIDTH = 1200.0
ROW = 17
CHARACTER = 6.6  # width of one, in the font below
SMALLEST = 0.4  # narrower frames are not drawn
FRAME = re.compile(r"^\s+[0-9a-f]+ (?P<name>.+?)(?:\+0x[0-9a-f]+)? \((?P<place>[^()]*(?:\([^()]*\))?[^()]*)\)$")
HEAD = re.compile(r"^(?P<thread>.+?)\s+\d+(?:/\d+)?\s+(?:\[\d+\]\s+)?[\d.]+:")

Stack = tuple[tuple[str, str], ...]  # (kind, name), the outermost first


def kind_of(place: str) -> str:
    """Whose code lies at *place*, a path or a bracketed word of perf."""
    if "kernel" in place or place.startswith("[guest") or "vmlinux" in place or place.endswith("ko"):
        return "kernel"
    return "pymq" if "/pymq/" in place or "side_by_side" in place else "library"


def read_stacks(lines: Iterable[str]) -> Counter[Stack]:
    """The samples of `perf script` (comm, tid, time, ip, sym, symoff, dso), by stack, the thread outermost."""
    stacks: Counter[Stack] = Counter()
    thread, frames = "", []
    for line in lines:
        if not line.strip():
            if thread:
                stacks[("thread", thread), *reversed(frames)] += 1
            thread, frames = "", []
        elif frame := FRAME.match(line):
            frames.append((kind_of(frame["place"]), frame["name"]))
        elif head := HEAD.match(line):
            thread = head["thread"].strip()
    if thread:
        stacks[("thread", thread), *reversed(frames)] += 1
    return stacks


@dataclass
class Node:
    """One frame of the graph: how many samples have it at this place, and what stands on it."""

    kind: str
    name: str
    samples: int = 0
    above: dict[tuple[str, str], Node] = field(default_factory=dict)

    def depth(self) -> int:
        """Rows from here up."""
        return 1 + max((node.depth() for node in self.above.values()), default=0)


def grow(stacks: Counter[Stack]) -> Node:
    """The tree of all stacks, under one root."""
    root = Node("thread", "all")
    for stack, samples in stacks.items():
        node = root
        node.samples += samples
        for frame in stack:
            node = node.above.setdefault(frame, Node(*frame))
            node.samples += samples
    return root


def by_itself(stacks: Counter[Stack]) -> Counter[str]:
    """Samples by the frame that was running."""
    leaves: Counter[str] = Counter()
    for stack, samples in stacks.items():
        kind, name = stack[-1]
        leaves[f"{name} [{kind}]"] += samples
    return leaves


def with_callees(stacks: Counter[Stack]) -> Counter[str]:
    """Samples by every frame that was on the stack, each counted once a sample."""
    frames: Counter[str] = Counter()
    for stack, samples in stacks.items():
        for kind, name in set(stack):
            frames[f"{name} [{kind}]"] += samples
    return frames


COLOURS = {"kernel": "#e8a15c", "pymq": "#6fa8dc", "library": "#b6c3a5", "thread": "#d5d5d5"}


def _draw(node: Node, left: float, row: int, rows: int, total: int, out: list[str]) -> None:
    width = WIDTH * node.samples / total
    if width < SMALLEST:
        return
    top = (rows - row - 1) * ROW + 40
    share = f"{node.samples / total:.1%}"
    room = int(width / CHARACTER)
    text = node.name if len(node.name) <= room else node.name[: max(room - 1, 0)]
    out.append(
        f"<g><title>{escape(node.name)} [{node.kind}] {share}, {node.samples} samples</title>"
        f'<rect x="{left:.1f}" y="{top}" width="{max(width - 0.3, 0.1):.1f}" height="{ROW - 1}" '
        f'fill="{COLOURS[node.kind]}"/>'
        + (f'<text x="{left + 2:.1f}" y="{top + 12}">{escape(text)}</text>' if room > 2 else "")
        + "</g>"
    )
    for above in sorted(node.above.values(), key=lambda other: other.name):
        _draw(above, left, row + 1, rows, total, out)
        left += WIDTH * above.samples / total


def draw(stacks: Counter[Stack], title: str) -> str:
    """The graph as SVG."""
    root = grow(stacks)
    rows = root.depth()
    height = rows * ROW + 50
    body: list[str] = []
    _draw(root, 0.0, 0, rows, max(root.samples, 1), body)
    legend = "".join(
        f'<rect x="{760 + 105 * place}" y="8" width="12" height="12" fill="{colour}"/>'
        f'<text x="{776 + 105 * place}" y="18">{name}</text>'
        for place, (name, colour) in enumerate(COLOURS.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height}" '
        'font-family="monospace" font-size="11">'
        '<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="6" y="18" font-size="13">{escape(title)}</text>{legend}' + "\n".join(body) + "</svg>\n"
    )
