"""Apache's filter gives the answers of tests/data/sql-filter/table.jsonl, and agrees with ours beyond them."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pymq._scan import FilterProgram
from pymq.filter import FilterError, compile_expression
from tests.filter.strategies import EXPRESSIONS, PROPERTIES, SOUP
from tests.filter.table import rows
from tests.interop.apache_toolchain import Toolchain
from tests.interop.filter_oracle import ask

RANDOM_CASES = int(os.environ.get("PYMQ_FILTER_CASES", "1500"))


def test_apache_still_says_what_the_table_says(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: the table is Apache's, not ours. Method: ask its filter module everything again."""
    table = rows()
    answers = ask(apache, tmp_path, [{name: row[name] for name in ("expression", "messages")} for row in table])
    assert len(table) > 300
    for row, answer in zip(table, answers, strict=True):
        assert answer == {name: row[name] for name in ("accepted", "verdicts") if name in row}, row["expression"]


def test_random_expressions_are_judged_alike(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: no quirk was overlooked. Method: expressions by the grammar, and soups of tokens, asked of both."""
    cases: list[tuple[str, list[dict[str, str]]]] = []

    @settings(
        max_examples=RANDOM_CASES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        database=None,
    )
    @given(EXPRESSIONS | SOUP, st.lists(PROPERTIES, min_size=1, max_size=4))
    def collect(expression: str, messages: list[dict[str, str]]) -> None:
        if expression.isprintable():
            cases.append((expression, messages))

    collect()
    answers = ask(apache, tmp_path, [{"expression": text, "messages": messages} for text, messages in cases])
    accepted = 0
    wrong = []
    for (expression, messages), answer in zip(cases, answers, strict=True):
        try:
            program = FilterProgram(compile_expression(expression))
        except FilterError as error:
            if answer["accepted"]:
                wrong.append(f"{expression!r} is accepted there: {error}")
            continue
        accepted += 1
        assert answer["accepted"], f"{expression!r} is refused there"
        assert [program.evaluate_pairs(item).name for item in messages] == answer["verdicts"], (expression, messages)
    assert not wrong, "\n".join(wrong)
    print(f"filter: {len(cases)} random expressions, {accepted} accepted")
    assert accepted > RANDOM_CASES // 10
