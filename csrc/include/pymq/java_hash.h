/* Java's String.hashCode over UTF-16 code units, computed from UTF-8 bytes.
 *
 * Malformed UTF-8 counts as U+FFFD exactly as Java's decoder would replace it, so that tag and key hashes equal
 * the ones Apache RocketMQ computes from the same record.
 */
#ifndef PYMQ_JAVA_HASH_H
#define PYMQ_JAVA_HASH_H

#include "pymq/base.h"

/* Continue `hash` (0 to start) over `size` bytes: hash(a + b) == continue(continue(0, a), b) for whole strings. */
int32_t pymq_java_hash(int32_t hash, const uint8_t *source, size_t size);

/* The index file's key hash: absolute value of the hash of `topic#key`, 0 where that stays negative. */
int32_t pymq_index_key_hash(const uint8_t *topic, size_t topic_size, const uint8_t *key, size_t key_size);

#endif
