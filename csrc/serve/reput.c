/* Messages put again, log to log: read, edited, encoded and appended together, without a copy that leaves the core.
 *
 * One arena per call holds the encoded records until they are appended; when it is full they go into the log and it
 * begins anew. So a batch of any size takes bounded memory, and a message larger than the arena gets one for itself. */
#include "reput.h"

#include <stdlib.h>

#define REPUT_ARENA_MIN (64 * 1024)
#define REPUT_ARENA_MAX (1024 * 1024)
#define REPUT_ARENA_PER_ITEM 2048    /* a guess at a record, to begin with no more than a small batch needs */
#define REPUT_ITEMS_MAX 512          /* of one append */
#define REPUT_RECORD_ROOM 160        /* what a record adds to its body, topic and properties, at most */

struct reputting {
    struct pymq_serve *serve;
    struct pymq_host host;
    bool in_order, stopped;
    uint8_t *arena;
    size_t arena_size, arena_used;
    size_t count;                                /* encoded, not appended yet */
    struct pymq_append_item items[REPUT_ITEMS_MAX];
    struct pymq_reput *reputs[REPUT_ITEMS_MAX];  /* of the items */
    struct pymq_queue *queue;                    /* of the item before: mostly the next one's too */
    uint8_t properties[PYMQ_PROPERTIES_SIZE_MAX + 1];
};

/* ---- appending -------------------------------------------------------------------------------------------------- */

/* Topic by topic, in the rows native sends are counted in; a row may have gone in between. */
static void count_reputs(struct pymq_serve *serve, const struct pymq_append_item *items, size_t count) {
    int64_t messages_total = 0, bytes_total = 0;
    pthread_mutex_lock(&serve->tables.control_lock);
    for (size_t i = 0; i < count;) {
        struct pymq_queue *queue = items[i].queue;
        int64_t messages = 0, bytes = 0;
        for (; i < count && items[i].queue == queue; i++) {
            messages++;
            bytes += items[i].size;
        }
        struct pymq_queue_info info;
        pymq_queue_info(queue, &info);
        struct pymq_topic *topic = pymq_topic_find(&serve->tables, info.topic.data, info.topic.size);
        if (topic != NULL) {
            atomic_fetch_add_explicit(&topic->put_messages, messages, memory_order_relaxed);
            atomic_fetch_add_explicit(&topic->put_bytes, bytes, memory_order_relaxed);
        }
        messages_total += messages;
        bytes_total += bytes;
    }
    pthread_mutex_unlock(&serve->tables.control_lock);
    pymq_store_count_put(serve->store, messages_total, bytes_total, 0);
    atomic_fetch_add_explicit(&serve->put_messages, messages_total, memory_order_relaxed);
    atomic_fetch_add_explicit(&serve->put_bytes, bytes_total, memory_order_relaxed);
}

static void note_appended(struct reputting *state, size_t from, size_t to, const struct pymq_append_result *result) {
    for (size_t i = from; i < to; i++) {
        const struct pymq_append_item *item = &state->items[i];
        struct pymq_reput *reput = state->reputs[i];
        reput->status = PYMQ_OK;
        reput->queue_offset = item->queue_offset;
        reput->physical_offset = item->physical_offset;
        reput->end_offset = item->physical_offset + item->size;
        reput->store_timestamp_ms = result->store_timestamp_ms;
    }
    if (to > from)
        count_reputs(state->serve, &state->items[from], to - from);
}

/* Whether a status says something about the record, and not about a store that will refuse the next one as well. */
static bool concerns_record(int status) {
    return status == PYMQ_ETOOBIG || status == PYMQ_EPROPERTIES || status == PYMQ_ETOPIC || status == PYMQ_ENOTFOUND ||
           status == PYMQ_EINVAL || status == PYMQ_ECORRUPT;
}

/* The queue was closed under us. PYMQ_OK when there is another in its place: its topic was made anew. */
static int renew_queue(struct reputting *state, size_t index) {
    struct pymq_queue *gone = state->items[index].queue, *fresh;
    struct pymq_queue_info info;
    pymq_queue_info(gone, &info);
    state->queue = NULL;
    int status = pymq_store_queue(state->serve->store, info.topic.data, info.topic.size, info.queue_id, true, &fresh);
    if (status != PYMQ_OK || fresh == gone)
        return status == PYMQ_OK || status == PYMQ_ENOTFOUND ? PYMQ_EREMOVED : status;
    for (size_t i = index; i < state->count; i++) {
        if (state->items[i].queue == gone)
            state->items[i].queue = fresh;
    }
    return PYMQ_OK;
}

/* One has failed for good, or in_order all behind it too. */
static void refuse(struct reputting *state, size_t index, int status) {
    state->reputs[index]->status = status;
    if (state->in_order)
        state->stopped = true;
}

/* Append what was encoded and begin anew. */
static void settle(struct reputting *state) {
    size_t from = 0;
    size_t limit = state->count; /* of this try: all, or one at a time behind one that was refused */
    bool renewed = false;
    while (from < state->count && !state->stopped) {
        struct pymq_append_result result;
        int status = pymq_store_append(state->serve->store, &state->items[from], limit - from, PYMQ_APPEND_BOUNDED,
                                       &result);
        note_appended(state, from, from + result.appended, &result);
        from += result.appended;
        if (status == PYMQ_OK) {
            limit = from < state->count && limit < state->count ? from + 1 : state->count;
        } else if (status == PYMQ_ENOTFOUND && !renewed && (status = renew_queue(state, from)) == PYMQ_OK) {
            renewed = true; /* again, and only once */
        } else if (concerns_record(status) && limit - from > 1) {
            limit = from + 1; /* the store looks at all before it takes the first: find out which it is */
        } else if (concerns_record(status) || status == PYMQ_EREMOVED) {
            refuse(state, from++, status == PYMQ_ENOTFOUND ? PYMQ_EREMOVED : status);
            limit = state->count;
            renewed = false;
        } else {
            for (; from < state->count; from++) /* the store says no to everything */
                refuse(state, from, status);
        }
    }
    state->count = 0;
    state->arena_used = 0;
}

/* ---- encoding --------------------------------------------------------------------------------------------------- */

static bool make_room(struct reputting *state, size_t size) {
    if (state->count == REPUT_ITEMS_MAX || size > state->arena_size - state->arena_used)
        settle(state);
    if (size <= state->arena_size - state->arena_used)
        return true;
    uint8_t *arena = malloc(size); /* empty now: nothing points into the old one */
    if (arena == NULL)
        return false;
    free(state->arena);
    state->arena = arena;
    state->arena_size = size;
    return true;
}

static int find_queue(struct reputting *state, const struct pymq_record *record, struct pymq_queue **queue) {
    struct pymq_queue_info info;
    if (state->queue != NULL) {
        pymq_queue_info(state->queue, &info);
        if (info.queue_id == record->queue_id && info.topic.size == record->topic.size &&
            memcmp(info.topic.data, record->topic.data, info.topic.size) == 0) {
            *queue = state->queue;
            return PYMQ_OK;
        }
    }
    int status = pymq_store_queue(state->serve->store, record->topic.data, record->topic.size, record->queue_id, true,
                                  queue);
    state->queue = status == PYMQ_OK ? *queue : NULL;
    return status == PYMQ_ENOTFOUND ? PYMQ_EREMOVED : status;
}

static int encode(struct reputting *state, struct pymq_reput *reput, const struct pymq_record *source) {
    struct pymq_record record;
    int status = pymq_reput_edit(reput, source, &state->host, state->properties, sizeof state->properties, &record);
    if (status != PYMQ_OK)
        return status;
    size_t room = (size_t)record.body.size + record.topic.size + record.properties.size + REPUT_RECORD_ROOM;
    if (!make_room(state, room))
        return PYMQ_ENOMEM;
    if (state->stopped) /* making room appended those before, and one of them failed */
        return PYMQ_ECLOSED;
    struct pymq_append_item *item = &state->items[state->count];
    uint8_t *target = state->arena + state->arena_used;
    ssize_t size = pymq_record_encode(&record, target, room);
    if (size < 0)
        return (int)size;
    if (pymq_record_looks_torn(target, (size_t)size))
        return PYMQ_EPROPERTIES; /* the store would refuse it, and with it all that are appended in the same call */
    *item = (struct pymq_append_item){.record = target, .size = (uint32_t)size};
    status = find_queue(state, &record, &item->queue);
    if (status != PYMQ_OK)
        return status;
    state->reputs[state->count++] = reput;
    state->arena_used += (size_t)size;
    return PYMQ_OK;
}

/* Read, check and encode one. A damaged body is not to become a whole one by getting a new checksum. */
static int take(struct reputting *state, struct pymq_reput *reput) {
    struct pymq_store *store = state->serve->store;
    struct pymq_span span;
    struct pymq_record record;
    int status = pymq_store_record(store, reput->source, 0, &span);
    if (status != PYMQ_OK)
        return status == PYMQ_ECORRUPT ? PYMQ_ENOTFOUND : status;
    if (pymq_record_decode(span.data, span.size, PYMQ_CHECK_BODY_CRC, reput->source, &record) <= 0)
        status = PYMQ_ECORRUPT;
    else if (record.physical_offset != reput->source)
        status = PYMQ_ENOTFOUND; /* bytes of a message that look like a record */
    else
        status = encode(state, reput, &record);
    pymq_span_release(store, &span);
    return status;
}

/* ---- the call --------------------------------------------------------------------------------------------------- */

static struct reputting *begin(struct pymq_serve *serve, size_t count, bool in_order) {
    struct reputting *state = malloc(sizeof *state);
    if (state == NULL)
        return NULL;
    state->serve = serve;
    pthread_mutex_lock(&serve->tables.control_lock); /* settings may be replaced by another thread */
    state->host = serve->config.store_host;
    pthread_mutex_unlock(&serve->tables.control_lock);
    state->in_order = in_order;
    state->stopped = false;
    state->arena_size = REPUT_ARENA_MAX;
    if (count < REPUT_ARENA_MAX / REPUT_ARENA_PER_ITEM)
        state->arena_size = count * REPUT_ARENA_PER_ITEM;
    if (state->arena_size < REPUT_ARENA_MIN)
        state->arena_size = REPUT_ARENA_MIN;
    state->arena_used = state->count = 0;
    state->queue = NULL;
    state->arena = malloc(state->arena_size);
    if (state->arena == NULL) {
        free(state);
        return NULL;
    }
    return state;
}

size_t pymq_serve_reput(struct pymq_serve *serve, struct pymq_reput *items, size_t count, bool in_order) {
    size_t done = 0;
    for (size_t i = 0; i < count; i++)
        items[i].status = PYMQ_ECLOSED; /* of what is not tried because one before it failed */
    struct reputting *state = begin(serve, count, in_order);
    if (state == NULL) {
        for (size_t i = 0; i < count; i++)
            items[i].status = PYMQ_ENOMEM;
        return 0;
    }
    for (size_t i = 0; i < count && !state->stopped; i++) {
        int status = take(state, &items[i]);
        if (status == PYMQ_OK)
            continue;
        if (in_order) {
            settle(state);
            if (!state->stopped)
                items[i].status = status;
            state->stopped = true;
        } else {
            items[i].status = status;
        }
    }
    settle(state);
    free(state->arena);
    free(state);
    while (done < count && items[done].status == PYMQ_OK)
        done++;
    return done;
}
