# cython: language_level=3, binding=True
"""Native serving, bound: check the arguments, release the GIL, call the core, raise.

Lifetime. A `Serve` borrows its store: the store refuses to close before it. It counts the calls that are inside the core
without the GIL; close() lets no new one in, waits until the count is zero, then closes. It must not be closed before the
transport it serves, and keeps that alive. In a child process after fork() every method raises and nothing is freed.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from posix.unistd cimport usleep

from pymq._core._serve cimport *

import ipaddress as _ipaddress
import os as _os
import warnings as _warnings
from typing import NamedTuple as _NamedTuple

from pymq._core.serve_config import ServeConfig
from pymq.errors import STATUS_ERRORS as _STATUS_ERRORS
from pymq.errors import StoreClosedError as _StoreClosedError
from pymq.errors import StoreError as _StoreError

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    CLOSE_POLL_US = 200
    ROWS_ROOM = 256      # rows that may appear between counting and reading them
    STATUS_LOWEST = -32  # statuses are searched by name down to here

REASONS = tuple([pymq_reason_name(_reason).decode("ascii") for _reason in range(PYMQ_REASONS)])
REASON_HEADER = <int>PYMQ_REASON_HEADER
REASON_PLANE = <int>PYMQ_REASON_PLANE
REASON_HOLD_ENDED = <int>PYMQ_REASON_HOLD_ENDED
GET_FOUND = <int>PYMQ_GET_FOUND
GET_NO_MATCHED_MESSAGE = <int>PYMQ_GET_NO_MATCHED_MESSAGE
GET_MESSAGE_WAS_REMOVING = <int>PYMQ_GET_MESSAGE_WAS_REMOVING
GET_OFFSET_FOUND_NULL = <int>PYMQ_GET_OFFSET_FOUND_NULL
GET_OFFSET_OVERFLOW_BADLY = <int>PYMQ_GET_OFFSET_OVERFLOW_BADLY
GET_OFFSET_OVERFLOW_ONE = <int>PYMQ_GET_OFFSET_OVERFLOW_ONE
GET_OFFSET_TOO_SMALL = <int>PYMQ_GET_OFFSET_TOO_SMALL
GET_NO_MATCHED_LOGIC_QUEUE = <int>PYMQ_GET_NO_MATCHED_LOGIC_QUEUE
GET_NO_MESSAGE_IN_QUEUE = <int>PYMQ_GET_NO_MESSAGE_IN_QUEUE
GET_COLD = <int>PYMQ_GET_COLD

cdef int process_generation = 0


def _after_fork_in_child():
    global process_generation
    process_generation += 1


_os.register_at_fork(after_in_child=_after_fork_in_child)

include "_serve_values.pxi"
include "_serve_handle.pxi"
include "_serve_tables.pxi"
include "_serve_reput.pxi"
include "_serve_transactions.pxi"


@cython.final
cdef class Serve(_ServeTransactions):
    """Native tables, consumer offsets, holds and parked answers over one store.

    Open order: store, serve, transport, attach(), listen. Close order: the transport, the serve, the store. Every method
    may be called from any thread; those that change tables wait until no reactor uses the older row.

    Args:
        config: a `ServeConfig`.
        store: a `Store`, which stays open as long as this does.
    """

    # ---- messages ------------------------------------------------------------------------------------------------

    def put(self, str topic, int32_t queue_id, bytes body not None, bytes properties not None, *, born_host,
            int64_t born_timestamp_ms, int32_t flag=0, int32_t sys_flag=0, int32_t reconsume_times=0,
            int64_t prepared_transaction_offset=0):
        """Append one message whose properties are final. Does not wait for a flush.

        Raises:
            StoreError: it was refused; its `status` goes into refusal() to be answered.
        """
        cdef pymq_put put
        cdef int status
        cdef pymq_serve *serve
        memset(&put, 0, sizeof(put))
        put.topic = slice_of(topic)
        put.body = bytes_slice(body)
        put.properties = bytes_slice(properties)
        put.queue_id = queue_id
        put.flag = flag
        put.sys_flag = sys_flag
        put.reconsume_times = reconsume_times
        put.born_timestamp_ms = born_timestamp_ms
        put.prepared_transaction_offset = prepared_transaction_offset
        fill_host(born_host, &put.born_host)
        serve = self.begin()
        try:
            with nogil:
                status = pymq_serve_put(serve, &put, 1, False)
        finally:
            self.end()
        if status != PYMQ_OK:
            raise error_of(status, f"a message to {topic[:200]!r} queue {queue_id}")
        return PutResult(put.queue_offset, put.physical_offset, put.end_offset, put.store_timestamp_ms)

    def put_batch(self, str topic, int32_t queue_id, messages, *, born_host, int64_t born_timestamp_ms,
                  int32_t sys_flag=0, int32_t reconsume_times=0):
        """Append *messages*, each (flag, body, properties), together or not at all.

        Raises:
            StoreError: they were refused; its `status` goes into refusal() to be answered.
        """
        cdef list items = list(messages)
        cdef size_t count = <size_t>len(items), index
        cdef pymq_put *puts = NULL
        cdef pymq_host host
        cdef int status
        cdef pymq_serve *serve
        fill_host(born_host, &host)
        serve = self.begin()
        try:
            puts = <pymq_put *>calloc(count + 1, sizeof(pymq_put))
            if puts == NULL:
                raise MemoryError(f"a batch of {count} messages")
            for index in range(count):
                message_flag, body, properties = items[index]
                puts[index].topic = slice_of(topic)
                puts[index].body = bytes_slice(<bytes?>body)
                puts[index].properties = bytes_slice(<bytes?>properties)
                puts[index].queue_id = queue_id
                puts[index].flag = message_flag
                puts[index].sys_flag = sys_flag
                puts[index].reconsume_times = reconsume_times
                puts[index].born_timestamp_ms = born_timestamp_ms
                puts[index].born_host = host
            with nogil:
                status = pymq_serve_put(serve, puts, count, True)
            if status != PYMQ_OK:
                raise error_of(status, f"a batch of {count} messages to {topic[:200]!r} queue {queue_id}")
            return [
                PutResult(puts[index].queue_offset, puts[index].physical_offset, puts[index].end_offset,
                          puts[index].store_timestamp_ms)
                for index in range(count)
            ]
        finally:
            free(puts)
            self.end()

    def park(self, uint64_t connection, int64_t end_offset, bytes frame not None, bytes late not None,
             bytes failed not None):
        """Answer with *frame* once everything below *end_offset* is acknowledged, at once if it is; *late* when the time
        is over first, *failed* when the store stops acknowledging. False when the connection is gone."""
        cdef int status
        cdef pymq_slice now = bytes_slice(frame), after = bytes_slice(late), never = bytes_slice(failed)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                status = pymq_serve_park(serve, connection, end_offset, now.data, now.size, after.data, after.size,
                                         never.data, never.size)
        finally:
            self.end()
        if status != PYMQ_OK and status != PYMQ_ECLOSED:
            raise error_of(status, f"parking an answer to connection {connection:x}")
        return status == PYMQ_OK

    def refusal(self, str status):
        """The answer to a send that the store refused with *status* (PYMQ_ETIMEDOUT: too busy to try)."""
        cdef pymq_refusal refusal
        cdef int number = -1
        cdef pymq_serve *serve = self.begin()
        try:
            while number > STATUS_LOWEST and pymq_status_name(number).decode("ascii") != status:
                number -= 1
            pymq_refusal_make(&refusal, serve, number)
            return Refusal(refusal.code, bool(refusal.has_fields),
                           refusal.remark[:refusal.remark_size].decode("utf-8", "replace"))
        finally:
            self.end()

    def get(self, str topic, int32_t queue_id, int64_t offset, int32_t count_max, int32_t bytes_max=0, tag_hashes=None,
            bint no_wait=False, bytes program=None):
        """Read as DefaultMessageStore.getMessage does, what the tags or the filter program let through; the records'
        bytes are copied.

        Raises:
            StoreError: the queue or a record cannot be read; CorruptError: the program is none.
        """
        cdef pymq_get_s get
        cdef pymq_span *spans = NULL
        cdef int32_t hashes[PYMQ_TAGS_MAX]
        cdef uint32_t index
        cdef char *target
        cdef pymq_serve *serve
        memset(&get, 0, sizeof(get))
        get.topic = slice_of(topic)
        get.queue_id = queue_id
        get.offset = offset
        get.count_max = count_max
        get.bytes_max = bytes_max
        get.no_wait = no_wait
        fill_hashes(tag_hashes, hashes, &get)
        serve = self.begin()
        try:
            fill_program(program, &get)
            spans = <pymq_span *>calloc(PYMQ_GET_COUNT_MAX, sizeof(pymq_span))
            if spans == NULL:
                raise MemoryError("spans of a pull")
            with nogil:
                pymq_serve_get(serve, &get, spans, PYMQ_GET_COUNT_MAX)
            if get.status == PYMQ_GET_ERROR:
                raise error_of(get.error_status, f"reading {topic!r} queue {queue_id} at {offset}")
            body = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>get.bytes)
            target = PyBytes_AS_STRING(body)
            with nogil:
                for index in range(get.span_count):
                    memcpy(target, spans[index].data, spans[index].size)
                    target += spans[index].size
            return GetResult(get.status, get.next_offset, get.min_offset, get.max_offset, bool(get.suggest_slave), body,
                             get.message_count)
        finally:
            for index in range(get.span_count if spans != NULL else 0):
                pymq_span_release(self.store_pointer, &spans[index])
            free(spans)
            pymq_shared_program_leave(get.program)
            self.end()

    def hold(self, uint64_t connection, bytes frame not None, str topic, int32_t queue_id, int64_t offset, str group,
             int32_t timeout_ms, tag_hashes=None, bytes program=None):
        """Hold a pull until a message arrives at or behind *offset*, the time is over, or something ends it; then it is
        handed over again with the reason "hold-ended". False when too many are held, None after stop_holds()."""
        cdef pymq_get_s get
        cdef int32_t hashes[PYMQ_TAGS_MAX]
        cdef pymq_slice held = bytes_slice(frame), group_name = slice_of(group)
        cdef int status
        cdef pymq_serve *serve
        memset(&get, 0, sizeof(get))
        get.topic = slice_of(topic)
        get.queue_id = queue_id
        get.offset = offset
        fill_hashes(tag_hashes, hashes, &get)
        serve = self.begin()
        try:
            fill_program(program, &get)
            with nogil:
                status = pymq_serve_hold(serve, connection, held.data, held.size, &get, group_name.data,
                                         group_name.size, timeout_ms)
        finally:
            pymq_shared_program_leave(get.program)
            self.end()
        return None if status == PYMQ_ECLOSED else status == PYMQ_OK

    def pull_begins(self, str group, str topic, int32_t queue_id, int64_t offset, uint64_t connection=0):
        """A pull from *offset*: where a pending reset wants it to begin instead, None when it may go on."""
        cdef int64_t reset_to = 0
        cdef int status
        cdef pymq_slice group_name = slice_of(group), topic_name = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                status = pymq_serve_pull_begins(serve, connection, group_name.data, group_name.size, topic_name.data,
                                                topic_name.size, queue_id, offset, &reset_to)
        finally:
            self.end()
        return reset_to if status == PYMQ_OK else None

    def pulled(self, str group, str topic, int32_t queue_id, int64_t offset, int64_t next_offset,
               uint64_t connection=0):
        """A pull from *offset* was served through the control loop and goes on at *next_offset*."""
        cdef pymq_slice group_name = slice_of(group), topic_name = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                pymq_serve_pulled(serve, connection, group_name.data, group_name.size, topic_name.data,
                                  topic_name.size, queue_id, offset, next_offset)
        finally:
            self.end()

    def count_pull(self, str group, str topic, int64_t messages, int64_t size):
        """Count messages that were pulled through the control loop."""
        cdef pymq_slice group_name = slice_of(group), topic_name = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                pymq_serve_count_pull(serve, group_name.data, group_name.size, topic_name.data, topic_name.size,
                                      messages, size)
        finally:
            self.end()

    def stop_holds(self):
        """End all holds and hold nothing any more: hold() says None from now on. How many were held."""
        cdef size_t ended
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                ended = pymq_serve_stop_holds(serve)
        finally:
            self.end()
        return ended

    def end_holds(self, str topic="", str group=""):
        """End holds of a topic, a group, or all; how many."""
        cdef size_t ended
        cdef pymq_slice topic_name = slice_of(topic), group_name = slice_of(group)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                ended = pymq_serve_end_holds(serve, topic_name.data, topic_name.size, group_name.data, group_name.size)
        finally:
            self.end()
        return ended

    # ---- statistics ----------------------------------------------------------------------------------------------

    def stats(self):
        """The core's counters by name."""
        cdef pymq_serve_stats_s stats
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                pymq_serve_stats(serve, &stats)
            return {
                "holds": stats.holds, "holds_bytes": stats.holds_bytes,
                "holds_ended_arrival": stats.holds_ended_arrival,
                "holds_ended_time": stats.holds_ended_time, "holds_ended_other": stats.holds_ended_other,
                "parked": stats.parked, "parked_late": stats.parked_late, "cold_reads": stats.cold_reads,
                "sent_messages": stats.sent_messages, "sent_bytes": stats.sent_bytes,
                "pulled_messages": stats.pulled_messages, "pulled_bytes": stats.pulled_bytes,
                "commits": stats.commits, "sent_back": stats.sent_back, "transactions": stats.transactions,
            }
        finally:
            self.end()

    def traffic(self):
        """What went through, per topic and per (topic, group). Call it where tables are changed."""
        cdef pymq_traffic *rows = NULL
        cdef size_t room, count, index
        cdef pymq_serve *serve = self.begin()
        try:
            room = pymq_serve_traffic(serve, NULL, 0) + ROWS_ROOM
            rows = <pymq_traffic *>malloc(room * sizeof(pymq_traffic))
            if rows == NULL:
                raise MemoryError(f"the traffic of {room} rows")
            count = min(pymq_serve_traffic(serve, rows, room), room)
            return [
                Traffic(text_of(rows[index].topic), text_of(rows[index].group) if rows[index].group.size else "",
                        rows[index].messages, rows[index].bytes)
                for index in range(count)
            ]
        finally:
            free(rows)
            self.end()
