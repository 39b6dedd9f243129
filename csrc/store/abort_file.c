/* `abort`: there while the store is open, left behind by whoever did not close it.
 *
 * The first line is the process id, as in Apache's. A run that puts a CRC into every record (enabledAppendPropCRC) adds
 * a second one, which says from which offset on, so that recovery after it can take a record without one for torn:
 *
 *   the process id, padded to 20 | 0x0a | "record CRC from " | offset, 20 digits | ' ' | CRC-32 of those, hex | 0x0a
 *
 * It stands here and not in the checkpoint because it must not outlive the run: Apache replaces the file when it opens
 * the store, and with it what we said, whatever Apache then writes. All of it lies in one sector and has one length, so
 * a power cut leaves the old line or the new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "pymq/crc32.h"
#include "pymq/io.h"
#include "store_internal.h"

#define LINE_AT 21
#define LINE_NAME "record CRC from "
#define DIGITS_AT (LINE_AT + sizeof LINE_NAME - 1)
#define DIGITS 20
#define LONG_SIZE (DIGITS_AT + DIGITS + 1 + 8 + 1)

/* The offset the second line says, or -1 when there is none that was written whole. */
static int64_t read_line(const char *text) {
    int64_t offset = 0;
    char crc[9];
    if (memcmp(text + LINE_AT, LINE_NAME, sizeof LINE_NAME - 1) != 0)
        return -1;
    snprintf(crc, sizeof crc, "%08" PRIx32, pymq_crc32(0, (const uint8_t *)text + DIGITS_AT, DIGITS));
    if (memcmp(text + DIGITS_AT + DIGITS + 1, crc, 8) != 0)
        return -1;
    for (size_t i = 0; i < DIGITS; i++) {
        int digit = text[DIGITS_AT + i] - '0';
        if (digit < 0 || digit > 9 || offset > (INT64_MAX - digit) / 10)
            return -1;
        offset = offset * 10 + digit;
    }
    return offset;
}

int pymq_abort_find(struct pymq_store *store, struct pymq_error *error) {
    char path[PYMQ_PATH_MAX], text[LONG_SIZE];
    int status = pymq_store_path(store, "abort", path, sizeof path);
    if (status != PYMQ_OK)
        return status;
    int fd = pymq_io->open(path, O_RDONLY, 0);
    if (fd < 0 && errno == ENOENT)
        return PYMQ_OK;
    ssize_t got = fd >= 0 ? pymq_io_pread_full(fd, text, sizeof text, 0) : -1;
    int code = errno;
    if (fd >= 0)
        pymq_io->close(fd);
    if (got < 0)
        return pymq_fail(error, PYMQ_EIO, code, "%s: cannot be read: %s", path, strerror(code));
    store->crashed = true;
    store->abort_is_long = got > LINE_AT;
    store->record_crc_from = got == (ssize_t)sizeof text ? read_line(text) : -1;
    return PYMQ_OK;
}

static size_t compose(const struct pymq_store *store, char text[LONG_SIZE + 1]) {
    int64_t offset = store->record_crc_from;
    int length = snprintf(text, LONG_SIZE + 1, "%ld", (long)getpid());
    if (offset < 0 && !store->abort_is_long)
        return (size_t)length;
    memset(text + length, ' ', LONG_SIZE - (size_t)length);
    text[LINE_AT - 1] = text[LONG_SIZE - 1] = '\n';
    if (offset >= 0) {
        snprintf(text + LINE_AT, LONG_SIZE + 1 - LINE_AT, LINE_NAME "%0*" PRId64, DIGITS, offset);
        snprintf(text + DIGITS_AT + DIGITS, LONG_SIZE + 1 - DIGITS_AT - DIGITS, " %08" PRIx32 "\n",
                 pymq_crc32(0, (const uint8_t *)text + DIGITS_AT, DIGITS));
    }
    return LONG_SIZE;
}

int pymq_abort_write(struct pymq_store *store, struct pymq_error *error) {
    char path[PYMQ_PATH_MAX], text[LONG_SIZE + 1];
    int status = pymq_store_path(store, "abort", path, sizeof path);
    if (status != PYMQ_OK)
        return status;
    size_t size = compose(store, text);
    int fd = pymq_io->open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0)
        return pymq_fail(error, pymq_io_status(errno), errno, "%s: cannot be made: %s", path, strerror(errno));
    status = pymq_io_pwrite_full(fd, text, size, 0);
    if (status == PYMQ_OK && size == LONG_SIZE) { /* a process id alone may be lost: the name is what counts */
        store->abort_is_long = true;
        status = pymq_io->fdatasync(fd) == 0 ? PYMQ_OK : PYMQ_EFAILED;
    }
    int code = errno;
    pymq_io->close(fd);
    errno = code;
    if (status == PYMQ_OK)
        status = pymq_io_sync_directory(store->path);
    return status == PYMQ_OK ? PYMQ_OK
                             : pymq_fail(error, status, errno, "%s: cannot be written: %s", path, strerror(errno));
}

int pymq_abort_remove(struct pymq_store *store) {
    char path[PYMQ_PATH_MAX];
    int status = pymq_store_path(store, "abort", path, sizeof path);
    if (status == PYMQ_OK && pymq_io->unlink(path) != 0 && errno != ENOENT)
        status = PYMQ_EIO;
    return status == PYMQ_OK ? pymq_io_sync_directory(store->path) : status;
}
