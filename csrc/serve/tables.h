/* The rows that native serving reads: topics, groups, subscriptions, consumer offsets, traffic.
 *
 * Who may touch what:
 *   - reactors read rows inside their turns without any lock, and write nothing but the atomics in them;
 *   - everything else changes only inside pymq_tables_begin … pymq_tables_end, which takes `control_lock` and excludes
 *     every reactor from its turn. So a row found within a turn stays as it is until the turn ends;
 *   - other threads (the control loop, its pool) read under `control_lock`.
 * A row is changed in place when it is published again: a pointer to it stays good until the row is removed. Whoever
 * keeps one over turns (the hold table) must be told of removals, which happens inside the same exclusion.
 */
#ifndef PYMQ_SERVE_TABLES_H
#define PYMQ_SERVE_TABLES_H

#include <pthread.h>
#include <stdatomic.h>

#include "offset_cell.h"
#include "pymq/serve.h"
#include "row_map.h"
#include "shared_program.h"

#define PYMQ_TOPIC_QUEUES_MAX 65536  /* queue ids of one topic served natively; above them requests are handed over */
#define PYMQ_TABLE_NAME_MAX 255      /* bytes of a topic's or group's name, as Apache's validators have it */

struct pymq_topic {
    struct pymq_row row;
    uint64_t incarnation; /* of this topic's life; another one after it was removed and made again */
    int32_t permission, read_queues, write_queues, sys_flag;
    uint32_t flags;       /* enum pymq_topic_flag */
    bool is_retry;        /* %RETRY%… */
    int32_t queue_count;  /* length of `queues`: the larger of read and write queues, never shrinking */
    _Atomic(struct pymq_queue *) *queues; /* resolved on first use: pymq_topic_queue */
    _Atomic int64_t put_messages, put_bytes;
    uint32_t name_size;
    uint8_t name[];
};

struct pymq_group {
    struct pymq_row row;
    uint32_t flags; /* enum pymq_group_flag */
    int32_t sys_flag;
    int64_t broker_id, broker_id_when_slow;
    int32_t retry_queues, retry_max_times;
    uint32_t name_size;
    uint8_t name[];
};

/* Gets of one (group, topic) since start. Outlives the subscription; set to nothing again with its topic or group. */
struct pymq_pull_traffic {
    struct pymq_row row;
    _Atomic int64_t messages, bytes;
    uint32_t topic_size, group_size;
    uint8_t names[]; /* topic, then group */
};

struct pymq_subscription {
    struct pymq_row row;
    struct pymq_pull_traffic *traffic; /* never NULL */
    int64_t version;
    bool all, special;
    uint32_t tag_count;
    int32_t tag_hashes[PYMQ_TAGS_MAX];
    struct pymq_shared_program *program; /* instead of tags; one user of it is this row */
    uint8_t *expression;                 /* whose program it is; NULL when it is nobody's */
    uint32_t expression_size;
    uint32_t topic_size, group_size;
    uint8_t names[]; /* topic, then group */
};

struct pymq_offset_row { /* topic@group */
    struct pymq_row row;
    int32_t cell_count; /* grown under exclusion */
    struct pymq_offset_cell *cells;
    uint32_t topic_size, group_size;
    uint8_t names[]; /* topic, then group */
};

struct pymq_tables {
    pthread_mutex_t control_lock; /* taken before any reactor's turn lock, never inside a turn */
    struct pymq_transport *transport;
    struct pymq_row_map topics, groups, subscriptions, offsets, traffic;
    uint64_t incarnations; /* given out so far */
};

int pymq_tables_init(struct pymq_tables *tables);
void pymq_tables_destroy(struct pymq_tables *tables);

/* Change tables between these. No reactor is inside a turn. Not for reactors. */
void pymq_tables_begin(struct pymq_tables *tables);
void pymq_tables_end(struct pymq_tables *tables);

/* ---- finding; [reactor], or under control_lock; NULL when there is none ---------------- */

struct pymq_topic *pymq_topic_find(const struct pymq_tables *tables, const uint8_t *name, size_t size);
struct pymq_group *pymq_group_find(const struct pymq_tables *tables, const uint8_t *name, size_t size);
struct pymq_subscription *pymq_subscription_find(const struct pymq_tables *tables, const uint8_t *topic,
                                                 size_t topic_size, const uint8_t *group, size_t group_size);
struct pymq_offset_row *pymq_offset_find(const struct pymq_tables *tables, const uint8_t *topic, size_t topic_size,
                                         const uint8_t *group, size_t group_size);

/* The store's queue behind (topic, queue id), remembered in the row. PYMQ_OK, PYMQ_EINVAL when the id is outside it,
 * PYMQ_ENOTFOUND without `create` when nothing was ever stored there, or why it could not be made. */
int pymq_topic_queue(struct pymq_store *store, struct pymq_topic *topic, int32_t queue_id, bool create,
                     struct pymq_queue **queue);

/* The store says that queue is gone: its topic was removed under the row. The next look-up asks the store again. */
void pymq_topic_queue_forget(struct pymq_topic *topic, int32_t queue_id, struct pymq_queue *queue);

/* ---- changing rows; between begin and end ---------------- */

int pymq_topic_publish(struct pymq_tables *tables, const struct pymq_topic_row *source, struct pymq_topic **topic);
void pymq_topic_remove(struct pymq_tables *tables, struct pymq_topic *topic);
int pymq_group_publish(struct pymq_tables *tables, const struct pymq_group_row *source, struct pymq_group **group);
void pymq_group_remove(struct pymq_tables *tables, struct pymq_group *group);
int pymq_subscription_publish(struct pymq_tables *tables, const struct pymq_subscription_row *source,
                              struct pymq_subscription **subscription);
void pymq_subscription_remove(struct pymq_tables *tables, struct pymq_subscription *subscription);
void pymq_subscription_free(struct pymq_subscription *subscription); /* one that is in no table any more */
/* Forget what was counted for a topic (group empty) or a group (topic empty). */
void pymq_traffic_forget(struct pymq_tables *tables, const uint8_t *topic, size_t topic_size, const uint8_t *group,
                         size_t group_size);
/* Rows of (topic, group) where an empty name stands for every one. */
void pymq_offset_rows_remove(struct pymq_tables *tables, const uint8_t *topic, size_t topic_size, const uint8_t *group,
                             size_t group_size);
void pymq_offset_row_free(struct pymq_offset_row *row); /* one that is in no table any more */
/* Find or make the row, with a cell for `queue_id`. PYMQ_OK, PYMQ_EINVAL, PYMQ_ENOMEM. */
int pymq_offset_make(struct pymq_tables *tables, const uint8_t *topic, size_t topic_size, const uint8_t *group,
                     size_t group_size, int32_t queue_id, struct pymq_offset_row **row);

/* ---- offsets of a row; [reactor], or under control_lock ---------------- */

/* NULL when the row has no cell for that queue yet: then the row must be made by the control loop. */
static inline struct pymq_offset_cell *pymq_offset_cell(struct pymq_offset_row *row, int32_t queue_id) {
    return row != NULL && queue_id >= 0 && queue_id < row->cell_count ? &row->cells[queue_id] : NULL;
}

#endif
