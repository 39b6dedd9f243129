/* The end of an encoded record, just before it is appended: properties that a crash could not be told from are refused,
 * and the CRC over the record is put behind them. The layout stands in pymq/record.h.
 *
 * Compat: Apache finds the CRC by its name among all properties; we look at the last 20 bytes only. Both see the same
 * in what Apache's broker writes, except in a client's batch whose properties lack their last separator: there the
 * name is glued to a value, Apache misses it (and with forceVerifyPropCRC cuts its log there), and we do not.
 */
#include "pymq/crc32.h"
#include "pymq/record.h"

#define CRC_DIGITS_AT 9 /* behind the name and 0x01 */
#define CRC_DIGITS 10
#define CRC_MASK 0x7fffffffu

static const char crc_name[] = PYMQ_RECORD_CRC_NAME "\x01";

_Static_assert(sizeof crc_name - 1 == CRC_DIGITS_AT, "the name has 8 bytes");
_Static_assert(CRC_DIGITS_AT + CRC_DIGITS + 1 == PYMQ_RECORD_CRC_SIZE, "the property has 20 bytes");

bool pymq_record_properties(const uint8_t *record, size_t size, struct pymq_slice *properties) {
    size_t at = PYMQ_RECORD_BORN_HOST_AT;
    if (size < PYMQ_RECORD_SIZE_MIN) {
        return false;
    }
    uint32_t sys_flag = pymq_load_be32(record + PYMQ_RECORD_SYS_FLAG_AT);
    at += (sys_flag & PYMQ_SYS_BORN_HOST_V6 ? 20 : 8) + 8 + (sys_flag & PYMQ_SYS_STORE_HOST_V6 ? 20 : 8) + 4 + 8;
    size_t topic_length_size = pymq_load_be32(record + 4) == PYMQ_RECORD_MAGIC_V2 ? 2 : 1;
    if (at + 4 > size || pymq_load_be32(record + at) > size - at - 4) {
        return false;
    }
    at += 4 + pymq_load_be32(record + at);
    if (at + topic_length_size > size) {
        return false;
    }
    at += topic_length_size + (topic_length_size == 2 ? pymq_load_be16(record + at) : record[at]);
    if (at + 2 > size || at + 2 + pymq_load_be16(record + at) != size) {
        return false;
    }
    *properties = (struct pymq_slice){record + at + 2, pymq_load_be16(record + at)};
    return true;
}

bool pymq_record_looks_torn(const uint8_t *record, size_t size) {
    struct pymq_slice properties;
    size_t run = 0;
    if (!pymq_record_properties(record, size, &properties)) {
        return true;
    }
    if (properties.size == 0 || memchr(properties.data, 0, properties.size) == NULL) {
        return false;
    }
    if (properties.data[properties.size - 1] == 0) {
        return true;
    }
    for (uint32_t i = 0; i < properties.size; i++) {
        run = properties.data[i] == 0 ? run + 1 : 0;
        if (run >= PYMQ_SECTOR_SIZE) {
            return true;
        }
    }
    return false;
}

/* ---- the CRC over the record ------------------------------------------------------------------------------------- */

/* The number behind the name, or -1 when these 20 bytes are something else. */
static int64_t read_crc(const uint8_t *property) {
    int64_t number = 0;
    if (memcmp(property, crc_name, CRC_DIGITS_AT) != 0 ||
        property[PYMQ_RECORD_CRC_SIZE - 1] != PYMQ_PROPERTY_SEPARATOR) {
        return -1;
    }
    for (int i = CRC_DIGITS - 1; i >= 0; i--) {
        uint8_t digit = property[CRC_DIGITS_AT + i];
        if (digit < '0' || digit > '9') {
            return -1;
        }
        number = number * 10 + (digit - '0');
    }
    return number;
}

enum pymq_record_crc_state pymq_record_crc_state(const uint8_t *source, const struct pymq_record *record) {
    if (record->properties.size < PYMQ_RECORD_CRC_SIZE) {
        return PYMQ_RECORD_CRC_ABSENT;
    }
    size_t covered = (size_t)record->total_size - PYMQ_RECORD_CRC_SIZE;
    int64_t said = read_crc(source + covered);
    if (said < 0) {
        return PYMQ_RECORD_CRC_ABSENT;
    }
    return said == (int64_t)(pymq_crc32(0, source, covered) & CRC_MASK) ? PYMQ_RECORD_CRC_MATCHES
                                                                        : PYMQ_RECORD_CRC_DIFFERS;
}

/* Take every property of the name out of `source`, keeping the others as they are. Returns the size that is left. */
static uint32_t remove_crcs(uint8_t *source, uint32_t size) {
    uint32_t kept = 0;
    for (uint32_t at = 0; at < size;) {
        const uint8_t *separator = memchr(source + at, PYMQ_PROPERTY_SEPARATOR, size - at);
        uint32_t end = separator != NULL ? (uint32_t)(separator - source) + 1 : size;
        if (end - at < CRC_DIGITS_AT || memcmp(source + at, crc_name, CRC_DIGITS_AT) != 0) {
            memmove(source + kept, source + at, end - at);
            kept += end - at;
        }
        at = end;
    }
    return kept;
}

ssize_t pymq_record_crc_prepare(uint8_t *record, size_t size) {
    struct pymq_slice found;
    if (!pymq_record_properties(record, size, &found)) {
        return PYMQ_ECORRUPT;
    }
    if (found.size >= CRC_DIGITS_AT && memmem(found.data, found.size, crc_name, CRC_DIGITS_AT) != NULL) {
        uint8_t *properties = record + (size - found.size);
        uint32_t kept = remove_crcs(properties, found.size);
        size -= found.size - kept;
        found.size = kept;
        pymq_store_be32(record, (uint32_t)size);
        pymq_store_be16(properties - 2, (uint16_t)kept);
    }
    return found.size + pymq_record_crc_room(record, size) > PYMQ_PROPERTIES_SIZE_MAX ? PYMQ_EPROPERTIES
                                                                                       : (ssize_t)size;
}

uint32_t pymq_record_crc_room(const uint8_t *record, size_t size) {
    struct pymq_slice properties;
    bool separated = record[size - 1] == PYMQ_PROPERTY_SEPARATOR ||
                     !pymq_record_properties(record, size, &properties) || properties.size == 0;
    return separated ? PYMQ_RECORD_CRC_SIZE : PYMQ_RECORD_CRC_ROOM_MAX;
}

uint32_t pymq_record_crc_append(uint8_t *record, size_t size) {
    struct pymq_slice properties = {NULL, 0};
    uint32_t room = pymq_record_crc_room(record, size);
    pymq_record_properties(record, size, &properties);
    uint8_t *length = record + (size - properties.size) - 2;
    if (room > PYMQ_RECORD_CRC_SIZE) {
        record[size++] = PYMQ_PROPERTY_SEPARATOR;
    }
    pymq_store_be32(record, (uint32_t)size + PYMQ_RECORD_CRC_SIZE);
    pymq_store_be16(length, (uint16_t)(properties.size + room));
    uint32_t crc = pymq_crc32(0, record, size) & CRC_MASK;
    uint8_t *at = record + size;
    memcpy(at, crc_name, CRC_DIGITS_AT);
    for (int i = 0; i < CRC_DIGITS; i++) {
        at[CRC_DIGITS_AT + i] = (uint8_t)('0' + crc % 10);
        crc /= 10;
    }
    at[PYMQ_RECORD_CRC_SIZE - 1] = PYMQ_PROPERTY_SEPARATOR;
    return (uint32_t)size + PYMQ_RECORD_CRC_SIZE;
}
