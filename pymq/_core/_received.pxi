# A message as it was read: the fields of its record, with the texts made when somebody looks.

@cython.final
@cython.no_gc  # holds texts and a dict of texts only: no cycle to look for
@cython.freelist(64)
cdef class ReceivedMessage:
    """One message read from the store. Its body's CRC was verified before this object was made.

    The body is as it was stored: a producer that compressed it says so in `sys_flag` (bit 0).
    """

    cdef readonly str topic
    cdef readonly bytes body
    cdef readonly bytes raw_properties
    cdef readonly int32_t queue_id
    cdef readonly int32_t flag
    cdef readonly int32_t sys_flag
    cdef readonly int32_t reconsume_times
    cdef readonly int32_t body_crc
    cdef readonly int32_t store_size
    cdef readonly int64_t queue_offset
    cdef readonly int64_t physical_offset
    cdef readonly int64_t born_timestamp_ms
    cdef readonly int64_t store_timestamp_ms
    cdef readonly int64_t prepared_transaction_offset
    cdef pymq_host born_address
    cdef pymq_host store_address
    cdef dict parsed_properties

    def __init__(self):
        raise TypeError("a ReceivedMessage is made by reading")

    @property
    def properties(self):
        """Names and values, the last of two equal names winning; a fresh dict each time it is asked for."""
        if self.parsed_properties is None:
            self.parsed_properties = parse_properties(self.raw_properties)
        return self.parsed_properties.copy()

    @property
    def tags(self):
        """The tag, or None."""
        return self.property_of("TAGS")

    @property
    def keys(self):
        """The keys it can be found by, apart from the unique one."""
        words = self.property_of("KEYS")
        return () if words is None else tuple(words.split())

    @property
    def unique_key(self):
        """The UNIQ_KEY its producer (or this store) gave it, or None."""
        return self.property_of("UNIQ_KEY")

    @property
    def born_host(self):
        """Address and port of the producer."""
        return text_of_host(&self.born_address)

    @property
    def store_host(self):
        """Address and port of the store."""
        return text_of_host(&self.store_address)

    @property
    def message_id(self):
        """RocketMQ's offset message id, as `SendResult.message_id`."""
        return hex_of_host(&self.store_address) + format(self.physical_offset, "016X")

    cdef object property_of(self, str name):
        if self.parsed_properties is None:
            self.parsed_properties = parse_properties(self.raw_properties)
        return self.parsed_properties.get(name)

    def __repr__(self):
        return (f"ReceivedMessage(topic={self.topic!r}, queue_id={self.queue_id}, queue_offset={self.queue_offset}, "
                f"physical_offset={self.physical_offset}, body={len(self.body)} bytes, tags={self.tags!r}, "
                f"keys={self.keys!r})")

    def __eq__(self, other):
        if not isinstance(other, ReceivedMessage):
            return NotImplemented
        return message_identity(self) == message_identity(other)

    def __hash__(self):
        return hash((self.topic, self.queue_id, self.queue_offset, self.physical_offset))


cdef tuple message_identity(ReceivedMessage message):
    """Every field of the record, for comparison."""
    return (
        message.topic, message.queue_id, message.queue_offset, message.physical_offset, message.body, message.flag,
        message.sys_flag, message.born_timestamp_ms, message.born_host, message.store_timestamp_ms, message.store_host,
        message.reconsume_times, message.prepared_transaction_offset, message.body_crc, message.store_size,
        message.raw_properties,
    )


cdef dict parse_properties(bytes source):
    """Properties as a dict; bytes that are not UTF-8 become U+FFFD, as Java's decoder would have it."""
    cdef dict found = {}
    cdef pymq_property pair
    cdef size_t position = 0
    cdef const uint8_t *data = <const uint8_t *><const char *>source
    while pymq_properties_next(data, <size_t>len(source), &position, &pair) == 1:
        name = pair.name.data[:pair.name.size].decode("utf-8", "replace")
        found[name] = pair.value.data[:pair.value.size].decode("utf-8", "replace")
    return found


cdef ReceivedMessage message_of_record(pymq_record *record, str topic):
    """Copy what a record holds; *topic* is reused when it is the record's, so that a queue's messages share one text."""
    cdef ReceivedMessage message = ReceivedMessage.__new__(ReceivedMessage)
    if topic is None:
        topic = record.topic.data[:record.topic.size].decode("utf-8", "replace")
    message.topic = topic
    message.body = PyBytes_FromStringAndSize(<const char *>record.body.data, record.body.size)
    message.raw_properties = PyBytes_FromStringAndSize(<const char *>record.properties.data, record.properties.size)
    message.queue_id = record.queue_id
    message.flag = record.flag
    message.sys_flag = record.sys_flag
    message.reconsume_times = record.reconsume_times
    message.body_crc = record.body_crc
    message.store_size = record.total_size
    message.queue_offset = record.queue_offset
    message.physical_offset = record.physical_offset
    message.born_timestamp_ms = record.born_timestamp_ms
    message.store_timestamp_ms = record.store_timestamp_ms
    message.prepared_transaction_offset = record.prepared_transaction_offset
    message.born_address = record.born_host
    message.store_address = record.store_host
    return message
