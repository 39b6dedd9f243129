/* The checkpoint file: 4096 bytes, Apache's six longs in front, pymq's own block at 2048.
 *
 *   0 physicMsgTimestamp   8 logicsMsgTimestamp   16 indexMsgTimestamp
 *  24 masterFlushedOffset 32 confirmPhyOffset     40 logicsPhysicalOffset      (all big-endian)
 *
 *  2048 "PYMQCKP1" 8 | crc32 4 of the 100 bytes that follow | version 4 | safe offset 8 | flushed offset 8 |
 *       clean end 8 | last record 8 | unit total 8 | index end 8 | copy of the six longs 48
 *
 * Apache's numbers are written for Apache: after a crash it rebuilds queues and index from there, and it drops
 * index files younger than indexMsgTimestamp, so logicsPhysicalOffset and logicsMsgTimestamp point no later than
 * the beginning of the first index file it would drop. pymq's own block says exactly how far queues *and* index are
 * durable. The copy tells whether Apache has written the file since: then the block is ignored.
 */
#ifndef PYMQ_STORE_CHECKPOINT_H
#define PYMQ_STORE_CHECKPOINT_H

#include "pymq/base.h"

#define PYMQ_CHECKPOINT_SIZE 4096
#define PYMQ_CHECKPOINT_BLOCK_AT 2048

struct pymq_checkpoint {
    int64_t physic_msg_timestamp;
    int64_t logics_msg_timestamp;
    int64_t index_msg_timestamp;
    int64_t master_flushed_offset;
    int64_t confirm_phy_offset;
    int64_t logics_physical_offset;

    bool extended;          /* the block is there and belongs to the longs above */
    int64_t safe_offset;    /* log, queues and index are durable below */
    int64_t flushed_offset; /* the log is durable below */
    int64_t clean_end;      /* where the log ended at a clean stop, -1 while running */
    int64_t last_record;    /* where the last record below the safe offset starts, -1 when there is none */
    /* What queues and index held then: less on disk means that somebody has taken files away. */
    int64_t unit_total; /* ends of all queues, in units, added up; -1 when not known */
    int64_t index_end;  /* physical offset of the last record indexed, -1 without one, -2 when not known */
};

/* A missing or short file gives zeros and PYMQ_OK. */
int pymq_checkpoint_load(const char *path, struct pymq_checkpoint *checkpoint);

/* Write both parts and sync. PYMQ_EFAILED when the sync failed. */
int pymq_checkpoint_save(const char *path, const struct pymq_checkpoint *checkpoint);

#endif
