# The lifetime of an open store, and the handles of its queues.

cdef class _TopicQueues:
    """Handles of a topic's queues; they live as long as the store."""

    cdef pymq_queue *queues[CACHED_QUEUES]


cdef class _StoreHandle:
    """The lifetime of one open store: who is inside the core, and when it may be closed."""

    cdef pymq_store *store
    cdef int generation  # of the process that opened it
    cdef int active      # calls inside the core; guarded by the GIL
    cdef unsigned long *callers  # the thread of each of them
    cdef int callers_capacity
    cdef bint closing
    cdef bint abandoning
    cdef int borrowers   # other native modules that use the store; guarded by the GIL
    cdef readonly int pid
    cdef readonly str path
    cdef readonly object config
    cdef pymq_host host
    cdef str host_hex
    cdef int64_t log_file_size
    cdef int32_t message_size_max
    cdef uint32_t properties_size_max
    cdef int32_t pool_size
    cdef int32_t pool_wait_ms
    cdef int32_t sync_flush_timeout_ms
    cdef dict topics
    cdef Scratch *scratches[SCRATCHES_MAX]
    cdef int scratch_count
    cdef bytes key_prefix
    cdef int64_t key_month_begin_ms
    cdef int64_t key_month_end_ms
    cdef uint32_t key_counter
    cdef object __weakref__

    def __cinit__(self, path, config, progress=None):
        cdef pymq_store_config settings
        cdef pymq_error error
        cdef pymq_store *opened = NULL
        cdef int status
        # Absolute before anything else: files are opened by name later, when the working directory may be another.
        cdef bytes encoded = _os.fsencode(_pathlib.Path(_os.fsdecode(path)).absolute())
        cdef const char *name = encoded
        self.path = _os.fsdecode(encoded)
        self.config = config
        self.pid = _os.getpid()
        self.generation = process_generation
        self.topics = {}
        memset(&settings, 0, sizeof(settings))
        memset(&error, 0, sizeof(error))
        fill_config(config, &settings, self)
        if progress is not None:
            settings.progress = report_progress
            settings.progress_context = <void *>progress
        self.host_hex = hex_of_host(&self.host)
        # Compat: UNIQ_KEY is address, process, a number of this instance, milliseconds into the month, a counter.
        self.key_prefix = (
            self.host.address[:self.host.size] + (self.pid & 0xFFFF).to_bytes(2, "big") + _os.urandom(4)
        ).hex().upper().encode("ascii")
        with nogil:
            status = pymq_store_open(name, &settings, &opened, &error)
        if status != PYMQ_OK:
            raise error_of_text(status, &error)
        self.store = opened

    def __del__(self):
        if self.store != NULL and self.generation == process_generation:
            _warnings.warn(f"store {self.path} was dropped open; use `with` or close()", ResourceWarning, source=self)
            self.close()

    def __dealloc__(self):
        free(self.callers)
        while self.scratch_count:
            self.scratch_count -= 1
            free_scratch(self.scratches[self.scratch_count])

    cdef pymq_store *begin(self) except NULL:
        """Count a call in. The next statement is the `try` whose `finally` counts it out with `end()`.

        Nothing that can raise stands between the two: a call that stays counted would keep close() waiting for ever.
        """
        cdef unsigned long *grown
        if self.generation != process_generation:
            raise forked_error(self)
        if self.store == NULL or self.closing:
            raise closed_error(self)
        if self.active == self.callers_capacity:
            grown = <unsigned long *>realloc(self.callers, <size_t>(2 * self.active + 16) * sizeof(unsigned long))
            if grown == NULL:
                raise MemoryError("a place to note the calling thread")
            self.callers = grown
            self.callers_capacity = 2 * self.active + 16
        self.callers[self.active] = PyThread_get_thread_ident()
        self.active += 1
        return self.store

    cdef void end(self) noexcept:
        """Count this thread's newest call out."""
        cdef unsigned long thread = PyThread_get_thread_ident()
        cdef int index = self.active - 1
        while index > 0 and self.callers[index] != thread:
            index -= 1
        self.active -= 1
        self.callers[index] = self.callers[self.active]

    def _borrow(self):
        """The core's store as a capsule named "pymq_store", for another native module, which keeps this object alive.

        It stays open until as many _give_back() have followed.
        """
        cdef pymq_store *store = self.begin()
        try:
            capsule = PyCapsule_New(store, "pymq_store", NULL)
            self.borrowers += 1
            return capsule
        finally:
            self.end()

    def _give_back(self):
        """What was borrowed is not used any more."""
        self.borrowers -= 1

    @property
    def inside(self):
        """Whether the calling thread is inside a call of this store already: in a signal handler, or a callback."""
        cdef unsigned long thread = PyThread_get_thread_ident()
        cdef int index
        for index in range(self.active):
            if self.callers[index] == thread:
                return True
        return False

    @property
    def closed(self):
        """Whether close() was called."""
        return self.store == NULL or self.closing

    @property
    def forked(self):
        """Whether this is a child of the process that opened the store."""
        return self.generation != process_generation

    def close(self):
        """Flush, write the checkpoint, stop the threads. Waits for calls in other threads; idempotent.

        Raises:
            StoreError: the stop was not clean; `abort` stays and the next open recovers. Or this thread is inside
                another call, which close() would wait for.
        """
        cdef int status = PYMQ_OK
        cdef pymq_store *store
        cdef pymq_error failure
        if self.generation != process_generation:
            raise forked_error(self)
        if self.inside:
            raise reentry_error(self, "close()")
        if self.borrowers:
            raise borrowed_error(self, "close()")
        store = self.take(True)
        if store != NULL:
            memset(&failure, 0, sizeof(failure))
            pymq_store_failure(store, &failure)
            with nogil:
                status = pymq_store_close(store)
            self.closing = False
            if status != PYMQ_OK:
                raise error_of_close(self, status, &failure)

    def abandon(self):
        """As a crash of this process would leave it: flush and write nothing, keep `abort`. For tests."""
        cdef pymq_store *store
        if self.generation != process_generation:
            raise forked_error(self)
        if self.inside:
            raise reentry_error(self, "abandon()")
        if self.borrowers:
            raise borrowed_error(self, "abandon()")
        store = self.take(False)
        if store != NULL:
            with nogil:
                pymq_store_abandon(store)
            self.closing = False

    def shut(self):
        """The first half of a close: refuse sends, flush, wake everybody who waits. Reads still work."""
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                pymq_store_shut(store)
        finally:
            self.end()

    cdef pymq_store *take(self, bint orderly) noexcept:
        """Let nobody in, wait until everybody is out; NULL when another thread has done so already."""
        cdef pymq_store *store
        if self.closing:
            while self.closing:
                with nogil:
                    usleep(CLOSE_POLL_US)
            return NULL
        if self.store == NULL:
            return NULL
        self.closing = True
        self.abandoning = not orderly
        if orderly:
            with nogil:
                pymq_store_shut(self.store)
        while self.active:
            with nogil:
                usleep(CLOSE_POLL_US)
        store = self.store
        self.store = NULL
        return store

    cdef pymq_queue *find_queue(self, str topic, int32_t queue_id, bint create) except? NULL:
        """The queue's handle; NULL without an exception when it does not exist and is not to be made."""
        cdef Py_ssize_t size = 0
        cdef pymq_queue *queue = NULL
        cdef _TopicQueues known = <_TopicQueues>self.topics.get(topic)
        cdef const char *name
        cdef int status
        cdef bint cached = 0 <= queue_id < CACHED_QUEUES
        if known is not None and cached and known.queues[queue_id] != NULL:
            return known.queues[queue_id]
        name = PyUnicode_AsUTF8AndSize(topic, &size)
        with nogil:
            status = pymq_store_queue(self.store, <const uint8_t *>name, <size_t>size, queue_id, create, &queue)
        if status == PYMQ_ENOTFOUND:
            return NULL
        if status != PYMQ_OK:
            raise error_of_status(self, status, f"topic {topic[:200]!r} queue {queue_id}", QUEUE_WINDOWS)
        if cached:
            if known is None:
                known = self.topics.setdefault(topic, _TopicQueues())
            known.queues[queue_id] = queue
        return queue
