/* Judging a store against the model: everything is read through the public API, nothing through the files. */
#include "message_content.h"
#include "message_model.h"
#include "scratch.h"

#include "pymq/java_hash.h"

#include <inttypes.h>
#include <stdarg.h>

#define QUEUES_MAX 64
#define UNITS_AT_ONCE 16
#define DISPATCH_TIMEOUT_MS 30000
#define QUERY_MAX 4096

struct judged {
    struct message_model *model;
    struct pymq_store *store;
    const struct model_promise *promise;
    char *why;
    struct pymq_watermarks marks;
    struct entry *entries; /* what the queues gave, later sorted by physical offset */
    size_t entry_count, entry_capacity;
};

struct entry {
    int64_t physical_offset;
    int64_t store_timestamp_ms;
    uint32_t size;
    uint32_t id;
};

__attribute__((format(printf, 2, 3))) static bool no(struct judged *judged, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(judged->why, MODEL_WHY_MAX, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- one record ----------------------------------------------------------------------------------------------- */

static bool same(struct pymq_slice slice, const void *bytes, size_t size) {
    return slice.size == size && (size == 0 || memcmp(slice.data, bytes, size) == 0);
}

/* The record is one that was sent, byte for byte. Fills `id`. */
static bool judge_content(struct judged *judged, const struct pymq_record *record, uint32_t *id) {
    struct model_message claimed = {.body_size = record->body.size};
    uint8_t properties[MODEL_PROPERTIES_MAX];
    int64_t at = record->physical_offset;
    if (record->body.size < MODEL_BODY_SIZE_MIN)
        return no(judged, "record at %" PRId64 " has a body of %u bytes: never sent", at, record->body.size);
    uint64_t claimed_id = pymq_load_be64(record->body.data);
    if (claimed_id >= atomic_load(&judged->model->count))
        return no(judged, "record at %" PRId64 " has id %" PRIu64 ": never sent", at, claimed_id);
    *id = (uint32_t)claimed_id;
    claimed.topic = record->body.data[12];
    claimed.queue_id = record->body.data[13];
    if (claimed.topic >= MODEL_TOPICS || claimed.queue_id != record->queue_id ||
        !same(record->topic, model_topic(claimed.topic), strlen(model_topic(claimed.topic))))
        return no(judged, "record at %" PRId64 ", message %u: body and record disagree about its queue", at, *id);
    uint8_t *body = malloc(record->body.size);
    CHECK(body != NULL, "out of memory");
    model_body(&claimed, *id, body);
    bool equal = same(record->body, body, record->body.size);
    free(body);
    if (!equal)
        return no(judged, "record at %" PRId64 ", message %u: wrong body", at, *id);
    size_t size = model_properties(*id, properties);
    struct pymq_slice sent = record->properties;
    const uint8_t *source = record->properties.data + record->properties.size - record->total_size;
    if (pymq_record_crc_state(source, record) == PYMQ_RECORD_CRC_MATCHES) /* the store's addition */
        sent.size -= PYMQ_RECORD_CRC_SIZE;
    else if (judged->model->record_crc)
        return no(judged, "record at %" PRId64 ", message %u: no right CRC over the record", at, *id);
    if (!same(sent, properties, size) || record->flag != (int32_t)*id)
        return no(judged, "record at %" PRId64 ", message %u: wrong properties or flag", at, *id);
    struct model_message *message = &judged->model->messages[*id];
    if (message->physical_offset < 0) { /* sent by another process: the record says what it is */
        message->topic = claimed.topic;
        message->queue_id = claimed.queue_id;
        message->body_size = claimed.body_size;
    } else if (message->topic != claimed.topic || message->queue_id != claimed.queue_id) {
        return no(judged, "record at %" PRId64 ", message %u: sent to another queue", at, *id);
    }
    return true;
}

/* … and lies where it was sent to. */
static bool judge_place(struct judged *judged, const struct pymq_record *record, uint32_t id) {
    struct model_message *message = &judged->model->messages[id];
    if (message->seen)
        return no(judged, "message %u is found twice, again at %" PRId64, id, record->physical_offset);
    message->seen = true;
    if (message->lost)
        return no(judged, "message %u at %" PRId64 " died with its process and is there", id, record->physical_offset);
    if (message->dead && judged->promise->forbid_dead)
        return no(judged, "message %u at %" PRId64 " was cut off by a recovery and is back", id,
                  record->physical_offset);
    if (message->physical_offset < 0)
        return judged->model->places_unknown ||
               no(judged, "message %u at %" PRId64 " was refused and is there", id, record->physical_offset);
    if (message->physical_offset != record->physical_offset || message->queue_offset != record->queue_offset ||
        message->size != (uint32_t)record->total_size)
        return no(judged,
                  "message %u was put at %" PRId64 " (queue offset %" PRId64 "), is at %" PRId64 " (%" PRId64 ")", id,
                  message->physical_offset, message->queue_offset, record->physical_offset, record->queue_offset);
    return true;
}

static bool judge_record(struct judged *judged, int64_t physical_offset, uint32_t size, struct pymq_record *record,
                         struct pymq_span *span) {
    int status = pymq_store_record(judged->store, physical_offset, size, span);
    if (status != PYMQ_OK)
        return no(judged, "record at %" PRId64 ": %s", physical_offset, pymq_status_name(status));
    unsigned checks = PYMQ_CHECK_BODY_CRC | PYMQ_CHECK_OFFSET;
    ssize_t decoded = pymq_record_decode(span->data, span->size, checks, physical_offset, record);
    if (decoded == (ssize_t)span->size && decoded > 0)
        return true;
    pymq_span_release(judged->store, span);
    return no(judged, "record at %" PRId64 " of %u bytes decodes to %zd", physical_offset, size, decoded);
}

/* ---- queues --------------------------------------------------------------------------------------------------- */

static bool judge_unit(struct judged *judged, const struct pymq_queue_info *info, int64_t queue_offset,
                       const struct pymq_cq_unit *unit) {
    struct pymq_record record;
    struct pymq_span span;
    uint32_t id = 0;
    char tag[MODEL_KEY_MAX];
    if (!judge_record(judged, unit->physical_offset, (uint32_t)unit->size, &record, &span))
        return false;
    bool held = judge_content(judged, &record, &id) && judge_place(judged, &record, id);
    int64_t store_timestamp_ms = record.store_timestamp_ms;
    if (held && (record.queue_offset != queue_offset || record.queue_id != info->queue_id ||
                 record.total_size != unit->size || !same(record.topic, info->topic.data, info->topic.size)))
        held = no(judged, "unit %" PRId64 " of queue %d points at a record of another place (message %u)",
                  queue_offset, info->queue_id, id);
    pymq_span_release(judged->store, &span);
    model_tag(id, tag);
    if (held && unit->tags_code != pymq_java_hash(0, (const uint8_t *)tag, strlen(tag)))
        held = no(judged, "unit %" PRId64 " of queue %d has a wrong tags code", queue_offset, info->queue_id);
    if (!held)
        return false;
    if (judged->entry_count == judged->entry_capacity) {
        judged->entry_capacity = judged->entry_capacity == 0 ? 256 : judged->entry_capacity * 2;
        judged->entries = realloc(judged->entries, judged->entry_capacity * sizeof *judged->entries);
        CHECK(judged->entries != NULL, "out of memory");
    }
    judged->entries[judged->entry_count++] =
        (struct entry){unit->physical_offset, store_timestamp_ms, (uint32_t)unit->size, id};
    return true;
}

static bool judge_queue(struct judged *judged, struct pymq_queue *queue) {
    struct pymq_queue_info info;
    struct pymq_cq_unit units[UNITS_AT_ONCE];
    int64_t previous = -1;
    pymq_queue_info(queue, &info);
    if (info.min_offset < 0 || info.min_offset > info.max_offset)
        return no(judged, "queue %d: minimum %" PRId64 ", maximum %" PRId64, info.queue_id, info.min_offset,
                  info.max_offset);
    for (int64_t offset = info.min_offset; offset < info.max_offset;) {
        ssize_t count = pymq_queue_units(judged->store, queue, offset, units, UNITS_AT_ONCE);
        if (count <= 0)
            return no(judged, "queue %d of %.*s: units at %" PRId64 " (of [%" PRId64 ", %" PRId64 ")): %zd",
                      info.queue_id, (int)info.topic.size, (const char *)info.topic.data, offset, info.min_offset,
                      info.max_offset, count);
        for (ssize_t i = 0; i < count; i++, offset++) {
            if (units[i].physical_offset <= previous)
                return no(judged, "queue %d: physical offset falls at unit %" PRId64, info.queue_id, offset);
            previous = units[i].physical_offset;
            if (!judge_unit(judged, &info, offset, &units[i]))
                return false;
        }
    }
    return true;
}

/* A queue goes on where its last promised message was, even when retention has removed them all. */
static bool judge_next_offsets(struct judged *judged, struct pymq_queue **queues, size_t count) {
    for (uint32_t id = 0; id < judged->promise->count; id++) {
        const struct model_message *message = &judged->model->messages[id];
        const char *topic = model_topic(message->topic);
        bool held = message->queue_offset < 0 || message->lost;
        for (size_t i = 0; i < count && !held; i++) {
            struct pymq_queue_info info;
            pymq_queue_info(queues[i], &info);
            held = info.queue_id == message->queue_id && same(info.topic, topic, strlen(topic)) &&
                   info.max_offset > message->queue_offset;
        }
        if (!held)
            return no(judged, "queue %d of topic %d ends before offset %" PRId64 " of promised message %u",
                      message->queue_id, message->topic, message->queue_offset, id);
    }
    return true;
}

/* ---- the log as a whole --------------------------------------------------------------------------------------- */

static int compare_entries(const void *a, const void *b) {
    int64_t left = ((const struct entry *)a)->physical_offset, right = ((const struct entry *)b)->physical_offset;
    return left < right ? -1 : left > right ? 1 : 0;
}

static int64_t next_file(const struct judged *judged, int64_t offset) {
    return (offset / judged->model->log_file_size + 1) * judged->model->log_file_size;
}

static bool judge_log(struct judged *judged, struct model_found *found) {
    int64_t end = judged->marks.min;
    int64_t timestamp_ms = 0;
    if (judged->entry_count > 0)
        qsort(judged->entries, judged->entry_count, sizeof *judged->entries, compare_entries);
    for (size_t i = 0; i < judged->entry_count; i++) {
        const struct entry *entry = &judged->entries[i];
        if (entry->physical_offset != end && (i == 0 || entry->physical_offset != next_file(judged, end)))
            return no(judged, "no queue has the record between %" PRId64 " and %" PRId64 " (message %u)", end,
                      entry->physical_offset, entry->id);
        if (entry->store_timestamp_ms < timestamp_ms)
            return no(judged, "store time falls at %" PRId64, entry->physical_offset);
        timestamp_ms = entry->store_timestamp_ms;
        end = entry->physical_offset + entry->size;
    }
    if (judged->marks.written != end && judged->marks.written != next_file(judged, end) && judged->entry_count > 0)
        return no(judged, "the log ends at %" PRId64 ", its last record at %" PRId64, judged->marks.written, end);
    found->count = (uint32_t)judged->entry_count;
    found->end = end;
    return true;
}

static bool judge_promises(struct judged *judged) {
    uint32_t count = atomic_load(&judged->model->count);
    for (uint32_t id = 0; id < count; id++) {
        const struct model_message *message = &judged->model->messages[id];
        bool promised = id < judged->promise->count || (judged->promise->flags != NULL && judged->promise->flags[id]);
        if (!promised || message->seen || message->lost)
            continue;
        if (message->physical_offset >= 0 && message->physical_offset < judged->promise->removed_below)
            continue;
        return no(judged,
                  "message %u (queue %d of topic %d, offset %" PRId64 ", at %" PRId64
                  ") was promised and is lost; the log is [%" PRId64 ", %" PRId64 ")",
                  id, message->queue_id, message->topic, message->queue_offset, message->physical_offset,
                  judged->marks.min, judged->marks.written);
    }
    if (judged->marks.min > 0 && judged->marks.min > judged->promise->removed_below)
        return no(judged, "the log begins at %" PRId64 ", retention removed below %" PRId64, judged->marks.min,
                  judged->promise->removed_below);
    return true;
}

/* ---- other ways to read --------------------------------------------------------------------------------------- */

static bool judge_by_offset(struct judged *judged, const struct entry *entry) {
    struct pymq_record record;
    struct pymq_span span;
    if (!judge_record(judged, entry->physical_offset, 0, &record, &span))
        return false;
    uint32_t size = span.size;
    pymq_span_release(judged->store, &span);
    return size == entry->size ||
           no(judged, "record at %" PRId64 " has %u bytes, %u by its queue", entry->physical_offset, size, entry->size);
}

static bool judge_key(struct judged *judged, uint8_t topic, const char *key, const int64_t *expected, size_t count) {
    static _Thread_local int64_t offsets[QUERY_MAX];
    const char *name = model_topic(topic);
    ssize_t got = pymq_store_query(judged->store, (const uint8_t *)name, strlen(name), (const uint8_t *)key,
                                   strlen(key), 0, INT64_MAX, offsets, QUERY_MAX);
    if (got != (ssize_t)count)
        return no(judged, "key %s of topic %d: %zd messages, expected %zu", key, topic, got, count);
    for (size_t i = 0; i < count; i++)
        if (offsets[i] != expected[i])
            return no(judged, "key %s of topic %d: answer %zu is %" PRId64 ", expected %" PRId64, key, topic, i,
                      offsets[i], expected[i]);
    return true;
}

static bool judge_groups(struct judged *judged) {
    static _Thread_local int64_t expected[QUERY_MAX];
    for (uint8_t topic = 0; topic < MODEL_TOPICS; topic++) {
        for (uint32_t group = 0; group < MODEL_GROUPS; group++) {
            char key[MODEL_KEY_MAX];
            size_t count = 0;
            for (size_t i = judged->entry_count; i-- > 0 && count < QUERY_MAX;) {
                uint32_t id = judged->entries[i].id;
                if (judged->model->messages[id].topic == topic && id % MODEL_GROUPS == group)
                    expected[count++] = judged->entries[i].physical_offset;
            }
            model_group_key(group, key);
            if (!judge_key(judged, topic, key, expected, count))
                return false;
        }
    }
    return true;
}

static bool judge_other_reads(struct judged *judged) {
    uint32_t step = judged->model->other_reads_step;
    for (size_t i = 0; i < judged->entry_count; i += step) {
        const struct entry *entry = &judged->entries[i];
        const struct model_message *message = &judged->model->messages[entry->id];
        char key[MODEL_KEY_MAX];
        if (!judge_by_offset(judged, entry))
            return false;
        if (!judged->model->index_enable)
            continue;
        model_unique_key(entry->id, key);
        if (!judge_key(judged, message->topic, key, &entry->physical_offset, 1))
            return false;
        model_own_key(entry->id, key);
        if (!judge_key(judged, message->topic, key, &entry->physical_offset, 1))
            return false;
    }
    return !judged->model->index_enable || step > 1 || judge_groups(judged);
}

bool message_model_verify(struct message_model *model, struct pymq_store *store, const struct model_promise *promise,
                          struct model_found *found, char why[MODEL_WHY_MAX]) {
    struct judged judged = {.model = model, .store = store, .promise = promise, .why = why};
    struct pymq_queue *queues[QUEUES_MAX];
    why[0] = '\0';
    for (uint32_t id = 0; id < atomic_load(&model->count); id++)
        model->messages[id].seen = false;
    int status = pymq_store_wait_dispatched(store, DISPATCH_TIMEOUT_MS);
    if (status != PYMQ_OK)
        return no(&judged, "dispatch does not end: %s", pymq_status_name(status));
    pymq_store_watermarks(store, &judged.marks);
    size_t count = pymq_store_queues(store, queues, QUEUES_MAX);
    if (count > QUEUES_MAX)
        return no(&judged, "%zu queues: more than the model has", count);
    bool held = true;
    for (size_t i = 0; i < count && held; i++)
        held = judge_queue(&judged, queues[i]);
    held = held && judge_log(&judged, found) && judge_promises(&judged) && judge_next_offsets(&judged, queues, count) &&
           judge_other_reads(&judged);
    free(judged.entries);
    return held;
}
