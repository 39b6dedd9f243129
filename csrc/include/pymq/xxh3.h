/* XXH3-64 with seed 0: the digest of bodies and of a dump's leaves.
 *
 * Fast and well spread, not cryptographic: it finds accidents, not forgeries. The value is that of the reference
 * implementation (tests/native/test_scan_twin.py holds it against one), so a manifest can be checked with other tools.
 */
#ifndef PYMQ_XXH3_H
#define PYMQ_XXH3_H

#include "pymq/base.h"

/* Reads source[0, size) and nothing else; `source` may be NULL when size is 0. */
uint64_t pymq_xxh3_64(const uint8_t *source, size_t size);

#endif
