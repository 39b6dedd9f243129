# Where sends are encoded: buffers, bodies and properties on their way into a record.

# One message of a send in preparation: pointers into Python's bytes, taken under the GIL, used without it.
cdef struct Pending:
    const uint8_t *body
    uint32_t body_size
    uint32_t properties_size
    size_t properties_at  # in Scratch.properties
    size_t key_at         # of the generated UNIQ_KEY in Scratch.properties; NO_KEY without one
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int64_t born_timestamp_ms
    pymq_queue *queue


# Where sends are encoded; kept in a small free list of the store.
cdef struct Scratch:
    uint8_t *buffer
    size_t capacity
    uint8_t *properties
    size_t properties_capacity
    size_t properties_size
    Pending *pending
    pymq_append_item *items
    size_t pending_capacity


cdef bytes bytes_of(object body):
    """A private copy of a body that is not bytes."""
    if isinstance(body, bytes):
        return bytes(body)
    if isinstance(body, str):
        raise TypeError("a message body is bytes, not str; encode it first: text.encode()")
    return bytes(memoryview(body))


cdef int reserve(uint8_t **buffer, size_t *capacity, size_t wanted) except -1:
    """Grow a scratch buffer to at least *wanted* bytes."""
    cdef uint8_t *grown
    cdef size_t size
    if wanted <= capacity[0]:
        return 0
    size = wanted if wanted > 2 * capacity[0] else 2 * capacity[0]
    grown = <uint8_t *>realloc(buffer[0], size)
    if grown == NULL:
        raise MemoryError(f"{size} bytes for encoding a message")
    buffer[0] = grown
    capacity[0] = size
    return 0


cdef int put_property_part(Scratch *scratch, str text, uint8_t separator, object what) except -1:
    """Append one name or value and its separator."""
    cdef Py_ssize_t size = 0
    cdef const char *data = PyUnicode_AsUTF8AndSize(text, &size)
    if memchr(data, 1, <size_t>size) != NULL or memchr(data, 2, <size_t>size) != NULL:
        raise _InvalidArgumentError(f"{what} {text[:200]!r} holds a byte 1 or 2, which separate properties in the record")
    if memchr(data, 0, <size_t>size) != NULL:
        # Nothing but the body has a checksum: zeros elsewhere look like a page that was lost.
        raise _InvalidArgumentError(
            f"{what} {text[:200]!r} holds a byte 0; after a crash zeros cannot be told from bytes that never reached the disk"
        )
    reserve(&scratch.properties, &scratch.properties_capacity, scratch.properties_size + <size_t>size + 1)
    memcpy(scratch.properties + scratch.properties_size, data, <size_t>size)
    scratch.properties[scratch.properties_size + <size_t>size] = separator
    scratch.properties_size += <size_t>size + 1
    return 0


cdef int put_property(Scratch *scratch, str name, str value) except -1:
    if not name or not value:
        # Compat: RocketMQ's decoder leaves out a pair without a name or without a value.
        raise _InvalidArgumentError(f"the property {name!r}: {value!r} has an empty {'value' if name else 'name'}")
    put_property_part(scratch, name, 1, "the property name")
    put_property_part(scratch, value, 2, f"the value of {name}")
    return 0


cdef str joined_keys(object keys):
    """The keys as they stand in a record, with a space between two."""
    if isinstance(keys, str):
        return keys
    words = list(keys)
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"a key is a str, not {type(word).__name__}")
        if not word or " " in word:
            raise _InvalidArgumentError(f"the key {word[:200]!r}: a key of a sequence is not empty and holds no space")
    return " ".join(words)


cdef int64_t bounded_timeout(int64_t timeout_ms) noexcept:
    """A wait that neither is negative nor overflows in microseconds."""
    return min(max(timeout_ms, 0), TIMEOUT_MS_MAX)


cdef void free_scratch(Scratch *scratch) noexcept:
    free(scratch.buffer)
    free(scratch.properties)
    free(scratch.pending)
    free(scratch.items)
    free(scratch)


cdef int reserve_pending(Scratch *scratch, size_t count) except -1:
    """Room for *count* messages of one chunk; what is larger than an ordinary chunk is not kept afterwards."""
    if scratch.pending_capacity >= count:
        return 0
    free(scratch.pending)
    free(scratch.items)
    scratch.pending_capacity = 0
    scratch.pending = <Pending *>calloc(count, sizeof(Pending))
    scratch.items = <pymq_append_item *>calloc(count, sizeof(pymq_append_item))
    if scratch.pending == NULL or scratch.items == NULL:
        raise MemoryError(f"room for {count} messages")
    scratch.pending_capacity = count
    return 0
