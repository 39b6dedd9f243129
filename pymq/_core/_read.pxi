# Queues, units, records, look-ups. A record is delivered only if its structure, its body CRC and
# its own physical offset agree.

cdef class _StoreReader(_StoreWriter):
    """Queues, messages, look-ups."""

    cdef int settle(self, pymq_store *store) except -1:
        """Wait until dispatch has reached what is visible now, so that what was acknowledged can be read."""
        cdef int64_t deadline_us = monotonic_us() + SETTLE_MS_MAX * 1000
        cdef int status
        while True:
            with nogil:
                status = pymq_store_wait_dispatched(store, WAIT_SLICE_MS)
            if status != PYMQ_ETIMEDOUT or self.closing or monotonic_us() > deadline_us:
                return 0
            PyErr_CheckSignals()

    def wait_dispatched(self, int64_t timeout_ms):
        """Wait until dispatch has reached what is visible now; whether it has."""
        cdef int64_t deadline_us = monotonic_us() + bounded_timeout(timeout_ms) * 1000
        cdef int64_t remaining_ms
        cdef int status
        cdef pymq_store *store = self.begin()
        try:
            while True:
                remaining_ms = max(0, (deadline_us - monotonic_us() + 999) // 1000)
                with nogil:
                    status = pymq_store_wait_dispatched(store, <int32_t>min(remaining_ms, WAIT_SLICE_MS))
                if status != PYMQ_ETIMEDOUT or remaining_ms <= WAIT_SLICE_MS:
                    return status == PYMQ_OK
                if self.closing:
                    raise closed_error(self)
                PyErr_CheckSignals()
        finally:
            self.end()

    def wait_arrival(self, str topic not None, int32_t queue_id, int64_t offset, int64_t timeout_ms):
        """Wait until the queue has a message at *offset*; whether it has."""
        cdef int64_t deadline_us = monotonic_us() + bounded_timeout(timeout_ms) * 1000
        cdef int64_t remaining_ms
        cdef pymq_queue *queue
        cdef int status
        cdef pymq_store *store = self.begin()
        try:
            if offset >= OFFSET_LIMIT:
                raise _InvalidArgumentError(f"waiting for offset {offset}: no queue gets to {OFFSET_LIMIT}")
            queue = self.known_queue(topic, queue_id)
            while True:
                remaining_ms = max(0, (deadline_us - monotonic_us() + 999) // 1000)
                with nogil:
                    status = pymq_queue_wait(store, queue, offset, <int32_t>min(remaining_ms, WAIT_SLICE_MS))
                if self.closing or status == PYMQ_ECLOSED:
                    raise closed_error(self)
                if status == PYMQ_OK:
                    return True
                if status != PYMQ_ETIMEDOUT:
                    raise error_of_status(self, status, f"waiting for {topic[:200]} queue {queue_id} offset {offset}",
                                          QUEUE_WINDOWS)
                if remaining_ms <= WAIT_SLICE_MS:
                    return False
                PyErr_CheckSignals()
        finally:
            self.end()

    cdef pymq_queue *known_queue(self, str topic, int32_t queue_id) except NULL:
        """The handle of a queue that must exist."""
        cdef pymq_queue *queue = self.find_queue(topic, queue_id, False)
        if queue == NULL:
            raise _QueueNotFoundError(f"{self.path}: no message was ever stored in topic {topic[:200]!r} queue {queue_id}")
        return queue

    def queues(self, bint settle=True):
        """(topic, queue_id, min_offset, max_offset) of every queue, in no order."""
        cdef pymq_queue **handles = NULL
        cdef pymq_queue_info_s info
        cdef size_t count, index, capacity
        cdef list found = []
        cdef pymq_store *store = self.begin()
        try:
            if settle:
                self.settle(store)
            capacity = pymq_store_queues(store, NULL, 0) + 64
            while True:
                handles = <pymq_queue **>malloc(capacity * sizeof(pymq_queue *))
                if handles == NULL:
                    raise MemoryError(f"handles of {capacity} queues")
                with nogil:
                    count = pymq_store_queues(store, handles, capacity)
                if count <= capacity:
                    break
                free(handles)
                handles = NULL
                capacity = count + 64
            for index in range(count):
                pymq_queue_info(handles[index], &info)
                found.append((info.topic.data[:info.topic.size].decode("utf-8", "replace"), info.queue_id,
                              info.min_offset, info.max_offset))
            return found
        finally:
            free(handles)
            self.end()

    def queue_count(self):
        """How many queues there are, over all topics."""
        cdef pymq_store *store = self.begin()
        try:
            return pymq_store_queues(store, NULL, 0)
        finally:
            self.end()

    def queue_range(self, str topic not None, int32_t queue_id, bint settle=True):
        """(min_offset, max_offset) of one queue."""
        cdef pymq_queue_info_s info
        cdef pymq_queue *queue
        cdef pymq_store *store = self.begin()
        try:
            queue = self.known_queue(topic, queue_id)
            if settle:
                self.settle(store)
            with nogil:
                pymq_queue_info(queue, &info)
            return info.min_offset, info.max_offset
        finally:
            self.end()

    cdef object offset_error(self, int status, pymq_queue *queue, str topic, int32_t queue_id, int64_t offset):
        """Why units cannot be read from *offset*."""
        cdef pymq_queue_info_s info
        if status != PYMQ_ENOTFOUND:
            return error_of_status(self, status, f"reading {topic[:200]} queue {queue_id} at {offset}", QUEUE_WINDOWS)
        pymq_queue_info(queue, &info)
        return _OffsetNotFoundError(
            f"{self.path}: {topic[:200]} queue {queue_id} has the offsets {info.min_offset} to {info.max_offset} (exclusive), "
            f"not {offset}",
            offset_min=info.min_offset, offset_max=info.max_offset,
        )

    def read(self, str topic not None, int32_t queue_id, int64_t offset, int32_t max_count=32, bint settle=True):
        """Up to *max_count* messages from *offset* on; an empty list at the queue's end."""
        cdef pymq_cq_unit units[UNITS_MAX]
        cdef pymq_queue *queue
        cdef list messages = []
        cdef ssize_t count
        cdef size_t wanted
        cdef pymq_store *store = self.begin()
        try:
            if max_count < 1:
                raise _InvalidArgumentError(f"max_count is {max_count}; at least 1 makes sense")
            queue = self.known_queue(topic, queue_id)
            if offset >= OFFSET_LIMIT:
                raise self.offset_error(PYMQ_ENOTFOUND, queue, topic, queue_id, offset)
            while len(messages) < max_count:
                wanted = <size_t>min(UNITS_MAX, max_count - len(messages))
                with nogil:
                    count = pymq_queue_units(store, queue, offset, units, wanted)
                if count < <ssize_t>wanted and settle:
                    # The queue's end: what was acknowledged before this call may still be on its way there.
                    settle = False
                    self.settle(store)
                    with nogil:
                        count = pymq_queue_units(store, queue, offset, units, wanted)
                if count < 0 and not messages:
                    raise self.offset_error(<int>count, queue, topic, queue_id, offset)
                if count <= 0 or not self.read_units(store, units, NULL, offset, count, topic, queue_id, messages):
                    break
                offset += count
            return messages
        finally:
            self.end()

    def read_tagged(self, str topic not None, int32_t queue_id, int64_t offset, tags, int32_t max_count=32,
                    bint settle=True):
        """Messages with one of *tags* from *offset* on, and the offset to go on from."""
        cdef pymq_cq_unit units[UNITS_MAX]
        cdef int64_t offsets[UNITS_MAX]
        cdef int64_t hashes[TAGS_MAX]
        cdef int64_t following = offset
        cdef size_t hash_count = 0
        cdef size_t wanted
        cdef Py_ssize_t size = 0
        cdef const char *data
        cdef pymq_queue *queue
        cdef list found = []
        cdef ssize_t count
        cdef pymq_store *store = self.begin()
        try:
            words = frozenset(tags)
            if not 1 <= len(words) <= TAGS_MAX or max_count < 1:
                raise _InvalidArgumentError(f"{len(words)} tags and max_count {max_count}; 1 to {TAGS_MAX} tags, at least 1 message")
            for word in words:
                data = PyUnicode_AsUTF8AndSize(word, &size)
                hashes[hash_count] = pymq_java_hash(0, <const uint8_t *>data, <size_t>size)
                hash_count += 1
            queue = self.known_queue(topic, queue_id)
            if offset >= OFFSET_LIMIT:
                raise self.offset_error(PYMQ_ENOTFOUND, queue, topic, queue_id, offset)
            wanted = <size_t>min(UNITS_MAX, max_count)
            with nogil:
                count = pymq_queue_units_by_tag(store, queue, offset, hashes, hash_count, units, offsets, wanted, &following)
            if count < <ssize_t>wanted and settle:
                self.settle(store)
                with nogil:
                    count = pymq_queue_units_by_tag(store, queue, offset, hashes, hash_count, units, offsets, wanted,
                                                    &following)
            if count < 0:
                raise self.offset_error(<int>count, queue, topic, queue_id, offset)
            if not self.read_units(store, units, offsets, 0, count, topic, queue_id, found):
                following = offsets[len(found)]
            # Only hashes stand in the queue: a message with another tag of the same hash is left out here.
            return [message for message in found if message.tags in words], following
        finally:
            self.end()

    cdef bint read_units(self, pymq_store *store, pymq_cq_unit *units, int64_t *offsets, int64_t first_offset,
                         ssize_t count, str topic, int32_t queue_id, list target) except -1:
        """Append the messages of *units* to *target*; False when it stopped before one that cannot be delivered.

        The first failure raises when it would be the first message of the answer; otherwise the good ones before it are
        delivered and the next read begins at it.
        """
        cdef pymq_span spans[READ_BATCH]
        cdef pymq_record records[READ_BATCH]
        cdef ssize_t position = 0
        cdef ssize_t batch, taken, index
        cdef ssize_t decoded
        cdef int status = PYMQ_OK
        while position < count:
            batch = min(<ssize_t>READ_BATCH, count - position)
            taken = 0
            with nogil:
                while taken < batch:
                    status = pymq_store_record(store, units[position + taken].physical_offset,
                                               <uint32_t>units[position + taken].size, &spans[taken])
                    if status != PYMQ_OK:
                        break
                    decoded = pymq_record_decode(spans[taken].data, spans[taken].size,
                                                 PYMQ_CHECK_BODY_CRC | PYMQ_CHECK_OFFSET,
                                                 units[position + taken].physical_offset, &records[taken])
                    if decoded <= 0:
                        status = <int>decoded if decoded < 0 else PYMQ_ECORRUPT
                        pymq_span_release(store, &spans[taken])
                        break
                    taken += 1
            try:
                for index in range(taken):
                    target.append(message_of_record(&records[index], topic))
            finally:
                with nogil:
                    for index in range(taken):
                        pymq_span_release(store, &spans[index])
            position += taken
            if status == PYMQ_EMAPS and taken:
                status = PYMQ_OK  # fewer windows than a batch wants: go on with what was released
                continue
            if status != PYMQ_OK:
                if target:
                    return False
                queue_offset = first_offset + position if offsets == NULL else offsets[position]
                raise self.record_error(status, units[position].physical_offset, topic, queue_id, queue_offset)
        return True

    cdef object record_error(self, int status, int64_t physical_offset, str topic, int32_t queue_id, int64_t queue_offset):
        """Why the record a unit refers to cannot be delivered; with the queue's range when it is gone."""
        cdef pymq_queue_info_s info
        error = error_of_record(self, status, physical_offset, (topic, queue_id, queue_offset))
        if status == PYMQ_ENOTFOUND:
            pymq_queue_info(self.known_queue(topic, queue_id), &info)
            error.offset_min, error.offset_max = info.min_offset, info.max_offset
        return error

    cdef ReceivedMessage read_one(self, pymq_store *store, int64_t physical_offset):
        """The message whose record begins at *physical_offset*."""
        cdef pymq_span span
        cdef pymq_record record
        cdef ssize_t decoded = 0
        cdef int status
        with nogil:
            status = pymq_store_record(store, physical_offset, 0, &span)
            if status == PYMQ_OK:
                decoded = pymq_record_decode(span.data, span.size, PYMQ_CHECK_BODY_CRC | PYMQ_CHECK_OFFSET, physical_offset,
                                             &record)
        if status != PYMQ_OK:
            raise error_of_record(self, status, physical_offset, None)
        try:
            if decoded <= 0:
                raise error_of_record(self, <int>decoded if decoded < 0 else PYMQ_ECORRUPT, physical_offset, None)
            return message_of_record(&record, None)
        finally:
            with nogil:
                pymq_span_release(store, &span)

    def read_record(self, int64_t physical_offset):
        """The message whose record begins at *physical_offset*."""
        cdef pymq_store *store = self.begin()
        try:
            if physical_offset < 0:
                raise _InvalidArgumentError(f"physical offset {physical_offset} is below 0")
            return self.read_one(store, physical_offset)
        finally:
            self.end()

    def query(self, str topic not None, str key not None, int64_t begin_ms=0, int64_t end_ms=INT64_MAX,
              int32_t max_count=32):
        """Messages of *topic* with *key*, stored in [begin_ms, end_ms], newest first."""
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
            self.settle(store)
            with nogil:
                count = pymq_store_query(store, <const uint8_t *>topic_data, <size_t>topic_size,
                                         <const uint8_t *>key_data, <size_t>key_size, begin_ms, end_ms,
                                         offsets, <size_t>max_count)
            if count < 0:
                raise error_of_status(self, <int>count, f"looking up {key[:200]!r} in {topic[:200]!r}")
            return [self.read_one(store, offsets[index]) for index in range(count)]
        finally:
            self.end()

    def offset_by_time(self, str topic not None, int32_t queue_id, int64_t timestamp_ms, bint upper=False):
        """The queue offset of the first message stored at or after the time (upper: the last at or before it)."""
        cdef pymq_queue *queue
        cdef int64_t offset
        cdef pymq_store *store = self.begin()
        try:
            queue = self.known_queue(topic, queue_id)
            self.settle(store)
            with nogil:
                offset = pymq_queue_offset_by_time(store, queue, timestamp_ms,
                                                   PYMQ_BOUNDARY_UPPER if upper else PYMQ_BOUNDARY_LOWER)
            if offset < 0:
                raise error_of_status(self, <int>offset, f"looking up time {timestamp_ms} in {topic[:200]} queue {queue_id}",
                                      f"{LOG_WINDOWS} or {QUEUE_WINDOWS}")
            return offset
        finally:
            self.end()
