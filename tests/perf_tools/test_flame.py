"""`perf.side_by_side.flame`: stacks out of perf's text, counted and drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from perf.side_by_side.flame import WIDTH, by_itself, draw, read_stacks, with_callees

SCRIPT = """\
pymq-reactor 4711  123.456789:
\tffffffff81234567 clear_page_erms+0x7 ([kernel.kallsyms])
\tffffffff81230000 handle_mm_fault+0x10 ([kernel.kallsyms])
\t    7f0000001234 append_record+0x40 (/somewhere/pymq/_native.so)
\t    7f0000001000 serve<int>(a, b)+0x1 (/somewhere/pymq/_native.so)

pymq-reactor 4711  123.457789:
\tffffffff81234567 clear_page_erms+0x9 ([kernel.kallsyms])
\tffffffff81230000 handle_mm_fault+0x12 ([kernel.kallsyms])
\t    7f0000001234 append_record+0x40 (/somewhere/pymq/_native.so)
\t    7f0000001000 serve<int>(a, b)+0x1 (/somewhere/pymq/_native.so)

pymq flush 4712  123.458:
\t    7f00000aa000 [unknown] (/lib/libc.so.6 (deleted))
"""


def test_samples_with_the_same_frames_are_one_stack():
    """Goal: offsets within a function do not tell stacks apart. Method: two samples of one place, one of another."""
    stacks = read_stacks(SCRIPT.splitlines())
    assert stacks == {
        (
            ("thread", "pymq-reactor"),
            ("pymq", "serve<int>(a, b)"),
            ("pymq", "append_record"),
            ("kernel", "handle_mm_fault"),
            ("kernel", "clear_page_erms"),
        ): 2,
        (("thread", "pymq flush"), ("library", "[unknown]")): 1,
    }


def test_a_share_is_of_the_frame_itself_or_of_all_above_it():
    """Goal: both tables add up. Method: a frame's own samples, and those of its callees counted once a sample."""
    stacks = read_stacks(SCRIPT.splitlines())
    assert by_itself(stacks) == {"clear_page_erms [kernel]": 2, "[unknown] [library]": 1}
    assert with_callees(stacks)["append_record [pymq]"] == 2
    recursive = {(("pymq", "walk"), ("pymq", "walk")): 5}
    assert with_callees(recursive) == {"walk [pymq]": 5}


def test_the_picture_is_as_wide_as_the_samples():
    """Goal: widths are shares, names are escaped. Method: read the SVG back."""
    picture = ElementTree.fromstring(draw(read_stacks(SCRIPT.splitlines()), "sends & answers"))
    space = "{http://www.w3.org/2000/svg}"
    frames = {
        group.find(f"{space}title").text.rpartition(" [")[0]: float(group.find(f"{space}rect").get("width"))
        for group in picture.iter(f"{space}g")
    }
    assert abs(frames["all"] - WIDTH) < 1
    assert abs(frames["append_record"] - WIDTH * 2 / 3) < 1
    assert "serve<int>(a, b)" in frames
