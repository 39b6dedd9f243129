"""A consumer group: at least once, and on from where it stopped, also after a restart.

Run it twice: python examples/consumer_group.py some-directory
"""

from __future__ import annotations

import sys
import tempfile

import pymq


def main(directory: str) -> None:
    """Send three bills, handle everything that was not handled yet."""
    with pymq.open(directory) as mq:
        mq.send_many("bills", [b"bill for table %d" % table for table in (1, 2, 3)])

        group = mq.group("billing")
        print("to do:", group.lag("bills").get(0))
        for message in group.consume("bills", timeout=0):
            # A message is committed when the next one is asked for: an exception here repeats it next time.
            print("billed:", message.body.decode())
        print("next offset:", group.committed("bills"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="pymq-"))
