# cython: language_level=3, binding=True
"""The message store, bound: check the arguments, release the GIL, call the core, raise.

Lifetime. A `Store` counts the calls that are inside the core (`active`, guarded by the GIL). `close()` lets no new
one in, waits until the count is zero, then closes; calls that may wait long do so in slices of WAIT_SLICE_MS and look
up between them, which is also when signals are served. A close() from such a handler would wait for its own thread
and is refused. In a child process after fork() every method raises and
nothing is freed. A store dropped open warns and closes.

Memory. Records are encoded into scratch buffers from a small free list that the GIL guards; a body that is not
`bytes` is copied first, because it could change between its CRC and its copy.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport usleep

import ipaddress as _ipaddress
import os as _os
import pathlib as _pathlib
import time as _time
import warnings as _warnings

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    unsigned long PyThread_get_thread_ident() noexcept

cdef enum:
    WAIT_SLICE_MS = 50          # how long a close or a signal may have to wait for a blocked call
    CLOSE_POLL_US = 200         # how often close() looks whether the last call has left
    SETTLE_MS_MAX = 5000        # how long a read at a queue's end waits for dispatch to catch up
    SCRATCHES_MAX = 16          # scratch buffers kept
    SCRATCH_KEPT_SIZE = 1 << 20 # a larger one is freed instead of kept
    CHUNK_COUNT_MAX = 512       # records handed to the core at once by send_many
    CHUNK_SIZE_MAX = 256 * 1024
    RECORD_FIXED_MAX = 128      # what a record adds to body, topic and properties, rounded up
    CACHED_QUEUES = 64          # queue ids of a topic whose handles are kept
    READ_BATCH = 16             # records pinned at once while reading
    UNITS_MAX = 64
    TAGS_MAX = 64
    KEY_TAIL_SIZE = 12          # 8 hex digits of time, 4 of a counter
    KEY_MAX = 56
    QUERY_MAX = 1024

cdef int64_t OFFSET_LIMIT = <int64_t>1 << 58       # queue offsets stay below it: times the unit they fit in 63 bits
cdef int64_t TIMEOUT_MS_MAX = <int64_t>1 << 40     # longer waits are this long: 34 years

cdef size_t NO_KEY = <size_t>-1
cdef bytes UNIQUE_KEY_NAME = b"UNIQ_KEY\x01"
cdef int process_generation = 0
cdef object message_type = None  # pymq.message.Message, once it can be imported

EVENT_ACKNOWLEDGED = <int>PYMQ_EVENT_ACKNOWLEDGED
EVENT_ARRIVAL = <int>PYMQ_EVENT_ARRIVAL

include "_errors.pxi"


def _after_fork_in_child():
    global process_generation
    process_generation += 1


_os.register_at_fork(after_in_child=_after_fork_in_child)


cdef inline int64_t now_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef inline int64_t monotonic_us() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000


cdef inline void write_hex(uint8_t *target, uint32_t value, int digits) noexcept nogil:
    cdef int place
    cdef uint32_t digit
    for place in range(digits):
        digit = (value >> (4 * (digits - 1 - place))) & 15
        target[place] = <uint8_t>(digit + (48 if digit < 10 else 55))


cdef inline void write_key_tail(uint8_t *target, uint32_t time_ms, uint16_t counter) noexcept nogil:
    write_hex(target, time_ms, 8)
    write_hex(target + 8, counter, 4)


include "_results.pxi"
include "_received.pxi"


include "_scratch.pxi"
include "_settings.pxi"
include "_handle.pxi"
include "_write.pxi"
include "_read.pxi"
include "_raw.pxi"


@cython.final
cdef class Store(_StoreRaw):
    """One open store directory. Every method may be called from any thread.

    Args:
        path: the directory; made when it does not exist.
        config: a `pymq.store.config.StoreConfig`.
        progress: called as progress(phase, done, total) while recovery reads, at most every 100 ms.

    Raises:
        StoreLockedError, StoreMismatchError, UnsupportedStoreError, StoreIOError, … : nothing stays open.
    """

    def watermarks(self):
        """The core's watermarks by name; `replica` is None while nobody feeds it."""
        cdef pymq_watermarks marks
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                pymq_store_watermarks(store, &marks)
            return {
                "written": marks.written, "committed": marks.committed, "flushed": marks.flushed,
                "replica": None if marks.replica == INT64_MAX else marks.replica, "visible": marks.visible,
                "dispatched": marks.dispatched, "min": marks.min,
            }
        finally:
            self.end()

    def set_replica(self, int64_t offset, bint in_sync=True):
        """The in-sync replicas have everything below *offset*; without one in sync the gate opens locally."""
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                pymq_store_set_replica(store, offset, in_sync)
        finally:
            self.end()

    @property
    def writable(self):
        """Whether puts are accepted."""
        cdef pymq_store *store = self.begin()
        try:
            return bool(pymq_store_is_writable(store))
        finally:
            self.end()

    def set_writable(self, bint writable):
        """Refuse puts with StoreReadOnlyError, or accept them again."""
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                pymq_store_set_writable(store, writable)
        finally:
            self.end()

    def flush(self):
        """Make everything appended so far durable, now."""
        cdef int status
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                status = pymq_store_flush(store)
            if status != PYMQ_OK:
                raise error_of_status(self, status, "flush")
        finally:
            self.end()

    def checkpoint(self):
        """Flush queues and index and write the checkpoint, now."""
        cdef int status
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                status = pymq_store_checkpoint(store)
            if status != PYMQ_OK:
                raise error_of_status(self, status, "checkpoint")
        finally:
            self.end()

    def listen(self, int fd, unsigned int events):
        """Write 1 to the eventfd *fd* whenever one of *events* happens."""
        cdef int status
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                status = pymq_store_listen(store, fd, events)
            if status != PYMQ_OK:
                raise error_of_status(self, status, "listening for events (64 listeners are possible at once)")
        finally:
            self.end()

    def unlisten(self, int fd):
        """Write to *fd* no more."""
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                pymq_store_unlisten(store, fd)
        finally:
            self.end()

    def log_files(self):
        """(base_offset, size, modified_ms, last_store_timestamp_ms, active) of the log's files, oldest first."""
        cdef pymq_log_file_info *files = NULL
        cdef size_t capacity, count, index
        cdef pymq_store *store = self.begin()
        try:
            capacity = pymq_store_log_files(store, NULL, 0) + 16
            while True:
                files = <pymq_log_file_info *>malloc(capacity * sizeof(pymq_log_file_info))
                if files == NULL:
                    raise MemoryError(f"descriptions of {capacity} files")
                with nogil:
                    count = pymq_store_log_files(store, files, capacity)
                if count <= capacity:
                    break
                free(files)
                files = NULL
                capacity = count + 16
            return [(files[index].base_offset, files[index].size, files[index].modified_ms,
                     files[index].last_store_timestamp_ms, bool(files[index].active)) for index in range(count)]
        finally:
            free(files)
            self.end()

    def remove_oldest(self):
        """Remove the oldest log file; its base offset, or None when only the active one is left."""
        cdef pymq_log_file_info removed
        cdef int status
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                status = pymq_store_remove_oldest(store, &removed)
            if status == PYMQ_ENOTFOUND:
                return None
            if status != PYMQ_OK:
                raise error_of_status(self, status, "removing the oldest log file")
            return removed.base_offset
        finally:
            self.end()

    def clean_queues(self):
        """Remove queue and index files that refer only to removed log; how many."""
        cdef ssize_t removed
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                removed = pymq_store_clean_queues(store)
            if removed < 0:
                raise error_of_status(self, <int>removed, "removing queue and index files")
            return removed
        finally:
            self.end()

    def stats(self):
        """The core's counters by name."""
        cdef pymq_store_stats_s stats
        cdef int bucket
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                pymq_store_stats(store, &stats)
            return {
                "put_count": stats.put_count, "put_bytes": stats.put_bytes, "put_failed": stats.put_failed,
                "put_latency": tuple([stats.put_latency[bucket] for bucket in range(PYMQ_LATENCY_BUCKETS)]),
                "put_latency_us_max": stats.put_latency_us_max,
                "get_count": stats.get_count, "get_bytes": stats.get_bytes, "get_missed": stats.get_missed,
                "lock_hold_us_max": stats.lock_hold_us_max, "lock_contended": stats.lock_contended,
                "flush_rounds": stats.flush_rounds, "flush_us_total": stats.flush_us_total, "flush_us_max": stats.flush_us_max,
                "commit_rounds": stats.commit_rounds,
                "dispatch_records": stats.dispatch_records, "dispatch_batches": stats.dispatch_batches,
                "log_files_created": stats.log_files_created, "mapped_log_bytes": stats.mapped_log_bytes,
                "mapped_queue_windows": stats.mapped_queue_windows, "window_evictions": stats.window_evictions,
                "pool_free": stats.pool_free, "pool_size": stats.pool_size,
                "recovered_from": stats.recovered_from, "recovered_to": stats.recovered_to,
                "recovered_records": stats.recovered_records, "recover_us": stats.recover_us,
                "recovered_clean": bool(stats.recovered_clean), "memory_lock_refused": bool(stats.memory_lock_refused),
                "page_cache_busy": bool(stats.page_cache_busy),
                "failed_status": "" if stats.failed_status == PYMQ_OK
                                 else pymq_status_name(stats.failed_status).decode("ascii"),
            }
        finally:
            self.end()
