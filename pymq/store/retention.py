"""Which log files go, when, and whether sends are refused meanwhile: the policy, as a pure function.

`decide()` looks at the time, the files and the disks it is given and touches nothing; `housekeeping` applies what it
says. The rules are RocketMQ's:

* Files go oldest first, never the one being written, at most `delete_file_batch_max` a pass, and the first file that
  may stay ends the pass: the log has no holes.
* A file has expired when it was not modified for `file_reserved_time_hours`. Expired files go at the hours of
  `delete_when`, or when a disk is above `disk_max_used_space_ratio` or cannot be asked, or on request.
* Above `disk_space_clean_forcibly_ratio` files go whatever their age, if `clean_file_forcibly_enable`.
* Files with messages that timers still need (`RetentionGuard`) stay whatever their age, unless files must go by force.
* Files somebody copies (a dump) stay as well, unless files must go by force or sends are refused for want of space:
  without `clean_file_forcibly_enable` a dump may not be what keeps a broker from taking messages.
* Above `disk_space_warning_level_ratio` sends are refused as well, until the level is left again.

# Differs: RocketMQ removes a whole batch of unexpired files at once when space is short; here the disk is looked at
# again before each of them, so that no more history goes than is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from pymq.message import PhysicalOffset
from pymq.store.config import StoreConfig, parse_hours

HOUR_MS = 3_600_000


class LogFile(NamedTuple):
    """One file of the commit log, as the core describes it."""

    base_offset: PhysicalOffset
    size: int
    modified_ms: int
    last_store_timestamp_ms: int
    active: bool

    @property
    def name(self) -> str:
        """Its name below the store directory."""
        return f"commitlog/{self.base_offset:020d}"


class DiskUse(NamedTuple):
    """How full the disks under the log and the queues are, 0 to 1; None when that could not be found out."""

    log_ratio: float | None
    queue_ratio: float | None

    def known(self) -> list[float]:
        """The ratios that are known."""
        return [ratio for ratio in self if ratio is not None]


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What to do now.

    Attributes:
        writable: whether sends are accepted.
        expired: files to remove because of their age, oldest first.
        forced: files to remove after those, one by one, while a disk stays above its limit.
        reason: why, for the log; "" when nothing is removed.
    """

    writable: bool
    expired: tuple[LogFile, ...] = ()
    forced: tuple[LogFile, ...] = ()
    reason: str = ""


def decide(
    now: datetime, files: Sequence[LogFile], use: DiskUse, config: StoreConfig, *, manual: bool = False
) -> RetentionPlan:
    """The plan for *files* (oldest first) at the local time *now*."""
    writable = not is_refusing(use, config)
    reason = expiry_reason(now, use, config, manual=manual)
    candidates = [file for file in files if not file.active][: config.delete_file_batch_max]
    forcing = is_short(use, config)
    limit_ms = int(now.timestamp() * 1000) - config.file_reserved_time_hours * HOUR_MS
    expired: list[LogFile] = []
    if reason:
        for file in candidates:
            if file.modified_ms > limit_ms:
                break
            expired.append(file)
    forced = candidates[len(expired) :] if forcing else []
    return RetentionPlan(
        writable=writable,
        expired=tuple(expired),
        forced=tuple(forced),
        reason=reason if expired or forced else "",
    )


def is_short(use: DiskUse, config: StoreConfig) -> bool:
    """Whether files go whatever their age."""
    return config.clean_file_forcibly_enable and any(
        ratio > config.disk_space_clean_forcibly_ratio for ratio in use.known()
    )


def is_refusing(use: DiskUse, config: StoreConfig) -> bool:
    """Whether sends are refused because a disk is too full."""
    return max(use.known(), default=0.0) > config.disk_space_warning_level_ratio


def expiry_reason(now: datetime, use: DiskUse, config: StoreConfig, *, manual: bool) -> str:
    """Why expired files may go now, or ""."""
    fullest = max(use.known(), default=0.0)
    if fullest > config.disk_space_clean_forcibly_ratio:
        return f"disk {fullest:.2f} above disk_space_clean_forcibly_ratio {config.disk_space_clean_forcibly_ratio:.2f}"
    if manual:
        return "requested"
    if None in use:
        return "disk use unknown"
    if fullest > config.disk_max_used_space_ratio / 100:
        return f"disk {fullest:.2f} above disk_max_used_space_ratio {config.disk_max_used_space_ratio}%"
    if now.hour in parse_hours(config.delete_when):
        return f"delete_when {config.delete_when}"
    return ""


class RetentionGuard(Protocol):
    """Who still needs old messages, whatever their age: timers, delay levels. Asked from the housekeeping thread."""

    def needed_from(self) -> int | None:
        """The lowest physical offset that is needed; None when nothing is."""
        ...

    def count_below(self, offset: int) -> int:
        """How many messages that are needed begin below *offset*."""
        ...


class AllGuards:
    """Several of them as one."""

    def __init__(self, *guards: RetentionGuard) -> None:
        """What any of *guards* needs is needed."""
        self._guards = guards

    def needed_from(self) -> int | None:
        """The lowest physical offset that one of them needs."""
        needed = (guard.needed_from() for guard in self._guards)
        return min((offset for offset in needed if offset is not None), default=None)

    def count_below(self, offset: int) -> int:
        """How many messages they need begin below *offset*."""
        return sum(guard.count_below(offset) for guard in self._guards)


class Lag(NamedTuple):
    """Messages a group had not read when their files went."""

    group: str
    topic: str
    queue_id: int
    messages: int


def lost_by(
    committed: Sequence[tuple[str, str, int, int]],
    before: dict[tuple[str, int], int],
    after: dict[tuple[str, int], int],
) -> list[Lag]:
    """Whose unread messages went, from queue minimums *before* and *after*; groups that had read on are not named."""
    losses = []
    for group, topic, queue_id, offset in committed:
        old, new = before.get((topic, queue_id), 0), after.get((topic, queue_id), 0)
        count = new - max(old, offset)
        if count > 0:
            losses.append(Lag(group, topic, queue_id, count))
    return losses
