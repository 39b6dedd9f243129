# A status of the C core becomes an exception here, and nowhere else.
#
# The core's own text wins where there is one (open, and the failure of a flush); elsewhere the text is composed so
# that it names the thing, the limit and the way out.

import errno as _errno
import os as _os

from pymq.errors import (
    STATUS_ERRORS as _STATUS_ERRORS,
    CorruptRecordError as _CorruptRecordError,
    FlushTimeoutError as _FlushTimeoutError,
    InvalidArgumentError as _InvalidArgumentError,
    InvalidTopicError as _InvalidTopicError,
    MessageTooLargeError as _MessageTooLargeError,
    OffsetNotFoundError as _OffsetNotFoundError,
    PropertiesTooLargeError as _PropertiesTooLargeError,
    QueueNotFoundError as _QueueNotFoundError,
    StoreClosedError as _StoreClosedError,
    StoreError as _StoreError,
)


cdef object error_of_text(int status, pymq_error *error):
    """The exception for a status whose text the core wrote."""
    name = pymq_status_name(status).decode("ascii")
    text = error.text.decode("utf-8", "replace") or name
    return _STATUS_ERRORS.get(name, _StoreError)(text, status=name, errno=error.sys_errno)


# What bounds the windows a call may have run out of.
cdef str LOG_WINDOWS = "log_map_bytes_max"
cdef str QUEUE_WINDOWS = "queue_map_count_max"


cdef object error_of_status(_StoreHandle store, int status, str doing, str windows=LOG_WINDOWS):
    """The exception for a status that came alone, while *doing* something to *store*; *windows* bounds its mappings."""
    cdef pymq_error failure
    name = pymq_status_name(status).decode("ascii")
    kind = _STATUS_ERRORS.get(name, _StoreError)
    where = f"{store.path}: {doing}"
    if status == PYMQ_EFAILED and store.store != NULL:
        pymq_store_failure(store.store, &failure)
        reason = failure.text.decode("utf-8", "replace") or "a flush failed"
        return kind(
            f"{where}: the store acknowledges nothing any more: {reason}; a repeated fsync may lie, so close it, look "
            f"at the disk and open it again",
            status=name, errno=failure.sys_errno,
        )
    if status == PYMQ_EPOOL:
        return kind(
            f"{where}: all {store.pool_size} buffers of the transient store pool ({store.log_file_size} bytes each) are "
            f"in use after waiting {store.pool_wait_ms} ms; send slower, raise transient_store_pool_size or "
            f"transient_store_pool_wait_ms",
            status=name, pool_size=store.pool_size, waited_ms=store.pool_wait_ms,
        )
    texts = {
        PYMQ_ENOSPC: "no space left for the next file; nothing acknowledged is affected, free space or shorten "
                     "file_reserved_time_hours",
        PYMQ_ECLOSED: "the store is closed",
        PYMQ_EREADONLY: "writes are refused: the disk is above disk_space_warning_level_ratio (or the role says so); "
                        "they are accepted again once space returns",
        PYMQ_ETOOBIG: f"the record does not fit in a log file of {store.log_file_size} bytes "
                      "(mapped_file_size_commit_log) or exceeds max_message_size",
        PYMQ_EPROPERTIES: f"the properties exceed {store.properties_size_max} bytes",
        PYMQ_ETOPIC: "the topic is empty, too long, or not usable as a directory name",
        PYMQ_EINVAL: "an argument is outside its range",
        PYMQ_ENOMEM: "memory was refused",
        PYMQ_EMAPS: f"every mapped window is in use; raise {windows}",
        PYMQ_EIO: "a system call failed",
        PYMQ_ETIMEDOUT: "not done in time",
        PYMQ_ENOTFOUND: "not found",
        PYMQ_EUNSUPPORTED: "messages are not indexed here; open the store with message_index_enable=True",
    }
    return kind(f"{where}: {texts.get(status, name)}", status=name)


cdef object error_of_record(_StoreHandle store, int status, int64_t physical_offset, object queue_place):
    """The exception for a record that cannot be delivered; names the file and the byte."""
    cdef int64_t base = physical_offset - physical_offset % store.log_file_size
    name = pymq_status_name(status).decode("ascii")
    kind = _STATUS_ERRORS.get(name, _StoreError)
    file = f"commitlog/{base:020d}"
    place = "" if queue_place is None else f" ({queue_place[0]} queue {queue_place[1]} offset {queue_place[2]})"
    if status == PYMQ_ENOTFOUND:
        return _OffsetNotFoundError(
            f"{store.path}: no message at physical offset {physical_offset}{place}: not written yet, or its file is removed"
        )
    if status == PYMQ_ECORRUPT or status == PYMQ_ETRUNCATED:
        problem = "no whole record with a matching body CRC and physical offset"
        return kind(
            f"{file} at {physical_offset}{place}: {problem}; nothing of it is delivered",
            status=name, physical_offset=physical_offset, file=file,
            topic="" if queue_place is None else queue_place[0],
            queue_id=-1 if queue_place is None else queue_place[1],
            queue_offset=-1 if queue_place is None else queue_place[2],
        )
    return error_of_status(store, status, f"reading {file} at {physical_offset}{place}")


cdef object error_of_close(_StoreHandle store, int status, pymq_error *failure):
    """The exception for a close that was not clean; *failure* is what stopped the store before, if anything did."""
    name = pymq_status_name(status).decode("ascii")
    reason = failure.text.decode("utf-8", "replace") or f"its last files could not all be written ({name})"
    return _STATUS_ERRORS.get(name, _StoreError)(
        f"{store.path}: the store is closed, but not cleanly: {reason}; look at the disk, the next open recovers",
        status=name, errno=failure.sys_errno,
    )


cdef object reentry_error(_StoreHandle store, str call):
    """For a close that would wait for its own thread."""
    return _StoreError(
        f"{store.path}: {call} was called inside another call of this store on the same thread (a signal handler?); set a "
        "flag, or raise, and close after that call has returned",
        errno=_errno.EDEADLK,
    )


cdef object borrowed_error(_StoreHandle store, str call):
    """For a close while reactors serve from the store."""
    return _StoreError(
        f"{store.path}: {call} while a broker serves from it; close the broker, or its Serve, first",
        errno=_errno.EBUSY,
    )


cdef object closed_error(_StoreHandle store):
    """For every method after close()."""
    return _StoreClosedError(f"{store.path}: the store is closed; open it again with pymq.open()")


cdef object forked_error(_StoreHandle store):
    """For every method in a child of the process that opened the store."""
    return _StoreError(
        f"{store.path}: opened by process {store.pid}, this is process {_os.getpid()} after a fork; open it again here "
        "once that process has closed it",
        errno=_errno.EPERM,
    )
