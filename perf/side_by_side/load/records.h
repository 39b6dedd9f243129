/* Stored messages as a pull's answer carries them, walked one by one.
 *
 *   size (4) magic (4) body CRC (4) queue (4) flag (4) queue offset (8) physical offset (8) sysFlag (4) born time (8)
 *   born host (8, or 20 for IPv6) store time (8) store host (8 or 20) reconsume times (4) prepared offset (8)
 *   body length (4) body, topic length (1; 2 with the second magic) topic, properties length (2) properties */
#ifndef PYMQ_LOAD_RECORDS_H
#define PYMQ_LOAD_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MSG_ID_SIZE_MAX 56

struct record {
    uint32_t queue_id;
    int64_t queue_offset;
    int64_t physical_offset;
    const uint8_t *store_host; /* address, then port (4) */
    size_t store_host_size;
    const uint8_t *body;
    size_t body_size;
};

/* Step through `source`; `*position` starts at 0. Returns 1 with a record, 0 at the exact end, -1 when it is not a
 * record. */
int record_next(const uint8_t *source, size_t size, size_t *position, struct record *record);

/* The id a broker gives the message: store host and physical offset in hexadecimal. Returns its length. */
size_t record_msg_id(const struct record *record, char target[MSG_ID_SIZE_MAX]);

#endif
