# A serving's life: opened over a store, attached to a transport, closed before the store and after the transport.

cdef class _ServeHandle:
    """The serving's pointer, its store, and the count of calls inside the core."""

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
