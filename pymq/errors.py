"""Every error pymq raises, as one tree.

    PymqError
      ConfigError                 a setting outside its bounds, or settings that contradict one another
      StoreError                  the store said no; one class per status of the C core, in STATUS_ERRORS

A `StoreError` carries `status`, the core's own name for what happened (`PYMQ_ENOSPC`), so that a log line can be
searched for in the sources. Its text names the thing and the way out.

The table is closed: two classes for one status are refused when this module is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pymq._core._store import SendManyResult, SendResult


class PymqError(Exception):
    """The root: catching it catches everything pymq raises on purpose."""


class ConfigError(PymqError, ValueError):
    """A setting is outside its bounds or contradicts another; the text names both."""


class StoreError(PymqError):
    """The message store refused or failed.

    Attributes:
        status: the C core's name of the status, or "" when the refusal was decided in Python.
        errno: the operating system's error number, 0 when none applies.
        result: of a send: where the message, or the messages before the refused one, stand; None when nothing does.
    """

    status_name: ClassVar[str] = ""
    result: SendResult | SendManyResult | None = None

    def __init__(self, text: str, *, status: str = "", errno: int = 0, **details: Any) -> None:
        super().__init__(text)
        self.status: str = status or self.status_name
        self.errno: int = errno
        for name, value in details.items():
            setattr(self, name, value)


class StoreLockedError(StoreError):
    """Another process, or another handle in this one, has the store open."""

    status_name = "PYMQ_ELOCKED"


class StoreClosedError(StoreError):
    """The store is closed, or was closed while this call waited."""

    status_name = "PYMQ_ECLOSED"


class StoreFailedError(StoreError):
    """A flush failed: the store acknowledges nothing any more, because a repeated fsync may lie."""

    status_name = "PYMQ_EFAILED"


class FlushTimeoutError(StoreError):
    """Not acknowledged in time. The message is in the log and may still become durable; do not assume it is lost."""

    status_name = "PYMQ_ETIMEDOUT"


class DiskFullError(StoreError):
    """The file system has no space left for the next file. Nothing acknowledged is affected."""

    status_name = "PYMQ_ENOSPC"


class StoreReadOnlyError(StoreError):
    """Writes are refused for now: the disk is above its warning level, or the role says so. Reads go on."""

    status_name = "PYMQ_EREADONLY"


class PoolExhaustedError(StoreError):
    """Every buffer of the transient store pool is in use. The text names the pool, its size and the wait."""

    status_name = "PYMQ_EPOOL"
    pool_size: int = 0
    waited_ms: int = 0


class MessageTooLargeError(StoreError, ValueError):
    """The body is above `max_message_size`, or the record does not fit in a log file."""

    status_name = "PYMQ_ETOOBIG"
    size: int = 0
    size_max: int = 0


class PropertiesTooLargeError(StoreError, ValueError):
    """The encoded properties exceed 32,767 bytes, which is what the record's length field can say."""

    status_name = "PYMQ_EPROPERTIES"


class InvalidTopicError(StoreError, ValueError):
    """The topic is empty, too long, or cannot be a directory name."""

    status_name = "PYMQ_ETOPIC"


class InvalidArgumentError(StoreError, ValueError):
    """An argument outside its documented range."""

    status_name = "PYMQ_EINVAL"


class CorruptRecordError(StoreError):
    """The bytes at this place are not what a writer of this format leaves behind; nothing of them is delivered."""

    status_name = "PYMQ_ECORRUPT"
    physical_offset: int = -1
    topic: str = ""
    queue_id: int = -1
    queue_offset: int = -1
    file: str = ""


class TruncatedRecordError(CorruptRecordError):
    """The bytes end before the record does."""

    status_name = "PYMQ_ETRUNCATED"


class CorruptFileError(StoreError):
    """A file beside the log (such as config/consumerOffset.json) cannot be read, and neither can its .bak."""


class StoreMismatchError(StoreError):
    """The files on disk have other sizes than the settings say; both are named."""

    status_name = "PYMQ_EMISMATCH"


class UnsupportedStoreError(StoreError):
    """The directory uses a feature of RocketMQ's store that pymq does not read; it is named."""

    status_name = "PYMQ_EUNSUPPORTED"


class NotFoundError(StoreError, LookupError):
    """No such queue, offset, key or file."""

    status_name = "PYMQ_ENOTFOUND"


class QueueNotFoundError(NotFoundError):
    """No message was ever stored in this queue of this topic."""


class TopicRemovedError(NotFoundError):
    """The topic a message was to be put into is being removed."""

    status_name = "PYMQ_EREMOVED"


class OffsetNotFoundError(NotFoundError):
    """The offset lies below the first or above the last message that is there."""

    offset_min: int = -1
    offset_max: int = -1


class StoreIOError(StoreError):
    """A system call failed; `errno` says how."""

    status_name = "PYMQ_EIO"


class StoreMemoryError(StoreError):
    """Memory or address space was refused."""

    status_name = "PYMQ_ENOMEM"


class MappingBudgetError(StoreError):
    """Every mapped window is in use: of the log (`log_map_bytes_max`) or of the queues (`queue_map_count_max`)."""

    status_name = "PYMQ_EMAPS"


def error_table(root: type[StoreError]) -> dict[str, type[StoreError]]:
    """Status name to class, for every class below *root* that declares one of its own.

    Raises:
        TypeError: two classes claim one status.
    """
    table: dict[str, type[StoreError]] = {}
    pending = list(root.__subclasses__())
    while pending:
        candidate = pending.pop()
        pending.extend(candidate.__subclasses__())
        name = vars(candidate).get("status_name")
        if name is None:
            continue
        if name in table:
            raise TypeError(f"{candidate.__name__} and {table[name].__name__} both claim {name}")
        table[name] = candidate
    return table


STATUS_ERRORS: dict[str, type[StoreError]] = error_table(StoreError)
