/* See collect.h. */
#include "collect.h"

#include <stdlib.h>
#include <time.h>

#include "answer_template.h"
#include "parked.h"
#include "transactions.h"

/* Nobody waits inside a turn: every connection of this reactor would, and whoever publishes. Dispatch is woken when the
 * answers have been written (on_written). */
#define APPEND_FLAGS (PYMQ_APPEND_NO_WAIT | PYMQ_APPEND_QUIET)

void pymq_collect_destroy(struct pymq_collect *collect) { free(collect->arena); }

/* Another arena in place of an empty one, or the first. */
static bool replace_arena(struct pymq_collect *collect, size_t size) {
    if (size < PYMQ_COLLECT_ARENA_SIZE)
        size = PYMQ_COLLECT_ARENA_SIZE;
    uint8_t *arena = malloc(size);
    if (arena == NULL)
        return false;
    free(collect->arena);
    collect->arena = arena;
    collect->arena_size = size;
    return true;
}

bool pymq_collect_make_room(struct pymq_serve_reactor *state, uint32_t item_count, size_t size) {
    struct pymq_collect *collect = state->collect;
    if (collect->send_count == PYMQ_COLLECT_SENDS_MAX || collect->item_count + item_count > PYMQ_COLLECT_ITEMS_MAX ||
        collect->arena_used + size > collect->arena_size)
        pymq_collect_settle(state);
    return size <= collect->arena_size || replace_arena(collect, size);
}

int pymq_collect_encode(struct pymq_collect *collect, const struct pymq_record *record, struct pymq_queue *queue,
                        uint32_t item_index, size_t arena_at, size_t *size) {
    uint8_t *target = collect->arena + arena_at;
    ssize_t encoded = pymq_record_encode(record, target, collect->arena_size - arena_at);
    if (encoded < 0)
        return (int)encoded;
    if (pymq_record_looks_torn(target, (size_t)encoded))
        return PYMQ_EPROPERTIES; /* the store would refuse it, and with it all that are appended in the same call */
    collect->items[item_index] =
        (struct pymq_append_item){.queue = queue, .record = target, .size = (uint32_t)encoded};
    *size = (size_t)encoded;
    return PYMQ_OK;
}

/* ---- answering -------------------------------------------------------------------------------------------------- */

/* The connection of the answer before, which is nearly always the next one's too. */
struct recent {
    pymq_connection_id name;
    struct pymq_connection *connection;
};

static struct pymq_connection *connection_of(struct pymq_serve_reactor *state, struct recent *recent,
                                             pymq_connection_id name) {
    if (recent->name != name) {
        recent->name = name;
        recent->connection = pymq_reactor_find(state->reactor, name);
    }
    return recent->connection;
}

static void answer_refused(struct pymq_serve_reactor *state, struct recent *recent, const struct pymq_collected *send,
                           int status) {
    struct pymq_connection *connection = connection_of(state, recent, send->asker.connection);
    if (send->is_oneway || connection == NULL)
        return;
    uint8_t *target = pymq_connection_reserve(connection, PYMQ_REFUSED_ROOM);
    if (target == NULL) {
        recent->connection = NULL;
        return;
    }
    struct pymq_refusal refusal;
    pymq_refusal_for(&refusal, state->serve, &send->asker, status);
    pymq_connection_commit(
        connection, pymq_answer_refused(&state->serve->config, &send->asker, &refusal, target, PYMQ_REFUSED_ROOM));
}

static void answer_sent(struct pymq_serve_reactor *state, struct recent *recent, const struct pymq_sent *sent) {
    struct pymq_connection *connection = connection_of(state, recent, sent->asker.connection);
    if (connection == NULL)
        return;
    const struct pymq_answer_template *template = state->serve->answer_template;
    bool fits = pymq_answer_template_fits(template, sent);
    size_t room = fits ? template->size + sent->key.size : pymq_answer_sent_room(sent);
    uint8_t *target = pymq_connection_reserve(connection, room);
    if (target == NULL) {
        recent->connection = NULL;
        return;
    }
    pymq_connection_commit(connection, fits ? pymq_answer_template_write(template, sent, target)
                                            : pymq_answer_sent(&state->serve->config, sent, target, room));
}

/* It is not in the log. */
static void refuse(struct pymq_serve_reactor *state, struct recent *recent, const struct pymq_collected *send,
                   int status) {
    if (send->asker.asked == PYMQ_ASKED_END)
        pymq_transaction_unclaim_native(state->serve, send->half_offset);
    answer_refused(state, recent, send, status);
}

/* A request whose answer says nothing but that it was done. */
static void answer_plain(struct pymq_serve_reactor *state, struct recent *recent, const struct pymq_collected *send) {
    struct pymq_connection *connection = connection_of(state, recent, send->asker.connection);
    if (connection == NULL)
        return;
    uint8_t *target = pymq_connection_reserve(connection, PYMQ_HEADER_ROOM);
    if (target == NULL) {
        recent->connection = NULL;
        return;
    }
    pymq_connection_commit(connection, pymq_answer_plain(&send->asker, PYMQ_RESPONSE_SUCCESS,
                                                         (struct pymq_slice){NULL, 0}, target, PYMQ_HEADER_ROOM));
}

/* What else becomes of it once it is in the log. */
static void note_appended(struct pymq_serve_reactor *state, const struct pymq_collected *send) {
    if (send->asker.asked == PYMQ_ASKED_BACK) {
        pymq_count(&state->counters.sent_back, 1);
    } else if (send->asker.asked == PYMQ_ASKED_END) {
        pymq_count(&state->counters.transactions, 1);
        pymq_transaction_note(state->serve, send->half_offset, PYMQ_SYS_TRANSACTION_COMMIT);
    }
}

/* Sends [from, to) are in the log. `acknowledged` is what the store says of the last of them. What was parked before
 * them is answered before them: the flush that settles both may be over while its ring has not been heard. */
static void answer_appended(struct pymq_serve_reactor *state, struct recent *recent, uint32_t from, uint32_t to,
                            int acknowledged) {
    struct pymq_collect *collect = state->collect;
    if (acknowledged != PYMQ_ETIMEDOUT && atomic_load_explicit(&state->parked->count, memory_order_relaxed) != 0)
        pymq_parked_complete(state);
    for (uint32_t i = from; i < to; i++) {
        const struct pymq_collected *send = &collect->sends[i];
        const struct pymq_append_item *items = &collect->items[send->first_item];
        const struct pymq_append_item *last = &items[send->item_count - 1];
        note_appended(state, send);
        if (send->is_oneway)
            continue;
        if (send->asker.asked != PYMQ_ASKED_SEND) {
            if (acknowledged == PYMQ_OK)
                answer_plain(state, recent, send);
            else if (acknowledged == PYMQ_ETIMEDOUT)
                pymq_parked_plain(state, &send->asker, last->physical_offset + last->size);
            else
                answer_refused(state, recent, send, acknowledged);
            continue;
        }
        struct pymq_sent sent = {
            .asker = send->asker,
            .queue_id = send->sent_queue_id,
            .queue_offset = items->queue_offset,
            .items = items,
            .item_count = send->item_count,
            .key = send->key,
        };
        if (acknowledged == PYMQ_OK || !send->wait)
            answer_sent(state, recent, &sent);
        else if (acknowledged == PYMQ_ETIMEDOUT)
            pymq_parked_send(state, &sent, last->physical_offset + last->size);
        else
            answer_refused(state, recent, send, acknowledged);
    }
}

/* ---- counting --------------------------------------------------------------------------------------------------- */

/* Topic by topic: neighbours mostly share one, and its counters are shared with other reactors. */
static void count_appended(struct pymq_serve_reactor *state, uint32_t from, uint32_t to, int64_t latency_us) {
    struct pymq_collect *collect = state->collect;
    int64_t messages_total = 0, bytes_total = 0;
    for (uint32_t i = from; i < to;) {
        struct pymq_topic *topic = collect->sends[i].topic;
        int64_t messages = 0, bytes = 0;
        for (; i < to && collect->sends[i].topic == topic; i++) {
            const struct pymq_collected *send = &collect->sends[i];
            messages += send->item_count;
            for (uint32_t j = 0; j < send->item_count; j++)
                bytes += collect->items[send->first_item + j].size;
        }
        atomic_fetch_add_explicit(&topic->put_messages, messages, memory_order_relaxed);
        atomic_fetch_add_explicit(&topic->put_bytes, bytes, memory_order_relaxed);
        messages_total += messages;
        bytes_total += bytes;
    }
    pymq_count(&state->counters.sent_messages, messages_total);
    pymq_count(&state->counters.sent_bytes, bytes_total);
    pymq_store_count_put(state->serve->store, messages_total, bytes_total, latency_us);
}

static int64_t monotonic_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- appending -------------------------------------------------------------------------------------------------- */

/* The queue a send was collected for is gone: its topic was removed and made again under our row. Give it the new one,
 * once. False when there is none, or not yet. */
static bool renew_queue(struct pymq_serve_reactor *state, struct pymq_collected *send) {
    struct pymq_append_item *items = &state->collect->items[send->first_item];
    struct pymq_queue *gone = items->queue, *fresh;
    pymq_topic_queue_forget(send->topic, send->queue_id, gone);
    if (send->has_new_queue ||
        pymq_topic_queue(state->serve->store, send->topic, send->queue_id, true, &fresh) != PYMQ_OK || fresh == gone)
        return false;
    for (uint32_t i = 0; i < send->item_count; i++)
        items[i].queue = fresh;
    send->has_new_queue = true;
    return true;
}

/* Whether a status says something about the record, and not about a store that will refuse the next one as well. */
static bool concerns_record(int status) {
    return status == PYMQ_ETOOBIG || status == PYMQ_EPROPERTIES || status == PYMQ_ETOPIC || status == PYMQ_ENOTFOUND ||
           status == PYMQ_EINVAL || status == PYMQ_ECORRUPT;
}

/* Append sends [from, to): either one batch, or single messages only. Returns the first send not dealt with: at least
 * one is, or has got its one new queue, so this always comes to an end. */
static uint32_t append_some(struct pymq_serve_reactor *state, struct recent *recent, uint32_t from, uint32_t to) {
    struct pymq_collect *collect = state->collect;
    struct pymq_store *store = state->serve->store;
    const struct pymq_collected *first = &collect->sends[from];
    bool is_batch = first->item_count > 1;
    size_t item_count = is_batch ? first->item_count : to - from;
    struct pymq_append_result result;
    int64_t begin_us = monotonic_us();
    int status = pymq_store_append(store, &collect->items[first->first_item], item_count,
                                   APPEND_FLAGS | (is_batch ? PYMQ_APPEND_TOGETHER : 0), &result);
    /* The store looks at all records before it takes the first, so one it refuses can keep out the others. */
    if (status != PYMQ_OK && concerns_record(status) && result.appended == 0 && to - from > 1) {
        to = from + 1;
        status = pymq_store_append(store, &collect->items[first->first_item], 1, APPEND_FLAGS, &result);
    }
    uint32_t appended_to = is_batch ? from + (result.appended == item_count) : from + (uint32_t)result.appended;
    if (appended_to > from) {
        count_appended(state, from, appended_to, monotonic_us() - begin_us);
        answer_appended(state, recent, from, appended_to, pymq_store_poll_acknowledged(store, result.end_offset));
    }
    if (status == PYMQ_OK || appended_to == to)
        return appended_to;
    if (status == PYMQ_ENOTFOUND && renew_queue(state, &collect->sends[appended_to]))
        return appended_to; /* again, and only once */
    if (concerns_record(status)) {
        refuse(state, recent, &collect->sends[appended_to], status);
        return appended_to + 1;
    }
    for (uint32_t i = appended_to; i < collect->send_count; i++) /* the store says no: it need not be asked again */
        refuse(state, recent, &collect->sends[i], status);
    return collect->send_count;
}

void pymq_collect_settle(struct pymq_serve_reactor *state) {
    struct pymq_collect *collect = state->collect;
    if (collect == NULL || collect->send_count == 0)
        return;
    struct recent recent = {0, NULL};
    uint32_t from = 0;
    while (from < collect->send_count) {
        uint32_t to = from + 1;
        if (collect->sends[from].item_count == 1) {
            while (to < collect->send_count && collect->sends[to].item_count == 1)
                to++;
        }
        from = append_some(state, &recent, from, to);
    }
    collect->send_count = collect->item_count = 0;
    collect->arena_used = 0;
    if (collect->arena_size > PYMQ_COLLECT_ARENA_SIZE)
        replace_arena(collect, PYMQ_COLLECT_ARENA_SIZE); /* without memory for the small one the large one stays */
}
