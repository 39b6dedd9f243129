"""`python -m pymq.namesrv [-c namesrv.conf] [-p] [--listenPort 9876 …]`."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence

from pymq import java_properties
from pymq.errors import PymqError
from pymq.namesrv.config import NamesrvConfig, load
from pymq.namesrv.server import NameServer

USAGE = """usage: python -m pymq.namesrv [-c FILE] [-p] [--KEY VALUE …]

  -c FILE         a properties file with Apache RocketMQ's keys
  -p              print the configuration that would be used and end
  --KEY VALUE     set one key, for example --listenPort 9876; wins over the file
  -h, --help      this text
"""
EXIT_USAGE = 255  # Apache's -1
EXIT_START = 253  # Apache's -3


class UsageError(Exception):
    """The command line cannot be understood."""


def parse(arguments: Sequence[str]) -> tuple[str | None, bool, dict[str, str]]:
    """(file, print only, overrides).

    Raises:
        UsageError: naming the word that does not belong.
    """
    path: str | None = None
    print_only = False
    overrides: dict[str, str] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word in ("-p", "--printConfigItem"):
            print_only = True
        elif word.startswith("-") and len(word) > 1:
            if not words:
                raise UsageError(f"{word} needs a value")
            value = words.pop(0)
            if word in ("-c", "--configFile"):
                path = value
            elif word.startswith("--"):
                overrides[word[2:]] = value
            else:
                raise UsageError(f"{word} is not an option")
        else:
            raise UsageError(f"{word!r} is not an option")
    return path, print_only, overrides


async def serve(config: NamesrvConfig) -> None:
    """Run until SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    server = NameServer(config)
    await server.start()
    address = f"{config.bind_address}:{server.port}"
    print(f"The Name Server boot success. serializeType=JSON, address {address}", flush=True)
    await stopping.wait()
    await server.stop()


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    if any(word in ("-h", "--help") for word in arguments):
        print(USAGE)
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        path, print_only, overrides = parse(arguments)
        config = load(path, overrides)
    except (UsageError, ValueError) as failure:
        print(f"pymq.namesrv: {failure}", file=sys.stderr)
        return EXIT_USAGE
    if path is not None:
        print(f"load config properties file OK, {path}", flush=True)
    for warning in config.warnings:
        print(f"pymq.namesrv: WARNING: {warning}", file=sys.stderr)
    if print_only:
        print(java_properties.render(config.to_properties()), end="")
        return 0
    try:
        asyncio.run(serve(config))
    except (OSError, ValueError, PymqError) as failure:
        print(f"pymq.namesrv: {failure}", file=sys.stderr)
        return EXIT_START
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
