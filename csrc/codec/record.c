/* Encode and decode one message record; the layout stands in pymq/record.h.
 *
 * Decoding trusts nothing: every length is checked against the total size, which is checked against the bytes that
 * are there, before anything behind it is read.
 */
#include "pymq/record.h"

#include "pymq/crc32.h"

#define HOST_V4_SIZE 8   /* address 4, port 4 */
#define HOST_V6_SIZE 20  /* address 16, port 4 */
#define HEAD_SIZE 8      /* total size and magic: enough to know what follows */
#define V6_FLAGS (PYMQ_SYS_BORN_HOST_V6 | PYMQ_SYS_STORE_HOST_V6)

_Static_assert(PYMQ_RECORD_BORN_HOST_AT + HOST_V4_SIZE + 8 + HOST_V4_SIZE + 4 + 8 + 4 + 1 + 2 == PYMQ_RECORD_SIZE_MIN,
               "the smallest record is 91 bytes");

/* Bytes before the body, its length field included. */
static inline size_t fixed_size(int32_t sys_flag) {
    size_t size = PYMQ_RECORD_BORN_HOST_AT + HOST_V4_SIZE + 8 + HOST_V4_SIZE + 4 + 8 + 4;
    if (sys_flag & PYMQ_SYS_BORN_HOST_V6) {
        size += HOST_V6_SIZE - HOST_V4_SIZE;
    }
    if (sys_flag & PYMQ_SYS_STORE_HOST_V6) {
        size += HOST_V6_SIZE - HOST_V4_SIZE;
    }
    return size;
}

static inline bool is_v2(const struct pymq_record *record) {
    return record->topic.size > PYMQ_TOPIC_V1_SIZE_MAX || record->magic == PYMQ_RECORD_MAGIC_V2;
}

bool pymq_topic_is_storable(const uint8_t *topic, size_t size) {
    if (size == 0 || size > PYMQ_TOPIC_SIZE_MAX) {
        return false;
    }
    if (topic[0] == '.' && (size == 1 || (size == 2 && topic[1] == '.'))) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        if (topic[i] == '/' || topic[i] == '\0') {
            return false;
        }
    }
    return true;
}

ssize_t pymq_record_size(const struct pymq_record *record) {
    size_t size = PYMQ_RECORD_BORN_HOST_AT + 8 + 4 + 8 + 4 + 2;
    if (!pymq_topic_is_storable(record->topic.data, record->topic.size)) {
        return PYMQ_ETOPIC;
    }
    if (record->properties.size > PYMQ_PROPERTIES_SIZE_MAX) {
        return PYMQ_EPROPERTIES;
    }
    size += record->born_host.size == 16 ? HOST_V6_SIZE : HOST_V4_SIZE;
    size += record->store_host.size == 16 ? HOST_V6_SIZE : HOST_V4_SIZE;
    size += is_v2(record) ? 2 : 1;
    size += (size_t)record->body.size + record->topic.size + record->properties.size;
    return size > INT32_MAX ? PYMQ_ETOOBIG : (ssize_t)size;
}

static inline uint8_t *put32(uint8_t *target, int32_t value) {
    pymq_store_be32(target, (uint32_t)value);
    return target + 4;
}

static inline uint8_t *put64(uint8_t *target, int64_t value) {
    pymq_store_be64(target, (uint64_t)value);
    return target + 8;
}

static inline uint8_t *put_host(uint8_t *target, const struct pymq_host *host) {
    if (host->size == 16) {
        memcpy(target, host->address, 16);
        target += 16;
    } else {
        memcpy(target, host->address, 4);
        target += 4;
    }
    return put32(target, host->port);
}

static inline uint8_t *put_slice(uint8_t *target, struct pymq_slice slice) {
    if (slice.size != 0) { /* an absent slice has no address memcpy may be given */
        memcpy(target, slice.data, slice.size);
    }
    return target + slice.size;
}

ssize_t pymq_record_encode(const struct pymq_record *record, uint8_t *target, size_t capacity) {
    ssize_t size = pymq_record_size(record);
    bool v2 = is_v2(record);
    int32_t sys_flag = record->sys_flag & ~V6_FLAGS;
    uint8_t *at = target;
    if (size < 0) {
        return size;
    }
    if ((size_t)size > capacity) {
        return PYMQ_ETRUNCATED;
    }
    sys_flag |= record->born_host.size == 16 ? PYMQ_SYS_BORN_HOST_V6 : 0;
    sys_flag |= record->store_host.size == 16 ? PYMQ_SYS_STORE_HOST_V6 : 0;
    at = put32(at, (int32_t)size);
    at = put32(at, (int32_t)(v2 ? PYMQ_RECORD_MAGIC_V2 : PYMQ_RECORD_MAGIC_V1));
    at = put32(at, pymq_body_crc(record->body.data, record->body.size));
    at = put32(at, record->queue_id);
    at = put32(at, record->flag);
    at = put64(at, record->queue_offset);
    at = put64(at, record->physical_offset);
    at = put32(at, sys_flag);
    at = put64(at, record->born_timestamp_ms);
    at = put_host(at, &record->born_host);
    at = put64(at, record->store_timestamp_ms);
    at = put_host(at, &record->store_host);
    at = put32(at, record->reconsume_times);
    at = put64(at, record->prepared_transaction_offset);
    at = put32(at, (int32_t)record->body.size);
    at = put_slice(at, record->body);
    if (v2) {
        pymq_store_be16(at, (uint16_t)record->topic.size);
        at += 2;
    } else {
        *at++ = (uint8_t)record->topic.size;
    }
    at = put_slice(at, record->topic);
    pymq_store_be16(at, (uint16_t)record->properties.size);
    at = put_slice(at + 2, record->properties);
    return size;
}

static inline const uint8_t *take_host(const uint8_t *source, bool v6, struct pymq_host *host) {
    if (v6) {
        memcpy(host->address, source, 16);
    } else {
        memset(host->address, 0, sizeof host->address);
        memcpy(host->address, source, 4);
    }
    host->size = v6 ? 16 : 4;
    host->port = (int32_t)pymq_load_be32(source + host->size);
    return source + host->size + 4;
}

static inline struct pymq_slice slice_of(const uint8_t *data, size_t size) {
    struct pymq_slice slice = {data, (uint32_t)size};
    return slice;
}

/* The three variable parts, which must end exactly where the record does. `at` is where the body begins; the caller
 * has made sure that fixed part, smallest topic and properties length fields are inside `end`. */
static int decode_variable(const uint8_t *at, const uint8_t *end, struct pymq_record *record) {
    size_t topic_size_bytes = record->magic == PYMQ_RECORD_MAGIC_V2 ? 2 : 1;
    size_t left = (size_t)(end - at) - topic_size_bytes - 2; /* for the three together */
    int32_t body_size = (int32_t)pymq_load_be32(at - 4);
    int32_t topic_size, properties_size;
    if (body_size < 0 || (size_t)body_size > left) {
        return PYMQ_ECORRUPT;
    }
    record->body = slice_of(at, (size_t)body_size);
    at += body_size;
    left -= (size_t)body_size;
    topic_size = topic_size_bytes == 2 ? (int16_t)pymq_load_be16(at) : (int8_t)at[0];
    at += topic_size_bytes;
    if (topic_size < 0 || (size_t)topic_size > left) {
        return PYMQ_ECORRUPT;
    }
    record->topic = slice_of(at, (size_t)topic_size);
    at += topic_size;
    left -= (size_t)topic_size;
    properties_size = (int16_t)pymq_load_be16(at);
    at += 2;
    if (properties_size < 0 || (size_t)properties_size != left) {
        return PYMQ_ECORRUPT;
    }
    record->properties = slice_of(at, (size_t)properties_size);
    if (!pymq_topic_is_storable(record->topic.data, record->topic.size) ||
        !pymq_properties_are_well_formed(record->properties.data, record->properties.size)) {
        return PYMQ_ECORRUPT;
    }
    return PYMQ_OK;
}

/* Whether a sector that begins inside the properties holds nothing but zeros up to its or their end, or whether they
 * end in a zero, as they would if the record had been cut anywhere inside them. Holes anywhere else in a record show
 * as a wrong magic, length, topic or body CRC. */
static bool properties_have_hole(const uint8_t *record_source, const struct pymq_record *record,
                                 int64_t physical_offset) {
    static const uint8_t zeros[PYMQ_SECTOR_SIZE];
    if (record->properties.size > 0 && record->properties.data[record->properties.size - 1] == 0) {
        return true;
    }
    /* Unsigned: the caller may pass any offset, and only its position within a sector matters. */
    uint64_t start = (uint64_t)physical_offset + (uint64_t)(record->properties.data - record_source);
    size_t first = (size_t)(-start % PYMQ_SECTOR_SIZE);
    for (size_t at = first; at < record->properties.size; at += PYMQ_SECTOR_SIZE) {
        size_t left = record->properties.size - at;
        if (memcmp(record->properties.data + at, zeros, left < PYMQ_SECTOR_SIZE ? left : PYMQ_SECTOR_SIZE) == 0) {
            return true;
        }
    }
    return false;
}

ssize_t pymq_record_decode(const uint8_t *source, size_t size, unsigned checks, int64_t physical_offset,
                           struct pymq_record *record) {
    const uint8_t *at;
    size_t fixed;
    if (size < HEAD_SIZE) {
        return PYMQ_ETRUNCATED;
    }
    record->total_size = (int32_t)pymq_load_be32(source);
    record->magic = pymq_load_be32(source + 4);
    if (record->magic == PYMQ_RECORD_MAGIC_BLANK) {
        return record->total_size < PYMQ_BLANK_SIZE_MIN ? PYMQ_ECORRUPT : 0;
    }
    if (record->magic != PYMQ_RECORD_MAGIC_V1 && record->magic != PYMQ_RECORD_MAGIC_V2) {
        return PYMQ_ECORRUPT;
    }
    if (record->total_size < PYMQ_RECORD_SIZE_MIN) {
        return PYMQ_ECORRUPT;
    }
    if ((size_t)record->total_size > size) {
        return PYMQ_ETRUNCATED;
    }
    record->sys_flag = (int32_t)pymq_load_be32(source + PYMQ_RECORD_SYS_FLAG_AT);
    fixed = fixed_size(record->sys_flag);
    if ((size_t)record->total_size < fixed + (record->magic == PYMQ_RECORD_MAGIC_V2 ? 2 : 1) + 2) {
        return PYMQ_ECORRUPT;
    }
    record->body_crc = (int32_t)pymq_load_be32(source + 8);
    record->queue_id = (int32_t)pymq_load_be32(source + 12);
    record->flag = (int32_t)pymq_load_be32(source + 16);
    record->queue_offset = (int64_t)pymq_load_be64(source + PYMQ_RECORD_QUEUE_OFFSET_AT);
    record->physical_offset = (int64_t)pymq_load_be64(source + PYMQ_RECORD_PHYSICAL_OFFSET_AT);
    record->born_timestamp_ms = (int64_t)pymq_load_be64(source + 40);
    at = take_host(source + PYMQ_RECORD_BORN_HOST_AT, record->sys_flag & PYMQ_SYS_BORN_HOST_V6, &record->born_host);
    record->store_timestamp_ms = (int64_t)pymq_load_be64(at);
    at = take_host(at + 8, record->sys_flag & PYMQ_SYS_STORE_HOST_V6, &record->store_host);
    record->reconsume_times = (int32_t)pymq_load_be32(at);
    record->prepared_transaction_offset = (int64_t)pymq_load_be64(at + 4);
    if (decode_variable(source + fixed, source + record->total_size, record) != PYMQ_OK) {
        return PYMQ_ECORRUPT;
    }
    if ((checks & PYMQ_CHECK_OFFSET) && record->physical_offset != physical_offset) {
        return PYMQ_ECORRUPT;
    }
    if ((checks & PYMQ_CHECK_HOLES) && properties_have_hole(source, record, physical_offset)) {
        return PYMQ_ECORRUPT;
    }
    if (checks & (PYMQ_CHECK_RECORD_CRC | PYMQ_CHECK_RECORD_CRC_REQUIRED)) {
        enum pymq_record_crc_state state = pymq_record_crc_state(source, record);
        if (state == PYMQ_RECORD_CRC_DIFFERS ||
            (state == PYMQ_RECORD_CRC_ABSENT && (checks & PYMQ_CHECK_RECORD_CRC_REQUIRED))) {
            return PYMQ_ECORRUPT;
        }
        if (state == PYMQ_RECORD_CRC_MATCHES) {
            return record->total_size; /* as Apache: it covers the body too */
        }
    }
    /* Compat: Apache does not look at the CRC of an empty body, so neither may we refuse one over it. */
    if ((checks & PYMQ_CHECK_BODY_CRC) && record->body.size != 0 &&
        pymq_body_crc(record->body.data, record->body.size) != record->body_crc) {
        return PYMQ_ECORRUPT;
    }
    return record->total_size;
}

void pymq_record_encode_blank(uint8_t *target, uint32_t size) {
    pymq_store_be32(target, size);
    pymq_store_be32(target + 4, PYMQ_RECORD_MAGIC_BLANK);
}
