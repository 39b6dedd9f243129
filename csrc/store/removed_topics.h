/* Topics that were removed while the log still holds their records.
 *
 * Queues are derived from the log, so whatever rebuilds them would bring a removed topic back, or mix its old messages
 * with those of a new topic of the same name. `removedTopics` says for each such topic from which offset of the log on
 * its records count again; it is replaced as a whole (write, sync, rename, sync), and that replacement is the moment at
 * which a topic is removed. An entry goes when the log begins behind it. Apache RocketMQ does not know the file and,
 * rebuilding queues after a crash, brings such topics back, as it does for its own.
 *
 *   pymq removed topics 1\n
 *   <offset> <bytes of the name> <name>\n ...
 * */
#ifndef PYMQ_STORE_REMOVED_TOPICS_H
#define PYMQ_STORE_REMOVED_TOPICS_H

#include "pymq/base.h"
#include "pymq/properties.h"

struct pymq_removed_topic {
    int64_t offset; /* records below are not dispatched */
    uint32_t size;
    uint8_t *name;
};

struct pymq_removed_topics {
    struct pymq_removed_topic *topics; /* by name */
    size_t count;
    int64_t offset_max; /* of all of them: records at or above need no look-up */
};

void pymq_removed_topics_free(struct pymq_removed_topics *removed);

/* A missing file is an empty one. PYMQ_ECORRUPT names the file and the way out. */
int pymq_removed_topics_load(struct pymq_removed_topics *removed, const char *path, struct pymq_error *error);

/* Add or raise an entry, drop those at or below `log_begin`, and replace the file, durable on return. On failure the
 * table is as it was. */
int pymq_removed_topics_add(struct pymq_removed_topics *removed, const char *path, struct pymq_slice topic,
                            int64_t offset, int64_t log_begin);

/* The log ends at `log_end`, before what some entries say (it was cut, or lost): what comes next counts. Replaces the
 * file if that changes anything. */
int pymq_removed_topics_clamp(struct pymq_removed_topics *removed, const char *path, int64_t log_end);

/* From which offset on records of `topic` count; 0 when it was never removed. */
int64_t pymq_removed_topics_from(const struct pymq_removed_topics *removed, struct pymq_slice topic);

#endif
