"""The fourth life of a broker: what consumer groups rely on beyond sends and pulls.

    transactions  halves, then a commit for each
    retries       messages that are sent back
    filters       a log of which a tenth matches an SQL expression, read by a group that subscribes with it
    delays        messages of one level that were all due while the broker was down: how fast they are delivered

Each is done once small, so that a JIT compiler has seen it, and once for the figure.
"""

from __future__ import annotations

import shutil
import time

from perf.side_by_side.plan import Shape
from perf.side_by_side.sides import RunningBroker
from perf.side_by_side.stages import Bench, Figures

SHAPE = Shape(128, "java", "json")
CONNECTIONS, WINDOW = 8, 32
WARM_UP_SHARE = 4  # a quarter of the run's size
SETTINGS = {"enablePropertyFilter": "true"}
HALF = "TRAN_MSG=true;PGROUP=load"
EXPRESSION = "price BETWEEN 40 AND 60 AND region IN ('eu', 'us')"
MATCHING, OTHER = "region=eu;price=50", "region=eu;price=70"
MATCHING_SHARE = 10  # one in ten
DELAY_LEVEL, DELAY_S = 3, 10.0
QUEUES = 8


def run_features_stage(bench: Bench, figures: Figures) -> None:
    """All four, over one store; the broker is started again for the last."""
    home = bench.home("features")
    broker = bench.side.start(home, flush_disk_type="ASYNC_FLUSH", more=SETTINGS)
    try:
        bench.warm_up(broker, SHAPE)
        _transactions(bench, broker, figures)
        _retries(bench, broker, figures)
        _filters(bench, broker, figures)
        _leave_delayed(bench, broker, figures)
    finally:
        broker.stop(clean=True)
    time.sleep(DELAY_S + 1)
    broker = bench.side.start(home, flush_disk_type="ASYNC_FLUSH", more=SETTINGS)
    try:
        _await_delayed(bench, broker, figures)
    finally:
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)


def _transactions(bench: Bench, broker: RunningBroker, figures: Figures) -> None:
    count = bench.plan.transaction_count
    for number, size in enumerate((count // WARM_UP_SHARE, count)):
        result = bench.load.run(
            "follow", broker=broker.address, watch_pid=broker.broker.pid, topic=f"Transaction{number}",
            **SHAPE.options, connections=CONNECTIONS, window=WINDOW, queues=QUEUES, count=size, follow_up="commit",
            add_properties=HALF, timeout_s=120,
        )  # fmt: skip
    figures.keep("transactions", result)
    figures.numbers["transaction.rate"] = result["messages_per_s"]
    figures.numbers["transaction.cpu"] = result["broker_cpu"]["s_per_million"]
    figures.numbers["transaction.commit_rate"] = result["follow_up"]["messages_per_s"]
    bench.say(f"transactions: {result['messages_per_s']:,.0f}/s, {figures.numbers['transaction.cpu']:.2f} CPU-s/M")


def _retries(bench: Bench, broker: RunningBroker, figures: Figures) -> None:
    count = bench.plan.retry_count
    for number, size in enumerate((count // WARM_UP_SHARE, count)):
        result = bench.load.run(
            "follow", broker=broker.address, watch_pid=broker.broker.pid, topic=f"Retry{number}", **SHAPE.options,
            connections=CONNECTIONS, window=WINDOW, queues=QUEUES, count=size, follow_up="send-back", group="retrying",
            timeout_s=120,
        )  # fmt: skip
    figures.keep("retries", result)
    figures.numbers["retry.rate"] = result["follow_up"]["messages_per_s"]
    figures.numbers["retry.cpu"] = result["follow_up"]["broker_cpu"]["s_per_million"]
    bench.say(f"sent back: {figures.numbers['retry.rate']:,.0f}/s, {figures.numbers['retry.cpu']:.2f} CPU-s/M")


def _filters(bench: Bench, broker: RunningBroker, figures: Figures) -> None:
    count = bench.plan.filter_count
    for properties, size in ((OTHER, count - count // MATCHING_SHARE), (MATCHING, count // MATCHING_SHARE)):
        bench.send(
            broker, "Filter", SHAPE, connections=4, window=8, batch=32, count=size, duration_s=120, timeout_s=180,
            queues=QUEUES, add_properties=properties,
        )  # fmt: skip
    for group in ("filter-warm-up", "filter"):
        result = bench.load.run(
            "pull", broker=broker.address, watch_pid=broker.broker.pid, topic="Filter", codec=SHAPE.codec, group=group,
            connections=4, window=2, queues=QUEUES, sql=EXPRESSION, duration_s=60, timeout_s=90,
        )  # fmt: skip
    figures.keep("SQL-filtered pull", result)
    # Per message looked at: what matches is only what has to be transferred.
    figures.numbers["filter.rate"] = count / result["settled_s"]
    figures.numbers["filter.cpu"] = result["broker_cpu"]["total_s"] * 1e6 / count
    if result["received"] != count // MATCHING_SHARE // 32 * 32:
        figures.notes.append(f"SQL-filtered pull: {result['received']} received of {count // MATCHING_SHARE}")
    bench.say(f"SQL-filtered: {figures.numbers['filter.rate']:,.0f}/s, {figures.numbers['filter.cpu']:.2f} CPU-s/M")


def _leave_delayed(bench: Bench, broker: RunningBroker, figures: Figures) -> None:
    result = bench.send(
        broker, "Delayed", SHAPE, connections=CONNECTIONS, window=64, queues=QUEUES, duration_s=DELAY_S * 0.8,
        count=bench.plan.delay_count, add_properties=f"DELAY={DELAY_LEVEL}", no_settle=True,
    )  # fmt: skip
    figures.keep("delayed sends", result)
    figures.numbers["delay.count"] = result["acknowledged"]
    bench.say(f"delayed sends: {result['acknowledged']} at {result['messages_per_s']:,.0f}/s")


def _await_delayed(bench: Bench, broker: RunningBroker, figures: Figures) -> None:
    result = figures.keep(
        "delayed messages delivered",
        bench.load.run(
            "await", broker=broker.address, watch_pid=broker.broker.pid, topic="Delayed", codec=SHAPE.codec,
            queues=QUEUES, count=int(figures.numbers["delay.count"]), timeout_s=120,
        ),
    )  # fmt: skip
    figures.numbers["delay.rate"] = result["messages_per_s"]
    figures.numbers["delay.cpu"] = result["broker_cpu"]["s_per_million"]
    bench.say(
        f"delivered: {result['messages_per_s']:,.0f}/s ({result['before']} before the first look), "
        f"{figures.numbers['delay.cpu']:.2f} CPU-s/M"
    )
