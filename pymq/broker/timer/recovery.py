"""Opening the timers of a store: where they had come to, and a wheel that agrees with its log.

The timer log and the wheel follow from the timer topic, so nothing of them that a crash could have torn is kept:

* pymq's checkpoint names a position of the log and an offset of the timer topic that belong together. After a crash
  the log is cut there and the topic is read from there on; the wheel is made again from the log.
* After a clean stop the wheel is as it should be and nothing is read but one unit a slot.
* Apache's checkpoint knows less: its log is walked to the first bytes that are no unit, and the topic is read from
  behind the message of the last one, or from the checkpoint's offset if that is lower (TimerMessageStore.recover).
* When the log is not what a checkpoint says, it is made again from the topic (`pymq.broker.timer.rebuild`); a
  checkpoint whose `log_end` is -1 says that this has begun. Without a checkpoint the topic is all there is.
  # Differs: Apache skips slots that were due more than seven days ago, and loses what is in them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from pymq.broker.timer import properties as names
from pymq.broker.timer.checkpoint import FILE_NAME as CHECKPOINT_NAME
from pymq.broker.timer.checkpoint import TimerCheckpoint, load_checkpoint, save_checkpoint
from pymq.broker.timer.log import MAGIC_DELETE, NONE, UNIT, TimerLog
from pymq.broker.timer.metrics import TimerMetrics
from pymq.broker.timer.source import TimerSource
from pymq.broker.timer.wheel import Slot, TimerWheel
from pymq.errors import ConfigError

log = logging.getLogger("pymq.broker")


@dataclass(slots=True)
class Recovered:
    """Where the timers go on.

    Attributes:
        from_topic: nothing but the timer topic is left.
        rebuild_until: messages of the topic before this offset were in the timer log, or delivered.
        pending: the lowest commit-log offset in each slot that is still to come, by the slot's time.
    """

    read_ms: int
    queue_offset: int
    checkpoint: TimerCheckpoint
    pending: dict[int, int] = field(default_factory=dict)
    from_topic: bool = False
    rebuild_until: int = 0


@dataclass(slots=True)
class Chain:
    """One slot, as the log tells it."""

    first: int
    last: int
    count: int
    lowest: int


def recover(
    directory: Path, wheel: TimerWheel, timer_log: TimerLog, metrics: TimerMetrics, source: TimerSource, precision: int
) -> Recovered:
    """Bring wheel and log of the store under *directory* to what its checkpoint vouches for.

    Raises:
        ConfigError: the checkpoint was written with another precision, and timers are pending.
    """
    path = directory / "config" / CHECKPOINT_NAME
    checkpoint = load_checkpoint(path) or TimerCheckpoint()
    if checkpoint.ours and checkpoint.precision_ms != precision and checkpoint.slots:
        raise ConfigError(
            f"timerPrecisionMs is {precision}, the {checkpoint.slots} slots that are pending were made with "
            f"{checkpoint.precision_ms}; change it back, or when no timer is pending"
        )
    if not checkpoint.read_ms:
        if timer_log.begin < timer_log.end:
            log.error("timers have no checkpoint, their topic is read from its beginning file=%s", path)
        drop(wheel, timer_log, metrics)
        return Recovered(0, 0, checkpoint, from_topic=True)
    if checkpoint.ours and not timer_log.covers(checkpoint.pending_from, checkpoint.log_end):
        return rebuild(path, wheel, timer_log, metrics, checkpoint)
    if checkpoint.ours and checkpoint.clean and checkpoint.retry_floor == NONE:
        timer_log.cut(checkpoint.log_end)
        pending = read_wheel(wheel, timer_log, checkpoint.read_ms)
        queue_offset = checkpoint.queue_offset
        if len(pending) == checkpoint.slots:
            return Recovered(checkpoint.read_ms, queue_offset, checkpoint, pending)
        log.warning("timer wheel is not as it was left slots=%d found=%d", checkpoint.slots, len(pending))
    if checkpoint.ours:
        timer_log.cut(checkpoint.log_end)
        chains, counts, end = read_log(timer_log, checkpoint.pending_from, checkpoint.read_ms)
        if end != checkpoint.log_end:
            return rebuild(path, wheel, timer_log, metrics, checkpoint)
        if checkpoint.clean:  # slots that were cleared on purpose stay so, unless the wheel itself was lost
            kept = {time_ms: chain for time_ms, chain in chains.items() if wheel.get(time_ms) is not None}
            chains = kept if len(kept) == checkpoint.slots else chains
        queue_offset = checkpoint.queue_offset
    else:
        chains, counts, end = read_log(timer_log, timer_log.begin, checkpoint.read_ms)
        if end == timer_log.begin and checkpoint.log_flushed:
            checkpoint.ours, checkpoint.precision_ms = True, precision
            return rebuild(path, wheel, timer_log, metrics, checkpoint)
        queue_offset = min(checkpoint.queue_offset, offset_behind(timer_log, source, end, checkpoint.queue_offset))
        timer_log.cut(end)
    wheel.clear_all()
    for time_ms, chain in chains.items():
        wheel.put(time_ms, Slot(chain.first, chain.last, chain.count))
    metrics.reset(count_topics(counts, metrics, source))
    log.info(
        "timers recovered slots=%d log_end=%d queue_offset=%d read_ms=%d",
        len(chains), timer_log.end, queue_offset, checkpoint.read_ms,
    )  # fmt: skip
    pending = {time_ms: chain.lowest for time_ms, chain in chains.items()}
    return Recovered(checkpoint.read_ms, queue_offset, checkpoint, pending)


def rebuild(
    path: Path, wheel: TimerWheel, timer_log: TimerLog, metrics: TimerMetrics, checkpoint: TimerCheckpoint
) -> Recovered:
    """Begin again with the topic: what *checkpoint* says of the timer log is not so."""
    log.error(
        "timers are made again from their topic because=the timer log is not whole log_end=%d queue_offset=%d",
        checkpoint.log_end, checkpoint.queue_offset,
    )  # fmt: skip
    # Said before anything is changed: a crash in the middle must not take half a new log for the old one.
    checkpoint.clean, checkpoint.log_end, checkpoint.log_flushed, checkpoint.pending_from = False, NONE, 0, 0
    save_checkpoint(path, checkpoint)
    drop(wheel, timer_log, metrics)
    return Recovered(checkpoint.read_ms, 0, checkpoint, from_topic=True, rebuild_until=checkpoint.queue_offset)


def drop(wheel: TimerWheel, timer_log: TimerLog, metrics: TimerMetrics) -> None:
    """Forget every unit and slot."""
    timer_log.cut(timer_log.begin)
    wheel.clear_all()
    metrics.reset({})


def read_wheel(wheel: TimerWheel, timer_log: TimerLog, read_ms: int) -> dict[int, int]:
    """The slots still to come of a wheel that was left clean. The first unit of a chain is the oldest message."""
    pending = {}
    for time_ms, slot in wheel.slots():
        if time_ms >= read_ms:
            unit = timer_log.read(slot.first)
            if unit is not None:
                pending[time_ms] = unit.offset
    return pending


def read_log(timer_log: TimerLog, begin: int, read_ms: int) -> tuple[dict[int, Chain], dict[int, tuple[int, int]], int]:
    """The chains still to come; how many messages by the hash of their topic, with one's offset; and the log's end."""
    chains: dict[int, Chain] = {}
    counts: dict[int, tuple[int, int]] = {}
    end = begin
    for position, unit in timer_log.scan(begin):
        end = position + UNIT.size
        time_ms = unit.time_ms
        if time_ms < read_ms:
            continue
        step = -1 if unit.magic & MAGIC_DELETE else 1
        chain = chains.get(time_ms)
        if chain is None or unit.previous == NONE:
            chains[time_ms] = Chain(position, position, step, unit.offset)
        else:
            chain.last = position
            chain.count += step
            chain.lowest = min(chain.lowest, unit.offset)
        count, _ = counts.get(unit.topic_hash, (0, 0))
        counts[unit.topic_hash] = count + step, unit.offset
    return chains, counts, end


def offset_behind(timer_log: TimerLog, source: TimerSource, end: int, otherwise: int) -> int:
    """The offset in the timer topic behind the message of the log's last unit; *otherwise* when that is gone."""
    last = timer_log.read(end - UNIT.size)
    message = source.record(last.offset) if last is not None else None
    return message.queue_offset + 1 if message is not None else otherwise


def count_topics(counts: dict[int, tuple[int, int]], metrics: TimerMetrics, source: TimerSource) -> dict[str, int]:
    """Pending timers by topic: a hash that is not known, or not one topic's alone, is looked up in a message of it."""
    found: dict[str, int] = {}
    for code, (count, offset) in counts.items():
        topic = metrics.topic_of(code)
        if topic is None:
            message = source.record(offset)
            topic = message.properties.get(names.REAL_TOPIC) if message is not None else None
        if topic is not None:
            found[topic] = found.get(topic, 0) + count
    return found
