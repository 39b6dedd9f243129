# Sending one and many, waiting for the acknowledgement.

cdef class _StoreWriter(_StoreHandle):
    """Sending one and many, and waiting for the acknowledgement."""

    cdef Scratch *borrow(self) except NULL:
        cdef Scratch *scratch
        if self.scratch_count:
            self.scratch_count -= 1
            scratch = self.scratches[self.scratch_count]
        else:
            scratch = <Scratch *>calloc(1, sizeof(Scratch))
            if scratch == NULL:
                raise MemoryError("a scratch buffer")
            scratch.buffer = <uint8_t *>malloc(4096)
            scratch.capacity = 4096 if scratch.buffer != NULL else 0
        scratch.properties_size = 0
        return scratch

    cdef void give_back(self, Scratch *scratch) noexcept:
        if scratch == NULL:
            return
        if self.scratch_count == SCRATCHES_MAX or scratch.capacity + scratch.properties_capacity > SCRATCH_KEPT_SIZE:
            free_scratch(scratch)
            return
        self.scratches[self.scratch_count] = scratch
        self.scratch_count += 1

    cdef uint32_t key_time(self, int64_t now):
        """Milliseconds since the month began (local time): what a UNIQ_KEY keeps of the time."""
        if now >= self.key_month_end_ms or now < self.key_month_begin_ms:
            local = _time.localtime(now / 1000)
            year, month = local.tm_year, local.tm_mon
            following = (year + 1, 1) if month == 12 else (year, month + 1)
            self.key_month_begin_ms = <int64_t>_time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1)) * 1000
            self.key_month_end_ms = <int64_t>_time.mktime((*following, 1, 0, 0, 0, 0, 0, -1)) * 1000
        return <uint32_t>(now - self.key_month_begin_ms)

    cdef int append_properties(self, Scratch *scratch, Pending *pending, object tags, object keys, object properties,
                               bint unique_key, list given_key) except -1:
        """Encode a message's properties behind what *scratch* holds; a generated UNIQ_KEY's tail is filled in later."""
        cdef size_t at = scratch.properties_size
        cdef size_t prefix_size = <size_t>len(self.key_prefix)
        if properties is not None:
            for name, value in properties.items():
                if name == "UNIQ_KEY":
                    unique_key = False
                    given_key.append(value)
                elif (name == "TAGS" and tags is not None) or (name == "KEYS" and keys is not None):
                    raise _InvalidArgumentError(f"{name} is given twice: as an argument and among the properties")
                put_property(scratch, name, value)
        if keys:
            put_property(scratch, "KEYS", joined_keys(keys))
        if tags:
            put_property(scratch, "TAGS", tags)
        pending.key_at = NO_KEY
        if unique_key:
            reserve(&scratch.properties, &scratch.properties_capacity,
                    scratch.properties_size + 9 + prefix_size + KEY_TAIL_SIZE + 1)
            memcpy(scratch.properties + scratch.properties_size, PyBytes_AS_STRING(UNIQUE_KEY_NAME), 9)
            pending.key_at = scratch.properties_size + 9
            memcpy(scratch.properties + pending.key_at, PyBytes_AS_STRING(self.key_prefix), prefix_size)
            scratch.properties_size = pending.key_at + prefix_size + KEY_TAIL_SIZE
            scratch.properties[scratch.properties_size] = 2
            scratch.properties_size += 1
        pending.properties_at = at
        pending.properties_size = <uint32_t>(scratch.properties_size - at)
        if pending.properties_size > self.properties_size_max:
            raise _PropertiesTooLargeError(
                f"{self.path}: the properties take {pending.properties_size} bytes; {self.properties_size_max} are possible"
            )
        return 0

    cdef int check_body(self, Py_ssize_t size) except -1:
        if size > self.message_size_max:
            raise _MessageTooLargeError(
                f"{self.path}: a body of {size} bytes; max_message_size is {self.message_size_max}",
                size=size, size_max=self.message_size_max,
            )
        return 0

    cdef void template(self, pymq_record *record, const uint8_t *topic, Py_ssize_t topic_size) noexcept:
        memset(record, 0, sizeof(pymq_record))
        record.born_host = self.host
        record.store_host = self.host
        record.topic.data = topic
        record.topic.size = <uint32_t>topic_size

    def send(self, str topic not None, body, *, int32_t queue_id=0, str tags=None, keys=None, properties=None,
             int32_t flag=0, int32_t sys_flag=0, born_timestamp_ms=None, bint wait=True, timeout_ms=None,
             bint unique_key=True):
        """Append one message; with *wait*, return once it is acknowledged by the store's flush mode."""
        cdef Scratch *scratch = NULL
        cdef Pending pending
        cdef pymq_record record
        cdef pymq_append_item item
        cdef pymq_append_result appended
        cdef SendResult result
        cdef list given_key = None if properties is None else []
        cdef bytes payload
        cdef const char *name
        cdef Py_ssize_t topic_size = 0
        cdef ssize_t encoded
        cdef uint32_t key_time = 0
        cdef int64_t begin_us = monotonic_us()
        cdef int64_t now = now_ms()
        cdef int32_t slice_ms = 0
        cdef int64_t timeout = bounded_timeout(self.sync_flush_timeout_ms if timeout_ms is None else timeout_ms)
        cdef int status = PYMQ_OK
        cdef int acknowledged = PYMQ_OK
        cdef pymq_store *store = self.begin()
        try:
            payload = <bytes>body if type(body) is bytes else bytes_of(body)
            self.check_body(PyBytes_GET_SIZE(payload))
            scratch = self.borrow()
            self.append_properties(scratch, &pending, tags, keys, properties, unique_key, given_key)
            if pending.key_at != NO_KEY:
                key_time = self.key_time(now)
                write_key_tail(scratch.properties + pending.key_at + len(self.key_prefix), key_time,
                               <uint16_t>self.key_counter)
                self.key_counter += 1
            item.queue = self.find_queue(topic, queue_id, True)
            name = PyUnicode_AsUTF8AndSize(topic, &topic_size)
            self.template(&record, <const uint8_t *>name, topic_size)
            record.queue_id = queue_id
            record.flag = flag
            record.sys_flag = sys_flag
            record.born_timestamp_ms = now if born_timestamp_ms is None else born_timestamp_ms
            record.body.data = <const uint8_t *>PyBytes_AS_STRING(payload)
            record.body.size = <uint32_t>PyBytes_GET_SIZE(payload)
            record.properties.data = scratch.properties
            record.properties.size = pending.properties_size
            reserve(&scratch.buffer, &scratch.capacity,
                    record.body.size + record.topic.size + record.properties.size + RECORD_FIXED_MAX)
            slice_ms = <int32_t>min(timeout, WAIT_SLICE_MS)
            with nogil:
                encoded = pymq_record_encode(&record, scratch.buffer, scratch.capacity)
                if encoded < 0:
                    status = <int>encoded
                else:
                    item.record = scratch.buffer
                    item.size = <uint32_t>encoded
                    status = pymq_store_append(store, &item, 1, 0, &appended)
                    if status == PYMQ_OK:
                        if wait:
                            acknowledged = pymq_store_wait_acknowledged(store, appended.end_offset, slice_ms)
                        else:
                            pymq_store_poll_acknowledged(store, appended.end_offset)
            if status != PYMQ_OK:
                raise error_of_status(self, status, f"send to {topic[:200]} queue {queue_id}")
            result = SendResult.__new__(SendResult)
            result.topic = topic
            result.queue_id = queue_id
            result.queue_offset = item.queue_offset
            result.physical_offset = item.physical_offset
            result.store_size = item.size
            result.store_timestamp_ms = appended.store_timestamp_ms
            result.host_hex = self.host_hex
            if pending.key_at != NO_KEY:
                result.key_size = <int>PyBytes_GET_SIZE(self.key_prefix) + KEY_TAIL_SIZE
                memcpy(result.key, scratch.properties + pending.key_at, <size_t>result.key_size)
            elif given_key:
                result.given_key = given_key[-1]
            if acknowledged != PYMQ_OK:
                if acknowledged == PYMQ_ETIMEDOUT and slice_ms < timeout:
                    acknowledged = self.await_acknowledged(store, appended.end_offset, timeout - slice_ms)
                if acknowledged != PYMQ_OK:
                    raise self.unacknowledged(acknowledged, result, timeout)
            pymq_store_count_put(store, 1, item.size, monotonic_us() - begin_us)
            return result
        finally:
            self.give_back(scratch)
            self.end()

    cdef object unacknowledged(self, int status, object result, int64_t timeout_ms):
        """The exception for a message that is in the log but not acknowledged; carries its place."""
        if status == PYMQ_ETIMEDOUT:
            error = _FlushTimeoutError(
                f"{self.path}: not acknowledged within {timeout_ms} ms (sync_flush_timeout_ms); the message is in the log "
                "and may still become durable"
            )
        else:
            error = error_of_status(self, status, "waiting for the acknowledgement")
        error.result = result
        return error

    cdef int await_acknowledged(self, pymq_store *store, int64_t end_offset, int64_t timeout_ms) except? -99:
        """Wait in slices, so that signals are served and a close in another thread is noticed."""
        cdef int64_t deadline_us = monotonic_us() + timeout_ms * 1000
        cdef int64_t remaining_ms
        cdef int status
        while True:
            PyErr_CheckSignals()
            if self.abandoning:
                return PYMQ_ECLOSED  # an orderly close flushes first, and the core answers
            remaining_ms = max(0, (deadline_us - monotonic_us() + 999) // 1000)
            with nogil:
                status = pymq_store_wait_acknowledged(store, end_offset, <int32_t>min(remaining_ms, WAIT_SLICE_MS))
            if status != PYMQ_ETIMEDOUT or remaining_ms <= WAIT_SLICE_MS:
                return status

    def wait_acknowledged(self, int64_t end_offset, timeout_ms=None):
        """Return once everything below *end_offset* is acknowledged; raises FlushTimeoutError, StoreFailedError."""
        cdef int64_t timeout = bounded_timeout(self.sync_flush_timeout_ms if timeout_ms is None else timeout_ms)
        cdef int status
        cdef pymq_store *store = self.begin()
        try:
            status = self.await_acknowledged(store, end_offset, timeout)
            if status != PYMQ_OK:
                raise self.unacknowledged(status, None, timeout)
        finally:
            self.end()

    def poll_acknowledged(self, int64_t end_offset):
        """Whether everything below *end_offset* is acknowledged; asks the flusher for a round when not."""
        cdef int status
        cdef pymq_store *store = self.begin()
        try:
            with nogil:
                status = pymq_store_poll_acknowledged(store, end_offset)
            if status != PYMQ_OK and status != PYMQ_ETIMEDOUT:
                raise error_of_status(self, status, "waiting for the acknowledgement")
            return status == PYMQ_OK
        finally:
            self.end()

    cdef SendManyResult new_many_result(self, str topic, Py_ssize_t count):
        cdef SendManyResult result = SendManyResult.__new__(SendManyResult)
        result.topic = topic
        result.host_hex = self.host_hex
        result.key_prefix = self.key_prefix
        result.items = <SentItem *>malloc(max(1, <size_t>count) * sizeof(SentItem))
        if result.items == NULL:
            raise MemoryError(f"results of {count} messages")
        return result

    cdef list checked_messages(self, list checked):
        """Their bodies, every one checked before anything is appended.

        The answer holds the bytes whose addresses are used later: a Message's own attribute may be computed anew each
        time it is asked for. Bodies alone are their own answer.
        """
        global message_type
        cdef list bodies = checked
        cdef Py_ssize_t index
        if message_type is None:
            from pymq.message import Message
            message_type = Message
        for index in range(len(checked)):
            message = checked[index]
            if type(message) is bytes:
                self.check_body(PyBytes_GET_SIZE(message))
            elif isinstance(message, message_type):
                body = message.body
                if type(body) is not bytes:
                    raise TypeError(f"message {index}: a Message's body is bytes, not {type(body).__name__}")
                self.check_body(PyBytes_GET_SIZE(body))
                if bodies is checked:
                    bodies = list(checked)
                bodies[index] = body
            else:
                checked[index] = bytes_of(message)
                bodies[index] = checked[index]
                self.check_body(PyBytes_GET_SIZE(checked[index]))
        return bodies

    cdef int prepare_pending(self, Scratch *scratch, Pending *pending, object message, bytes body, int64_t now,
                             bint unique_key, Py_ssize_t position, SendManyResult result) except -1:
        """Take one message's pointers and encode its properties. The caller holds *body* while they are used."""
        cdef list given_key
        pending.flag = 0
        pending.sys_flag = 0
        pending.born_timestamp_ms = now
        if type(message) is bytes:
            self.append_properties(scratch, pending, None, None, None, unique_key, None)
        else:
            given_key = []
            self.append_properties(scratch, pending, message.tags, message.keys, message.properties, unique_key, given_key)
            pending.flag = message.flag
            pending.sys_flag = message.sys_flag
            if message.born_timestamp_ms is not None:
                pending.born_timestamp_ms = message.born_timestamp_ms
            if given_key:
                if result.given_keys is None:
                    result.given_keys = {}
                result.given_keys[position] = given_key[-1]
        pending.body = <const uint8_t *>PyBytes_AS_STRING(body)
        pending.body_size = <uint32_t>PyBytes_GET_SIZE(body)
        return 0

    def send_many(self, str topic not None, messages, *, queue_id=0, bint wait=True, timeout_ms=None,
                  bint unique_key=True, bint together=False):
        """Append many messages, in chunks, and wait once for all of them."""
        cdef Scratch *scratch = NULL
        cdef SendManyResult result = None
        cdef pymq_queue **queues = NULL
        cdef int32_t *queue_ids = NULL
        cdef list checked = list(messages)
        cdef list bodies
        cdef list ids = [queue_id] if isinstance(queue_id, int) else list(queue_id)
        cdef Py_ssize_t total, count, index
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t queue_count = len(ids)
        cdef Py_ssize_t topic_size = 0
        cdef const char *name
        cdef size_t wanted
        cdef size_t count_max = CHUNK_COUNT_MAX
        cdef size_t size_max = CHUNK_SIZE_MAX
        cdef pymq_append_result appended
        cdef uint32_t key_time
        cdef int64_t begin_us = monotonic_us()
        cdef int64_t now, put_bytes = 0
        cdef int64_t timeout = bounded_timeout(self.sync_flush_timeout_ms if timeout_ms is None else timeout_ms)
        cdef int status = PYMQ_OK
        cdef pymq_store *store = self.begin()
        try:
            if not ids:
                raise _InvalidArgumentError("queue_id is an empty sequence; name at least one queue")
            bodies = self.checked_messages(checked)
            total = len(checked)
            result = self.new_many_result(topic, total)
            scratch = self.borrow()
            if together:
                # Compat: a client's batch is bounded as a whole by the size of one message.
                count_max = <size_t>max(1, total)
                size_max = <size_t>self.message_size_max
            reserve_pending(scratch, count_max)
            queues = <pymq_queue **>calloc(<size_t>queue_count, sizeof(pymq_queue *))
            queue_ids = <int32_t *>calloc(<size_t>queue_count, sizeof(int32_t))
            if queues == NULL or queue_ids == NULL:
                raise MemoryError("queue handles")
            for index in range(queue_count):
                queue_ids[index] = ids[index]
                queues[index] = self.find_queue(topic, queue_ids[index], True)
            name = PyUnicode_AsUTF8AndSize(topic, &topic_size)
            while position < total:
                PyErr_CheckSignals()
                if self.closing:
                    raise closed_error(self)
                now = now_ms()
                key_time = self.key_time(now)
                scratch.properties_size = 0
                wanted = 0
                count = 0
                while position + count < total and <size_t>count < count_max and (wanted < size_max or together):
                    index = (position + count) % queue_count
                    self.prepare_pending(scratch, &scratch.pending[count], checked[position + count],
                                         <bytes>bodies[position + count], now, unique_key, position + count, result)
                    scratch.pending[count].queue = queues[index]
                    scratch.pending[count].queue_id = queue_ids[index]
                    wanted += (scratch.pending[count].body_size + scratch.pending[count].properties_size
                               + <size_t>topic_size + RECORD_FIXED_MAX)
                    count += 1
                if together and wanted > size_max:
                    raise _MessageTooLargeError(
                        f"{self.path}: {total} messages together take {wanted} bytes; as one batch they may take "
                        f"max_message_size, {self.message_size_max}",
                        size=wanted, size_max=self.message_size_max,
                    )
                reserve(&scratch.buffer, &scratch.capacity, wanted)
                memset(&appended, 0, sizeof(appended))
                counter = self.key_counter
                self.key_counter += <uint32_t>count
                status = self.append_pending(store, scratch, <const uint8_t *>name, topic_size, count, key_time, counter,
                                             together, &appended)
                self.note_sent(scratch, result, position, <Py_ssize_t>appended.appended, key_time, counter)
                for index in range(<Py_ssize_t>appended.appended):
                    put_bytes += scratch.items[index].size
                if appended.appended:
                    result.end_offset = appended.end_offset
                position += <Py_ssize_t>appended.appended
                result.count = position
                if status != PYMQ_OK:
                    raise error_of_status(self, status, f"send_many to {topic[:200]}, after {position} of {total} messages")
            if total:
                with nogil:
                    status = pymq_store_poll_acknowledged(store, result.end_offset)
                if status == PYMQ_ETIMEDOUT and wait:
                    status = self.await_acknowledged(store, result.end_offset, timeout)
                if wait and status != PYMQ_OK:
                    raise self.unacknowledged(status, result, timeout)
                pymq_store_count_put(store, total, put_bytes, monotonic_us() - begin_us)
            return result
        except _StoreError as error:
            error.result = result
            raise
        finally:
            free(queues)
            free(queue_ids)
            self.give_back(scratch)
            self.end()

    cdef int append_pending(self, pymq_store *store, Scratch *scratch, const uint8_t *topic, Py_ssize_t topic_size,
                            Py_ssize_t count, uint32_t key_time, uint32_t counter, bint together,
                            pymq_append_result *appended) noexcept:
        """Encode a chunk and append it, without the GIL."""
        cdef pymq_record record
        cdef Pending *pending
        cdef uint8_t *target = scratch.buffer
        cdef size_t prefix_size = <size_t>PyBytes_GET_SIZE(self.key_prefix)
        cdef Py_ssize_t index
        cdef ssize_t encoded
        self.template(&record, topic, topic_size)
        with nogil:
            for index in range(count):
                pending = &scratch.pending[index]
                if pending.key_at != NO_KEY:
                    write_key_tail(scratch.properties + pending.key_at + prefix_size, key_time,
                                   <uint16_t>(counter + <uint32_t>index))
                record.queue_id = pending.queue_id
                record.flag = pending.flag
                record.sys_flag = pending.sys_flag
                record.born_timestamp_ms = pending.born_timestamp_ms
                record.body.data = pending.body
                record.body.size = pending.body_size
                record.properties.data = scratch.properties + pending.properties_at
                record.properties.size = pending.properties_size
                encoded = pymq_record_encode(&record, target, scratch.capacity - <size_t>(target - scratch.buffer))
                if encoded < 0:
                    return <int>encoded
                scratch.items[index].queue = pending.queue
                scratch.items[index].record = target
                scratch.items[index].size = <uint32_t>encoded
                target += encoded
            return pymq_store_append(store, scratch.items, <size_t>count, PYMQ_APPEND_TOGETHER if together else 0, appended)

    cdef void note_sent(self, Scratch *scratch, SendManyResult result, Py_ssize_t position, Py_ssize_t count,
                        uint32_t key_time, uint32_t counter) noexcept:
        """Keep where each message of a chunk went."""
        cdef Py_ssize_t index
        cdef SentItem *sent
        for index in range(count):
            sent = &result.items[position + index]
            sent.queue_offset = scratch.items[index].queue_offset
            sent.physical_offset = scratch.items[index].physical_offset
            sent.store_timestamp_ms = pymq_record_store_timestamp_ms(scratch.items[index].record)
            sent.size = scratch.items[index].size
            sent.queue_id = scratch.pending[index].queue_id
            sent.key_generated = scratch.pending[index].key_at != NO_KEY
            sent.key_time = key_time
            sent.key_counter = <uint16_t>(counter + <uint32_t>index)
