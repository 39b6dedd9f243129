"""docs/broker-config.md, generated from `BrokerConfig`: `python -m pymq.broker.reference > docs/broker-config.md`.

`--check docs/broker-config.md` exits 1 when the page is not what the settings say.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pymq.broker.config_source import BROKER_ROWS, STORE_ROWS, render_value
from pymq.broker.config_update import LIVE, LIVE_STORE
from pymq.broker.known_keys import KNOWN_KEYS
from pymq.store.reference import bounds_of

HEAD = """# Settings of the broker

Generated from `pymq/broker/config.py`; change them there and run
`python -m pymq.broker.reference > docs/broker-config.md`.

`python -m pymq.broker -c broker.conf` reads the files Apache RocketMQ's broker reads; `--key value` on the command line
wins over the file, and the file over `NAMESRV_ADDR` and `ROCKETMQ_HOME`. `--explain` prints every value with where it
came from; passwords are shown as `******` there and by `getBrokerConfig`. All {known} keys of RocketMQ 5.5.0 are known:
those below and the store's take effect, any other that is set to something else than its default is named in a warning,
and a key that nobody knows is a warning with a suggestion (an error with `strictConfig=true`). So are `tls.` keys, here
and in `tls.config.file`; what they do stands in `pymq/remoting/tls_context.py`. *live* keys can be changed while the
broker runs (`updateBrokerConfig`); others are kept for the next start: in the file, or, without `-c`, in
`config/broker.properties` of the store, which is then read instead of one. A `pymq.Broker` inside a program has the
settings it is given.

## Who can reach it

| started with | name server | listens on |
|---|---|---|
| nothing (ports, paths and other keys on the command line change nothing here) | its own, in this process | loopback |
| `NAMESRV_ADDR` in the environment, loopback addresses or `localhost` only | that one | loopback |
| `NAMESRV_ADDR` with any other address, or `-n` (`namesrvAddr`) | those | every address, with a warning |
| `-c FILE` or `brokerIP1` | as they say | every address |
| `bindAddress` | as said | that one |

A broker that joins a name server outside is part of a cluster and has to be reachable; `bindAddress` restricts it.

## Keys

| key | default | unit | bounds | |
|---|---|---|---|---|
"""

STORE_HEAD = """
## Keys of the store

These are described in [config.md](config.md); the broker's defaults are Apache's, so `flushDiskType` is ASYNC_FLUSH.

| key | setting | |
|---|---|---|
"""


def render_reference() -> str:
    """The whole page."""
    table = "".join(
        f"| [`{key}`](#{key.lower()}) | {code(render_value(row.default))} | {row.info.unit} "
        f"| {bounds_of(row)} | {'live' if key in LIVE else ''} |\n"
        for key, row in BROKER_ROWS.items()
    )
    store = "".join(
        f"| `{key}` | [`{row.name}`](config.md#{row.name}) | {'live' if key in LIVE_STORE else ''} |\n"
        for key, row in STORE_ROWS.items()
    )
    entries = "".join(f"\n### {key}\n\n{row.info.doc}\n" for key, row in BROKER_ROWS.items())
    return HEAD.format(known=len(KNOWN_KEYS)) + table + STORE_HEAD + store + "\n## Keys of the broker\n" + entries


def code(text: str) -> str:
    """*text* as it stands in a file; nothing for an empty one."""
    return f"`{text}`" if text else ""


def main(arguments: list[str] | None = None) -> int:
    """Print the page, or compare it with a file."""
    parser = argparse.ArgumentParser(
        prog="python -m pymq.broker.reference", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--check", type=Path, metavar="PAGE", help="exit 1 unless PAGE is up to date")
    options = parser.parse_args(arguments)
    page = render_reference()
    if options.check is None:
        sys.stdout.write(page)
        return 0
    if options.check.read_text(encoding="utf-8") == page:
        return 0
    sys.stderr.write(f"{options.check} is stale; run: python -m pymq.broker.reference > {options.check}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
