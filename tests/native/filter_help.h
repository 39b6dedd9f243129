/* Filter programs written by hand, for tests that have no compiler. */
#ifndef PYMQ_TESTS_FILTER_HELP_H
#define PYMQ_TESTS_FILTER_HELP_H

#include "pymq/filter_program.h"

struct written {
    uint8_t bytes[512];
    size_t size;
};

static inline void write_bytes(struct written *target, const void *bytes, size_t size) {
    memcpy(target->bytes + target->size, bytes, size);
    target->size += size;
}

static inline void write_byte(struct written *target, int byte) {
    target->bytes[target->size++] = (uint8_t)byte;
}

static inline void write_text(struct written *target, const char *text_of) {
    pymq_store_be16(target->bytes + target->size, (uint16_t)strlen(text_of));
    target->size += 2;
    write_bytes(target, text_of, strlen(text_of));
}

/* Magic, version and one name. */
static inline struct written program_of(const char *name) {
    struct written target = {.size = 0};
    write_bytes(&target, "SQ\001\001", 4);
    write_byte(&target, (int)strlen(name));
    write_bytes(&target, name, strlen(name));
    return target;
}

/* name = 'value' */
static inline struct written program_equal(const char *name, const char *value) {
    struct written target = program_of(name);
    write_bytes(&target, "\x08\x00\x07", 3);
    write_text(&target, value);
    write_bytes(&target, "\x20\x50", 2);
    return target;
}

/* name > value, an Integer */
static inline struct written program_greater(const char *name, int32_t value) {
    struct written target = program_of(name);
    write_bytes(&target, "\x08\x00\x04", 3);
    pymq_store_be32(target.bytes + target.size, (uint32_t)value);
    target.size += 4;
    write_bytes(&target, "\x21\x50", 2);
    return target;
}

#endif
