"""SQL92 filters over message properties: read and compiled here, evaluated by csrc/codec on records' bytes."""

from __future__ import annotations

from pymq.filter.errors import FilterError
from pymq.filter.parser import Parsed, parse
from pymq.filter.program import compile_expression, compile_parsed, compile_retry, compile_tags, compile_tree

SQL92 = "SQL92"

__all__ = [
    "SQL92",
    "FilterError",
    "Parsed",
    "compile_expression",
    "compile_parsed",
    "compile_retry",
    "compile_tags",
    "compile_tree",
    "parse",
]
