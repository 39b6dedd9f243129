/* What ends a held pull: a message it wants, its time, or somebody who says so. An ended hold is run again without
 * being allowed to wait, natively or by the control loop, and so is always answered. */
#include "pull_internal.h"

#define ARRIVALS_AT_ONCE 256
#define SCAN_MAX 16384        /* units looked at for one hold in one go */
#define SCAN_RECORDS_MAX 1024 /* the same when their records are */

static struct pymq_filter filter_of(const struct pymq_hold *hold) {
    const struct pymq_subscription *subscription = hold->subscription;
    if (subscription == NULL)
        return hold->filter;
    return (struct pymq_filter){subscription->all, subscription->tag_count, subscription->tag_hashes,
                                subscription->program};
}

/* Whether a message the hold wants lies below `end`; what was looked at in vain is not looked at again. */
static bool is_wanted_below(struct pymq_serve_reactor *state, struct pymq_hold *hold, struct pymq_queue *queue,
                            int64_t end) {
    if (pymq_queue_is_removed(queue))
        return true; /* another one may have taken its place */
    if (hold->waits)
        return false;
    if (end <= hold->scanned)
        return end < hold->offset; /* cannot be; but let the pull find out */
    struct pymq_filter filter = filter_of(hold);
    if (end - hold->scanned > (filter.program != NULL ? SCAN_RECORDS_MAX : SCAN_MAX))
        return true; /* a long walk: the pull makes it, piece by piece, its client going on each time */
    hold->scanned = pymq_get_first_match(state->serve->store, queue, hold->scanned, end, &filter,
                                         state->serve->config.hot_bytes);
    return hold->scanned < end;
}

static void run_again(struct pymq_serve_reactor *state, const struct pymq_hold *hold) {
    struct pymq_pull_run run = {.may_suspend = hold->waits, .waited = hold->waits,
                                .scanned = hold->waits ? -1 : hold->scanned};
    if (hold->native)
        pymq_pull_rerun(state, hold->connection, hold->frame, hold->frame_size, &run);
    else
        pymq_transport_hand_over(state->serve->transport, hold->connection, hold->frame, hold->frame_size,
                                 PYMQ_REASON_HOLD_ENDED);
}

void pymq_holds_end(struct pymq_serve_reactor *state, struct pymq_hold *list, enum pymq_hold_end why) {
    struct pymq_serve_counters *counters = &state->counters;
    _Atomic int64_t *counter = why == PYMQ_HOLD_ARRIVAL ? &counters->holds_ended_arrival
                               : why == PYMQ_HOLD_TIME  ? &counters->holds_ended_time
                                                        : &counters->holds_ended_other;
    while (list != NULL) {
        struct pymq_hold *hold = list;
        list = hold->next_of_queue;
        pymq_holds_uncount(state->serve, hold->frame_size);
        pymq_count(counter, 1);
        run_again(state, hold);
        pymq_hold_free(&state->pull->table, hold);
    }
}

/* Take the holds of a queue that want something below `end`. */
static struct pymq_hold *take_wanting(struct pymq_serve_reactor *state, struct pymq_hold_queue *held, int64_t end) {
    struct pymq_hold *taken = NULL;
    struct pymq_queue *queue = held->queue;
    for (struct pymq_hold *hold = held->holds, *next; hold != NULL; hold = next) {
        next = hold->next_of_queue;
        if (!is_wanted_below(state, hold, queue, end))
            continue;
        pymq_hold_remove(&state->pull->table, hold); /* with the last one `held` itself goes */
        hold->next_of_queue = taken;
        taken = hold;
    }
    return taken;
}

/* Look at a queue until all its holds have seen its end behind a watch. */
static void look_at(struct pymq_serve_reactor *state, struct pymq_queue *queue) {
    struct pymq_hold_queue *held;
    struct pymq_queue_info info;
    pymq_queue_info(queue, &info);
    for (int64_t end = info.max_offset, seen = -1; end != seen;) {
        held = pymq_hold_queue_find(&state->pull->table, queue);
        if (held == NULL)
            return;
        pymq_holds_end(state, take_wanting(state, held, end), PYMQ_HOLD_ARRIVAL);
        seen = end;
        if (pymq_hold_queue_find(&state->pull->table, queue) != NULL)
            end = pymq_queue_watch(queue, state->pull->watcher);
    }
}

bool pymq_holds_count(struct pymq_serve *serve, size_t frame_size) {
    struct pymq_pull_serve *shared = serve->pull;
    int64_t size = (int64_t)frame_size;
    int64_t holds = atomic_fetch_add_explicit(&shared->holds, 1, memory_order_relaxed);
    int64_t bytes = atomic_fetch_add_explicit(&shared->holds_bytes, size, memory_order_relaxed);
    if (holds < serve->config.holds_max && bytes + size <= serve->config.holds_bytes_max)
        return true;
    pymq_holds_uncount(serve, frame_size);
    return false;
}

void pymq_holds_uncount(struct pymq_serve *serve, size_t frame_size) {
    atomic_fetch_sub_explicit(&serve->pull->holds, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&serve->pull->holds_bytes, (int64_t)frame_size, memory_order_relaxed);
}

int pymq_holds_add(struct pymq_serve_reactor *state, struct pymq_hold *hold, struct pymq_queue *queue) {
    struct pymq_pull_reactor *pull = state->pull;
    const struct pymq_serve_config *config = &state->serve->config;
    bool counted = pymq_holds_count(state->serve, hold->frame_size);
    int status = counted ? PYMQ_OK : PYMQ_ETOOBIG;
    if (atomic_load_explicit(&state->serve->pull->stopping, memory_order_acquire))
        status = PYMQ_ECLOSED;
    if (status == PYMQ_OK)
        status = pymq_hold_insert(&pull->table, hold, queue);
    if (status != PYMQ_OK) {
        if (counted)
            pymq_holds_uncount(state->serve, hold->frame_size);
        pymq_hold_free(&pull->table, hold);
        return status;
    }
    pymq_reactor_set_timer(state->reactor, pymq_min64(hold->due_ms, pull->check_ms));
    if (!config->long_polling)
        return PYMQ_OK; /* looked at by the clock only */
    int64_t end = pymq_queue_watch(queue, pull->watcher);
    if (is_wanted_below(state, hold, queue, end)) {
        pymq_hold_remove(&pull->table, hold);
        hold->next_of_queue = NULL;
        pymq_holds_end(state, hold, PYMQ_HOLD_ARRIVAL);
    }
    return PYMQ_OK;
}

void pymq_holds_check_all(struct pymq_serve_reactor *state) {
    struct pymq_hold_table *table = &state->pull->table;
    for (size_t i = 0; i < PYMQ_HOLD_BUCKETS && table->count > 0; i++) {
        /* By place in the bucket: answering may take away the queue we stand at, and only that one. */
        for (size_t done = 0;; done++) {
            struct pymq_hold_queue *held = table->queues[i];
            for (size_t skip = 0; held != NULL && skip < done; skip++)
                held = held->next;
            if (held == NULL)
                break;
            struct pymq_queue *queue = held->queue;
            look_at(state, queue);
            if (pymq_hold_queue_find(table, queue) == NULL)
                done--;
        }
    }
}

void pymq_holds_arrived(struct pymq_serve_reactor *state) {
    struct pymq_queue *queues[ARRIVALS_AT_ONCE];
    bool look_at_all = false, all;
    size_t count;
    do {
        count = pymq_store_take_arrivals(state->serve->store, state->pull->watcher, queues, ARRIVALS_AT_ONCE, &all);
        look_at_all = look_at_all || all;
        for (size_t i = 0; i < count; i++)
            look_at(state, queues[i]);
    } while (count == ARRIVALS_AT_ONCE);
    if (look_at_all)
        pymq_holds_check_all(state);
}
