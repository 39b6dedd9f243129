/* CRC-32 with zlib's polynomial: RocketMQ's body checksum.
 *
 * Carry-less multiply where the CPU has it (decided once, at first use), slicing tables otherwise. Both give the
 * same answer as zlib's crc32(); RocketMQ masks it to 31 bits wherever it is stored.
 */
#ifndef PYMQ_CRC32_H
#define PYMQ_CRC32_H

#include "pymq/base.h"

uint32_t pymq_crc32(uint32_t seed, const uint8_t *source, size_t size);

/* The portable twin, for machines without carry-less multiply and as the oracle of the fast one. */
uint32_t pymq_crc32_table(uint32_t seed, const uint8_t *source, size_t size);

/* Whether pymq_crc32 uses carry-less multiply on this machine. */
bool pymq_crc32_is_accelerated(void);

/* What BODYCRC holds. */
static inline int32_t pymq_body_crc(const uint8_t *body, size_t size) {
    return (int32_t)(pymq_crc32(0, body, size) & 0x7fffffffu);
}

#endif
