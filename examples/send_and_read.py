"""Send messages and find them again: by queue and offset, by key, by id, by time.

Run it: python examples/send_and_read.py [directory]
"""

from __future__ import annotations

import sys
import tempfile
from datetime import UTC, datetime, timedelta

import pymq


def main(directory: str) -> None:
    """Walk through the look-ups."""
    with pymq.open(directory) as mq:
        # Durable when it returns: SYNC_FLUSH is the default.
        result = mq.send("orders", b"one coffee", keys="order-17", tags="hot", properties={"table": "4"})
        print(f"stored at offset {result.queue_offset} of queue {result.queue_id}, id {result.message_id}")

        for message in mq.iterate("orders"):
            print("in the queue:", message.body, message.tags, message.properties["table"])

        print("by key:", [message.body for message in mq.query("orders", "order-17")])
        print("by id:", mq.get_by_id(result.message_id).body)

        a_minute_ago = datetime.now(UTC) - timedelta(minutes=1)
        print("first of the last minute:", mq.offset_by_time("orders", 0, a_minute_ago))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="pymq-"))
