/* Properties: the decoder's rules, the last of equal names, what passes as well formed, appending at the bounds. */
#include "pymq/properties.h"

#include "check.h"

struct expected {
    const char *name;
    const char *value;
};

/* `text` must yield exactly the pairs given, in order; read from an exact buffer. */
static void expect_pairs(const char *text, size_t size, const struct expected *pairs, size_t count) {
    uint8_t *exact = check_exact(text, size);
    struct pymq_property property;
    size_t position = 0;
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(pymq_properties_next(exact, size, &position, &property), 1);
        CHECK_BYTES(property.name.data, property.name.size, pairs[i].name, strlen(pairs[i].name));
        CHECK_BYTES(property.value.data, property.value.size, pairs[i].value, strlen(pairs[i].value));
    }
    CHECK_EQ(pymq_properties_next(exact, size, &position, &property), 0);
    CHECK_EQ(pymq_properties_next(exact, size, &position, &property), 0); /* the end stays the end */
    free(exact);
}

#define EXPECT(text, ...) \
    expect_pairs(text, sizeof(text) - 1, (const struct expected[]){__VA_ARGS__}, \
                 sizeof((const struct expected[]){__VA_ARGS__}) / sizeof(struct expected))
#define EXPECT_NONE(text) expect_pairs(text, sizeof(text) - 1, NULL, 0)

static void test_pairs_with_and_without_final_separator(void) {
    EXPECT("a\1b\2", {"a", "b"});
    EXPECT("a\1b", {"a", "b"});
    EXPECT("a\1b\2cc\1dd\2", {"a", "b"}, {"cc", "dd"});
    EXPECT("a\1b\2cc\1dd", {"a", "b"}, {"cc", "dd"});
    EXPECT("\2\2a\1b\2\2", {"a", "b"});
}

static void test_pieces_the_decoder_skips(void) {
    EXPECT_NONE("");
    EXPECT_NONE("\1");
    EXPECT_NONE("\2");
    EXPECT_NONE("a");
    EXPECT_NONE("abc\2");
    EXPECT_NONE("a\1");     /* empty value */
    EXPECT_NONE("abc\1\2"); /* empty value */
    EXPECT_NONE("\1abc\2"); /* empty name */
    EXPECT_NONE("\1\1a\2"); /* the first separator decides */
    EXPECT("x\2a\1b\2y\1\2", {"a", "b"});
}

static void test_later_name_value_separator_belongs_to_the_value(void) {
    EXPECT("a\1b\1c\2", {"a", "b\1c"});
    EXPECT("a\1\1\2", {"a", "\1"});
}

static void test_find_takes_the_last(void) {
    static const uint8_t text[] = "k\1first\2other\1x\2k\1last\2kk\1no\2k\1\2";
    size_t size = sizeof text - 1;
    struct pymq_slice found = pymq_properties_find(text, size, "k", 1);
    CHECK_BYTES(found.data, found.size, "last", 4); /* the final empty value does not count */
    found = pymq_properties_find(text, size, "absent", 6);
    CHECK(found.data == NULL);
    CHECK_EQ(found.size, 0);
    CHECK(pymq_properties_find(NULL, 0, "k", 1).data == NULL);
}

static void test_well_formed_accepts_what_a_user_may_write(void) {
#define ACCEPTED(text) CHECK(pymq_properties_are_well_formed((const uint8_t *)(text), sizeof(text) - 1))
#define REFUSED(text) CHECK(!pymq_properties_are_well_formed((const uint8_t *)(text), sizeof(text) - 1))
    ACCEPTED("");
    CHECK(pymq_properties_are_well_formed(NULL, 0));
    ACCEPTED("a\1b\2");
    ACCEPTED("a\1b");
    ACCEPTED("a\1\2");
    ACCEPTED("a\1x\2y\2");     /* a value with a separator in it */
    ACCEPTED("a\1b\1c\2");
    ACCEPTED("a\1\0\0\2");     /* NULs are characters */
    ACCEPTED("a\1\xff\xfe\2"); /* malformed UTF-8 */
    ACCEPTED("__CRC32#\1" "0123456789\2");
    REFUSED("\0");
    REFUSED("\0\0\0\0\0\0\0\0");
    REFUSED("abc");
    REFUSED("abc\2");
#undef ACCEPTED
#undef REFUSED
}

static struct pymq_slice slice(const char *text) {
    struct pymq_slice made = {(const uint8_t *)text, (uint32_t)strlen(text)};
    return made;
}

static void test_append_fills_exactly_to_capacity(void) {
    for (size_t capacity = 0; capacity <= 12; capacity++) {
        uint8_t *target = check_exact("............", capacity);
        size_t size = 0;
        int first = pymq_properties_append(target, capacity, &size, slice("ab"), slice("c")); /* 5 bytes */
        int second = pymq_properties_append(target, capacity, &size, slice("d"), slice("efg")); /* 6 bytes */
        CHECK_EQ(first, capacity >= 5 ? PYMQ_OK : PYMQ_EPROPERTIES);
        CHECK_EQ(second, capacity >= (first == PYMQ_OK ? 11 : 6) ? PYMQ_OK : PYMQ_EPROPERTIES);
        if (capacity >= 11) {
            CHECK_BYTES(target, size, "ab\1c\2d\1efg\2", 11);
        }
        free(target);
    }
}

static void test_append_refuses_separators_and_keeps_the_size(void) {
    uint8_t target[32];
    size_t size = 0;
    CHECK_EQ(pymq_properties_append(target, sizeof target, &size, slice("a\1"), slice("b")), PYMQ_EINVAL);
    CHECK_EQ(pymq_properties_append(target, sizeof target, &size, slice("a\2"), slice("b")), PYMQ_EINVAL);
    CHECK_EQ(pymq_properties_append(target, sizeof target, &size, slice("a"), slice("\1b")), PYMQ_EINVAL);
    CHECK_EQ(pymq_properties_append(target, sizeof target, &size, slice("a"), slice("b\2")), PYMQ_EINVAL);
    CHECK_EQ(size, 0);
    CHECK_EQ(pymq_properties_append(target, sizeof target, &size, slice("a"), (struct pymq_slice){NULL, 0}), PYMQ_OK);
    CHECK_BYTES(target, size, "a\1\2", 3);
}

static void test_arbitrary_bytes_stay_inside(void) {
    uint64_t random = 23;
    for (int round = 0; round < 20000; round++) {
        size_t size = check_random(&random) % 24;
        uint8_t bytes[24];
        uint8_t *exact;
        struct pymq_property property;
        size_t position = 0;
        for (size_t i = 0; i < size; i++) {
            bytes[i] = (uint8_t)(check_random(&random) >> 40 & 3); /* mostly separators */
        }
        exact = check_exact(bytes, size);
        while (pymq_properties_next(exact, size, &position, &property)) {
            CHECK(property.name.size > 0 && property.value.size > 0);
            CHECK(property.name.data >= exact && property.value.data + property.value.size <= exact + size);
        }
        (void)pymq_properties_find(exact, size, "\3", 1);
        (void)pymq_properties_are_well_formed(exact, size);
        free(exact);
    }
}

int main(void) {
    RUN(test_pairs_with_and_without_final_separator);
    RUN(test_pieces_the_decoder_skips);
    RUN(test_later_name_value_separator_belongs_to_the_value);
    RUN(test_find_takes_the_last);
    RUN(test_well_formed_accepts_what_a_user_may_write);
    RUN(test_append_fills_exactly_to_capacity);
    RUN(test_append_refuses_separators_and_keeps_the_size);
    RUN(test_arbitrary_bytes_stay_inside);
    return check_summary();
}
