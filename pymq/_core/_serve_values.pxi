# What serving takes and gives: results, texts, hosts, settings, tags.

class PutResult(_NamedTuple):
    """Where a message was put, and the offset to wait for."""

    queue_offset: int
    physical_offset: int
    end_offset: int
    store_timestamp_ms: int


class GetResult(_NamedTuple):
    """What a read found: one of GET_…, and records as they stand in the log."""

    status: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggest_slave: bool
    body: bytes
    message_count: int


class Refusal(_NamedTuple):
    """How a send that the store refused is answered."""

    code: int
    has_fields: bool
    remark: str


class OffsetState(_NamedTuple):
    """Where a group stands with a queue: committed, a reset it has not followed, and how far it has pulled."""

    group: str
    topic: str
    queue_id: int
    offset: int | None
    pending: int | None
    pulled: int | None


cdef offset_or_none(int64_t offset):
    return None if offset == PYMQ_OFFSET_NONE else offset


class Traffic(_NamedTuple):
    """Messages and bytes since start: put to *topic* (group empty), or got from it by *group*."""

    topic: str
    group: str
    messages: int
    bytes: int


def unique_key():
    """A UNIQ_KEY for a message that came without one: 32 characters, never the same twice."""
    cdef uint8_t key[PYMQ_UNIQUE_KEY_SIZE]
    pymq_unique_key(key)
    return PyBytes_FromStringAndSize(<char *>key, PYMQ_UNIQUE_KEY_SIZE).decode("ascii")


cdef object error_of(int status, str doing):
    """The exception for a status that came alone, while *doing* something."""
    name = pymq_status_name(status).decode("ascii")
    return _STATUS_ERRORS.get(name, _StoreError)(f"{doing}: {name}", status=name)


cdef pymq_slice slice_of(str text) except *:
    """A name's bytes; they live as long as *text*."""
    cdef Py_ssize_t size = 0
    cdef pymq_slice result
    result.data = <const uint8_t *>PyUnicode_AsUTF8AndSize(text, &size)
    result.size = <uint32_t>size
    return result


cdef inline pymq_slice bytes_slice(bytes data) noexcept:
    cdef pymq_slice result
    result.data = <const uint8_t *>PyBytes_AS_STRING(data)
    result.size = <uint32_t>PyBytes_GET_SIZE(data)
    return result


cdef inline str text_of(pymq_slice name):
    return name.data[:name.size].decode("utf-8", "replace")


cdef int fill_host(object host, pymq_host *target) except -1:
    cdef bytes packed = _ipaddress.ip_address(host[0]).packed
    memset(target, 0, sizeof(pymq_host))
    memcpy(target.address, PyBytes_AS_STRING(packed), <size_t>PyBytes_GET_SIZE(packed))
    target.size = <uint8_t>PyBytes_GET_SIZE(packed)
    target.port = host[1]
    return 0


cdef str hex_of_host(const pymq_host *host):
    """Address and port as message ids have them."""
    return (PyBytes_FromStringAndSize(<char *>host.address, host.size).hex() + f"{host.port:08x}").upper()


cdef int fill_name(str what, str value, char *target, size_t capacity) except -1:
    cdef bytes encoded = value.encode("utf-8")
    if <size_t>PyBytes_GET_SIZE(encoded) >= capacity:
        raise ValueError(f"{what} {value!r} is longer than {capacity - 1} bytes")
    memcpy(target, PyBytes_AS_STRING(encoded), <size_t>PyBytes_GET_SIZE(encoded) + 1)
    return 0


cdef int fill_config(object config, pymq_serve_config *target) except -1:
    pymq_serve_config_default(target)
    target.native = config.native
    target.long_polling = config.long_polling
    target.short_polling_ms = config.short_polling_ms
    target.hold_check_ms = config.hold_check_ms
    target.holds_max = config.holds_max
    target.holds_bytes_max = config.holds_bytes_max
    target.parked_max = config.parked_max
    target.send_timeout_ms = config.send_timeout_ms
    target.transfer_bytes_memory = config.transfer_bytes_memory
    target.transfer_count_memory = config.transfer_count_memory
    target.transfer_bytes_disk = config.transfer_bytes_disk
    target.transfer_count_disk = config.transfer_count_disk
    target.memory_bytes_max = config.memory_bytes_max
    target.hot_bytes = config.hot_bytes
    target.cold_read_threads = config.cold_read_threads
    target.message_size_max = config.message_size_max
    target.delay_level_max = config.delay_level_max
    target.transactions = config.transactions
    target.trace_on = config.trace_on
    target.slave_read_enable = config.slave_read_enable
    target.begin_as_asked = config.begin_as_asked
    target.broker_permission = config.broker_permission
    fill_host(config.store_host, &target.store_host)
    fill_name("cluster", config.cluster, target.cluster, sizeof(target.cluster))
    fill_name("region", config.region, target.region, sizeof(target.region))
    fill_name("broker_ip", config.broker_ip, target.broker_ip, sizeof(target.broker_ip))
    return 0


cdef int fill_hashes(object tag_hashes, int32_t *target, pymq_get_s *get) except -1:
    """None means all; an empty sequence means none, which no subscription has."""
    cdef uint32_t count = 0
    if tag_hashes is None:
        return 0
    if len(tag_hashes) > PYMQ_TAGS_MAX:
        raise ValueError(f"{len(tag_hashes)} tags; at most {PYMQ_TAGS_MAX} are filtered natively")
    for tag_hash in tag_hashes:
        target[count] = tag_hash
        count += 1
    get.tag_hashes = target
    get.tag_count = count
    return 0


cdef int fill_program(bytes program, pymq_get_s *get) except -1:
    """A filter program, which is looked at first; to be left when the get or hold has been made."""
    cdef int status
    cdef pymq_slice code
    if program is None:
        return 0
    code = bytes_slice(program)
    status = pymq_shared_program_make(code.data, code.size, &get.program)
    if status != PYMQ_OK:
        raise error_of(status, f"a filter program of {len(program)} bytes")
    return 0
