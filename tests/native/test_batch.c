/* A client's batch: what append writes next reads; every cut and every bad length is refused. */
#include "pymq/record.h"

#include "check.h"

static struct pymq_batch_item item_of(int32_t flag, const char *body, const char *properties) {
    struct pymq_batch_item item;
    item.flag = flag;
    item.body.data = (const uint8_t *)body;
    item.body.size = (uint32_t)strlen(body);
    item.properties.data = (const uint8_t *)properties;
    item.properties.size = (uint32_t)strlen(properties);
    return item;
}

static size_t sample(uint8_t *target, size_t capacity) {
    static const char *const bodies[] = {"one", "", "three"};
    static const char *const properties[] = {"a\1b\2", "k\1v\2", ""};
    size_t size = 0;
    for (int i = 0; i < 3; i++) {
        struct pymq_batch_item item = item_of(i - 1, bodies[i], properties[i]);
        CHECK_EQ(pymq_batch_append(target, capacity, &size, &item), PYMQ_OK);
    }
    CHECK_EQ(size, 3 * 22 + 3 + 5 + 4 + 4);
    return size;
}

static void test_append_then_next_gives_the_same(void) {
    uint8_t target[128];
    size_t size = sample(target, sizeof target), position = 0;
    uint8_t *exact = check_exact(target, size);
    struct pymq_batch_item item;
    CHECK_EQ(pymq_load_be32(exact), 22 + 3 + 4);
    CHECK_EQ(pymq_batch_next(exact, size, &position, &item), 1);
    CHECK_EQ(item.flag, -1);
    CHECK_BYTES(item.body.data, item.body.size, "one", 3);
    CHECK_BYTES(item.properties.data, item.properties.size, "a\1b\2", 4);
    CHECK_EQ(pymq_batch_next(exact, size, &position, &item), 1);
    CHECK_EQ(item.body.size, 0);
    CHECK_EQ(pymq_batch_next(exact, size, &position, &item), 1);
    CHECK_EQ(item.flag, 1);
    CHECK_EQ(item.properties.size, 0);
    CHECK_EQ(pymq_batch_next(exact, size, &position, &item), 0);
    CHECK_EQ(position, size);
    free(exact);
}

static void test_total_size_magic_and_crc_are_ignored(void) {
    uint8_t target[128];
    size_t size = sample(target, sizeof target), position = 0;
    struct pymq_batch_item item;
    memset(target, 0xff, 12);
    CHECK_EQ(pymq_batch_next(target, size, &position, &item), 1);
    CHECK_BYTES(item.body.data, item.body.size, "one", 3);
}

/* Only cuts between items end well, each with exactly the items before it. */
static void test_every_cut(void) {
    uint8_t target[128];
    size_t size = sample(target, sizeof target);
    for (size_t cut = 0; cut <= size; cut++) {
        uint8_t *exact = check_exact(target, cut);
        struct pymq_batch_item item;
        size_t position = 0;
        int status, count = 0;
        while ((status = pymq_batch_next(exact, cut, &position, &item)) == 1) {
            count++;
        }
        if (cut == 0 || cut == 29 || cut == 55 || cut == size) {
            CHECK_EQ(status, 0);
            CHECK_EQ(count, cut == 0 ? 0 : cut == 29 ? 1 : cut == 55 ? 2 : 3);
        } else {
            CHECK_EQ(status, PYMQ_ECORRUPT);
        }
        free(exact);
    }
}

static void test_negative_and_too_large_lengths_are_refused(void) {
    static const uint32_t body_sizes[] = {0xffffffffu, 0x80000000u, 4, 0x7fffffffu};
    static const uint16_t properties_sizes[] = {0xffff, 0x8000, 5, 0x7fff};
    for (size_t i = 0; i < 4; i++) {
        uint8_t target[64];
        size_t size = 0, position = 0;
        struct pymq_batch_item item = item_of(0, "abc", "");
        CHECK_EQ(pymq_batch_append(target, sizeof target, &size, &item), PYMQ_OK);
        pymq_store_be32(target + 16, body_sizes[i]);
        CHECK_EQ(pymq_batch_next(target, size, &position, &item), PYMQ_ECORRUPT);
        pymq_store_be32(target + 16, 3);
        pymq_store_be16(target + 23, properties_sizes[i]);
        CHECK_EQ(pymq_batch_next(target, size, &position, &item), PYMQ_ECORRUPT);
        CHECK_EQ(position, 0);
    }
}

static void test_append_at_the_bounds(void) {
    static char properties[PYMQ_PROPERTIES_SIZE_MAX + 1];
    uint8_t *target = malloc(PYMQ_PROPERTIES_SIZE_MAX + 64);
    struct pymq_batch_item item = item_of(0, "abc", "");
    size_t size = 0;
    CHECK(target != NULL);
    CHECK_EQ(pymq_batch_append(target, 24, &size, &item), PYMQ_ETRUNCATED);
    CHECK_EQ(size, 0);
    CHECK_EQ(pymq_batch_append(target, 25, &size, &item), PYMQ_OK);
    CHECK_EQ(size, 25);
    CHECK_EQ(pymq_batch_append(target, 25, &size, &item), PYMQ_ETRUNCATED);
    CHECK_EQ(pymq_batch_append(target, 24, &size, &item), PYMQ_ETRUNCATED); /* size beyond capacity */
    item.properties.data = (const uint8_t *)properties;
    item.properties.size = PYMQ_PROPERTIES_SIZE_MAX + 1;
    CHECK_EQ(pymq_batch_append(target, PYMQ_PROPERTIES_SIZE_MAX + 64, &size, &item), PYMQ_EPROPERTIES);
    item.properties.size = PYMQ_PROPERTIES_SIZE_MAX;
    CHECK_EQ(pymq_batch_append(target, PYMQ_PROPERTIES_SIZE_MAX + 64, &size, &item), PYMQ_OK);
    free(target);
}

int main(void) {
    RUN(test_append_then_next_gives_the_same);
    RUN(test_total_size_magic_and_crc_are_ignored);
    RUN(test_every_cut);
    RUN(test_negative_and_too_large_lengths_are_refused);
    RUN(test_append_at_the_bounds);
    return check_summary();
}
