"""Torn tails (R3) and bit flips (R4): files that say something nobody wrote."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests import native_build

pytestmark = pytest.mark.crash


def test_torn_tail_is_cut_exactly_at_the_last_whole_record(tmp_path: Path) -> None:
    """Goal: recovery keeps every whole record and nothing of a torn one. Method: cut the last record of three kinds
    (v1, v2, IPv6) at every byte, with zeros, an older record or random bytes behind; the log must end where it began.
    Without a CRC over the record, properties may be wrong behind anything but zeros; with one there is no exception.
    """
    output = native_build.run("test_crash_torn_tail", tmp_path, timeout_s=280)
    figures = re.search(r"(\d+) cuts, (\d+) of them with a CRC over the record, all of those exact", output)
    assert figures is not None, output
    cuts, exact = map(int, figures.groups())
    assert exact >= 3 * 3 * 200, "three kinds, three fillings, every byte of records of 210 and more"
    assert cuts - exact >= 3 * 3 * 180, "the same without the CRC"


def test_bit_flip_never_delivers_a_wrong_body(tmp_path: Path) -> None:
    """Goal: damage is detected or harmless. Method: flip single bits of every kind of file, open, read everything by
    queue and by key; a sample of 1,200 from the printed seed, all bits of the first 4 KiB and more with PYMQ_FULL=1.
    """
    full = os.environ.get("PYMQ_FULL", "0") not in ("", "0")
    output = native_build.run("test_crash_bit_flips", tmp_path, timeout_s=7000 if full else 280)
    figures = re.search(r"(\d+) flips: (\d+) refused at open, (\d+) harmless, .* (\d+) bodies read and right", output)
    assert figures is not None, output
    flips, refused, harmless, bodies = map(int, figures.groups())
    assert flips >= 1000
    assert refused + harmless <= flips
    assert bodies > flips, "hardly anything was read back"
