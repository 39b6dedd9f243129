"""The C rules of this project that no compiler warning and no cppcheck rule expresses.

Looked at: every .c and .h below csrc/ and tests/native/. Comments and string contents are blanked first, so a rule
about code never trips over prose. Each finding is one line, `file:line: rule: what`; any finding means status 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINE_LENGTH_MAX = 120
FUNCTION_LINES_MAX = 100
FILE_LINES_MAX = 700

TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
BANNED_CALL = re.compile(r"\b(strcpy|strcat|sprintf|vsprintf|gets|alloca|strtok|atoi|atol|tmpnam)\s*\(")
# *(uint32_t *)p, ((const int64_t *)p)[i]: an unaligned, host-endian load. load_be* and memcpy are the ways.
WIDE_LOAD = re.compile(
    r"\*\s*\(\s*(?:const\s+)?u?int(?:16|32|64)_t\s*(?:const\s*)?\*\s*\)|"
    r"\(\(\s*(?:const\s+)?u?int(?:16|32|64)_t\s*(?:const\s*)?\*\s*\)[^()]*\)\s*\["
)
PYTHON_HEADER = re.compile(r'#\s*include\s*[<"]Python\.h[>"]')
FUNCTION_OPEN = re.compile(r"^[A-Za-z_][^;={}]*\)\s*\{\s*$", re.MULTILINE)
INCLUDE_GUARD = re.compile(r"^#ifndef (PYMQ_\w+_H)\n#define \1\n", re.MULTILINE)


def blank(match: re.Match[str]) -> str:
    """The token with everything but its line breaks turned into spaces; quotes stay, so that strings stay tokens."""
    token = match.group()
    inner = re.sub(r"[^\n]", " ", token)
    return token[0] + inner[1:-1] + token[-1] if token[0] in "\"'" else inner


def line_of(text: str, position: int) -> int:
    """The line number, from 1, of *position* in *text*."""
    return text.count("\n", 0, position) + 1


def check_lines(text: str) -> Iterator[tuple[int, str]]:
    """Rules about single lines as written."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LINE_LENGTH_MAX:
            yield number, f"line-length: {len(line)} > {LINE_LENGTH_MAX}"
        if "\t" in line:
            yield number, "tab: indent with four spaces"
        if line != line.rstrip():
            yield number, "trailing-space: remove it"
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield line_of(text, len(text)), "file-end: exactly one line break"
    lines = text.count("\n")
    if lines > FILE_LINES_MAX:
        yield lines, f"file-length: {lines} > {FILE_LINES_MAX}; split it by concept"


def casts_back_from_void(code: str, match: re.Match[str]) -> bool:
    """Whether the cast takes a `void *` parameter back to what it was, as every comparator and callback does."""
    operand = re.match(r"\s*(\w+)", code[match.end() :])
    head = code[max(0, code.rfind("\n}", 0, match.start())) : match.start()]
    return operand is not None and re.search(rf"\bvoid \*{operand.group(1)}\b", head) is not None


def check_code(code: str) -> Iterator[tuple[int, str]]:
    """Rules about code with comments and strings blanked."""
    for match in BANNED_CALL.finditer(code):
        yield line_of(code, match.start()), f"banned-call: {match.group(1)} has no bound or no error"
    for match in WIDE_LOAD.finditer(code):
        if not casts_back_from_void(code, match):
            yield line_of(code, match.start()), "wide-load: use load_be*/store_be* or memcpy, not a pointer cast"
    for match in FUNCTION_OPEN.finditer(code):
        end = code.find("\n}", match.end())
        begin_line = line_of(code, match.start())
        length = line_of(code, end + 1) - begin_line + 1
        if end >= 0 and length > FUNCTION_LINES_MAX:
            yield begin_line, f"function-length: {length} > {FUNCTION_LINES_MAX}"


def check_file(path: Path) -> Iterator[tuple[int, str]]:
    """Every rule, over one file."""
    text = path.read_text(encoding="utf-8")
    code = TOKEN.sub(blank, text)
    yield from check_lines(text)
    yield from check_code(code)
    if not text.startswith("/* "):
        yield 1, "header-comment: a file opens with what it is for"
    for match in PYTHON_HEADER.finditer(text):
        yield line_of(text, match.start()), "python-header: the core knows nothing of Python"
    if path.suffix == ".h" and not (INCLUDE_GUARD.search(code) and code.rstrip().endswith("#endif")):
        yield 1, "include-guard: #ifndef PYMQ_…_H, #define PYMQ_…_H … #endif"


def c_files() -> list[Path]:
    """The C files of the repository, sorted."""
    found = (path for directory in ("csrc", "tests/native") for path in (ROOT / directory).rglob("*.[ch]"))
    return sorted(found)


def main() -> int:
    """Print every finding; 1 when there is any."""
    findings = [(path.relative_to(ROOT), *finding) for path in c_files() for finding in check_file(path)]
    for path, number, message in findings:
        print(f"{path}:{number}: {message}")
    print(f"c_lint: {len(c_files())} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
