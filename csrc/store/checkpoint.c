/* See checkpoint.h. */
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "pymq/crc32.h"
#include "pymq/io.h"

#define BLOCK_MAGIC "PYMQCKP1"
#define BLOCK_VERSION 2
#define BLOCK_LONGS_AT (4 + 6 * 8)
#define LONGS_SIZE 48
#define BLOCK_BODY_AT (PYMQ_CHECKPOINT_BLOCK_AT + 12)
#define BLOCK_BODY_SIZE (BLOCK_LONGS_AT + LONGS_SIZE)

static int64_t load_long(const uint8_t *bytes, size_t at) { return (int64_t)pymq_load_be64(bytes + at); }
static void store_long(uint8_t *bytes, size_t at, int64_t value) { pymq_store_be64(bytes + at, (uint64_t)value); }

static void decode_block(const uint8_t *bytes, struct pymq_checkpoint *checkpoint) {
    const uint8_t *body = bytes + BLOCK_BODY_AT;
    if (memcmp(bytes + PYMQ_CHECKPOINT_BLOCK_AT, BLOCK_MAGIC, 8) != 0 ||
        pymq_load_be32(bytes + PYMQ_CHECKPOINT_BLOCK_AT + 8) != pymq_crc32(0, body, BLOCK_BODY_SIZE) ||
        pymq_load_be32(body) != BLOCK_VERSION || memcmp(body + BLOCK_LONGS_AT, bytes, LONGS_SIZE) != 0)
        return;
    checkpoint->extended = true;
    checkpoint->safe_offset = load_long(body, 4);
    checkpoint->flushed_offset = load_long(body, 12);
    checkpoint->clean_end = load_long(body, 20);
    checkpoint->last_record = load_long(body, 28);
    checkpoint->unit_total = load_long(body, 36);
    checkpoint->index_end = load_long(body, 44);
}

int pymq_checkpoint_load(const char *path, struct pymq_checkpoint *checkpoint) {
    uint8_t bytes[PYMQ_CHECKPOINT_SIZE] = {0};
    memset(checkpoint, 0, sizeof *checkpoint);
    checkpoint->clean_end = -1;
    checkpoint->last_record = -1;
    checkpoint->unit_total = -1;
    checkpoint->index_end = -2;
    int fd = pymq_io->open(path, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? PYMQ_OK : PYMQ_EIO;
    ssize_t got = pymq_io_pread_full(fd, bytes, sizeof bytes, 0);
    pymq_io->close(fd);
    if (got < 0)
        return PYMQ_EIO;
    checkpoint->physic_msg_timestamp = load_long(bytes, 0);
    checkpoint->logics_msg_timestamp = load_long(bytes, 8);
    checkpoint->index_msg_timestamp = load_long(bytes, 16);
    checkpoint->master_flushed_offset = load_long(bytes, 24);
    checkpoint->confirm_phy_offset = load_long(bytes, 32);
    checkpoint->logics_physical_offset = load_long(bytes, 40);
    decode_block(bytes, checkpoint);
    return PYMQ_OK;
}

int pymq_checkpoint_save(const char *path, const struct pymq_checkpoint *checkpoint) {
    uint8_t bytes[PYMQ_CHECKPOINT_SIZE] = {0};
    store_long(bytes, 0, checkpoint->physic_msg_timestamp);
    store_long(bytes, 8, checkpoint->logics_msg_timestamp);
    store_long(bytes, 16, checkpoint->index_msg_timestamp);
    store_long(bytes, 24, checkpoint->master_flushed_offset);
    store_long(bytes, 32, checkpoint->confirm_phy_offset);
    store_long(bytes, 40, checkpoint->logics_physical_offset);
    uint8_t *body = bytes + BLOCK_BODY_AT;
    memcpy(bytes + PYMQ_CHECKPOINT_BLOCK_AT, BLOCK_MAGIC, 8);
    pymq_store_be32(body, BLOCK_VERSION);
    store_long(body, 4, checkpoint->safe_offset);
    store_long(body, 12, checkpoint->flushed_offset);
    store_long(body, 20, checkpoint->clean_end);
    store_long(body, 28, checkpoint->last_record);
    store_long(body, 36, checkpoint->unit_total);
    store_long(body, 44, checkpoint->index_end);
    memcpy(body + BLOCK_LONGS_AT, bytes, LONGS_SIZE);
    pymq_store_be32(bytes + PYMQ_CHECKPOINT_BLOCK_AT + 8, pymq_crc32(0, body, BLOCK_BODY_SIZE));

    int fd = pymq_io->open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0)
        return pymq_io_status(errno);
    int status = pymq_io_pwrite_full(fd, bytes, sizeof bytes, 0);
    if (status == PYMQ_OK && pymq_io->fdatasync(fd) != 0)
        status = PYMQ_EFAILED;
    int saved = errno;
    pymq_io->close(fd);
    errno = saved;
    return status;
}
