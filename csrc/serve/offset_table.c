/* Consumer offsets: one row per topic@group, one cell per queue.
 *
 * Commits and queries go straight to the cell's atomics, from reactors inside their turns and from other threads under
 * `control_lock`. Rows and cells are made, resets entered and rows removed under exclusion, so that none of these can
 * meet a commit half-way. */
#include <stdlib.h>
#include <time.h>

#include "serve_internal.h"

#define CELLS_MIN 8 /* most topics have that many queues or fewer */

struct pymq_offset_row *pymq_offset_find(const struct pymq_tables *tables, const uint8_t *topic, size_t topic_size,
                                         const uint8_t *group, size_t group_size) {
    uint64_t hash = pymq_pair_hash(topic, topic_size, group, group_size);
    for (struct pymq_row *row = pymq_row_map_chain(&tables->offsets, hash); row != NULL; row = row->next) {
        struct pymq_offset_row *found = (struct pymq_offset_row *)row;
        if (row->hash == hash && found->topic_size == topic_size && found->group_size == group_size &&
            memcmp(found->names, topic, topic_size) == 0 && memcmp(found->names + topic_size, group, group_size) == 0)
            return found;
    }
    return NULL;
}

static int widen_cells(struct pymq_offset_row *row, int32_t queue_id) {
    if (queue_id < row->cell_count)
        return PYMQ_OK;
    int32_t count = row->cell_count > 0 ? row->cell_count : CELLS_MIN;
    while (count <= queue_id)
        count *= 2; /* queue_id < PYMQ_TOPIC_QUEUES_MAX: does not overflow */
    struct pymq_offset_cell *wider = realloc(row->cells, (size_t)count * sizeof *wider);
    if (wider == NULL)
        return PYMQ_ENOMEM;
    for (int32_t i = row->cell_count; i < count; i++) {
        atomic_init(&wider[i].offset, PYMQ_OFFSET_NONE);
        atomic_init(&wider[i].pending, PYMQ_OFFSET_NONE);
        atomic_init(&wider[i].pulled, PYMQ_OFFSET_NONE);
        wider[i].guard = NULL;
    }
    row->cells = wider;
    row->cell_count = count;
    return PYMQ_OK;
}

int pymq_offset_make(struct pymq_tables *tables, const uint8_t *topic, size_t topic_size, const uint8_t *group,
                     size_t group_size, int32_t queue_id, struct pymq_offset_row **result) {
    if (topic_size == 0 || topic_size > PYMQ_TABLE_NAME_MAX || group_size == 0 || group_size > PYMQ_TABLE_NAME_MAX ||
        queue_id < 0 || queue_id >= PYMQ_TOPIC_QUEUES_MAX)
        return PYMQ_EINVAL;
    struct pymq_offset_row *row = pymq_offset_find(tables, topic, topic_size, group, group_size);
    if (row == NULL) {
        row = calloc(1, sizeof *row + topic_size + group_size);
        if (row == NULL)
            return PYMQ_ENOMEM;
        row->row.hash = pymq_pair_hash(topic, topic_size, group, group_size);
        row->topic_size = (uint32_t)topic_size;
        row->group_size = (uint32_t)group_size;
        memcpy(row->names, topic, topic_size);
        memcpy(row->names + topic_size, group, group_size);
        int status = pymq_row_map_insert(&tables->offsets, &row->row);
        if (status != PYMQ_OK) {
            free(row);
            return status;
        }
    }
    *result = row;
    return widen_cells(row, queue_id);
}

void pymq_offset_row_free(struct pymq_offset_row *row) {
    for (int32_t i = 0; i < row->cell_count; i++)
        free(row->cells[i].guard);
    free(row->cells);
    free(row);
}

void pymq_offset_rows_remove(struct pymq_tables *tables, const uint8_t *topic, size_t topic_size, const uint8_t *group,
                             size_t group_size) {
    struct pymq_row *row = pymq_row_map_next(&tables->offsets, NULL);
    while (row != NULL) {
        struct pymq_offset_row *offsets = (struct pymq_offset_row *)row;
        row = pymq_row_map_next(&tables->offsets, row);
        bool of_topic =
            topic_size == 0 || (offsets->topic_size == topic_size && memcmp(offsets->names, topic, topic_size) == 0);
        bool of_group =
            group_size == 0 || (offsets->group_size == group_size &&
                                memcmp(offsets->names + offsets->topic_size, group, group_size) == 0);
        if (of_topic && of_group) {
            pymq_row_map_remove(&tables->offsets, &offsets->row);
            pymq_offset_row_free(offsets);
        }
    }
}

bool pymq_offset_commit_native(struct pymq_serve_reactor *state, pymq_connection_id connection, const uint8_t *topic,
                               size_t topic_size, const uint8_t *group, size_t group_size, int32_t queue_id,
                               int64_t offset) {
    struct pymq_offset_row *row = pymq_offset_find(&state->serve->tables, topic, topic_size, group, group_size);
    struct pymq_offset_cell *cell = pymq_offset_cell(row, queue_id);
    if (cell == NULL)
        return false;
    pymq_offset_store(cell, connection, pymq_reactor_now_ms(state->reactor), offset);
    pymq_count(&state->counters.commits, 1);
    return true;
}

/* ---- the control loop's side ------------------------------------------------------------------------------------- */

int pymq_serve_offset_query_by(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *group,
                               uint32_t group_size, const uint8_t *topic, uint32_t topic_size, int32_t queue_id,
                               int64_t *offset) {
    pthread_mutex_lock(&serve->tables.control_lock);
    struct pymq_offset_cell *cell =
        pymq_offset_cell(pymq_offset_find(&serve->tables, topic, topic_size, group, group_size), queue_id);
    *offset = cell != NULL ? pymq_offset_ask(cell, connection) : PYMQ_OFFSET_NONE;
    pthread_mutex_unlock(&serve->tables.control_lock);
    return *offset != PYMQ_OFFSET_NONE ? PYMQ_OK : PYMQ_ENOTFOUND;
}

int pymq_serve_offset_query(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                            uint32_t topic_size, int32_t queue_id, int64_t *offset) {
    return pymq_serve_offset_query_by(serve, 0, group, group_size, topic, topic_size, queue_id, offset);
}

int64_t pymq_monotonic_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int pymq_serve_offset_commit_by(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *group,
                                uint32_t group_size, const uint8_t *topic, uint32_t topic_size, int32_t queue_id,
                                int64_t offset) {
    int64_t now_ms = pymq_monotonic_ms();
    pthread_mutex_lock(&serve->tables.control_lock);
    struct pymq_offset_cell *cell =
        pymq_offset_cell(pymq_offset_find(&serve->tables, topic, topic_size, group, group_size), queue_id);
    bool stored = cell != NULL && pymq_offset_store(cell, connection, now_ms, offset);
    pthread_mutex_unlock(&serve->tables.control_lock);
    if (cell != NULL)
        return stored;
    pymq_tables_begin(&serve->tables); /* it has to be made first */
    struct pymq_offset_row *row;
    int status = pymq_offset_make(&serve->tables, topic, topic_size, group, group_size, queue_id, &row);
    if (status == PYMQ_OK)
        status = pymq_offset_store(&row->cells[queue_id], connection, now_ms, offset);
    pymq_tables_end(&serve->tables);
    return status;
}

int pymq_serve_offset_commit(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                             uint32_t topic_size, int32_t queue_id, int64_t offset) {
    int status = pymq_serve_offset_commit_by(serve, 0, group, group_size, topic, topic_size, queue_id, offset);
    return status < 0 ? status : PYMQ_OK;
}

int pymq_serve_offset_reset(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                            uint32_t topic_size, int32_t queue_id, int64_t offset) {
    pymq_tables_begin(&serve->tables);
    struct pymq_offset_row *row;
    int status = offset < 0 ? PYMQ_EINVAL
                            : pymq_offset_make(&serve->tables, topic, topic_size, group, group_size, queue_id, &row);
    struct pymq_offset_cell *cell = status == PYMQ_OK ? &row->cells[queue_id] : NULL;
    if (cell != NULL && cell->guard == NULL) {
        cell->guard = calloc(1, sizeof *cell->guard);
        status = cell->guard != NULL ? PYMQ_OK : PYMQ_ENOMEM;
    }
    if (status == PYMQ_OK) {
        pymq_guard_begin(cell->guard, cell, pymq_monotonic_ms(), offset);
        pymq_offset_set(&cell->offset, offset);
        pymq_offset_set(&cell->pulled, PYMQ_OFFSET_NONE);
        pymq_offset_set(&cell->pending, offset);
        pymq_pull_offset_reset(serve, row, queue_id);
    }
    pymq_tables_end(&serve->tables);
    return status;
}

void pymq_serve_offset_remove(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                              uint32_t topic_size) {
    if (group_size == 0 && topic_size == 0)
        return; /* nobody means "all of everything" by leaving out both */
    pymq_tables_begin(&serve->tables);
    pymq_offset_rows_remove(&serve->tables, topic, topic_size, group, group_size);
    pymq_tables_end(&serve->tables);
}

size_t pymq_serve_offsets(struct pymq_serve *serve, struct pymq_offset_entry *entries, size_t count_max) {
    size_t count = 0;
    pthread_mutex_lock(&serve->tables.control_lock);
    struct pymq_row *row = NULL;
    while ((row = pymq_row_map_next(&serve->tables.offsets, row)) != NULL) {
        struct pymq_offset_row *offsets = (struct pymq_offset_row *)row;
        for (int32_t i = 0; i < offsets->cell_count; i++) {
            int64_t offset = atomic_load_explicit(&offsets->cells[i].offset, memory_order_acquire);
            int64_t pulled = atomic_load_explicit(&offsets->cells[i].pulled, memory_order_acquire);
            if (offset == PYMQ_OFFSET_NONE && pulled == PYMQ_OFFSET_NONE)
                continue;
            if (count < count_max)
                entries[count] = (struct pymq_offset_entry){
                    .topic = {offsets->names, offsets->topic_size},
                    .group = {offsets->names + offsets->topic_size, offsets->group_size},
                    .queue_id = i,
                    .offset = offset,
                    .pending = atomic_load_explicit(&offsets->cells[i].pending, memory_order_acquire),
                    .pulled = pulled,
                };
            count++;
        }
    }
    pthread_mutex_unlock(&serve->tables.control_lock);
    return count;
}
