/* Delay levels: what is due is put where it was meant to go. */
#include <stdlib.h>

#include "reput.h"

#define DUE_UNITS_MAX 512 /* looked at and appended in one go */

struct delivering {
    struct pymq_cq_unit units[DUE_UNITS_MAX];
    struct pymq_reput reputs[DUE_UNITS_MAX];
};

/* When a unit's message is due. A time that no level can have given it (the levels, or the clock, were changed) is
 * now: otherwise one message holds up its queue for as long as the mistake is large. */
static int64_t due_ms(const struct pymq_due *due, const struct pymq_cq_unit *unit) {
    bool is_wrong = due->correct_max_ms > 0 && unit->tags_code > due->now_ms + due->correct_max_ms;
    return is_wrong ? due->now_ms : unit->tags_code;
}

/* How many of `count` units, from the first, are due. */
static size_t count_due(const struct pymq_due *due, const struct pymq_cq_unit *units, size_t count) {
    size_t i = 0;
    while (i < count && units[i].size != PYMQ_CQ_BLANK_RECORD_SIZE && due_ms(due, &units[i]) <= due->now_ms)
        i++;
    return i;
}

/* Deliver `count` units. False when one of them failed. */
static bool deliver(struct pymq_serve *serve, struct pymq_due *due, struct delivering *work, size_t count) {
    for (size_t i = 0; i < count; i++) {
        work->reputs[i] = (struct pymq_reput){
            .source = work->units[i].physical_offset, .queue_id = -1, .remove = due->remove, .reconsume_times = -1};
    }
    size_t done = pymq_serve_reput(serve, work->reputs, count, true);
    for (size_t i = 0; i < done; i++) {
        int64_t lateness_ms = due->now_ms - due_ms(due, &work->units[i]);
        if (lateness_ms > due->lateness_ms_max)
            due->lateness_ms_max = lateness_ms;
    }
    if (done > 0)
        due->last_end_offset = work->reputs[done - 1].end_offset;
    due->delivered += done;
    due->next_offset += (int64_t)done;
    if (done < count)
        due->status = work->reputs[done].status;
    return done == count;
}

static void deliver_queue(struct pymq_serve *serve, struct pymq_due *due, struct pymq_queue *queue,
                          struct delivering *work) {
    bool goes_on = true;
    while (goes_on) {
        size_t left = due->count_max - due->delivered;
        ssize_t found = pymq_queue_units(serve->store, queue, due->next_offset, work->units,
                                         left < DUE_UNITS_MAX ? left : DUE_UNITS_MAX);
        if (found < 0)
            due->status = (int)found;
        if (found <= 0)
            break;
        if (work->units[0].size == PYMQ_CQ_BLANK_RECORD_SIZE) { /* filler: no message was ever here */
            due->next_offset++;
            continue;
        }
        size_t count = count_due(due, work->units, (size_t)found);
        goes_on = count > 0 && deliver(serve, due, work, count);
    }
    struct pymq_cq_unit next;
    if (pymq_queue_units(serve->store, queue, due->next_offset, &next, 1) == 1)
        due->next_due_ms = due_ms(due, &next);
}

void pymq_serve_deliver_due(struct pymq_serve *serve, struct pymq_due *due) {
    struct pymq_queue *queue;
    struct pymq_queue_info info;
    due->next_offset = due->offset;
    due->delivered = 0;
    due->next_due_ms = -1;
    due->last_end_offset = due->lateness_ms_max = 0;
    due->status = PYMQ_OK;
    int status = pymq_store_queue(serve->store, due->topic.data, due->topic.size, due->queue_id, false, &queue);
    if (status != PYMQ_OK) {
        if (status != PYMQ_ENOTFOUND) /* nothing was ever delayed for so long */
            due->status = status;
        return;
    }
    pymq_queue_info(queue, &info);
    due->next_offset = pymq_min64(pymq_max64(due->offset, info.min_offset), info.max_offset);
    struct delivering *work = malloc(sizeof *work);
    if (work == NULL) {
        due->status = PYMQ_ENOMEM;
        return;
    }
    deliver_queue(serve, due, queue, work);
    free(work);
}
