# What sends return: light objects whose texts (ids, keys) are only made when somebody looks.

cdef str hex_of_host(pymq_host *host):
    """Address and port of a message id: 16 hex digits for IPv4, 40 for IPv6."""
    cdef bytes address = host.address[:host.size]
    return address.hex().upper() + format(host.port & 0xFFFFFFFF, "08X")


cdef str text_of_host(pymq_host *host):
    """127.0.0.1:10911 or [::1]:10911."""
    cdef bytes address = host.address[:host.size]
    if host.size == 4:
        return f"{address[0]}.{address[1]}.{address[2]}.{address[3]}:{host.port}"
    return f"[{_ipaddress.IPv6Address(address)}]:{host.port}"


@cython.final
@cython.no_gc  # holds texts only: no cycle to look for
@cython.freelist(64)
cdef class SendResult:
    """Where a message stands, and when it was stored.

    Attributes:
        topic, queue_id, queue_offset: its place among the topic's messages.
        physical_offset: its first byte in the commit log.
        store_size: bytes its record occupies there.
        store_timestamp_ms: when it was stored; never decreases along the log.
    """

    cdef readonly str topic
    cdef readonly int32_t queue_id
    cdef readonly uint32_t store_size
    cdef readonly int64_t queue_offset
    cdef readonly int64_t physical_offset
    cdef readonly int64_t store_timestamp_ms
    cdef str host_hex
    cdef str given_key
    cdef int key_size
    cdef char key[56]

    def __init__(self):
        raise TypeError("a SendResult is made by sending")

    @property
    def message_id(self):
        """RocketMQ's offset message id: store host and physical offset, 32 hex characters (56 with IPv6)."""
        return self.host_hex + format(self.physical_offset, "016X")

    @property
    def unique_key(self):
        """The message's UNIQ_KEY, or None when it was sent without one."""
        if self.key_size:
            return self.key[:self.key_size].decode("ascii")
        return self.given_key

    def __repr__(self):
        return (f"SendResult(topic={self.topic!r}, queue_id={self.queue_id}, queue_offset={self.queue_offset}, "
                f"physical_offset={self.physical_offset}, message_id={self.message_id!r}, "
                f"store_timestamp_ms={self.store_timestamp_ms})")

    def __eq__(self, other):
        if not isinstance(other, SendResult):
            return NotImplemented
        return (self.topic == other.topic and self.queue_id == other.queue_id
                and self.queue_offset == other.queue_offset and self.message_id == other.message_id
                and self.store_timestamp_ms == other.store_timestamp_ms)

    def __hash__(self):
        return hash((self.topic, self.queue_id, self.queue_offset, self.physical_offset))


cdef struct SentItem:
    int64_t queue_offset
    int64_t physical_offset
    int64_t store_timestamp_ms
    uint32_t size
    int32_t queue_id
    uint32_t key_time    # of a generated key: milliseconds into the month
    uint16_t key_counter
    bint key_generated


@cython.final
cdef class SendManyResult:
    """Where the messages of one `send_many` stand: a compact sequence of `SendResult`, in the order they were given."""

    cdef readonly str topic
    cdef readonly int64_t end_offset
    cdef SentItem *items
    cdef Py_ssize_t count
    cdef str host_hex
    cdef bytes key_prefix
    cdef dict given_keys

    def __init__(self):
        raise TypeError("a SendManyResult is made by sending")

    def __dealloc__(self):
        free(self.items)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self.result_at(position) for position in range(*index.indices(self.count))]
        cdef Py_ssize_t position = index
        if position < 0:
            position += self.count
        if not 0 <= position < self.count:
            raise IndexError(f"{index} of {self.count} results")
        return self.result_at(position)

    def __iter__(self):
        cdef Py_ssize_t position
        for position in range(self.count):
            yield self.result_at(position)

    def __repr__(self):
        return f"SendManyResult(topic={self.topic!r}, count={self.count}, end_offset={self.end_offset})"

    cdef SendResult result_at(self, Py_ssize_t position):
        cdef SentItem *item = &self.items[position]
        cdef SendResult result = SendResult.__new__(SendResult)
        result.topic = self.topic
        result.queue_id = item.queue_id
        result.queue_offset = item.queue_offset
        result.physical_offset = item.physical_offset
        result.store_size = item.size
        result.store_timestamp_ms = item.store_timestamp_ms
        result.host_hex = self.host_hex
        if item.key_generated:
            result.key_size = <int>len(self.key_prefix) + KEY_TAIL_SIZE
            memcpy(result.key, <const char *>self.key_prefix, <size_t>len(self.key_prefix))
            write_key_tail(<uint8_t *>result.key + len(self.key_prefix), item.key_time, item.key_counter)
        elif self.given_keys is not None:
            result.given_key = self.given_keys.get(position)
        return result
