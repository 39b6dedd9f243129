# Messages put again, log to log: retries, commits, whatever was delayed and is due.

class Reput(_NamedTuple):
    """A message to be put again: the record at *source*, edited; the rest of it is kept.

    An empty topic and a negative queue id stand for the record's own REAL_TOPIC and REAL_QID. `remove` holds names of
    properties, each followed by 0x02; `set` holds name 0x01 value 0x02 … and replaces properties of the same names.
    A negative `reconsume_times` keeps the record's own.
    """

    source: int
    topic: str = ""
    queue_id: int = -1
    remove: bytes = b""
    set: bytes = b""
    sys_flag_clear: int = 0
    sys_flag_set: int = 0
    reconsume_times: int = -1
    prepared_transaction_offset: int = 0


class Due(_NamedTuple):
    """What a look at a delay level has delivered, and where and when to look again.

    `next_due_ms` is -1 when nothing is left; `status` is "PYMQ_OK" or says why the message at `next_offset` failed;
    `last_end_offset` is what to wait for, 0 when nothing was delivered.
    """

    next_offset: int
    delivered: int
    next_due_ms: int
    status: str
    last_end_offset: int
    lateness_max_ms: int


cdef int fill_reput(object source, pymq_reput *target) except -1:
    """Fill from a Reput, whose texts must outlive the call."""
    if not isinstance(source, Reput):
        raise TypeError(f"a Reput is wanted, not {type(source).__name__}")
    memset(target, 0, sizeof(pymq_reput))
    target.source = source[0]
    target.topic = slice_of(<str?>source[1])
    target.queue_id = source[2]
    target.remove = bytes_slice(<bytes?>source[3])
    target.set = bytes_slice(<bytes?>source[4])
    target.sys_flag_clear = source[5]
    target.sys_flag_set = source[6]
    target.reconsume_times = source[7]
    target.prepared_transaction_offset = source[8]
    return 0


cdef class _ServeReput(_ServeTables):
    """Puts records of the log again without bringing them to Python. May wait for the disk: not on the event loop when
    the records may be old."""

    def reput(self, items):
        """Put records again, in this order and together: a `PutResult` or the name of a status for each `Reput`.

        One that fails keeps no other out: "PYMQ_ENOTFOUND" (no record begins there, or not any more), "PYMQ_ECORRUPT",
        "PYMQ_EPROPERTIES", "PYMQ_ETOPIC", "PYMQ_EINVAL", "PYMQ_EREMOVED" (its topic is being removed), "PYMQ_ETOOBIG",
        or what the store says to everything ("PYMQ_EREADONLY" …). Never waits for a flush.
        """
        cdef list sources = list(items)
        cdef size_t count = <size_t>len(sources), index
        cdef pymq_reput *reputs = NULL
        cdef pymq_serve *serve = self.begin()
        try:
            reputs = <pymq_reput *>calloc(count + 1, sizeof(pymq_reput))
            if reputs == NULL:
                raise MemoryError(f"putting {count} messages again")
            for index in range(count):
                fill_reput(sources[index], &reputs[index])
            with nogil:
                pymq_serve_reput(serve, reputs, count, False)
            return [
                PutResult(reputs[index].queue_offset, reputs[index].physical_offset, reputs[index].end_offset,
                          reputs[index].store_timestamp_ms)
                if reputs[index].status == PYMQ_OK else pymq_status_name(reputs[index].status).decode("ascii")
                for index in range(count)
            ]
        finally:
            free(reputs)
            self.end()

    def deliver_due(self, str topic not None, int32_t queue_id, int64_t offset, int64_t now_ms, size_t count_max, *,
                    bytes remove not None, int64_t correct_max_ms=0):
        """Put what is due in a delay level where it was meant to go, in order from *offset* on; see `Due`.

        Stops at the first message that is not due or fails, and at *count_max*. With *correct_max_ms* a time of delivery
        further away than that counts as now. An offset outside the queue is moved to its nearer end.
        """
        cdef pymq_due due
        cdef pymq_serve *serve
        memset(&due, 0, sizeof(due))
        due.topic = slice_of(topic)
        due.queue_id = queue_id
        due.offset = offset
        due.now_ms = now_ms
        due.count_max = count_max
        due.remove = bytes_slice(remove)
        due.correct_max_ms = correct_max_ms
        serve = self.begin()
        try:
            with nogil:
                pymq_serve_deliver_due(serve, &due)
        finally:
            self.end()
        return Due(due.next_offset, due.delivered, due.next_due_ms, pymq_status_name(due.status).decode("ascii"),
                   due.last_end_offset, due.lateness_ms_max)
