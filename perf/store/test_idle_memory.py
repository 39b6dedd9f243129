"""What an open store that does nothing costs in memory of its own.

Mapped files are the kernel's to take back; anonymous memory is not, so that is what is counted: RssAnon of a fresh
process, before and after `import pymq` and after `pymq.open`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pymq

ANONYMOUS_MAX = 30 << 20
PROGRAM = """
import json, sys

def anonymous():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

start = anonymous()
import pymq
imported = anonymous()
with pymq.open(sys.argv[1]) as mq:
    opened = anonymous()
    for number in range(1000):
        mq.send("TopicTest", b"x" * 128, wait=False)
    used = anonymous()
print(json.dumps([start, imported, opened, used]))
"""


@pytest.mark.parametrize("kind", ["new", "large"])
@pytest.mark.benchmark(group="idle memory")
def test_an_idle_open_store_keeps_little_anonymous_memory(
    benchmark: Any, scratch: Path, say: Callable[[str], None], kind: str
) -> None:
    """Goal: at most 30 MiB. Method: a fresh interpreter tells its RssAnon at each step, for a new and a used store."""
    path = scratch / kind
    if kind == "large":
        with pymq.open(path, pymq.StoreConfig(flush_disk_type="ASYNC_FLUSH")) as mq:
            for topic in range(20):
                mq.send_many(f"topic-{topic}", [b"x" * 1024] * 5000, queue_id=range(8))
    command = [sys.executable, "-c", PROGRAM, str(path)]
    options = {"check": True, "capture_output": True, "text": True}
    done = benchmark.pedantic(subprocess.run, args=(command,), kwargs=options, rounds=1)
    start, imported, opened, used = json.loads(done.stdout)
    benchmark.extra_info.update(start_bytes=start, imported_bytes=imported, opened_bytes=opened, used_bytes=used)
    say(
        f"idle {kind} store: {opened / 2**20:.1f} MiB anonymous (interpreter {start / 2**20:.1f}, pymq imported "
        f"{imported / 2**20:.1f}, the open itself {(opened - imported) / 2**20:.1f}); after 1000 sends "
        f"{used / 2**20:.1f} MiB"
    )
    assert opened <= ANONYMOUS_MAX
