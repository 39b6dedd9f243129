/* XXH3-64, seed 0, written from the algorithm's specification.
 *
 *   size        how
 *   0           a constant
 *   1..3        one word, avalanche
 *   4..8        two words that may overlap, one strong mix
 *   9..16       two words that may overlap, one 64 x 64 multiplication
 *   17..128     pairs of 16 bytes from both ends inwards
 *   129..240    16 bytes at a time against the secret, the last 16 again
 *   241..       eight accumulators over stripes of 64 bytes, scrambled after every 1,024 bytes
 *
 * Words are little-endian, as this machine's are (pymq/base.h refuses another). The long loop uses SSE2 where there is
 * any, which every x86-64 has; elsewhere the compiler gets plain C of the same shape.
 */
#include "pymq/xxh3.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define PRIME32_1 0x9e3779b1u
#define PRIME32_2 0x85ebca77u
#define PRIME32_3 0xc2b2ae3du
#define PRIME64_1 0x9e3779b185ebca87ull
#define PRIME64_2 0xc2b2ae3d27d4eb4full
#define PRIME64_3 0x165667b19e3779f9ull
#define PRIME64_4 0x85ebca77c2b2ae63ull
#define PRIME64_5 0x27d4eb2f165667c5ull
#define PRIME_MX1 0x165667919e3779f9ull
#define PRIME_MX2 0x9fb21c651e98df25ull

#define SECRET_SIZE 192
#define STRIPE_SIZE 64
#define STRIPES_PER_BLOCK ((SECRET_SIZE - STRIPE_SIZE) / 8)
#define BLOCK_SIZE (STRIPE_SIZE * STRIPES_PER_BLOCK)
#define MIDDLE_SIZE_MAX 240
#define MIDDLE_START 3   /* where the secret of the second part of 129..240 begins */
#define MIDDLE_LAST 119  /* and of its last 16 bytes */
#define LAST_STRIPE 121  /* the secret of a long input's last stripe */
#define MERGE_START 11

_Static_assert(BLOCK_SIZE == 1024, "a block is 16 stripes of 64 bytes");

static const uint8_t secret[SECRET_SIZE] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d,
    0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0,
    0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0,
    0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b,
    0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac,
    0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51,
    0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34,
    0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49,
    0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8,
    0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b,
    0x40, 0x7e,
};

static inline uint32_t load32(const uint8_t *source) {
    uint32_t value;
    memcpy(&value, source, sizeof value);
    return value;
}

static inline uint64_t load64(const uint8_t *source) {
    uint64_t value;
    memcpy(&value, source, sizeof value);
    return value;
}

static inline uint64_t rotate(uint64_t value, unsigned by) { return value << by | value >> (64 - by); }

/* Both halves of the 128-bit product, folded into one. */
static inline uint64_t multiply_fold(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t avalanche(uint64_t hash) {
    hash ^= hash >> 37;
    hash *= PRIME_MX1;
    return hash ^ hash >> 32;
}

static inline uint64_t avalanche_short(uint64_t hash) {
    hash ^= hash >> 33;
    hash *= PRIME64_2;
    hash ^= hash >> 29;
    hash *= PRIME64_3;
    return hash ^ hash >> 32;
}

static inline uint64_t mix16(const uint8_t *source, const uint8_t *key) {
    return multiply_fold(load64(source) ^ load64(key), load64(source + 8) ^ load64(key + 8));
}

/* ---- up to 240 bytes --------------------------------------------------------------------------------- */

static uint64_t hash_to_16(const uint8_t *source, size_t size) {
    if (size > 8) {
        uint64_t low = load64(source) ^ load64(secret + 24) ^ load64(secret + 32);
        uint64_t high = load64(source + size - 8) ^ load64(secret + 40) ^ load64(secret + 48);
        return avalanche(size + __builtin_bswap64(low) + high + multiply_fold(low, high));
    }
    if (size >= 4) {
        uint64_t word = load32(source + size - 4) + ((uint64_t)load32(source) << 32);
        uint64_t hash = word ^ load64(secret + 8) ^ load64(secret + 16);
        hash ^= rotate(hash, 49) ^ rotate(hash, 24);
        hash *= PRIME_MX2;
        hash ^= (hash >> 35) + size;
        hash *= PRIME_MX2;
        return hash ^ hash >> 28;
    }
    if (size > 0) {
        uint32_t word = (uint32_t)source[0] << 16 | (uint32_t)source[size >> 1] << 24 | source[size - 1] |
                        (uint32_t)size << 8;
        return avalanche_short(word ^ (uint64_t)(load32(secret) ^ load32(secret + 4)));
    }
    return avalanche_short(load64(secret + 56) ^ load64(secret + 64));
}

static uint64_t hash_to_128(const uint8_t *source, size_t size) {
    uint64_t sum = size * PRIME64_1;
    for (size_t pair = (size - 1) / 32 + 1; pair-- > 0;) {
        sum += mix16(source + 16 * pair, secret + 32 * pair);
        sum += mix16(source + size - 16 * (pair + 1), secret + 32 * pair + 16);
    }
    return avalanche(sum);
}

static uint64_t hash_to_240(const uint8_t *source, size_t size) {
    uint64_t sum = size * PRIME64_1;
    size_t rounds = size / 16;
    for (size_t i = 0; i < 8; i++) {
        sum += mix16(source + 16 * i, secret + 16 * i);
    }
    sum = avalanche(sum);
    for (size_t i = 8; i < rounds; i++) {
        sum += mix16(source + 16 * i, secret + 16 * (i - 8) + MIDDLE_START);
    }
    return avalanche(sum + mix16(source + size - 16, secret + MIDDLE_LAST));
}

/* ---- longer ------------------------------------------------------------------------------------------ */

#if defined(__SSE2__)

#define LANES 4
typedef __m128i lane;

static inline lane load_lane(const uint8_t *source) { return _mm_loadu_si128((const __m128i *)(const void *)source); }

static inline void accumulate(lane *lanes, const uint8_t *source, const uint8_t *key) {
    for (int i = 0; i < LANES; i++) {
        lane data = load_lane(source + 16 * i);
        lane keyed = _mm_xor_si128(data, load_lane(key + 16 * i));
        lane product = _mm_mul_epu32(keyed, _mm_shuffle_epi32(keyed, _MM_SHUFFLE(0, 3, 0, 1)));
        lane crossed = _mm_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2));
        lanes[i] = _mm_add_epi64(product, _mm_add_epi64(lanes[i], crossed));
    }
}

static inline void scramble(lane *lanes, const uint8_t *key) {
    const lane prime = _mm_set1_epi32((int)PRIME32_1);
    for (int i = 0; i < LANES; i++) {
        lane keyed = _mm_xor_si128(_mm_xor_si128(lanes[i], _mm_srli_epi64(lanes[i], 47)), load_lane(key + 16 * i));
        lane high = _mm_mul_epu32(_mm_shuffle_epi32(keyed, _MM_SHUFFLE(0, 3, 0, 1)), prime);
        lanes[i] = _mm_add_epi64(_mm_mul_epu32(keyed, prime), _mm_slli_epi64(high, 32));
    }
}

#else

#define LANES 8
typedef uint64_t lane;

static inline void accumulate(lane *lanes, const uint8_t *source, const uint8_t *key) {
    for (int i = 0; i < LANES; i++) {
        uint64_t data = load64(source + 8 * i);
        uint64_t keyed = data ^ load64(key + 8 * i);
        lanes[i ^ 1] += data;
        lanes[i] += (keyed & 0xffffffffu) * (keyed >> 32);
    }
}

static inline void scramble(lane *lanes, const uint8_t *key) {
    for (int i = 0; i < LANES; i++) {
        lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ load64(key + 8 * i)) * PRIME32_1;
    }
}

#endif

static uint64_t hash_long(const uint8_t *source, size_t size) {
    static const uint64_t start[8] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3,
                                      PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    lane lanes[LANES];
    uint64_t words[8];
    uint64_t sum = size * PRIME64_1;
    const uint8_t *at = source;
    memcpy(lanes, start, sizeof lanes);
    /* The last byte belongs to the last stripe, so a block is only taken whole when more follows. */
    for (size_t blocks = (size - 1) / BLOCK_SIZE; blocks > 0; blocks--) {
        for (size_t stripe = 0; stripe < STRIPES_PER_BLOCK; stripe++) {
            accumulate(lanes, at + STRIPE_SIZE * stripe, secret + 8 * stripe);
        }
        scramble(lanes, secret + SECRET_SIZE - STRIPE_SIZE);
        at += BLOCK_SIZE;
    }
    for (size_t stripe = 0, count = (size - 1) % BLOCK_SIZE / STRIPE_SIZE; stripe < count; stripe++) {
        accumulate(lanes, at + STRIPE_SIZE * stripe, secret + 8 * stripe);
    }
    accumulate(lanes, source + size - STRIPE_SIZE, secret + LAST_STRIPE);
    memcpy(words, lanes, sizeof words);
    for (size_t i = 0; i < 4; i++) {
        const uint8_t *key = secret + MERGE_START + 16 * i;
        sum += multiply_fold(words[2 * i] ^ load64(key), words[2 * i + 1] ^ load64(key + 8));
    }
    return avalanche(sum);
}

_Static_assert(sizeof(lane) * LANES == 64, "eight accumulators of eight bytes");

uint64_t pymq_xxh3_64(const uint8_t *source, size_t size) {
    if (size <= 16) {
        return hash_to_16(source, size);
    }
    if (size <= 128) {
        return hash_to_128(source, size);
    }
    return size <= MIDDLE_SIZE_MAX ? hash_to_240(source, size) : hash_long(source, size);
}
