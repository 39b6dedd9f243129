# What a broker wants of its store besides messages: records as they stand in the log, where they lie, removal of topics.

cdef class _StoreRaw(_StoreReader):
    """Records as bytes, residency, removal."""

    cdef bytes record_of(self, pymq_store *store, int64_t physical_offset):
        """The bytes of the record at *physical_offset*, None when none begins there."""
        cdef pymq_span span
        cdef int status
        with nogil:
            status = pymq_store_record(store, physical_offset, 0, &span)
        if status == PYMQ_ENOTFOUND or status == PYMQ_ECORRUPT:
            return None
        if status != PYMQ_OK:
            raise error_of_record(self, status, physical_offset, None)
        try:
            return (<const char *>span.data)[:span.size]
        finally:
            with nogil:
                pymq_span_release(store, &span)

    def record(self, int64_t physical_offset):
        """The record that begins at *physical_offset*, as it stands in the log; None when none does."""
        cdef pymq_store *store = self.begin()
        try:
            return self.record_of(store, physical_offset) if physical_offset >= 0 else None
        finally:
            self.end()

    def query_records(self, str topic not None, str key not None, int64_t begin_ms, int64_t end_ms, int32_t max_count):
        """Records of *topic* with *key* stored in [begin_ms, end_ms]: the newest *max_count*, in the log's order."""
        cdef int64_t offsets[QUERY_MAX]
        cdef Py_ssize_t topic_size = 0
        cdef Py_ssize_t key_size = 0
        cdef const char *topic_data
        cdef const char *key_data
        cdef ssize_t count, index
        cdef pymq_store *store = self.begin()
        try:
            if not 1 <= max_count <= QUERY_MAX:
                raise _InvalidArgumentError(f"max_count is {max_count}; 1 to {QUERY_MAX} are possible")
            topic_data = PyUnicode_AsUTF8AndSize(topic, &topic_size)
            key_data = PyUnicode_AsUTF8AndSize(key, &key_size)
            with nogil:
                count = pymq_store_query(store, <const uint8_t *>topic_data, <size_t>topic_size,
                                         <const uint8_t *>key_data, <size_t>key_size, begin_ms, end_ms,
                                         offsets, <size_t>max_count)
            if count < 0:
                raise error_of_status(self, <int>count, f"looking up {key[:200]!r} in {topic[:200]!r}")
            found = [self.record_of(store, offset) for offset in sorted([offsets[index] for index in range(count)])]
            return [record for record in found if record is not None]
        finally:
            self.end()

    def indexed(self):
        """(physical offset, store time) of the last record indexed; (0, 0) when there is none."""
        cdef int64_t offset
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                offset = pymq_store_indexed(store)
            if offset < 0 or self.record_of(store, offset) is None:
                return 0, 0
            return offset, self.read_one(store, offset).store_timestamp_ms
        finally:
            self.end()

    def is_in_memory(self, str topic not None, int32_t queue_id, int64_t offset):
        """Whether the message at *offset* exists and could be read without waiting for the disk."""
        cdef pymq_cq_unit unit
        cdef pymq_queue *queue
        cdef bint resident = False
        cdef pymq_store *store = self.begin()
        try:
            queue = self.find_queue(topic, queue_id, False)
            if queue == NULL:
                return False
            with nogil:
                if pymq_queue_units(store, queue, offset, &unit, 1) == 1:
                    resident = pymq_store_is_resident(store, unit.physical_offset, unit.size)
            return bool(resident)
        finally:
            self.end()

    def remove_topic(self, str topic not None, int64_t timeout_ms=5000):
        """Remove every queue of *topic*; nothing happens when it has none. A topic of this name begins at offset 0 again.

        Nobody may be sending to it. Waits for the disk, and up to *timeout_ms* until what was sent is dispatched.

        Raises:
            StoreError: it could not be; then all queues are still there, unless the text speaks of the disk.
        """
        cdef Py_ssize_t size = 0
        cdef const char *data = PyUnicode_AsUTF8AndSize(topic, &size)
        cdef int32_t patience_ms = <int32_t>bounded_timeout(timeout_ms)
        cdef int status
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                status = pymq_store_remove_topic(store, <const uint8_t *>data, <size_t>size, patience_ms)
            self.topics.pop(topic, None)  # handles of queues that are dead now
            if status != PYMQ_OK and status != PYMQ_ENOTFOUND:
                raise error_of_status(self, status, f"removing the queues of {topic[:200]!r}")
        finally:
            self.end()
