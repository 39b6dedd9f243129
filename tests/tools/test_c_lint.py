"""The project's own C rules find what they claim to find, and nothing in prose or strings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import c_lint

HEADER = "/* What this file is for. */\n"

OFFENCES = {
    "line-length": "int x; /* " + "-" * 120 + " */\n",
    "tab": "int\tx;\n",
    "trailing-space": "int x; \n",
    "file-end": "int x;\n\n",
    "banned-call": "void f(char *a, char *b) {\n    strcpy(a, b);\n}\n",
    "wide-load": "int f(const unsigned char *p) {\n    return (int)*(const uint32_t *)p;\n}\n",
    "python-header": "#include <Python.h>\n",
    "function-length": "int f(void) {\n" + "    g();\n" * c_lint.FUNCTION_LINES_MAX + "}\n",
    "file-length": "int x;\n" * c_lint.FILE_LINES_MAX,
}


def findings(path: Path, text: str) -> list[str]:
    """The rules that *text* breaks, by name."""
    path.write_text(text, encoding="utf-8")
    return [message.partition(":")[0] for _, message in c_lint.check_file(path)]


@pytest.mark.parametrize("rule", OFFENCES)
def test_each_rule_finds_its_offence_and_no_other_rule_does(rule: str, tmp_path: Path):
    """Goal: a rule that cannot fail is no rule. Method: one minimal offence each."""
    assert findings(tmp_path / "a.c", HEADER + OFFENCES[rule]) == [rule]


def test_file_without_an_opening_comment_is_found(tmp_path: Path):
    """Goal: a file says what it is for. Method: a file that begins with code."""
    assert findings(tmp_path / "a.c", "int x;\n") == ["header-comment"]


def test_header_without_a_guard_is_found(tmp_path: Path):
    """Goal: headers may be included twice. Method: one without a guard, one with."""
    guarded = HEADER + "#ifndef PYMQ_A_H\n#define PYMQ_A_H\n\nint f(void);\n\n#endif\n"
    assert findings(tmp_path / "a.h", HEADER + "int f(void);\n") == ["include-guard"]
    assert findings(tmp_path / "b.h", guarded) == []


def test_prose_and_strings_are_not_code(tmp_path: Path):
    """Goal: no false alarm. Method: banned words in comments and strings, a comparator's cast from void."""
    text = (
        HEADER
        + '/* never strcpy(a, b) */\nconst char *text = "sprintf(x) /* *(uint32_t *)p";\n'
        + "int compare(const void *a, const void *b) {\n"
        + "    return *(const int64_t *)a < *(const int64_t *)b;\n}\n"
    )
    assert findings(tmp_path / "a.c", text) == []


def test_function_of_exactly_the_limit_passes(tmp_path: Path):
    """Goal: the bound itself is allowed. Method: a function with the limit's number of lines, braces included."""
    body = "int f(void) {\n" + "    g();\n" * (c_lint.FUNCTION_LINES_MAX - 2) + "}\n"
    assert findings(tmp_path / "a.c", HEADER + body) == []
