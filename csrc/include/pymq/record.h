/* The message record of the commit log, and the batch a client sends.
 *
 *   field                      offset  size   RocketMQ's name
 *   total size                      0     4   TOTALSIZE
 *   magic                           4     4   MAGICCODE (v1 0xdaa320a7, v2 0xdaa320ab, blank 0xcbd43194)
 *   body CRC, 31 bits               8     4   BODYCRC
 *   queue id                       12     4   QUEUEID
 *   flag, the application's        16     4   FLAG
 *   queue offset                   20     8   QUEUEOFFSET
 *   physical offset                28     8   PHYSICALOFFSET
 *   system flag                    36     4   SYSFLAG
 *   born timestamp, ms             40     8   BORNTIMESTAMP
 *   born host                      48  8|20   BORNHOST (20 when SYSFLAG has bit 4: IPv6)
 *   store timestamp, ms             +     8   STORETIMESTAMP
 *   store host                      +  8|20   STOREHOSTADDRESS (20 when SYSFLAG has bit 5)
 *   reconsume times                 +     4   RECONSUMETIMES
 *   prepared transaction offset     +     8   PREPAREDTRANSACTIONOFFSET
 *   body size, body                 + 4 + n   BODYLENGTH, BODY
 *   topic size, topic               + 1|2+n   TOPICLENGTH, TOPIC (2 bytes of length in v2)
 *   properties size, properties     + 2 + n   PROPERTIESLENGTH, PROPERTIES
 */
#ifndef PYMQ_RECORD_H
#define PYMQ_RECORD_H

#include "pymq/base.h"
#include "pymq/properties.h"

#define PYMQ_RECORD_MAGIC_V1 0xdaa320a7u
#define PYMQ_RECORD_MAGIC_V2 0xdaa320abu
#define PYMQ_RECORD_MAGIC_BLANK 0xcbd43194u
#define PYMQ_RECORD_SIZE_MIN 91      /* v1, IPv4, all variable parts empty */
#define PYMQ_BLANK_SIZE_MIN 8        /* what every log file keeps free at its end */
#define PYMQ_RECORD_QUEUE_OFFSET_AT 20
#define PYMQ_RECORD_PHYSICAL_OFFSET_AT 28
#define PYMQ_RECORD_SYS_FLAG_AT 36
#define PYMQ_RECORD_BORN_HOST_AT 48

enum pymq_sys_flag {
    PYMQ_SYS_COMPRESSED = 1 << 0,
    PYMQ_SYS_MULTI_TAGS = 1 << 1,
    PYMQ_SYS_TRANSACTION_MASK = 3 << 2, /* 0 none, 1 prepared, 2 commit, 3 rollback */
    PYMQ_SYS_TRANSACTION_PREPARED = 1 << 2,
    PYMQ_SYS_TRANSACTION_COMMIT = 2 << 2,
    PYMQ_SYS_TRANSACTION_ROLLBACK = 3 << 2,
    PYMQ_SYS_BORN_HOST_V6 = 1 << 4,
    PYMQ_SYS_STORE_HOST_V6 = 1 << 5,
    PYMQ_SYS_NEED_UNWRAP = 1 << 6,
    PYMQ_SYS_INNER_BATCH = 1 << 7,
};

struct pymq_host {
    uint8_t address[16]; /* 4 bytes used when size is 4 */
    uint8_t size;        /* 4 or 16 */
    int32_t port;
};

/* A record, decoded in place: body, topic and properties point into the source. */
struct pymq_record {
    int32_t total_size;
    uint32_t magic;
    int32_t body_crc;
    int32_t queue_id;
    int32_t flag;
    int64_t queue_offset;
    int64_t physical_offset;
    int32_t sys_flag; /* encode sets the two V6 bits from the hosts' sizes */
    int64_t born_timestamp_ms;
    struct pymq_host born_host;
    int64_t store_timestamp_ms;
    struct pymq_host store_host;
    int32_t reconsume_times;
    int64_t prepared_transaction_offset;
    struct pymq_slice body;
    struct pymq_slice topic;
    struct pymq_slice properties;
};

enum pymq_record_check {
    PYMQ_CHECK_STRUCTURE = 0,     /* always: lengths, magic, topic and property structure agree with the total size */
    PYMQ_CHECK_BODY_CRC = 1 << 0, /* and the body's CRC */
    PYMQ_CHECK_OFFSET = 1 << 1,   /* and the record's own physical offset equals `physical_offset` */
    /* And no 512-byte sector that begins inside the properties is all zeros up to its or their end, nor are they cut
     * short by zeros: what a power cut leaves where bytes were never written, and the one hole the other checks cannot
     * see. A user's value of NULs lying exactly so would be refused too, so this is for the part of an unclean log that
     * was never flushed, not for reading; and writers end properties with their separator, so that a value's last byte
     * is never the record's. */
    PYMQ_CHECK_HOLES = 1 << 2,
    PYMQ_CHECK_RECORD_CRC = 1 << 3,          /* and the CRC over the record, if it carries one: see below */
    PYMQ_CHECK_RECORD_CRC_REQUIRED = 1 << 4, /* and it does carry one */
};

#define PYMQ_SECTOR_SIZE 512

/* Whether a topic can name a queue's directory: 1..32767 bytes, no '/' and no NUL, not "." or "..". A record with
 * another topic is one that no broker filed; encode and decode refuse it. */
bool pymq_topic_is_storable(const uint8_t *topic, size_t size);

/* Bytes the record will occupy, or PYMQ_EPROPERTIES / PYMQ_ETOOBIG when a part exceeds the format, or PYMQ_ETOPIC
 * when the topic is not storable. */
ssize_t pymq_record_size(const struct pymq_record *record);

/* Encode into `target`; the body CRC is computed, v2 is chosen when the topic exceeds 127 bytes (whatever
 * record->magic says, unless it says v2), the V6 flag bits follow the hosts. Queue offset, physical offset and
 * store timestamp are written as given and may be patched later by pymq_record_stamp.
 * Returns bytes written, or the codes of pymq_record_size, or PYMQ_ETRUNCATED when capacity is too small. */
ssize_t pymq_record_encode(const struct pymq_record *record, uint8_t *target, size_t capacity);

/* Patch what only the append lock knows. Inline and branch-light: it runs under that lock. */
static inline void pymq_record_stamp(uint8_t *record, int64_t queue_offset, int64_t physical_offset,
                                     int64_t store_timestamp_ms) {
    uint32_t sys_flag = pymq_load_be32(record + PYMQ_RECORD_SYS_FLAG_AT);
    size_t born_host_size = (sys_flag & PYMQ_SYS_BORN_HOST_V6) ? 20 : 8;
    pymq_store_be64(record + PYMQ_RECORD_QUEUE_OFFSET_AT, (uint64_t)queue_offset);
    pymq_store_be64(record + PYMQ_RECORD_PHYSICAL_OFFSET_AT, (uint64_t)physical_offset);
    pymq_store_be64(record + PYMQ_RECORD_BORN_HOST_AT + born_host_size, (uint64_t)store_timestamp_ms);
}

/* The store timestamp of a whole record, without decoding the rest. */
static inline int64_t pymq_record_store_timestamp_ms(const uint8_t *record) {
    uint32_t sys_flag = pymq_load_be32(record + PYMQ_RECORD_SYS_FLAG_AT);
    size_t born_host_size = (sys_flag & PYMQ_SYS_BORN_HOST_V6) ? 20 : 8;
    return (int64_t)pymq_load_be64(record + PYMQ_RECORD_BORN_HOST_AT + born_host_size);
}

/* Decode one record at `source`, of which `size` bytes are there.
 * Returns its total size; 0 at a blank tail (record->total_size tells how many bytes it covers; a blank whose
 * length is not `size`, when `size` reaches to the file's end, is the caller's to judge);
 * PYMQ_ETRUNCATED when the record goes on beyond `size` (also for size < 8); PYMQ_ECORRUPT otherwise.
 * Never reads outside source[0, size). `checks` is a set of enum pymq_record_check. */
ssize_t pymq_record_decode(const uint8_t *source, size_t size, unsigned checks, int64_t physical_offset,
                           struct pymq_record *record);

/* The properties string of a whole record, found by its lengths alone. False when they do not agree with `size`. */
bool pymq_record_properties(const uint8_t *record, size_t size, struct pymq_slice *properties);

/* Whether an encoded record, stored now and found after a crash, could be taken for a torn one: its properties end in a
 * zero or hold a sector's length of zeros (see PYMQ_CHECK_HOLES). Such a record must be refused before it is promised.
 * For records made by pymq_record_encode. */
bool pymq_record_looks_torn(const uint8_t *record, size_t size);

/* ---- the CRC over the record -----------------------------------------------------------------------------
 *
 * RocketMQ's optional last property (enabledAppendPropCRC), the only checksum over anything but the body:
 *
 *   "__CRC32#" 8 | 0x01 | ten decimal digits, the least significant first | 0x02
 *
 * 20 bytes, always the record's last. The number is the CRC-32, 31 bits of it, of all bytes in front of these 20, with
 * queue offset, physical offset and store time in place and total size and properties size counting the 20. */

#define PYMQ_RECORD_CRC_NAME "__CRC32#"
#define PYMQ_RECORD_CRC_SIZE 20
#define PYMQ_RECORD_CRC_ROOM_MAX (PYMQ_RECORD_CRC_SIZE + 1) /* and the separator that properties may lack */

enum pymq_record_crc_state {
    PYMQ_RECORD_CRC_ABSENT = 0,
    PYMQ_RECORD_CRC_MATCHES = 1,
    PYMQ_RECORD_CRC_DIFFERS = 2, /* damage; or a message passed on with its old properties while the setting was off */
};

/* What the record decoded from `source` says about itself. */
enum pymq_record_crc_state pymq_record_crc_state(const uint8_t *source, const struct pymq_record *record);

/* Before one is appended: take properties of that name out of an encoded record, in place, as Apache does: they belong
 * to a record this one was copied from. Returns the record's size now, or PYMQ_EPROPERTIES when the properties leave no
 * room for another. */
ssize_t pymq_record_crc_prepare(uint8_t *record, size_t size);

/* Bytes pymq_record_crc_append adds to a prepared record: 20, or 21 when its properties lack the last separator. */
uint32_t pymq_record_crc_room(const uint8_t *record, size_t size);

/* Append it to a stamped record, which has that room behind it. Returns the size with it. */
uint32_t pymq_record_crc_append(uint8_t *record, size_t size);

/* Write a blank tail of `size` bytes (>= 8): total size, blank magic; the rest is left as it is. */
void pymq_record_encode_blank(uint8_t *target, uint32_t size);

/* One message of a client's batch body:
 *   total size 4, magic 4, body CRC 4 (these three ignored when read), flag 4, body size 4, body,
 *   properties size 2, properties. */
struct pymq_batch_item {
    int32_t flag;
    struct pymq_slice body;
    struct pymq_slice properties;
};

/* Step through a batch. `*position` starts at 0. Returns 1 with an item, 0 at the exact end, PYMQ_ECORRUPT. */
int pymq_batch_next(const uint8_t *source, size_t size, size_t *position, struct pymq_batch_item *item);

/* Append one message to a batch body at `*size`; PYMQ_OK or PYMQ_ETRUNCATED / PYMQ_EPROPERTIES. */
int pymq_batch_append(uint8_t *target, size_t capacity, size_t *size, const struct pymq_batch_item *item);

/* ---- what dispatch needs of a record -------------------------------------------------------------------- */

#define PYMQ_DELAY_LEVELS_MAX 64

/* The delay levels (messageDelayLevel), given at open: level n waits delay_ms[n - 1]. */
struct pymq_delay_levels {
    int32_t count;
    int64_t delay_ms[PYMQ_DELAY_LEVELS_MAX];
};

/* Parse "1s 5s 10s 30s 1m … 2h 1d"; PYMQ_OK or PYMQ_EINVAL. */
int pymq_delay_levels_parse(const char *text, struct pymq_delay_levels *levels);

struct pymq_record_keys {
    int64_t tags_code;            /* Java hash of TAGS (0 without); in SCHEDULE_TOPIC_XXXX the delivery time in ms */
    struct pymq_slice tags;       /* TAGS */
    struct pymq_slice keys;       /* KEYS, space separated */
    struct pymq_slice unique_key; /* UNIQ_KEY */
    bool is_delayed;              /* tags_code is a delivery time */
};

/* One pass over the properties. As Apache does: a record of SCHEDULE_TOPIC_XXXX with DELAY > 0 gets its delivery
 * time (store time + level, level capped at the last) in tags_code. */
void pymq_record_keys(const struct pymq_record *record, const struct pymq_delay_levels *levels,
                      struct pymq_record_keys *keys);

#endif
