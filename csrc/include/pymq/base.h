/* What every file of the core shares: status codes, limits, byte order, errors.
 *
 * The core is plain C11 with no Python.h and links only libc. A function returns a count or PYMQ_OK when it
 * succeeds and one negative code of `enum pymq_status` when it does not; functions that open things also fill a
 * `struct pymq_error`, whose text names the thing and the way out.
 */
#ifndef PYMQ_BASE_H
#define PYMQ_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

enum pymq_status {
    PYMQ_OK = 0,
    PYMQ_ECORRUPT = -1,      /* bytes that no writer of this format leaves behind */
    PYMQ_ETRUNCATED = -2,    /* the bytes end before the structure does */
    PYMQ_EINVAL = -3,        /* an argument outside its documented range */
    PYMQ_ENOMEM = -4,        /* memory or address space refused */
    PYMQ_EIO = -5,           /* a system call failed; the errno travels in pymq_error */
    PYMQ_ENOSPC = -6,        /* the file system is full: the put is refused, nothing is lost */
    PYMQ_ETOOBIG = -7,       /* body or record above its configured limit */
    PYMQ_EPROPERTIES = -8,   /* properties above PYMQ_PROPERTIES_SIZE_MAX, or with zeros as a torn tail has them */
    PYMQ_ETOPIC = -9,        /* topic empty, above PYMQ_TOPIC_SIZE_MAX, or not a file name */
    PYMQ_EFAILED = -10,      /* an fsync failed: the store acknowledges nothing any more */
    PYMQ_ECLOSED = -11,      /* the store is closed or closing */
    PYMQ_ETIMEDOUT = -12,    /* not yet flushed or replicated; the message may still become durable */
    PYMQ_EPOOL = -13,        /* the transient store pool has no free buffer */
    PYMQ_ELOCKED = -14,      /* another process, or another handle here, has the store open */
    PYMQ_EMISMATCH = -15,    /* files on disk have other sizes than the settings say */
    PYMQ_EUNSUPPORTED = -16, /* a store feature we do not read, named in the error text */
    PYMQ_ENOTFOUND = -17,    /* no such queue, offset, key or file */
    PYMQ_EREADONLY = -18,    /* writes are refused by retention (disk level) or by role */
    PYMQ_EMAPS = -19,        /* the mapping budget is exhausted by pinned windows */
    PYMQ_EREMOVED = -20,     /* the topic a message was to be put into is being removed */
};

#define PYMQ_PAGE_SIZE 4096
#define PYMQ_TOPIC_SIZE_MAX 32767        /* v2 topic length is a signed short */
#define PYMQ_TOPIC_V1_SIZE_MAX 127       /* v1 topic length is a signed byte */
#define PYMQ_PROPERTIES_SIZE_MAX 32767   /* properties length is a signed short */
#define PYMQ_MESSAGE_SIZE_MAX_DEFAULT (4 * 1024 * 1024)
#define PYMQ_RECORD_OVERHEAD_MAX (64 * 1024) /* what a record may add to its body, as Apache reserves it */
#define PYMQ_ERROR_TEXT_MAX 1024
#define PYMQ_PATH_MAX 4096

struct pymq_error {
    int status;    /* enum pymq_status */
    int sys_errno; /* errno at the moment of failure, 0 when none applies */
    char text[PYMQ_ERROR_TEXT_MAX];
};

/* Fill `error` (may be NULL) and return `status`, so that callers write `return pymq_fail(...)`. */
int pymq_fail(struct pymq_error *error, int status, int sys_errno, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The name of a status, as "PYMQ_ENOSPC"; never NULL. */
const char *pymq_status_name(int status);

static inline uint16_t pymq_load_be16(const uint8_t *source) {
    return (uint16_t)((uint16_t)source[0] << 8 | source[1]);
}

static inline uint32_t pymq_load_be32(const uint8_t *source) {
    uint32_t value;
    memcpy(&value, source, sizeof value);
    return __builtin_bswap32(value);
}

static inline uint64_t pymq_load_be64(const uint8_t *source) {
    uint64_t value;
    memcpy(&value, source, sizeof value);
    return __builtin_bswap64(value);
}

static inline void pymq_store_be16(uint8_t *target, uint16_t value) {
    value = __builtin_bswap16(value);
    memcpy(target, &value, sizeof value);
}

static inline void pymq_store_be32(uint8_t *target, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(target, &value, sizeof value);
}

static inline void pymq_store_be64(uint8_t *target, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(target, &value, sizeof value);
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "pymq is built for little-endian machines; the swaps above assume one"
#endif

static inline int64_t pymq_min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t pymq_max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Round up to a multiple of `step`, which is a power of two. */
static inline int64_t pymq_round_up(int64_t value, int64_t step) { return (value + step - 1) & ~(step - 1); }

#endif
