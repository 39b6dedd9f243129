/* CRC-32 (polynomial 0x04c11db7, reflected), the one of zlib.
 *
 * DESIGN. A CRC is the remainder of the message, read as a polynomial over GF(2), by P. Sixteen bytes of state can
 * be "folded" forward over D bits by multiplying its two halves by x^(D+32) and x^(D-32) mod P (the reflected form
 * takes 32 off each exponent and shifts the constant left by one) and adding the 16 bytes found there. Four states in
 * flight hide the multiplier's latency; at the end they are folded into one, and that one is reduced to 32 bits by
 * Barrett's method. A tail of 1..15 bytes costs one more fold: state and tail together are one 16-byte block preceded
 * by a block whose leading bytes are zero, and leading zeros do not change a remainder. So no byte of the
 * accelerated path goes through a table.
 *
 * Three implementations: 256-bit carry-less multiply (VPCLMULQDQ + AVX2), 128-bit (PCLMULQDQ + SSE4.1), and
 * slicing-by-16 tables. Which one serves pymq_crc32 is decided once, at first use; racing first uses decide the same.
 */
#include "pymq/crc32.h"

#include <pthread.h>
#include <stdatomic.h>

#define CRC32_POLYNOMIAL_REFLECTED 0xedb88320u
#define CRC32_SLICES 16

typedef uint32_t (*crc32_function)(uint32_t seed, const uint8_t *source, size_t size);

/* ---- the portable twin ---------------------------------------------------------------------------------- */

/* slice[k][b]: the state after byte b and k zero bytes. Written once under `table_once`, read-only afterwards. */
static uint32_t crc32_slice[CRC32_SLICES][256];
static pthread_once_t crc32_slice_once = PTHREAD_ONCE_INIT;

static void crc32_build_slices(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++) {
            state = (state >> 1) ^ ((state & 1) ? CRC32_POLYNOMIAL_REFLECTED : 0);
        }
        crc32_slice[0][byte] = state;
    }
    for (int k = 1; k < CRC32_SLICES; k++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t state = crc32_slice[k - 1][byte];
            crc32_slice[k][byte] = (state >> 8) ^ crc32_slice[0][state & 0xff];
        }
    }
}

static inline uint32_t crc32_load_le32(const uint8_t *source) {
    uint32_t value;
    memcpy(&value, source, sizeof value);
    return value;
}

/* What four bytes contribute when `k` is the slice of the last of them. */
static inline uint32_t crc32_slice_word(uint32_t word, int k) {
    return crc32_slice[k + 3][word & 0xff] ^ crc32_slice[k + 2][(word >> 8) & 0xff] ^
           crc32_slice[k + 1][(word >> 16) & 0xff] ^ crc32_slice[k][word >> 24];
}

uint32_t pymq_crc32_table(uint32_t seed, const uint8_t *source, size_t size) {
    uint32_t state = ~seed;
    (void)pthread_once(&crc32_slice_once, crc32_build_slices);
    for (; size >= 16; source += 16, size -= 16) {
        state = crc32_slice_word(crc32_load_le32(source) ^ state, 12) ^
                crc32_slice_word(crc32_load_le32(source + 4), 8) ^
                crc32_slice_word(crc32_load_le32(source + 8), 4) ^ crc32_slice_word(crc32_load_le32(source + 12), 0);
    }
    for (; size > 0; source++, size--) {
        state = (state >> 8) ^ crc32_slice[0][(state ^ *source) & 0xff];
    }
    return ~state;
}

/* ---- carry-less multiply -------------------------------------------------------------------------------- */

#if defined(__x86_64__)

#include <immintrin.h>

#define CRC32_TARGET_128 __attribute__((target("pclmul,sse4.1")))
#define CRC32_TARGET_256 __attribute__((target("pclmul,sse4.1,avx2,vpclmulqdq")))
#define CRC32_INLINE static inline __attribute__((always_inline))

/* What fills the four 256-bit states once; shorter messages take the 128-bit way. */
#define CRC32_WIDE_SIZE_MIN 128

/* bit-reflected x^n mod P, shifted left by one; for a fold over D bits: n = D + 32 for the half that comes first in
 * memory, D - 32 for the other. */
#define CRC32_X160 0x1751997d0ull  /* D = 128, first half */
#define CRC32_X96 0x0ccaa009eull
#define CRC32_X288 0x0f1da05aaull  /* D = 256 */
#define CRC32_X224 0x15a546366ull
#define CRC32_X416 0x03db1ecdcull  /* D = 384 */
#define CRC32_X352 0x174359406ull
#define CRC32_X544 0x154442bd4ull  /* D = 512 */
#define CRC32_X480 0x1c6e41596ull
#define CRC32_X800 0x0df068dc2ull  /* D = 768 */
#define CRC32_X736 0x18cb44e58ull
#define CRC32_X1056 0x1e88ef372ull /* D = 1024 */
#define CRC32_X992 0x14a7fe880ull
#define CRC32_X64 0x163cd6124ull
#define CRC32_P 0x1db710641ull     /* P itself, reflected, 33 bits */
#define CRC32_MU 0x1f7011641ull    /* x^64 div P, reflected: Barrett's constant */

#define CRC32_PAIR(first, second) _mm_set_epi64x((long long)(second), (long long)(first))

CRC32_INLINE CRC32_TARGET_128 __m128i crc32_load(const uint8_t *source) {
    return _mm_loadu_si128((const __m128i *)(const void *)source);
}

CRC32_INLINE CRC32_TARGET_128 __m128i crc32_fold(__m128i state, __m128i factors, __m128i next) {
    __m128i first = _mm_clmulepi64_si128(state, factors, 0x00);
    __m128i second = _mm_clmulepi64_si128(state, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, second), next);
}

/* 128 bits of state to the 32-bit remainder of state * x^32. */
CRC32_INLINE CRC32_TARGET_128 uint32_t crc32_reduce(__m128i state) {
    const __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0);
    const __m128i barrett = CRC32_PAIR(CRC32_P, CRC32_MU);
    __m128i product = _mm_clmulepi64_si128(state, CRC32_PAIR(CRC32_X96, 0), 0x00);
    state = _mm_xor_si128(_mm_srli_si128(state, 8), product);
    product = _mm_clmulepi64_si128(_mm_and_si128(state, low_words), CRC32_PAIR(CRC32_X64, 0), 0x00);
    state = _mm_xor_si128(_mm_srli_si128(state, 4), product);
    product = _mm_clmulepi64_si128(_mm_and_si128(state, low_words), barrett, 0x10);
    product = _mm_clmulepi64_si128(_mm_and_si128(product, low_words), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(state, product), 1);
}

/* A message of fewer than 16 bytes, pushed to the end of one zero block. */
CRC32_INLINE CRC32_TARGET_128 uint32_t crc32_short(uint32_t state, const uint8_t *source, size_t size) {
    unsigned __int128 block;
    unsigned shift = (unsigned)(8 * (16 - size));
    uint32_t left_over = 0;
    if (size >= 8) {
        uint64_t head, tail;
        memcpy(&head, source, 8);
        memcpy(&tail, source + size - 8, 8); /* overlaps `head` with the same bytes at the same place */
        block = ((unsigned __int128)head << shift | (unsigned __int128)tail << 64) ^ (unsigned __int128)state << shift;
    } else if (size >= 4) {
        uint32_t head = crc32_load_le32(source), tail = crc32_load_le32(source + size - 4);
        block = ((unsigned __int128)head << shift | (unsigned __int128)tail << 96) ^ (unsigned __int128)state << shift;
    } else {
        uint32_t word = 0;
        if (size == 0) {
            return state;
        }
        /* 1..3 bytes: first, middle, last; positions coincide when there are fewer than three. */
        word = (uint32_t)source[0] | (uint32_t)source[size >> 1] << (8 * (size >> 1)) |
               (uint32_t)source[size - 1] << (8 * (size - 1));
        left_over = state >> (8 * size); /* state bytes the message does not reach move down unchanged */
        block = (unsigned __int128)(word ^ (state & ((1u << (8 * size)) - 1))) << shift;
    }
    return crc32_reduce(CRC32_PAIR((uint64_t)block, (uint64_t)(block >> 64))) ^ left_over;
}

/* Indexes for a byte shuffle: loading at `n` moves bytes up by 16 - n, at 16 + n down by n; 0x80 gives zero. */
static const uint8_t crc32_shuffle[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 1, 2,
    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,   0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

/* `state` covers everything before source[0, size); at least 16 bytes precede source + size in the buffer. */
CRC32_INLINE CRC32_TARGET_128 uint32_t crc32_finish(__m128i state, const uint8_t *source, size_t size) {
    const __m128i by_128 = CRC32_PAIR(CRC32_X160, CRC32_X96);
    for (; size >= 16; source += 16, size -= 16) {
        state = crc32_fold(state, by_128, crc32_load(source));
    }
    if (size > 0 && size < 16) { /* the loop left no more; said for tools that do not see it */
        __m128i up = crc32_load(crc32_shuffle + size);
        __m128i down = crc32_load(crc32_shuffle + 16 + size);
        __m128i last = crc32_load(source + size - 16);
        __m128i next = _mm_blendv_epi8(_mm_shuffle_epi8(state, down), last, down);
        state = crc32_fold(_mm_shuffle_epi8(state, up), by_128, next);
    }
    return crc32_reduce(state);
}

CRC32_INLINE CRC32_TARGET_128 uint32_t crc32_narrow(uint32_t state_in, const uint8_t *source, size_t size) {
    __m128i state;
    if (size < 16) {
        return crc32_short(state_in, source, size);
    }
    state = _mm_xor_si128(crc32_load(source), _mm_cvtsi32_si128((int)state_in));
    if (size < 64) {
        return crc32_finish(state, source + 16, size - 16);
    } else {
        const __m128i by_512 = CRC32_PAIR(CRC32_X544, CRC32_X480);
        __m128i second = crc32_load(source + 16), third = crc32_load(source + 32), fourth = crc32_load(source + 48);
        for (source += 64, size -= 64; size >= 64; source += 64, size -= 64) {
            state = crc32_fold(state, by_512, crc32_load(source));
            second = crc32_fold(second, by_512, crc32_load(source + 16));
            third = crc32_fold(third, by_512, crc32_load(source + 32));
            fourth = crc32_fold(fourth, by_512, crc32_load(source + 48));
        }
        /* Each over its own distance: three independent folds instead of a chain of three. */
        fourth = crc32_fold(third, CRC32_PAIR(CRC32_X160, CRC32_X96), fourth);
        second = crc32_fold(second, CRC32_PAIR(CRC32_X288, CRC32_X224), fourth);
        state = crc32_fold(state, CRC32_PAIR(CRC32_X416, CRC32_X352), second);
        return crc32_finish(state, source, size);
    }
}

static CRC32_TARGET_128 uint32_t crc32_clmul_128(uint32_t seed, const uint8_t *source, size_t size) {
    return ~crc32_narrow(~seed, source, size);
}

CRC32_INLINE CRC32_TARGET_256 __m256i crc32_load_wide(const uint8_t *source) {
    return _mm256_loadu_si256((const __m256i *)(const void *)source);
}

CRC32_INLINE CRC32_TARGET_256 __m256i crc32_fold_wide(__m256i state, __m256i factors, __m256i next) {
    __m256i first = _mm256_clmulepi64_epi128(state, factors, 0x00);
    __m256i second = _mm256_clmulepi64_epi128(state, factors, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(first, second), next);
}

#define CRC32_WIDE_PAIR(first, second) _mm256_broadcastsi128_si256(CRC32_PAIR(first, second))

static CRC32_TARGET_256 uint32_t crc32_clmul_256(uint32_t seed, const uint8_t *source, size_t size) {
    if (size < CRC32_WIDE_SIZE_MIN) {
        return ~crc32_narrow(~seed, source, size);
    } else {
        const __m256i by_1024 = CRC32_WIDE_PAIR(CRC32_X1056, CRC32_X992);
        __m256i start = _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~seed));
        __m256i first = _mm256_xor_si256(crc32_load_wide(source), start);
        __m256i second = crc32_load_wide(source + 32);
        __m256i third = crc32_load_wide(source + 64);
        __m256i fourth = crc32_load_wide(source + 96);
        __m128i state;
        for (source += 128, size -= 128; size >= 128; source += 128, size -= 128) {
            first = crc32_fold_wide(first, by_1024, crc32_load_wide(source));
            second = crc32_fold_wide(second, by_1024, crc32_load_wide(source + 32));
            third = crc32_fold_wide(third, by_1024, crc32_load_wide(source + 64));
            fourth = crc32_fold_wide(fourth, by_1024, crc32_load_wide(source + 96));
        }
        fourth = crc32_fold_wide(third, CRC32_WIDE_PAIR(CRC32_X288, CRC32_X224), fourth);
        second = crc32_fold_wide(second, CRC32_WIDE_PAIR(CRC32_X544, CRC32_X480), fourth);
        first = crc32_fold_wide(first, CRC32_WIDE_PAIR(CRC32_X800, CRC32_X736), second);
        state = crc32_fold(_mm256_castsi256_si128(first), CRC32_PAIR(CRC32_X160, CRC32_X96),
                           _mm256_extracti128_si256(first, 1));
        return ~crc32_finish(state, source, size);
    }
}

static crc32_function crc32_choose(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1")) {
        return pymq_crc32_table;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq")) {
        return crc32_clmul_256;
    }
    return crc32_clmul_128;
}

#else

static crc32_function crc32_choose(void) { return pymq_crc32_table; }

#endif

/* ---- the choice ----------------------------------------------------------------------------------------- */

static uint32_t crc32_first_use(uint32_t seed, const uint8_t *source, size_t size);

static _Atomic(crc32_function) crc32_chosen = crc32_first_use;

static uint32_t crc32_first_use(uint32_t seed, const uint8_t *source, size_t size) {
    crc32_function chosen = crc32_choose();
    /* Relaxed: the pointer is all there is to see, the functions carry no data of their own. */
    atomic_store_explicit(&crc32_chosen, chosen, memory_order_relaxed);
    return chosen(seed, source, size);
}

uint32_t pymq_crc32(uint32_t seed, const uint8_t *source, size_t size) {
    return atomic_load_explicit(&crc32_chosen, memory_order_relaxed)(seed, source, size);
}

bool pymq_crc32_is_accelerated(void) { return crc32_choose() != pymq_crc32_table; }
