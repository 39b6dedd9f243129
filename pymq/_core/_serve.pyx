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


class PutResult(_NamedTuple):
    """Where a message was put, and the offset to wait for."""

    queue_offset: int
    physical_offset: int
    end_offset: int
    store_timestamp_ms: int


class GetResult(_NamedTuple):
    """What a read found: one of GET_…, and records as they stand in the log."""

    status: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggest_slave: bool
    body: bytes
    message_count: int


class Refusal(_NamedTuple):
    """How a send that the store refused is answered."""

    code: int
    has_fields: bool
    remark: str


class Traffic(_NamedTuple):
    """Messages and bytes since start: put to *topic* (group empty), or got from it by *group*."""

    topic: str
    group: str
    messages: int
    bytes: int


def unique_key():
    """A UNIQ_KEY for a message that came without one: 32 characters, never the same twice."""
    cdef uint8_t key[PYMQ_UNIQUE_KEY_SIZE]
    pymq_unique_key(key)
    return PyBytes_FromStringAndSize(<char *>key, PYMQ_UNIQUE_KEY_SIZE).decode("ascii")


cdef object error_of(int status, str doing):
    """The exception for a status that came alone, while *doing* something."""
    name = pymq_status_name(status).decode("ascii")
    return _STATUS_ERRORS.get(name, _StoreError)(f"{doing}: {name}", status=name)


cdef pymq_slice slice_of(str text) except *:
    """A name's bytes; they live as long as *text*."""
    cdef Py_ssize_t size = 0
    cdef pymq_slice result
    result.data = <const uint8_t *>PyUnicode_AsUTF8AndSize(text, &size)
    result.size = <uint32_t>size
    return result


cdef inline pymq_slice bytes_slice(bytes data) noexcept:
    cdef pymq_slice result
    result.data = <const uint8_t *>PyBytes_AS_STRING(data)
    result.size = <uint32_t>PyBytes_GET_SIZE(data)
    return result


cdef inline str text_of(pymq_slice name):
    return name.data[:name.size].decode("utf-8", "replace")


cdef int fill_host(object host, pymq_host *target) except -1:
    cdef bytes packed = _ipaddress.ip_address(host[0]).packed
    memset(target, 0, sizeof(pymq_host))
    memcpy(target.address, PyBytes_AS_STRING(packed), <size_t>PyBytes_GET_SIZE(packed))
    target.size = <uint8_t>PyBytes_GET_SIZE(packed)
    target.port = host[1]
    return 0


cdef str hex_of_host(const pymq_host *host):
    """Address and port as message ids have them."""
    return (PyBytes_FromStringAndSize(<char *>host.address, host.size).hex() + f"{host.port:08x}").upper()


cdef int fill_name(str what, str value, char *target, size_t capacity) except -1:
    cdef bytes encoded = value.encode("utf-8")
    if <size_t>PyBytes_GET_SIZE(encoded) >= capacity:
        raise ValueError(f"{what} {value!r} is longer than {capacity - 1} bytes")
    memcpy(target, PyBytes_AS_STRING(encoded), <size_t>PyBytes_GET_SIZE(encoded) + 1)
    return 0


cdef int fill_config(object config, pymq_serve_config *target) except -1:
    pymq_serve_config_default(target)
    target.native = config.native
    target.long_polling = config.long_polling
    target.short_polling_ms = config.short_polling_ms
    target.hold_check_ms = config.hold_check_ms
    target.holds_max = config.holds_max
    target.parked_max = config.parked_max
    target.send_timeout_ms = config.send_timeout_ms
    target.transfer_bytes_memory = config.transfer_bytes_memory
    target.transfer_count_memory = config.transfer_count_memory
    target.transfer_bytes_disk = config.transfer_bytes_disk
    target.transfer_count_disk = config.transfer_count_disk
    target.memory_bytes_max = config.memory_bytes_max
    target.hot_bytes = config.hot_bytes
    target.cold_read_threads = config.cold_read_threads
    target.message_size_max = config.message_size_max
    target.trace_on = config.trace_on
    target.slave_read_enable = config.slave_read_enable
    target.broker_permission = config.broker_permission
    fill_host(config.store_host, &target.store_host)
    fill_name("cluster", config.cluster, target.cluster, sizeof(target.cluster))
    fill_name("region", config.region, target.region, sizeof(target.region))
    fill_name("broker_ip", config.broker_ip, target.broker_ip, sizeof(target.broker_ip))
    return 0


@cython.final
cdef class Serve:
    """Native tables, consumer offsets, holds and parked answers over one store.

    Open order: store, serve, transport, attach(), listen. Close order: the transport, the serve, the store. Every method
    may be called from any thread; those that change tables wait until no reactor uses the older row.

    Args:
        config: a `ServeConfig`.
        store: a `Store`, which stays open as long as this does.
    """

    cdef pymq_serve *serve
    cdef pymq_store *store_pointer
    cdef int generation
    cdef int active
    cdef bint closing
    cdef object store
    cdef object transport
    cdef readonly object config
    cdef readonly str host_hex  # what message ids begin with
    cdef object __weakref__

    def __cinit__(self, config, store):
        cdef pymq_serve_config settings
        cdef pymq_error error
        cdef pymq_serve *opened = NULL
        cdef int status
        self.generation = process_generation
        self.config = config
        memset(&error, 0, sizeof(error))
        fill_config(config, &settings)
        self.host_hex = hex_of_host(&settings.store_host)
        self.store_pointer = <pymq_store *>PyCapsule_GetPointer(store._borrow(), "pymq_store")
        self.store = store
        with nogil:
            status = pymq_serve_open(&settings, self.store_pointer, &opened, &error)
        if status != PYMQ_OK:
            store._give_back()
            self.store = None
            raise _STATUS_ERRORS.get(pymq_status_name(status).decode("ascii"), _StoreError)(
                error.text.decode("utf-8", "replace"), status=pymq_status_name(status).decode("ascii"))
        self.serve = opened

    def __del__(self):
        if self.serve != NULL and self.generation == process_generation:
            _warnings.warn("a Serve was dropped open; close() it after its transport", ResourceWarning, source=self)
            self.close()

    cdef pymq_serve *begin(self) except NULL:
        """Count a call in. The next statement is the `try` whose `finally` counts it out."""
        if self.generation != process_generation:
            raise RuntimeError("this serving belongs to the parent process")
        if self.serve == NULL or self.closing:
            raise _StoreClosedError("the serving is closed")
        self.active += 1
        return self.serve

    cdef inline void end(self) noexcept:
        self.active -= 1

    def _service_capsule(self):
        """The service for a `Transport`, as a capsule named "pymq_service"; valid until close()."""
        cdef pymq_serve *serve = self.begin()
        try:
            return PyCapsule_New(<void *>pymq_serve_service(serve), "pymq_service", NULL)
        finally:
            self.end()

    @property
    def closed(self):
        """Whether close() was called."""
        return self.serve == NULL or self.closing

    @property
    def is_busy(self):
        """Whether sends are refused for now: too many wait, or the store has been stuck in an append for too long."""
        cdef pymq_serve_stats_s stats
        cdef pymq_serve *serve = self.begin()
        try:
            pymq_serve_stats(serve, &stats)
            return stats.parked >= self.config.parked_max or bool(pymq_store_is_busy(self.store_pointer))
        finally:
            self.end()

    def attach(self, transport):
        """Serve *transport*, which was made with this as its service; before it listens."""
        cdef pymq_serve *serve = self.begin()
        try:
            pymq_serve_attach(serve, <pymq_transport *>PyCapsule_GetPointer(transport._transport_capsule(),
                                                                            "pymq_transport"))
            self.transport = transport
        finally:
            self.end()

    def configure(self, config):
        """Replace the settings while running."""
        cdef pymq_serve_config settings
        cdef pymq_serve *serve = self.begin()
        try:
            fill_config(config, &settings)
            with nogil:
                pymq_serve_configure(serve, &settings)
            self.config = config
            self.host_hex = hex_of_host(&settings.store_host)
        finally:
            self.end()

    def close(self):
        """Free everything; the transport has been closed before. Idempotent."""
        cdef pymq_serve *serve
        if self.generation != process_generation:
            raise RuntimeError("this serving belongs to the parent process; it closes it")
        if self.transport is not None and not self.transport.closed:
            raise RuntimeError("close the transport first: its reactors still serve from these tables")
        while self.closing:
            with nogil:
                usleep(CLOSE_POLL_US)
        if self.serve == NULL:
            return
        self.closing = True
        while self.active:
            with nogil:
                usleep(CLOSE_POLL_US)
        serve = self.serve
        self.serve = NULL
        with nogil:
            pymq_serve_close(serve)
        self.store._give_back()
        self.store = None
        self.transport = None
        self.closing = False

    # ---- tables --------------------------------------------------------------------------------------------------

    def publish_topic(self, str name, *, int32_t permission, int32_t read_queues, int32_t write_queues,
                      int32_t sys_flag=0, bint send_special=False, bint pull_special=False):
        """Insert or replace a topic."""
        cdef pymq_topic_row row
        cdef int status
        cdef pymq_slice encoded = slice_of(name)
        cdef pymq_serve *serve = self.begin()
        try:
            row.name = encoded.data
            row.name_size = encoded.size
            row.permission = permission
            row.read_queues = read_queues
            row.write_queues = write_queues
            row.sys_flag = sys_flag
            row.flags = (PYMQ_TOPIC_SEND_SPECIAL if send_special else 0) | (
                PYMQ_TOPIC_PULL_SPECIAL if pull_special else 0)
            with nogil:
                status = pymq_serve_publish_topic(serve, &row)
        finally:
            self.end()
        if status != PYMQ_OK:
            raise error_of(status, f"publishing topic {name!r}")

    def remove_topic(self, str name, bint offsets_too=False):
        """Take a topic away and end its holds; its offsets too, when asked."""
        cdef pymq_slice encoded = slice_of(name)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                pymq_serve_remove_topic(serve, encoded.data, encoded.size, offsets_too)
        finally:
            self.end()

    def publish_group(self, str name, *, bint disabled=False, bint special=False, int32_t sys_flag=0,
                      int64_t broker_id=0, int64_t broker_id_when_slow=1):
        """Insert or replace a subscription group."""
        cdef pymq_group_row row
        cdef int status
        cdef pymq_slice encoded = slice_of(name)
        cdef pymq_serve *serve = self.begin()
        try:
            row.name = encoded.data
            row.name_size = encoded.size
            row.flags = (PYMQ_GROUP_DISABLED if disabled else 0) | (PYMQ_GROUP_SPECIAL if special else 0)
            row.sys_flag = sys_flag
            row.broker_id = broker_id
            row.broker_id_when_slow = broker_id_when_slow
            with nogil:
                status = pymq_serve_publish_group(serve, &row)
        finally:
            self.end()
        if status != PYMQ_OK:
            raise error_of(status, f"publishing group {name!r}")

    def remove_group(self, str name, bint offsets_too=False):
        """Take a group away and end its holds; its offsets too, when asked."""
        cdef pymq_slice encoded = slice_of(name)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                pymq_serve_remove_group(serve, encoded.data, encoded.size, offsets_too)
        finally:
            self.end()

    def publish_subscription(self, str group, str topic, *, int64_t version, bint all=False, bint special=False,
                             tag_hashes=()):
        """Say what a group's clients want of a topic."""
        cdef pymq_subscription_row row
        cdef int status
        cdef uint32_t index = 0
        cdef pymq_slice group_name = slice_of(group)
        cdef pymq_slice topic_name = slice_of(topic)
        cdef pymq_serve *serve
        if len(tag_hashes) > PYMQ_TAGS_MAX:
            raise ValueError(f"{len(tag_hashes)} tags; a row holds {PYMQ_TAGS_MAX}: publish it as special")
        for tag_hash in tag_hashes:
            row.tag_hashes[index] = tag_hash
            index += 1
        serve = self.begin()
        try:
            row.group = group_name.data
            row.group_size = group_name.size
            row.topic = topic_name.data
            row.topic_size = topic_name.size
            row.version = version
            row.all = all
            row.special = special
            row.tag_count = index
            with nogil:
                status = pymq_serve_publish_subscription(serve, &row)
        finally:
            self.end()
        if status != PYMQ_OK:
            raise error_of(status, f"publishing what {group!r} wants of {topic!r}")

    def remove_subscription(self, str group, str topic):
        """A group's clients want nothing more of a topic."""
        cdef pymq_slice group_name = slice_of(group)
        cdef pymq_slice topic_name = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                pymq_serve_remove_subscription(serve, group_name.data, group_name.size, topic_name.data,
                                               topic_name.size)
        finally:
            self.end()

    def send_settled(self, uint64_t connection, str topic):
        """A send that was handed over is in the log or refused: once each; with "" for one whose reason was "header"."""
        cdef pymq_slice encoded = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            pymq_serve_send_settled(serve, connection, encoded.data, encoded.size)
        finally:
            self.end()

    # ---- consumer offsets ----------------------------------------------------------------------------------------

    def offset_query(self, str group, str topic, int32_t queue_id):
        """The group's offset (a pending reset's, if there is one); None when it never committed."""
        cdef int64_t offset = 0
        cdef int status
        cdef pymq_slice group_name = slice_of(group)
        cdef pymq_slice topic_name = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                status = pymq_serve_offset_query(serve, group_name.data, group_name.size, topic_name.data,
                                                 topic_name.size, queue_id, &offset)
        finally:
            self.end()
        return offset if status == PYMQ_OK else None

    def offset_commit(self, str group, str topic, int32_t queue_id, int64_t offset):
        """Commit any value, also a smaller one; ignored while a reset is pending."""
        cdef int status
        cdef pymq_slice group_name = slice_of(group)
        cdef pymq_slice topic_name = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                status = pymq_serve_offset_commit(serve, group_name.data, group_name.size, topic_name.data,
                                                  topic_name.size, queue_id, offset)
        finally:
            self.end()
        if status != PYMQ_OK:
            raise error_of(status, f"the offset of {group!r} in {topic!r} queue {queue_id}")

    def offset_reset(self, str group, str topic, int32_t queue_id, int64_t offset):
        """Reset; commits are ignored until the group has pulled from *offset*."""
        cdef int status
        cdef pymq_slice group_name = slice_of(group)
        cdef pymq_slice topic_name = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                status = pymq_serve_offset_reset(serve, group_name.data, group_name.size, topic_name.data,
                                                 topic_name.size, queue_id, offset)
        finally:
            self.end()
        if status != PYMQ_OK:
            raise error_of(status, f"resetting {group!r} in {topic!r} queue {queue_id} to {offset}")

    def offset_remove(self, str group, str topic):
        """Forget offsets: of the pair, of all topics of a group (topic empty), of all groups of a topic (group empty)."""
        cdef pymq_slice group_name = slice_of(group)
        cdef pymq_slice topic_name = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                pymq_serve_offset_remove(serve, group_name.data, group_name.size, topic_name.data, topic_name.size)
        finally:
            self.end()

    def offsets(self):
        """Every offset as (group, topic, queue_id, offset), in no order. Call it where tables are changed."""
        cdef pymq_offset_entry *entries = NULL
        cdef size_t room, count, index
        cdef pymq_serve *serve = self.begin()
        try:
            room = pymq_serve_offsets(serve, NULL, 0) + ROWS_ROOM
            entries = <pymq_offset_entry *>malloc(room * sizeof(pymq_offset_entry))
            if entries == NULL:
                raise MemoryError(f"a snapshot of {room} offsets")
            count = min(pymq_serve_offsets(serve, entries, room), room)
            return [
                (text_of(entries[index].group), text_of(entries[index].topic), entries[index].queue_id,
                 entries[index].offset)
                for index in range(count)
            ]
        finally:
            free(entries)
            self.end()

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
            bint no_wait=False):
        """Read as DefaultMessageStore.getMessage does; the records' bytes are copied.

        Raises:
            StoreError: the queue or a record cannot be read.
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
            self.end()

    def hold(self, uint64_t connection, bytes frame not None, str topic, int32_t queue_id, int64_t offset, str group,
             int32_t timeout_ms, tag_hashes=None):
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
            with nogil:
                status = pymq_serve_hold(serve, connection, held.data, held.size, &get, group_name.data,
                                         group_name.size, timeout_ms)
        finally:
            self.end()
        return None if status == PYMQ_ECLOSED else status == PYMQ_OK

    def pull_begins(self, str group, str topic, int32_t queue_id, int64_t offset):
        """A pull from *offset*: where a pending reset wants it to begin instead, None when it may go on."""
        cdef int64_t reset_to = 0
        cdef int status
        cdef pymq_slice group_name = slice_of(group), topic_name = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                status = pymq_serve_pull_begins(serve, group_name.data, group_name.size, topic_name.data,
                                                topic_name.size, queue_id, offset, &reset_to)
        finally:
            self.end()
        return reset_to if status == PYMQ_OK else None

    def offset_is_pending(self, str group, str topic, int32_t queue_id):
        """Whether a reset of this offset waits for the group to follow it."""
        cdef bint pending
        cdef pymq_slice group_name = slice_of(group), topic_name = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                pending = pymq_serve_offset_is_pending(serve, group_name.data, group_name.size, topic_name.data,
                                                       topic_name.size, queue_id)
        finally:
            self.end()
        return bool(pending)

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
                "holds": stats.holds, "holds_ended_arrival": stats.holds_ended_arrival,
                "holds_ended_time": stats.holds_ended_time, "holds_ended_other": stats.holds_ended_other,
                "parked": stats.parked, "parked_late": stats.parked_late, "cold_reads": stats.cold_reads,
                "sent_messages": stats.sent_messages, "sent_bytes": stats.sent_bytes,
                "pulled_messages": stats.pulled_messages, "pulled_bytes": stats.pulled_bytes,
                "commits": stats.commits,
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


cdef int fill_hashes(object tag_hashes, int32_t *target, pymq_get_s *get) except -1:
    """None means all; an empty sequence means none, which no subscription has."""
    cdef uint32_t count = 0
    if tag_hashes is None:
        return 0
    if len(tag_hashes) > PYMQ_TAGS_MAX:
        raise ValueError(f"{len(tag_hashes)} tags; at most {PYMQ_TAGS_MAX} are filtered natively")
    for tag_hash in tag_hashes:
        target[count] = tag_hash
        count += 1
    get.tag_hashes = target
    get.tag_count = count
    return 0
