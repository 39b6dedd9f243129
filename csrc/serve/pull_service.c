/* The pull half as service.c and the control loop see it: opening and closing, a reactor's events and timer, and ending
 * holds from outside. The control loop changes a hold table only while every reactor is excluded from its turn. */
#include <stdlib.h>
#include <unistd.h>

#include "pull_internal.h"

int pymq_pull_open(struct pymq_serve *serve, struct pymq_error *error) {
    struct pymq_pull_serve *shared = calloc(1, sizeof *shared);
    int status =
        shared != NULL ? pymq_cold_open(serve->store, serve->config.cold_read_threads, &shared->cold) : PYMQ_ENOMEM;
    if (status != PYMQ_OK) {
        free(shared);
        return pymq_fail(error, status, 0, "no thread or memory for reading from disk");
    }
    serve->pull = shared;
    return PYMQ_OK;
}

static void free_hold_request(struct pymq_hold_request *request) {
    pymq_shared_program_leave(request->filter.program);
    free(request);
}

static void free_holds(struct pymq_pull_reactor *pull) {
    while (pull->ended != NULL) {
        struct pymq_hold *hold = pull->ended;
        pull->ended = hold->next_of_queue;
        pymq_hold_free(&pull->table, hold);
    }
    pymq_hold_table_destroy(&pull->table);
    while (pull->hold_requests != NULL) {
        struct pymq_hold_request *request = pull->hold_requests;
        pull->hold_requests = request->next;
        free_hold_request(request);
    }
    while (pull->cold_done != NULL) {
        struct pymq_cold_job *job = pull->cold_done;
        pull->cold_done = job->next;
        pymq_cold_free(job);
    }
}

void pymq_pull_close(struct pymq_serve *serve) {
    if (serve->pull == NULL)
        return;
    pymq_cold_close(serve->pull->cold);
    for (unsigned i = 0; i < PYMQ_REACTORS_MAX; i++) {
        struct pymq_pull_reactor *pull = serve->reactors[i].pull;
        if (pull == NULL)
            continue;
        pymq_store_close_watcher(serve->store, pull->watcher);
        close(pull->wake_fd);
        free_holds(pull);
        pthread_mutex_destroy(&pull->inbox_lock);
        free(pull);
        serve->reactors[i].pull = NULL;
    }
    free(serve->pull);
    serve->pull = NULL;
}

/* A reactor's own part, made in its first callback. NULL when that fails: then pulls are handed over. */
static struct pymq_pull_reactor *ensure(struct pymq_serve_reactor *state) {
    if (state->pull != NULL)
        return state->pull;
    struct pymq_pull_reactor *pull = calloc(1, sizeof *pull);
    int fd = pull != NULL ? dup(pymq_reactor_event_fd(state->reactor)) : -1;
    int watcher = fd >= 0 ? pymq_store_open_watcher(state->serve->store, fd) : -1;
    if (watcher < 0) {
        if (fd >= 0)
            close(fd);
        free(pull);
        return NULL;
    }
    int64_t now_ms = pymq_reactor_now_ms(state->reactor);
    pull->state = state;
    pull->wake_fd = fd;
    pull->watcher = watcher;
    pull->check_ms = now_ms + state->serve->config.hold_check_ms;
    pymq_hold_table_init(&pull->table, now_ms);
    pthread_mutex_init(&pull->inbox_lock, NULL);
    state->pull = pull;
    return pull;
}

void pymq_pull_wake(struct pymq_pull_reactor *pull) {
    uint64_t one = 1;
    if (write(pull->wake_fd, &one, sizeof one) < 0)
        return; /* a full eventfd already says what we came to say */
}

/* ---- a reactor's callbacks ------------------------------------------------------------------------------------ */

int pymq_pull_request(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                      const struct pymq_command *command, const uint8_t *frame, size_t frame_size) {
    static const struct pymq_pull_run FIRST = {.may_suspend = true, .scanned = -1};
    if (ensure(state) == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_STORE;
    return pymq_pull_run(state, connection, command, frame, frame_size, &FIRST);
}

void pymq_pull_settle(struct pymq_serve_reactor *state) {
    (void)state; /* arrivals come by way of the dispatcher, not from this turn's appends */
}

/* Hold what the control loop asked to be held. */
static void take_hold_requests(struct pymq_serve_reactor *state, struct pymq_hold_request *list) {
    struct pymq_hold_request *ordered = NULL;
    while (list != NULL) { /* oldest first */
        struct pymq_hold_request *next = list->next;
        list->next = ordered;
        ordered = list;
        list = next;
    }
    while (ordered != NULL) {
        struct pymq_hold_request *request = ordered;
        ordered = request->next;
        request->filter.hashes = request->hashes;
        struct pymq_hold *hold = NULL;
        if (pymq_reactor_find(state->reactor, request->connection) != NULL)
            hold = pymq_hold_new(&state->pull->table, request->frame, request->frame_size, &request->filter);
        pymq_holds_uncount(state->serve, request->frame_size); /* counted again when added */
        bool held = false;
        if (hold != NULL) {
            hold->connection = request->connection;
            hold->topic_key = request->topic_key;
            hold->group_key = request->group_key;
            hold->offset = hold->scanned = request->offset;
            hold->due_ms = pymq_reactor_now_ms(state->reactor) + request->timeout_ms;
            held = pymq_holds_add(state, hold, request->queue) == PYMQ_OK;
        }
        if (!held) /* nobody there any more, or no memory: let it be answered now */
            pymq_transport_hand_over(state->serve->transport, request->connection, request->frame, request->frame_size,
                                     PYMQ_REASON_HOLD_ENDED);
        free_hold_request(request);
    }
}

static void take_cold_jobs(struct pymq_serve_reactor *state, struct pymq_cold_job *list) {
    while (list != NULL) {
        struct pymq_cold_job *job = list;
        list = job->next;
        pymq_pull_rerun(state, job->connection, job->frame, job->frame_size, &job->run);
        pymq_cold_free(job);
    }
}

void pymq_pull_event(struct pymq_serve_reactor *state) {
    struct pymq_pull_reactor *pull = ensure(state);
    if (pull == NULL)
        return;
    pthread_mutex_lock(&pull->inbox_lock);
    struct pymq_hold_request *requests = pull->hold_requests;
    struct pymq_cold_job *jobs = pull->cold_done;
    pull->hold_requests = NULL;
    pull->cold_done = NULL;
    pthread_mutex_unlock(&pull->inbox_lock);
    take_hold_requests(state, requests);
    take_cold_jobs(state, jobs);
    struct pymq_hold *ended = pull->ended;
    pull->ended = NULL;
    pymq_holds_end(state, ended, PYMQ_HOLD_OTHER);
    pymq_holds_arrived(state);
}

int64_t pymq_pull_timer(struct pymq_serve_reactor *state, int64_t now_ms) {
    struct pymq_pull_reactor *pull = ensure(state);
    if (pull == NULL)
        return INT64_MAX;
    pymq_holds_end(state, pymq_hold_take_due(&pull->table, now_ms), PYMQ_HOLD_TIME);
    if (now_ms >= pull->check_ms) {
        const struct pymq_serve_config *config = &state->serve->config;
        pymq_holds_check_all(state); /* nothing should turn up here; if it does, it waits no longer than this */
        pull->check_ms = now_ms + (config->long_polling ? config->hold_check_ms : config->short_polling_ms);
    }
    return pull->table.count > 0 ? pymq_min64(pymq_hold_next_due(&pull->table), pull->check_ms) : INT64_MAX;
}

void pymq_pull_closed(struct pymq_serve_reactor *state, pymq_connection_id connection) {
    if (state->pull == NULL)
        return;
    struct pymq_hold *list = pymq_hold_take_connection(&state->pull->table, connection);
    while (list != NULL) {
        struct pymq_hold *hold = list;
        list = hold->next_of_queue;
        pymq_holds_uncount(state->serve, hold->frame_size);
        pymq_hold_free(&state->pull->table, hold);
    }
}

/* ---- ending holds from outside: all reactors excluded --------------------------------------------------------- */

/* What a hold must have to be ended; 0 and NULL for anything. */
struct ending {
    uint64_t topic_key, group_key;
    const struct pymq_subscription *subscription;
    struct pymq_queue *queue;
    bool waiting; /* only those that wait for a subscription */
};

static bool is_ending(const struct pymq_hold *hold, const void *context) {
    const struct ending *ending = context;
    return (ending->topic_key == 0 || hold->topic_key == ending->topic_key) &&
           (ending->group_key == 0 || hold->group_key == ending->group_key) &&
           (ending->subscription == NULL || hold->subscription == ending->subscription) &&
           (ending->queue == NULL || hold->held_queue->queue == ending->queue) && (!ending->waiting || hold->waits);
}

/* Those on their way to a reactor will be due when they get there. */
static size_t end_requests(struct pymq_pull_reactor *pull, const struct ending *ending) {
    size_t count = 0;
    pthread_mutex_lock(&pull->inbox_lock);
    for (struct pymq_hold_request *request = pull->hold_requests; request != NULL; request = request->next) {
        bool wanted = (ending->topic_key == 0 || request->topic_key == ending->topic_key) &&
                      (ending->group_key == 0 || request->group_key == ending->group_key) &&
                      (ending->queue == NULL || request->queue == ending->queue) && ending->subscription == NULL &&
                      !ending->waiting;
        if (wanted && request->timeout_ms > 0) {
            request->timeout_ms = 0;
            count++;
        }
    }
    pthread_mutex_unlock(&pull->inbox_lock);
    return count;
}

/* Give holds that have left the table to their reactor, to be answered in its next turn. */
static size_t end_list(struct pymq_pull_reactor *pull, struct pymq_hold *list) {
    size_t count = 0;
    while (list != NULL) {
        struct pymq_hold *hold = list;
        list = hold->next_of_queue;
        hold->subscription = NULL; /* may be freed before the reactor comes to it */
        hold->next_of_queue = pull->ended;
        pull->ended = hold;
        count++;
    }
    if (count > 0)
        pymq_pull_wake(pull);
    return count;
}

static size_t end_matching(struct pymq_serve *serve, const struct ending *ending) {
    size_t count = 0;
    for (unsigned i = 0; i < PYMQ_REACTORS_MAX; i++) {
        struct pymq_pull_reactor *pull = serve->reactors[i].pull;
        if (pull == NULL)
            continue;
        count += end_requests(pull, ending);
        if (pull->table.count > 0)
            count += end_list(pull, pymq_hold_take(&pull->table, is_ending, ending));
    }
    return count;
}

void pymq_pull_topic_removed(struct pymq_serve *serve, struct pymq_topic *topic) {
    end_matching(serve, &(struct ending){.topic_key = pymq_name_hash(topic->name, topic->name_size)});
}

void pymq_pull_topic_changed(struct pymq_serve *serve, struct pymq_topic *topic) {
    pymq_pull_topic_removed(serve, topic);
}

void pymq_pull_group_removed(struct pymq_serve *serve, struct pymq_group *group) {
    end_matching(serve, &(struct ending){.group_key = pymq_name_hash(group->name, group->name_size)});
}

void pymq_pull_group_changed(struct pymq_serve *serve, struct pymq_group *group) {
    pymq_pull_group_removed(serve, group);
}

/* The last member of a group has said good-bye. As in Apache its pulls stay held: they end with its connection, and
 * answered now with an error they would keep it from closing. */
void pymq_pull_subscription_removed(struct pymq_serve *serve, struct pymq_subscription *subscription) {
    for (unsigned i = 0; i < PYMQ_REACTORS_MAX; i++) {
        struct pymq_pull_reactor *pull = serve->reactors[i].pull;
        if (pull != NULL && pull->table.count > 0)
            end_list(pull, pymq_hold_detach(&pull->table, subscription));
    }
}

void pymq_pull_subscription_changed(struct pymq_serve *serve, struct pymq_subscription *subscription,
                                    bool filter_changed) {
    struct ending ending = {.topic_key = pymq_name_hash(subscription->names, subscription->topic_size),
                            .group_key = pymq_name_hash(subscription->names + subscription->topic_size,
                                                        subscription->group_size),
                            .waiting = true};
    end_matching(serve, &ending);
    if (filter_changed) /* what a hold has scanned in vain it may want now */
        end_matching(serve, &(struct ending){.subscription = subscription});
}

void pymq_pull_configured(struct pymq_serve *serve, const struct pymq_serve_config *before) {
    const struct pymq_serve_config *now = &serve->config;
    if (before->native != now->native || before->long_polling != now->long_polling ||
        before->broker_permission != now->broker_permission || before->slave_read_enable != now->slave_read_enable)
        end_matching(serve, &(struct ending){0});
}

void pymq_pull_offset_reset(struct pymq_serve *serve, struct pymq_offset_row *row, int32_t queue_id) {
    struct ending ending = {.topic_key = pymq_name_hash(row->names, row->topic_size),
                            .group_key = pymq_name_hash(row->names + row->topic_size, row->group_size)};
    if (pymq_store_queue(serve->store, row->names, row->topic_size, queue_id, false, &ending.queue) == PYMQ_OK)
        end_matching(serve, &ending);
}

size_t pymq_serve_end_holds(struct pymq_serve *serve, const uint8_t *topic, uint32_t topic_size, const uint8_t *group,
                            uint32_t group_size) {
    struct ending ending = {.topic_key = topic_size > 0 ? pymq_name_hash(topic, topic_size) : 0,
                            .group_key = group_size > 0 ? pymq_name_hash(group, group_size) : 0};
    pymq_tables_begin(&serve->tables);
    size_t count = end_matching(serve, &ending);
    pymq_tables_end(&serve->tables);
    return count;
}

size_t pymq_serve_stop_holds(struct pymq_serve *serve) {
    atomic_store_explicit(&serve->pull->stopping, true, memory_order_release);
    return pymq_serve_end_holds(serve, NULL, 0, NULL, 0);
}

/* ---- the control loop's own holds ----------------------------------------------------------------------------- */

#define REACTOR_SHIFT 56 /* of a pymq_connection_id */

int pymq_serve_hold(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *frame, size_t size,
                    const struct pymq_get *get, const uint8_t *group, uint32_t group_size, int32_t timeout_ms) {
    unsigned index = (unsigned)(connection >> REACTOR_SHIFT);
    struct pymq_pull_reactor *pull = index < PYMQ_REACTORS_MAX ? serve->reactors[index].pull : NULL;
    if (atomic_load_explicit(&serve->pull->stopping, memory_order_acquire))
        return PYMQ_ECLOSED;
    if (pull == NULL || (get->tag_hashes != NULL && get->tag_count > PYMQ_TAGS_MAX))
        return PYMQ_EINVAL;
    struct pymq_queue *queue;
    int status = pymq_store_queue(serve->store, get->topic.data, get->topic.size, get->queue_id, true, &queue);
    if (status != PYMQ_OK)
        return status;
    size_t kept_size = pymq_pull_kept_size(frame, size);
    if (!pymq_holds_count(serve, kept_size))
        return PYMQ_ETOOBIG;
    struct pymq_hold_request *request = malloc(sizeof *request + kept_size);
    if (request == NULL) {
        pymq_holds_uncount(serve, kept_size);
        return PYMQ_ENOMEM;
    }
    request->connection = connection;
    request->queue = queue;
    request->topic_key = pymq_name_hash(get->topic.data, get->topic.size);
    request->group_key = pymq_name_hash(group, group_size);
    request->offset = get->offset;
    request->timeout_ms = timeout_ms < 0 ? 0 : timeout_ms;
    request->filter = (struct pymq_filter){.all = get->tag_hashes == NULL && get->program == NULL,
                                           .count = get->tag_count,
                                           .program = pymq_shared_program_use(get->program)};
    if (get->tag_hashes != NULL && get->tag_count > 0)
        memcpy(request->hashes, get->tag_hashes, get->tag_count * sizeof *request->hashes);
    request->frame_size = (uint32_t)kept_size;
    pymq_pull_keep(request->frame, kept_size, frame, size);
    pthread_mutex_lock(&pull->inbox_lock);
    request->next = pull->hold_requests;
    pull->hold_requests = request;
    pthread_mutex_unlock(&pull->inbox_lock);
    pymq_pull_wake(pull);
    return PYMQ_OK;
}

/* ---- the control loop's own pulls ----------------------------------------------------------------------------- */

static struct pymq_offset_cell *cell_of(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size,
                                        const uint8_t *topic, uint32_t topic_size, int32_t queue_id) {
    return pymq_offset_cell(pymq_offset_find(&serve->tables, topic, topic_size, group, group_size), queue_id);
}

int pymq_serve_pull_begins(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *group,
                           uint32_t group_size, const uint8_t *topic, uint32_t topic_size, int32_t queue_id,
                           int64_t offset, int64_t *reset_to) {
    pthread_mutex_lock(&serve->tables.control_lock);
    struct pymq_offset_cell *cell = cell_of(serve, group, group_size, topic, topic_size, queue_id);
    *reset_to = cell != NULL ? pymq_offset_begin(cell, connection, pymq_monotonic_ms(), offset) : PYMQ_OFFSET_NONE;
    pthread_mutex_unlock(&serve->tables.control_lock);
    return *reset_to != PYMQ_OFFSET_NONE ? PYMQ_OK : PYMQ_ENOTFOUND;
}

void pymq_serve_pulled(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *group,
                       uint32_t group_size, const uint8_t *topic, uint32_t topic_size, int32_t queue_id, int64_t offset,
                       int64_t next_offset) {
    pthread_mutex_lock(&serve->tables.control_lock);
    struct pymq_offset_cell *cell = cell_of(serve, group, group_size, topic, topic_size, queue_id);
    if (cell != NULL)
        pymq_offset_served(cell, connection, pymq_monotonic_ms(), offset, next_offset);
    pthread_mutex_unlock(&serve->tables.control_lock);
}

void pymq_serve_count_pull(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                           uint32_t topic_size, int64_t messages, int64_t bytes) {
    pthread_mutex_lock(&serve->tables.control_lock);
    struct pymq_subscription *found =
        pymq_subscription_find(&serve->tables, topic, topic_size, group, group_size);
    if (found != NULL) {
        atomic_fetch_add_explicit(&found->traffic->messages, messages, memory_order_relaxed);
        atomic_fetch_add_explicit(&found->traffic->bytes, bytes, memory_order_relaxed);
    }
    pthread_mutex_unlock(&serve->tables.control_lock);
    atomic_fetch_add_explicit(&serve->pull->pulled_messages, messages, memory_order_relaxed);
    atomic_fetch_add_explicit(&serve->pull->pulled_bytes, bytes, memory_order_relaxed);
}

void pymq_pull_stats(const struct pymq_serve *serve, struct pymq_serve_stats *stats) {
    const struct pymq_pull_serve *shared = serve->pull;
    if (shared == NULL)
        return;
    stats->holds = atomic_load_explicit(&shared->holds, memory_order_relaxed);
    stats->holds_bytes = atomic_load_explicit(&shared->holds_bytes, memory_order_relaxed);
    stats->pulled_messages += atomic_load_explicit(&shared->pulled_messages, memory_order_relaxed);
    stats->pulled_bytes += atomic_load_explicit(&shared->pulled_bytes, memory_order_relaxed);
}
