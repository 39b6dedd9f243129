/* See again.h. */
#include "again.h"

#include "parked.h"

#define PERMISSION_WRITE 2
#define PROBE_AHEAD (64 * 1024)

int pymq_again_check(const struct pymq_serve_reactor *state) {
    const struct pymq_serve *serve = state->serve;
    if ((serve->config.broker_permission & PERMISSION_WRITE) == 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_PERMISSION;
    if (!pymq_store_is_writable(serve->store) || pymq_store_is_busy(serve->store) ||
        atomic_load_explicit(&state->parked->count, memory_order_relaxed) >= serve->config.parked_max)
        return PYMQ_HAND_OVER + PYMQ_REASON_STORE;
    return PYMQ_SERVED;
}

/* Nobody waits for the disk inside a turn. What is asked for next mostly lies behind: one question for both. */
static bool is_resident(struct pymq_serve_reactor *state, const struct pymq_watermarks *marks, int64_t offset,
                        int64_t size) {
    struct pymq_store *store = state->serve->store;
    if (offset >= marks->written - state->serve->config.hot_bytes ||
        (offset >= state->resident_from && offset + size <= state->resident_to))
        return true;
    int64_t ahead = pymq_min64(PROBE_AHEAD, marks->visible - offset);
    if (ahead >= size && pymq_store_is_resident(store, offset, ahead)) {
        state->resident_from = offset;
        state->resident_to = offset + ahead;
        return true;
    }
    return pymq_store_is_resident(store, offset, size);
}

int pymq_again_read(struct pymq_serve_reactor *state, int64_t offset, struct pymq_span *span,
                    struct pymq_record *record) {
    struct pymq_store *store = state->serve->store;
    struct pymq_watermarks marks;
    pymq_store_watermarks(store, &marks);
    if (offset < marks.min || offset >= marks.visible || !is_resident(state, &marks, offset, PYMQ_RECORD_SIZE_MIN) ||
        pymq_store_record(store, offset, 0, span) != PYMQ_OK)
        return PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE;
    if (is_resident(state, &marks, offset, span->size) &&
        pymq_record_decode(span->data, span->size, PYMQ_CHECK_BODY_CRC | PYMQ_CHECK_OFFSET, offset, record) > 0)
        return PYMQ_SERVED;
    pymq_span_release(store, span);
    return PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE;
}

int pymq_again_collect(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                       const struct pymq_command *command, const struct pymq_again *again,
                       const struct pymq_record *source) {
    struct pymq_collect *collect = state->collect;
    struct pymq_serve *serve = state->serve;
    struct pymq_queue *queue;
    struct pymq_record record;
    if (pymq_topic_queue(serve->store, again->topic, again->reput.queue_id, true, &queue) != PYMQ_OK)
        return PYMQ_HAND_OVER + PYMQ_REASON_STORE;
    size_t room = (size_t)source->body.size + again->topic->name_size + source->properties.size +
                  again->reput.set.size + PYMQ_COLLECT_RECORD_ROOM;
    if (!pymq_collect_make_room(state, 1, room))
        return PYMQ_HAND_OVER + PYMQ_REASON_STORE;
    size_t size;
    if (pymq_reput_edit(&again->reput, source, &serve->config.store_host, collect->properties,
                        sizeof collect->properties, &record) != PYMQ_OK ||
        pymq_collect_encode(collect, &record, queue, collect->item_count, collect->arena_used, &size) != PYMQ_OK)
        return PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE;
    collect->sends[collect->send_count++] = (struct pymq_collected){
        .asker = {pymq_connection_name(connection), command->opaque, command->serialize_type, again->asked},
        .topic = again->topic,
        .queue_id = again->reput.queue_id,
        .first_item = collect->item_count++,
        .item_count = 1,
        .half_offset = again->half_offset,
        .is_oneway = (command->flag & PYMQ_COMMAND_ONEWAY) != 0,
        .wait = true,
    };
    collect->arena_used += size;
    return PYMQ_SERVED;
}
