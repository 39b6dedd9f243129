"""tests/data/sql-filter/table.jsonl: expressions, messages, and what Apache RocketMQ 5.5.0's filter says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parent.parent / "data" / "sql-filter" / "table.jsonl"


def rows() -> list[dict[str, Any]]:
    """One per expression: "expression", "messages", "accepted", and one of "verdicts" per message when accepted."""
    return [json.loads(line) for line in TABLE.read_text().splitlines()]
