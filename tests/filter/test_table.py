"""The table of Apache's answers; tests/interop/test_filter_table.py asks Apache whether it still gives them."""

from __future__ import annotations

from collections import Counter

from pymq._scan import FilterProgram
from pymq.filter import FilterError, compile_expression, parse
from tests.filter.table import rows
from tests.reference import filter as reference

CASES_MIN = 300


def test_every_answer_is_apaches() -> None:
    """Goal: accepted or refused alike, and each message judged alike. Method: the whole table, by C and by the tree."""
    counted: Counter[str] = Counter()
    wrong = []
    for row in rows():
        expression, messages = row["expression"], row["messages"]
        try:
            program = FilterProgram(compile_expression(expression))
        except FilterError as error:
            counted["refused"] += 1
            if row["accepted"]:
                wrong.append(f"{expression!r} is accepted there: {error}")
            continue
        if not row["accepted"]:
            wrong.append(f"{expression!r} is refused there")
            continue
        root = parse(expression).root
        for properties, verdict in zip(messages, row["verdicts"], strict=True):
            counted[verdict] += 1
            ours, plain = program.evaluate_pairs(properties).name, reference.verdict(root, properties)
            if not ours == plain == verdict:
                wrong.append(f"{expression!r} of {properties}: {verdict} there, {ours} in C, {plain} by the tree")
    print(f"filter table: {dict(counted)}")
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])
    assert min(counted[name] for name in ("refused", "TRUE", "FALSE", "NULL", "ERROR")) > 50
    assert counted.total() > CASES_MIN
