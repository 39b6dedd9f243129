/* See message.h. */
#include "message.h"

#include "bytes.h"

#include <stdio.h>
#include <stdlib.h>

#define BODY_MAGIC 0x50794C64U /* "PyLd" */
#define HEADER_SIZE_MAX 2048
#define PROPERTIES_SIZE_MAX 512
#define BATCH_ITEM_OVERHEAD 22

/* Characters that occur nowhere else in a frame, so that they can be found again after encoding. */
#define UNIQ_KEY_HOLDER "################################"
#define KEYS_HOLDER "~~~~~~~~~~~~~~~~"
#define KEYS_DIGITS 16
#define BORN_HOLDER "^^^^^^^^^^^^^"
#define BORN_DIGITS 13

#define UNIQ_TIME_POSITION 20
#define UNIQ_COUNTER_POSITION 28

static uint8_t filling_at(size_t position) { return (uint8_t)('a' + position * 7 % 26); }

static void fill_body(uint8_t *body, size_t size, uint32_t sender) {
    put_be32(body, BODY_MAGIC);
    put_be32(body + 4, sender);
    memset(body + 8, 0, BODY_STAMP_SIZE - 8);
    for (size_t i = BODY_STAMP_SIZE; i < size; i++)
        body[i] = filling_at(i);
}

bool body_read_stamp(const uint8_t *body, size_t size, struct body_stamp *stamp) {
    if (size < BODY_STAMP_SIZE || get_be32(body) != BODY_MAGIC)
        return false;
    stamp->sender = get_be32(body + 4);
    stamp->sequence = get_be64(body + 8);
    stamp->intended_ns = (int64_t)get_be64(body + 16);
    return true;
}

bool body_filling_is_right(const uint8_t *body, size_t size) {
    for (size_t i = BODY_STAMP_SIZE; i < size; i++)
        if (body[i] != filling_at(i))
            return false;
    return true;
}

/* `added` as properties are written, behind those that `target` holds; what does not fit is left out. */
static void add_properties(char *target, size_t capacity, const char *added) {
    size_t size = strlen(target);
    for (; added != NULL && *added != 0 && size + 2 < capacity; added++)
        target[size++] = *added == '=' ? '\1' : *added == ';' ? '\2' : *added;
    if (size > 0 && target[size - 1] != '\2')
        target[size++] = '\2';
    target[size] = 0;
}

/* The property string with place-holders, in the order a Java client's map gives them. `outer` is a batch's own: no
 * key, no tag. */
static void property_text(char *target, size_t capacity, enum properties properties, bool outer) {
    const char *keys = properties == PROPERTIES_JAVA_KEYS && !outer ? "KEYS\1" KEYS_HOLDER "\2" : "";
    const char *tags = properties >= PROPERTIES_JAVA_TAGS && !outer ? "TAGS\1TagA\2" : "";
    if (properties == PROPERTIES_NONE)
        snprintf(target, capacity, "%s", "");
    else
        snprintf(target, capacity, "%sUNIQ_KEY\1" UNIQ_KEY_HOLDER "\2WAIT\1true\2%s", keys, tags);
}

/* One message of a batch: size (4) magic (4) CRC (4) flag (4), all but the size zero; body and properties with their
 * lengths. */
static size_t write_batch_item(uint8_t *target, const struct message_plan *plan, const char *properties) {
    size_t properties_size = strlen(properties);
    size_t size = BATCH_ITEM_OVERHEAD + plan->body_size + properties_size;
    memset(target, 0, 16);
    put_be32(target, (uint32_t)size);
    put_be32(target + 16, (uint32_t)plan->body_size);
    fill_body(target + 20, plan->body_size, plan->sender);
    put_be16(target + 20 + plan->body_size, (uint16_t)properties_size);
    memcpy(target + BATCH_ITEM_OVERHEAD + plan->body_size, properties, properties_size);
    return size;
}

/* The position of the next `holder` at or after `*from`, moving `*from` behind it; 0 when there is none. */
static size_t find_holder(const struct message_frame *frame, size_t *from, const char *holder) {
    size_t size = strlen(holder);
    const uint8_t *found = memmem(frame->bytes + *from, frame->size - *from, holder, size);
    if (found == NULL)
        return 0;
    size_t position = (size_t)(found - frame->bytes);
    *from = position + size;
    return position;
}

/* The part of a UNIQ_KEY that stays: address (8 digits), process (4), class loader (8). */
static void fix_uniq_key(struct message_frame *frame, size_t position, uint32_t sender) {
    put_hex(frame->bytes + position, 0x7F000001, 8);
    put_hex(frame->bytes + position + 8, sender >> 16, 4);
    put_hex(frame->bytes + position + 12, 0x5FFD0000U | (sender & 0xFFFF), 8);
}

static void find_places(struct message_frame *frame, const struct message_plan *plan, size_t body_position) {
    size_t uniq_from = FRAME_PREFIX_SIZE, keys_from = FRAME_PREFIX_SIZE, born_from = FRAME_PREFIX_SIZE;
    frame->born_timestamp = find_holder(frame, &born_from, BORN_HOLDER);
    bool has_uniq_key = plan->properties != PROPERTIES_NONE;
    if (plan->batch_count > 1 && has_uniq_key) {
        frame->outer_uniq_key = find_holder(frame, &uniq_from, UNIQ_KEY_HOLDER);
        fix_uniq_key(frame, frame->outer_uniq_key, plan->sender);
    }
    for (unsigned i = 0; i < plan->batch_count; i++) {
        struct message_places *places = &frame->messages[i];
        places->uniq_key = has_uniq_key ? find_holder(frame, &uniq_from, UNIQ_KEY_HOLDER) : 0;
        places->keys = plan->properties == PROPERTIES_JAVA_KEYS ? find_holder(frame, &keys_from, KEYS_HOLDER) : 0;
        if (has_uniq_key)
            fix_uniq_key(frame, places->uniq_key, plan->sender);
        places->body = plan->batch_count > 1 ? body_position + 20 : body_position;
        if (plan->batch_count > 1)
            body_position += get_be32(frame->bytes + body_position);
    }
}

static bool frame_open(struct message_frame *frame, const struct message_plan *plan, unsigned queue) {
    bool batch = plan->batch_count > 1;
    char properties[PROPERTIES_SIZE_MAX], inner[PROPERTIES_SIZE_MAX], queue_digits[12];
    property_text(properties, sizeof properties, plan->properties, batch);
    property_text(inner, sizeof inner, plan->properties, false);
    add_properties(batch ? inner : properties, sizeof inner, plan->added);
    snprintf(queue_digits, sizeof queue_digits, "%u", queue);
    size_t capacity = HEADER_SIZE_MAX + plan->batch_count * (BATCH_ITEM_OVERHEAD + plan->body_size + sizeof inner);
    uint8_t *body = malloc(capacity);
    frame->bytes = malloc(capacity);
    if (body == NULL || frame->bytes == NULL) {
        free(body);
        return false;
    }
    size_t body_size = 0;
    for (unsigned i = 0; batch && i < plan->batch_count; i++)
        body_size += write_batch_item(body + body_size, plan, inner);
    if (!batch) {
        fill_body(body, plan->body_size, plan->sender);
        body_size = plan->body_size;
    }
    /* SendMessageRequestHeaderV2. No "l" (maxReconsumeTimes): it is null in a producer, and a null is not written. */
    const struct field fields[] = {
        {"a", plan->producer_group}, {"b", plan->topic}, {"c", "TBW102"},    {"d", "4"},
        {"e", queue_digits},         {"f", "0"},         {"g", BORN_HOLDER}, {"h", "0"},
        {"i", properties},           {"j", "0"},         {"k", "false"},     {"m", batch ? "true" : "false"},
        {"n", plan->broker_name},
    };
    const struct request request = {
        .code = batch ? REQUEST_SEND_BATCH_MESSAGE : REQUEST_SEND_MESSAGE_V2,
        .fields = fields,
        .field_count = sizeof fields / sizeof fields[0],
        .body = body,
        .body_size = body_size,
    };
    frame->size = encode_request(frame->bytes, capacity, plan->codec, &request, &frame->opaque);
    free(body);
    if (frame->size == 0)
        return false;
    find_places(frame, plan, frame->size - body_size);
    return true;
}

bool message_source_open(struct message_source *source, const struct message_plan *plan) {
    *source = (struct message_source){.plan = *plan};
    source->frames = calloc(plan->queue_count, sizeof *source->frames);
    if (source->frames == NULL)
        return false;
    for (unsigned queue = 0; queue < plan->queue_count; queue++) {
        if (!frame_open(&source->frames[queue], plan, queue)) {
            message_source_close(source);
            return false;
        }
    }
    message_source_tick(source, wall_ms());
    return true;
}

void message_source_close(struct message_source *source) {
    for (unsigned queue = 0; source->frames != NULL && queue < source->plan.queue_count; queue++)
        free(source->frames[queue].bytes);
    free(source->frames);
    source->frames = NULL;
}

size_t message_frame_size_max(const struct message_source *source) {
    size_t largest = 0;
    for (unsigned queue = 0; queue < source->plan.queue_count; queue++)
        if (source->frames[queue].size > largest)
            largest = source->frames[queue].size;
    return largest;
}

void message_source_tick(struct message_source *source, int64_t now_ms) {
    if (now_ms == source->now_ms)
        return;
    source->now_ms = now_ms;
    put_digits(source->now_digits, (uint64_t)now_ms, BORN_DIGITS);
    put_hex(source->now_hex, (uint64_t)now_ms, (int)sizeof source->now_hex);
}

static void patch_uniq_key(struct message_source *source, uint8_t *target) {
    memcpy(target + UNIQ_TIME_POSITION, source->now_hex, sizeof source->now_hex);
    put_hex(target + UNIQ_COUNTER_POSITION, source->uniq_counter++, 4);
}

size_t message_compose(struct message_source *source, unsigned queue, uint32_t opaque, int64_t intended_ns,
                       uint8_t *target) {
    const struct message_frame *frame = &source->frames[queue];
    memcpy(target, frame->bytes, frame->size);
    patch_opaque(target, frame->opaque, source->plan.codec, opaque);
    memcpy(target + frame->born_timestamp, source->now_digits, BORN_DIGITS);
    for (unsigned i = 0; i < source->plan.batch_count; i++) {
        const struct message_places *places = &frame->messages[i];
        uint64_t sequence = source->next_sequence++;
        put_be64(target + places->body + 8, sequence);
        put_be64(target + places->body + 16, (uint64_t)intended_ns);
        if (places->uniq_key != 0)
            patch_uniq_key(source, target + places->uniq_key);
        if (places->keys != 0)
            put_digits(target + places->keys, sequence, KEYS_DIGITS);
    }
    if (frame->outer_uniq_key != 0)
        patch_uniq_key(source, target + frame->outer_uniq_key);
    return frame->size;
}
