# What the control loop publishes: topics, groups, subscriptions, consumer offsets.


cdef class _ServeTables(_ServeHandle):
    """Tables and offsets; changing a row waits until no reactor uses the older one."""

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
                      int64_t broker_id=0, int64_t broker_id_when_slow=1, int32_t retry_queues=0,
                      int32_t retry_max_times=16):
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
            row.retry_queues = retry_queues
            row.retry_max_times = retry_max_times
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
                             tag_hashes=(), bytes program=None, str expression=""):
        """Say what a group's clients want of a topic: by tags, or by a filter program (and the text it is of).

        Raises:
            CorruptError: the program is none.
        """
        cdef pymq_subscription_row row
        cdef int status
        cdef uint32_t index = 0
        cdef pymq_slice group_name = slice_of(group)
        cdef pymq_slice topic_name = slice_of(topic)
        cdef pymq_slice code, text
        cdef pymq_serve *serve
        if len(tag_hashes) > PYMQ_TAGS_MAX:
            raise ValueError(f"{len(tag_hashes)} tags; a row holds {PYMQ_TAGS_MAX}: publish it as special")
        for tag_hash in tag_hashes:
            row.tag_hashes[index] = tag_hash
            index += 1
        row.program = NULL
        row.program_size = row.expression_size = 0
        row.expression = NULL
        if program is not None:
            code = bytes_slice(program)
            text = slice_of(expression)
            row.program = code.data
            row.program_size = code.size
            row.expression = text.data
            row.expression_size = text.size
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

    def offset_query(self, str group, str topic, int32_t queue_id, uint64_t connection=0):
        """The group's offset (a pending reset's, if there is one); None when it never committed. *connection*: of the
        client that is about to begin there."""
        cdef int64_t offset = 0
        cdef int status
        cdef pymq_slice group_name = slice_of(group)
        cdef pymq_slice topic_name = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                status = pymq_serve_offset_query_by(serve, connection, group_name.data, group_name.size,
                                                    topic_name.data, topic_name.size, queue_id, &offset)
        finally:
            self.end()
        return offset if status == PYMQ_OK else None

    def offset_commit(self, str group, str topic, int32_t queue_id, int64_t offset, uint64_t connection=0):
        """Commit any value, also a smaller one; False when a reset keeps it out. *connection*: whose it is, 0 ours."""
        cdef int status
        cdef pymq_slice group_name = slice_of(group)
        cdef pymq_slice topic_name = slice_of(topic)
        cdef pymq_serve *serve = self.begin()
        try:
            with nogil:
                status = pymq_serve_offset_commit_by(serve, connection, group_name.data, group_name.size,
                                                     topic_name.data, topic_name.size, queue_id, offset)
        finally:
            self.end()
        if status < 0:
            raise error_of(status, f"the offset of {group!r} in {topic!r} queue {queue_id}")
        return status > 0

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

    def offset_states(self):
        """Every queue a group has read, as OffsetState, in no order. Call it where tables are changed."""
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
                OffsetState(text_of(entries[index].group), text_of(entries[index].topic), entries[index].queue_id,
                            offset_or_none(entries[index].offset), offset_or_none(entries[index].pending),
                            offset_or_none(entries[index].pulled))
                for index in range(count)
            ]
        finally:
            free(entries)
            self.end()

    def offsets(self):
        """Every committed offset as (group, topic, queue_id, offset), in no order."""
        return [
            (state.group, state.topic, state.queue_id, state.offset)
            for state in self.offset_states()
            if state.offset is not None
        ]
