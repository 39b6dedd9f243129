"""`python -m pymq.broker`: options as `mqbroker` has them, configuration printed and explained, a clean start and stop.

    -c FILE      properties file, as Apache RocketMQ's broker.conf
    -n ADDRS     name servers, host:port;host:port; without any, one runs inside this process. Who joins others
                 listens on every address, unless bindAddress says otherwise
    -p           print every setting and exit
    -m           print the important ones and exit
    --explain    print each setting with where its value came from, and exit
    --KEY VALUE  one setting (also --KEY=VALUE or KEY=VALUE), which wins over the file

With nothing at all: a name server on 9876, a broker on 10911, a store in ~/store, reachable from this machine alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pymq.broker.config import ANY_ADDRESS, VIP_PORT_DISTANCE, BrokerConfig
from pymq.broker.config_source import (
    KEPT_FILE,
    Given,
    LoadedConfig,
    all_properties,
    build_config,
    check_files,
    explain,
    from_environment,
    important_properties,
    read_config_file,
)
from pymq.broker.reach import decide_reach
from pymq.broker.secret_values import masked
from pymq.errors import ConfigError, PymqError

EXIT_FAILED = 1
EXIT_USAGE = 2
COMMAND_LINE = "command line"
WITH_VALUE = {"-c": "configFile", "--configFile": "configFile", "-n": "namesrvAddr", "--namesrvAddr": "namesrvAddr"}
FLAGS = {
    "-p": "print",
    "--printConfigItem": "print",
    "-m": "important",
    "--printImportantConfig": "important",
    "--explain": "explain",
    "-h": "help",
    "--help": "help",
}

log = logging.getLogger("pymq.broker")


@dataclass(slots=True)
class Options:
    """What the command line said."""

    config_file: str = ""
    action: str = "run"
    given: list[Given] = field(default_factory=list)


def parse_arguments(arguments: Sequence[str]) -> Options:
    """Read the command line.

    Raises:
        ConfigError: a word that is no option, or an option without its value.
    """
    options = Options()
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word in FLAGS:
            options.action = FLAGS[word]
            continue
        name, separator, value = word.partition("=")
        key = WITH_VALUE.get(name) or (name[2:] if name.startswith("--") else name if separator else "")
        if not key or key.startswith("-"):
            raise ConfigError(f"{word}: no such option; -h lists them")
        if not separator:
            if not words:
                raise ConfigError(f"{word} needs a value behind it")
            value = words.pop(0)
        if key == "configFile":
            options.config_file = value
        else:
            options.given.append(Given(key, value, COMMAND_LINE))
    return options


def load_config(options: Options, environment: Mapping[str, str]) -> LoadedConfig:
    """Environment, file and command line, the later winning.

    Raises:
        ConfigError: a value or key that cannot be.
    """
    said = from_environment(environment)
    if options.config_file:
        file = read_config_file(options.config_file)
    else:
        store = Path(build_config([*said, *options.given]).config.resolved().store_path_root_dir)
        kept = store / "config" / KEPT_FILE
        file = read_config_file(kept) if kept.exists() else []
    loaded = build_config([*said, *file, *options.given], config_path=options.config_file)
    check_files(loaded)
    decide_reach(loaded)
    loaded.config = loaded.config.resolved()
    return loaded


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the broker until a signal; the exit code."""
    try:
        options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    except ConfigError as error:
        print(f"pymq.broker: {error}", file=sys.stderr)
        return EXIT_USAGE
    if options.action == "help":
        print(__doc__, end="")
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        loaded = load_config(options, os.environ)
        for warning in loaded.warnings:
            log.warning("%s", warning)
        if options.action != "run":
            sys.stdout.write(render(options.action, loaded))
            return 0
        return asyncio.run(serve(loaded))
    except PymqError as error:
        print(f"pymq.broker: {error}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"pymq.broker: {error.strerror or error}: {error.filename or ''}", file=sys.stderr)
        return EXIT_FAILED


def render(action: str, loaded: LoadedConfig) -> str:
    """What `-p`, `-m` and `--explain` print."""
    if action == "explain":
        return explain(loaded)
    values = all_properties(loaded.config) if action == "print" else important_properties(loaded.config)
    return "".join(f"{key}={value}\n" for key, value in masked(values).items())


async def serve(loaded: LoadedConfig) -> int:
    """Start, say so, and stop in order when asked to."""
    # Printing a configuration needs neither the native modules nor a loop.
    from pymq.broker.controller import Broker
    from pymq.broker.watchdog import Watchdog

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    broker = Broker(loaded.config, progress=True)
    await broker.start()
    watchdog = Watchdog(loop)
    watchdog.start()
    try:
        print(ready_line(broker.config.broker_name, broker.address, broker.namesrv_addr), flush=True)
        config = broker.config
        print(f"store {broker.store_path}, {listening_words(config)}", flush=True)
        await stop.wait()
        log.info("stopping")
    finally:
        await broker.stop()
        watchdog.stop()
    return 0


def listening_words(config: BrokerConfig) -> str:
    """Where it listens; the address of every address is not one that everybody knows."""
    everywhere = ", that is ALL addresses; see bindAddress" if config.bind_address == ANY_ADDRESS else ""
    vip = config.listen_port - VIP_PORT_DISTANCE
    return f"listening on {config.bind_address}:{config.listen_port} (VIP {vip}){everywhere}"


def ready_line(name: str, address: str, namesrv_addr: str) -> str:
    """The line scripts wait for, as RocketMQ prints it."""
    return f"The broker[{name}, {address}] boot success. serializeType=JSON and name server is {namesrv_addr}"
