# cython: language_level=3, binding=True
"""The native transport, bound: check the arguments, call the core, raise.

Lifetime. A `Transport` counts the calls that are inside the core without the GIL (`active`, guarded by the GIL); close()
lets no new one in, waits until the count is zero, then closes. What takes a microsecond keeps the GIL. After close the
methods that answer a peer say that it is gone, and the others raise. In a child process after fork() every method raises
and nothing is freed.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.unistd cimport usleep

from pymq._core._transport cimport *

import ipaddress as _ipaddress
import os as _os
import warnings as _warnings
from typing import NamedTuple as _NamedTuple

cdef extern from *:
    """
    #include <malloc.h>
    #include <stdint.h>
    /* Free pages inside malloc's arenas go back to the kernel; elsewhere than with glibc they are not ours to give. */
    static inline void give_back_free_memory(void) {
    #ifdef __GLIBC__
        malloc_trim(0);
    #endif
    }
    """
    void give_back_free_memory() noexcept nogil

cdef enum:
    CLOSE_POLL_US = 200
    NOGIL_SIZE_MIN = 64 * 1024  # a frame from here on is copied without the GIL
    CODE_COUNTS_MAX = 4096
    TRIM_BYTES_MIN = 16 * 1024 * 1024  # in and out, before a look at malloc's arenas can pay
    TRIM_QUIET_BYTES = 1024 * 1024     # fewer since the last call: the burst is over
    PEERS_CACHED_MAX = 65536    # peers remembered as tuples; beyond, the cache begins anew

LANE_CLIENT = <int>PYMQ_LANE_CLIENT
LANE_SEND = <int>PYMQ_LANE_SEND
LANE_PULL = <int>PYMQ_LANE_PULL
LANE_ADMIN = <int>PYMQ_LANE_ADMIN
LANE_REPLY = <int>PYMQ_LANE_REPLY
LANE_EVENT = <int>PYMQ_LANE_EVENT
LANES = <int>PYMQ_LANES
HANDED_FRAME = <int>PYMQ_HANDED_FRAME
HANDED_OPENED = <int>PYMQ_HANDED_OPENED
HANDED_CLOSED = <int>PYMQ_HANDED_CLOSED
HANDED_TLS = <int>PYMQ_HANDED_TLS

cdef int process_generation = 0


def _after_fork_in_child():
    global process_generation
    process_generation += 1


_os.register_at_fork(after_in_child=_after_fork_in_child)


class Handed(_NamedTuple):
    """One thing a reactor handed to the control loop."""

    kind: int
    connection: int
    peer: tuple[str, int]
    received_us: int
    code: int
    reason: int
    fd: int
    frame: bytes


class CodeCount(_NamedTuple):
    """How often a request code was served natively (reason -1), or handed over with a reason."""

    code: int
    reason: int
    count: int


cdef object make_handed = tuple.__new__


cdef int fill_config(object config, pymq_transport_config *settings) except -1:
    cdef int lane
    settings.reactors = config.reactors
    settings.connections_max = config.connections_max
    settings.frame_size_max = config.frame_size_max
    settings.idle_timeout_ms = config.idle_timeout_ms
    settings.output_size_max = config.output_size_max
    settings.output_size_pause = config.output_size_pause
    settings.pinned_timeout_ms = config.pinned_timeout_ms
    settings.turn_bytes_max = config.turn_bytes_max
    for lane in range(PYMQ_LANES):
        settings.lane_count_max[lane] = config.lane_count_max[lane]
        settings.lane_bytes_max[lane] = config.lane_bytes_max[lane]
        settings.lane_wait_ms[lane] = config.lane_wait_ms[lane]
    return 0


cdef object error_of(int status, pymq_error *error):
    """The exception for what the core said: OSError with its errno, MemoryError, or ValueError."""
    text = error.text.decode("utf-8", "replace")
    if error.sys_errno != 0:
        return OSError(error.sys_errno, text)
    return MemoryError(text) if status == PYMQ_ENOMEM else ValueError(text)


cdef tuple peer_of(const pymq_host *host):
    if host.size == 4:
        return (f"{host.address[0]}.{host.address[1]}.{host.address[2]}.{host.address[3]}", host.port)
    return (str(_ipaddress.IPv6Address(PyBytes_FromStringAndSize(<char *>host.address, 16))), host.port)


@cython.final
cdef class Transport:
    """Reactor threads with their connections. Every method may be called from any thread; none waits for the network.

    Args:
        config: a `pymq.remoting.config.TransportConfig`.
        serve: what serves frames natively, an object with `_service_capsule()`; None hands everything over. It is kept
            alive as long as the transport is.
    """

    cdef pymq_transport *transport
    cdef int generation
    cdef int active
    cdef bint closing
    cdef object serve
    cdef dict peers
    cdef int64_t trimmed_at  # bytes in and out when memory was last given back
    cdef int64_t looked_at   # the same at the last call of trim()
    cdef object __weakref__

    def __cinit__(self, config, serve=None):
        cdef pymq_transport_config settings
        cdef pymq_error error
        cdef const pymq_service *service = NULL
        cdef pymq_transport *opened = NULL
        cdef int status
        self.generation = process_generation
        self.serve = serve
        self.peers = {}
        memset(&error, 0, sizeof(error))
        pymq_transport_config_default(&settings)
        fill_config(config, &settings)
        if serve is not None:
            service = <const pymq_service *>PyCapsule_GetPointer(serve._service_capsule(), "pymq_service")
        with nogil:
            status = pymq_transport_open(&settings, service, &opened, &error)
        if status != PYMQ_OK:
            raise error_of(status, &error)
        self.transport = opened

    def __del__(self):
        if self.transport != NULL and self.generation == process_generation:
            _warnings.warn("a transport was dropped open; call close()", ResourceWarning, source=self)
            self.close(0)

    cdef pymq_transport *begin(self) except NULL:
        """The transport, or an exception. While the GIL is held it stays open; without it, `active` must say so."""
        if self.generation != process_generation:
            raise RuntimeError("this transport belongs to the parent process; make one in this process after the fork")
        if self.transport == NULL:
            raise RuntimeError("the transport is closed")
        return self.transport

    cdef bint usable(self) except -1:
        """Whether anything can still be sent; raises only after a fork."""
        if self.transport == NULL and self.generation == process_generation:
            return False
        self.begin()
        return True

    def _transport_capsule(self):
        """The core's transport as a capsule named "pymq_transport", for other native modules; valid until close()."""
        return PyCapsule_New(self.begin(), "pymq_transport", NULL)

    @property
    def wake_fd(self):
        """Readable while lanes hold something; see clear_wake()."""
        return pymq_transport_wake_fd(self.begin())

    @property
    def closed(self):
        """Whether close() was called."""
        return self.transport == NULL

    def listen(self, str host, int port):
        """Listen on *host*:*port* (0: the kernel's choice); the port.

        Raises:
            OSError: the address is in use or not ours. ValueError: the host cannot be resolved.
        """
        cdef pymq_error error
        cdef int32_t bound = 0
        cdef int status
        cdef bytes encoded = host.encode("utf-8")
        cdef const char *name = encoded
        cdef pymq_transport *transport = self.begin()
        memset(&error, 0, sizeof(error))
        self.active += 1
        try:
            with nogil:
                status = pymq_transport_listen(transport, name, port, &bound, &error)
        finally:
            self.active -= 1
        if status != PYMQ_OK:
            raise error_of(status, &error)
        return bound

    def adopt(self, int fd, peer, bint is_client):
        """Take over the connected stream socket *fd*, whose owner the transport becomes; the connection's id.

        Raises:
            ValueError: there are connections_max already, or the transport is stopping; *fd* stays the caller's.
        """
        cdef pymq_error error
        cdef pymq_host host
        cdef pymq_transport *transport = self.begin()
        cdef bytes packed = _ipaddress.ip_address(peer[0]).packed
        memset(&error, 0, sizeof(error))
        memset(&host, 0, sizeof(host))
        memcpy(host.address, PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))
        host.size = <uint8_t>PyBytes_GET_SIZE(packed)
        host.port = peer[1]
        _os.set_blocking(fd, False)
        cdef uint64_t connection = pymq_transport_adopt(transport, fd, &host, is_client, &error)
        if connection == 0:
            raise error_of(error.status, &error)
        return connection

    def set_tls_mode(self, int mode):
        """What becomes of accepted connections that begin a TLS handshake: `pymq.remoting.config.TlsMode`."""
        pymq_transport_set_tls_mode(self.begin(), mode)

    def set_lane(self, int32_t code, int lane):
        """Requests of *code* take *lane*; LANE_ADMIN unless said."""
        cdef pymq_transport *transport = self.begin()
        if not 0 <= lane < PYMQ_LANES:
            raise ValueError(f"lane {lane}: there are {PYMQ_LANES}")
        pymq_transport_set_lane(transport, code, lane)

    def take(self, int lane, size_t count_max):
        """Up to *count_max* entries of *lane*, oldest first."""
        cdef pymq_transport *transport = self.begin()
        cdef pymq_handed *handed
        cdef pymq_handed *following
        cdef list taken = []
        if not 0 <= lane < PYMQ_LANES:
            raise ValueError(f"lane {lane}: there are {PYMQ_LANES}")
        handed = pymq_transport_take(transport, lane, count_max)
        try:
            while handed != NULL:
                taken.append(self.wrap(handed))
                following = handed.next
                pymq_handed_free(transport, handed)
                handed = following
        finally:
            while handed != NULL:  # only after a MemoryError
                following = handed.next
                pymq_handed_free(transport, handed)
                handed = following
        return taken

    cdef object wrap(self, pymq_handed *handed):
        cdef object connection = handed.connection
        cdef object peer = self.peers.get(connection)
        if peer is None:
            peer = peer_of(&handed.peer)
            if handed.connection != 0:
                if len(self.peers) >= PEERS_CACHED_MAX:
                    self.peers.clear()
                self.peers[connection] = peer
        if handed.kind == PYMQ_HANDED_CLOSED:
            self.peers.pop(connection, None)
        return make_handed(Handed, (handed.kind, connection, peer, handed.received_us, handed.code, handed.reason, handed.fd,
                                    PyBytes_FromStringAndSize(<char *>handed.frame, handed.size)))

    def count_running(self, int lane, int64_t requests, int64_t size):
        """So many requests of *lane* more, or fewer, were taken and are not answered yet; its limits count them."""
        if not 0 <= lane < PYMQ_LANES:
            raise ValueError(f"lane {lane}: there are {PYMQ_LANES}")
        if self.usable():
            pymq_transport_count_running(self.transport, lane, requests, size)

    def count_expired(self, int lane):
        """One of them waited too long, and was answered so."""
        if not 0 <= lane < PYMQ_LANES:
            raise ValueError(f"lane {lane}: there are {PYMQ_LANES}")
        if self.usable():
            pymq_transport_count_expired(self.transport, lane)

    def clear_wake(self):
        """Lower wake_fd if all lanes are empty; to be called after taking."""
        pymq_transport_clear_wake(self.begin())

    def send(self, uint64_t connection, bytes frame not None):
        """Queue a whole frame; False when the connection is gone."""
        if not (self.usable() and self.queue(connection, frame)):
            return False
        self.ring()
        return True

    cdef void ring(self) noexcept:
        if self.transport != NULL:
            pymq_transport_ring(self.transport)

    cdef bint queue(self, uint64_t connection, bytes frame) except -1:
        cdef size_t size = PyBytes_GET_SIZE(frame)
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(frame)
        cdef pymq_transport *transport = self.transport
        cdef int status
        if size < NOGIL_SIZE_MIN:
            return pymq_transport_queue(transport, connection, data, size) == PYMQ_OK
        self.active += 1
        try:
            with nogil:
                status = pymq_transport_queue(transport, connection, data, size)
        finally:
            self.active -= 1
        return status == PYMQ_OK

    def send_many(self, replies):
        """Queue (connection, frame) pairs; how many of their connections were there."""
        cdef int sent = 0
        try:
            for connection, frame in replies:
                if self.usable() and self.queue(connection, <bytes?>frame):
                    sent += 1
        finally:
            self.ring()  # one wake-up for all of them
        return sent

    def close_connection(self, uint64_t connection):
        """Close it after what is queued has been written. One that is gone stays gone."""
        if self.usable():
            pymq_transport_close_connection(self.transport, connection)

    def drain(self):
        """Stop accepting and reading. Lanes can be taken and answers are written, until `drained` says that all are."""
        pymq_transport_drain(self.begin())

    @property
    def drained(self):
        """Whether, after drain(), all lanes are empty and everything has been written."""
        return bool(pymq_transport_is_drained(self.begin()))

    def close(self, int32_t drain_ms=3000):
        """Write what is written for up to *drain_ms*, then stop the threads and close every connection. Idempotent."""
        cdef pymq_transport *transport
        if self.generation != process_generation:
            raise RuntimeError("this transport belongs to the parent process; it closes it")
        transport = self.transport
        self.transport = NULL
        if transport == NULL:
            while self.closing:  # another thread does
                with nogil:
                    usleep(CLOSE_POLL_US)
            return
        self.closing = True
        while self.active:
            with nogil:
                usleep(CLOSE_POLL_US)
        with nogil:
            pymq_transport_close(transport, drain_ms)
        self.closing = False
        self.serve = None

    def stats(self):
        """The core's counters by name; those of lanes as tuples in the lanes' order."""
        cdef pymq_transport_stats_s stats
        cdef int lane
        pymq_transport_stats_read(self.begin(), &stats)
        return {
            "accepted": stats.accepted, "closed": stats.closed, "refused": stats.refused, "open": stats.open,
            "accept_failed": stats.accept_failed, "idle_closed": stats.idle_closed,
            "broken_frames": stats.broken_frames, "output_closed": stats.output_closed,
            "pinned_closed": stats.pinned_closed, "frames_in": stats.frames_in, "bytes_in": stats.bytes_in,
            "bytes_out": stats.bytes_out, "turns": stats.turns, "writes": stats.writes, "reads": stats.reads,
            "wakes": stats.wakes, "buffer_bytes": stats.buffer_bytes,
            "lane_waiting": tuple([stats.lane_waiting[lane] for lane in range(PYMQ_LANES)]),
            "lane_refused": tuple([stats.lane_refused[lane] for lane in range(PYMQ_LANES)]),
            "lane_expired": tuple([stats.lane_expired[lane] for lane in range(PYMQ_LANES)]),
            "lane_taken": tuple([stats.lane_taken[lane] for lane in range(PYMQ_LANES)]),
            "lane_running": tuple([stats.lane_running[lane] for lane in range(PYMQ_LANES)]),
        }

    def trim(self):
        """Give memory that a burst of frames has left in malloc's arenas back to the system; whether it was tried.

        To be called now and then. It acts once when a burst is over, and costs some hundred microseconds then.
        """
        cdef pymq_transport_stats_s stats
        cdef int64_t moved, since
        pymq_transport_stats_read(self.begin(), &stats)
        moved = stats.bytes_in + stats.bytes_out
        since = moved - self.looked_at
        self.looked_at = moved
        if stats.buffer_bytes != 0 or since > TRIM_QUIET_BYTES or moved - self.trimmed_at < TRIM_BYTES_MIN:
            return False
        self.trimmed_at = moved
        with nogil:
            give_back_free_memory()
        return True

    def code_counts(self):
        """Per request code: how many were served natively (reason -1) and how many handed over, by reason."""
        cdef pymq_transport *transport = self.begin()
        cdef size_t index, found
        cdef pymq_code_count *rows = <pymq_code_count *>malloc(CODE_COUNTS_MAX * sizeof(pymq_code_count))
        if rows == NULL:
            raise MemoryError("rows of counters")
        try:
            found = pymq_transport_code_counts(transport, rows, CODE_COUNTS_MAX)
            return [CodeCount(rows[index].code, rows[index].reason, rows[index].count)
                    for index in range(min(found, <size_t>CODE_COUNTS_MAX))]
        finally:
            free(rows)


cdef object slice_of(const pymq_slice *piece):
    return None if piece.data == NULL else PyBytes_FromStringAndSize(<const char *>piece.data, piece.size)


def decode_command(bytes frame not None):
    """The C parser, for tests: (code, language, version, opaque, flag, type, remark, fields, body); None: ask Python."""
    cdef pymq_command command
    cdef uint32_t index
    cdef size_t size = PyBytes_GET_SIZE(frame)
    cdef uint8_t *scratch = <uint8_t *>malloc(size + 1)
    if scratch == NULL:
        raise MemoryError("scratch for a header")
    try:
        if pymq_command_decode(<const uint8_t *>PyBytes_AS_STRING(frame), size, scratch, size, &command) != PYMQ_OK:
            return None
        fields = [(slice_of(&command.fields[index].name), slice_of(&command.fields[index].value))
                  for index in range(command.field_count)]
        return (command.code, command.language, command.version, command.opaque, command.flag, command.serialize_type,
                slice_of(&command.remark), fields, slice_of(&command.body) or b"")
    finally:
        free(scratch)
