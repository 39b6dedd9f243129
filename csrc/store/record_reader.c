/* Looking at records one after the other, to decide about them; read_records.c makes spans of those that are sent. */
#include "store_internal.h"

static void leave(struct pymq_record_reader *reader) {
    if (reader->window != NULL)
        pymq_window_unpin(reader->window);
    reader->window = NULL;
    if (reader->alone.data != NULL)
        pymq_span_release(reader->store, &reader->alone);
    reader->alone = (struct pymq_span){NULL, 0, NULL};
}

void pymq_record_reader_begin(struct pymq_record_reader *reader, struct pymq_store *store) {
    *reader = (struct pymq_record_reader){.store = store};
}

void pymq_record_reader_end(struct pymq_record_reader *reader) { leave(reader); }

int pymq_record_reader_at(struct pymq_record_reader *reader, const struct pymq_cq_unit *unit, const uint8_t **record) {
    struct pymq_store *store = reader->store;
    int64_t offset = unit->physical_offset, end = offset + unit->size;
    if (offset < 0 || unit->size < PYMQ_RECORD_SIZE_MIN ||
        end > atomic_load_explicit(&store->marks.visible, memory_order_acquire))
        return PYMQ_ENOTFOUND;
    if (reader->window == NULL || offset < reader->window_begin || end > reader->window_end) {
        struct pymq_window *window;
        leave(reader);
        int status = pymq_mapped_queue_pin(&store->log.files, offset, PYMQ_WINDOW_BOUNDED, &window);
        if (status != PYMQ_OK && status != PYMQ_EMAPS)
            return status;
        if (status == PYMQ_OK) {
            reader->window = window;
            reader->data = window->data;
            reader->window_begin = offset - offset % store->config.log_file_size + window->position;
            reader->window_end = reader->window_begin + (int64_t)window->size;
        }
        if (status == PYMQ_EMAPS || end > reader->window_end) { /* no window, or more than one: a copy */
            leave(reader);
            status = pymq_store_record(store, offset, (uint32_t)unit->size, &reader->alone);
            if (status == PYMQ_OK)
                *record = reader->alone.data;
            else
                reader->alone.data = NULL;
            return status;
        }
    }
    const uint8_t *data = reader->data + (offset - reader->window_begin);
    uint32_t magic = pymq_load_be32(data + 4);
    if (pymq_load_be32(data) != (uint32_t)unit->size ||
        (magic != PYMQ_RECORD_MAGIC_V1 && magic != PYMQ_RECORD_MAGIC_V2))
        return PYMQ_ECORRUPT;
    *record = data;
    return PYMQ_OK;
}
