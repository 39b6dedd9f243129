/* Counters: per reactor with one writer, added up by whoever asks. */
#include "remoting_internal.h"

/* Code and reason as one word that is never 0: the reason's byte is 1..256. */
static uint64_t key_of(int32_t code, int32_t reason) { return (uint64_t)(uint32_t)code << 16 | (uint32_t)(reason + 2); }

/* `reason` -1: served natively. When the table is nearly full, which only a peer that makes codes up brings about, the
 * rest is counted as code -1. */
void pymq_count_code(struct pymq_reactor *reactor, int32_t code, int32_t reason) {
    uint64_t key = key_of(code, reason);
    for (size_t place = (key * 0x9e3779b97f4a7c15u) >> 54;; place = (place + 1) % CODE_ROWS) {
        struct code_row *row = &reactor->code_rows[place];
        uint64_t found = atomic_load_explicit(&row->key, memory_order_relaxed);
        if (found == key) {
            count(&row->count, 1);
            return;
        }
        if (found != 0)
            continue;
        if (code != -1 && counted(&reactor->code_rows_used) >= CODE_ROWS * 3 / 4) {
            pymq_count_code(reactor, -1, reason);
            return;
        }
        count(&reactor->code_rows_used, 1);
        count(&row->count, 1);
        atomic_store_explicit(&row->key, key, memory_order_release);
        return;
    }
}

size_t pymq_transport_code_counts(const struct pymq_transport *transport, struct pymq_code_count *rows,
                                  size_t count_max) {
    size_t found = 0;
    for (unsigned i = 0; i < transport->reactor_count; i++) {
        for (size_t place = 0; place < CODE_ROWS; place++) {
            const struct code_row *row = &transport->reactors[i]->code_rows[place];
            uint64_t key = atomic_load_explicit(&row->key, memory_order_acquire);
            if (key == 0)
                continue;
            struct pymq_code_count entry = {.code = (int32_t)(uint32_t)(key >> 16),
                                            .reason = (int32_t)(key & 0xffff) - 2,
                                            .count = counted(&row->count)};
            size_t same = 0;
            while (same < found && same < count_max &&
                   (rows[same].code != entry.code || rows[same].reason != entry.reason))
                same++;
            if (same < found && same < count_max) {
                rows[same].count += entry.count;
                continue;
            }
            if (found < count_max)
                rows[found] = entry;
            found++;
        }
    }
    return found;
}

static void add_reactor(struct pymq_transport_stats *stats, const struct reactor_counters *counters) {
    stats->accepted += counted(&counters->accepted);
    stats->closed += counted(&counters->closed);
    stats->refused += counted(&counters->refused);
    stats->accept_failed += counted(&counters->accept_failed);
    stats->idle_closed += counted(&counters->idle_closed);
    stats->broken_frames += counted(&counters->broken_frames);
    stats->output_closed += counted(&counters->output_closed);
    stats->pinned_closed += counted(&counters->pinned_closed);
    stats->frames_in += counted(&counters->frames_in);
    stats->bytes_in += counted(&counters->bytes_in);
    stats->bytes_out += counted(&counters->bytes_out);
    stats->turns += counted(&counters->turns);
    stats->writes += counted(&counters->writes);
    stats->reads += counted(&counters->reads);
    stats->buffer_bytes += counted(&counters->buffer_bytes);
}

void pymq_transport_stats(const struct pymq_transport *transport, struct pymq_transport_stats *stats) {
    memset(stats, 0, sizeof *stats);
    for (unsigned i = 0; i < transport->reactor_count; i++)
        add_reactor(stats, &transport->reactors[i]->counters);
    stats->open = atomic_load(&transport->open);
    stats->wakes = atomic_load_explicit(&transport->wakes, memory_order_relaxed);
    for (int i = 0; i < PYMQ_LANES; i++) {
        const struct lane *lane = &transport->lanes[i];
        stats->lane_waiting[i] = atomic_load_explicit(&lane->waiting, memory_order_relaxed);
        stats->lane_refused[i] = atomic_load_explicit(&lane->refused, memory_order_relaxed);
        stats->lane_expired[i] = atomic_load_explicit(&lane->expired, memory_order_relaxed);
        stats->lane_taken[i] = atomic_load_explicit(&lane->taken, memory_order_relaxed);
        stats->lane_running[i] = atomic_load_explicit(&lane->running, memory_order_relaxed);
    }
}
