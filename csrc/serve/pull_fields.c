/* The fields of PULL_MESSAGE and LITE_PULL_MESSAGE, read in one pass over the header. */
#include "pull_internal.h"

#include "pymq/java_hash.h"

enum field_bit {
    GROUP = 1 << 0,
    TOPIC = 1 << 1,
    QUEUE = 1 << 2,
    OFFSET = 1 << 3,
    COUNT = 1 << 4,
    FLAG = 1 << 5,
    COMMIT = 1 << 6,
    SUSPEND = 1 << 7,
    VERSION = 1 << 8,
    REQUIRED = (1 << 9) - 1,
};

static bool is(const struct pymq_slice *name, const char *expected) {
    return memcmp(name->data, expected, name->size) == 0; /* sizes are equal: the caller has switched on them */
}

/* Take one field. The bit of a required one, 0 for any other, PYMQ_EINVAL for a number that is none. */
static int take(const struct pymq_field *field, struct pymq_pull_fields *fields) {
    const struct pymq_slice *name = &field->name, *value = &field->value;
    switch (name->size) {
    case 2: /* "lo", "ns" */
        break;
    case 5:
        if (is(name, "topic")) {
            fields->topic = *value;
            return TOPIC;
        }
        break;
    case 7:
        if (is(name, "queueId"))
            return pymq_slice_int32(value, &fields->queue_id) == PYMQ_OK ? QUEUE : PYMQ_EINVAL;
        if (is(name, "sysFlag"))
            return pymq_slice_int32(value, &fields->sys_flag) == PYMQ_OK ? FLAG : PYMQ_EINVAL;
        break;
    case 9:
        fields->unusual = fields->unusual || is(name, "liteTopic");
        break;
    case 10:
        if (is(name, "maxMsgNums"))
            return pymq_slice_int32(value, &fields->count_max) == PYMQ_OK ? COUNT : PYMQ_EINVAL;
        if (is(name, "subVersion"))
            return pymq_slice_int64(value, &fields->sub_version) == PYMQ_OK ? VERSION : PYMQ_EINVAL;
        break;
    case 11:
        if (is(name, "queueOffset"))
            return pymq_slice_int64(value, &fields->offset) == PYMQ_OK ? OFFSET : PYMQ_EINVAL;
        if (is(name, "maxMsgBytes")) { /* 5.5.0 parses it and then goes by its own limits */
            int32_t ignored;
            return pymq_slice_int32(value, &ignored) == PYMQ_OK ? 0 : PYMQ_EINVAL;
        }
        break;
    case 12:
        if (is(name, "commitOffset"))
            return pymq_slice_int64(value, &fields->commit_offset) == PYMQ_OK ? COMMIT : PYMQ_EINVAL;
        if (is(name, "subscription"))
            fields->subscription = *value;
        break;
    case 13:
        if (is(name, "consumerGroup")) {
            fields->group = *value;
            return GROUP;
        }
        fields->unusual = fields->unusual || is(name, "requestSource");
        break;
    case 14:
        if (is(name, "expressionType"))
            fields->expression_type = *value;
        break;
    case 20:
        if (is(name, "suspendTimeoutMillis"))
            return pymq_slice_int64(value, &fields->suspend_ms) == PYMQ_OK ? SUSPEND : PYMQ_EINVAL;
        break;
    default:
        break;
    }
    return 0;
}

int pymq_pull_fields(const struct pymq_command *command, struct pymq_pull_fields *fields) {
    memset(fields, 0, sizeof *fields);
    int seen = 0;
    for (uint32_t i = 0; i < command->field_count; i++) {
        if (command->fields[i].value.data == NULL)
            continue; /* null: as if absent */
        int bit = take(&command->fields[i], fields);
        if (bit < 0)
            return PYMQ_EINVAL;
        seen |= bit;
    }
    return seen == REQUIRED ? PYMQ_OK : PYMQ_EINVAL;
}

/* ---- a subscription that the request brings along: FilterAPI.build -------------------------------------------- */

static bool is_tag_type(const struct pymq_slice *type) {
    return type->data == NULL || (type->size == 3 && memcmp(type->data, "TAG", 3) == 0);
}

/* String.trim: everything up to U+0020. */
static struct pymq_slice trimmed(struct pymq_slice text) {
    while (text.size > 0 && text.data[0] <= ' ') {
        text.data++;
        text.size--;
    }
    while (text.size > 0 && text.data[text.size - 1] <= ' ')
        text.size--;
    return text;
}

int pymq_pull_expression(const struct pymq_pull_fields *fields, struct pymq_filter *filter, int32_t *hashes) {
    struct pymq_slice rest = fields->subscription;
    *filter = (struct pymq_filter){.hashes = hashes};
    if (!is_tag_type(&fields->expression_type))
        return PYMQ_EUNSUPPORTED;
    if (rest.size == 0 || (rest.size == 1 && rest.data[0] == '*')) {
        filter->all = true;
        return PYMQ_OK;
    }
    bool anything = false; /* Java's split drops empty parts at the end; of none at all it makes an error */
    while (rest.size > 0) {
        const uint8_t *bars = memmem(rest.data, rest.size, "||", 2);
        struct pymq_slice part = {rest.data, bars != NULL ? (uint32_t)(bars - rest.data) : rest.size};
        uint32_t taken = part.size + (bars != NULL ? 2 : 0);
        rest.data += taken;
        rest.size -= taken;
        anything = anything || part.size > 0;
        struct pymq_slice tag = trimmed(part);
        if (tag.size == 0)
            continue;
        if (filter->count == PYMQ_TAGS_MAX)
            return PYMQ_EUNSUPPORTED;
        hashes[filter->count++] = pymq_java_hash(0, tag.data, tag.size);
    }
    return anything ? PYMQ_OK : PYMQ_EUNSUPPORTED;
}

/* ---- a frame that is kept ------------------------------------------------------------------------------------- */

#define PREFIX_SIZE 8           /* the frame's size, then type and header size */
#define SIZE_FIELD 4            /* not counted by itself */
#define HEADER_SIZE_MASK 0xffffffu

size_t pymq_pull_kept_size(const uint8_t *frame, size_t frame_size) {
    if (frame_size < PREFIX_SIZE)
        return frame_size;
    size_t head = PREFIX_SIZE + (pymq_load_be32(frame + SIZE_FIELD) & HEADER_SIZE_MASK);
    return head < frame_size ? head : frame_size;
}

void pymq_pull_keep(uint8_t *target, size_t kept_size, const uint8_t *frame, size_t frame_size) {
    memcpy(target, frame, kept_size);
    if (kept_size < frame_size)
        pymq_store_be32(target, (uint32_t)(kept_size - SIZE_FIELD));
}
