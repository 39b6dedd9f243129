"""Apache RocketMQ's own filters, asked about expressions and about consumerFilter.json."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop.apache_toolchain import Toolchain

MAIN_CLASS = "org.pymq.interop.FilterTool"
TIMEOUT_S = 120


def ask(toolchain: Toolchain, home: Path, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One answer per request, from one JVM."""
    home.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        toolchain.command(MAIN_CLASS, home=home),
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
