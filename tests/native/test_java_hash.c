/* Java's String.hashCode from UTF-8. The expected numbers of malformed input were printed by OpenJDK 17 for
 * new String(bytes, UTF_8).hashCode(). */
#include "pymq/java_hash.h"

#include "check.h"

static int32_t hash_of(const void *source, size_t size) {
    uint8_t *exact = check_exact(source, size);
    int32_t hash = pymq_java_hash(0, exact, size);
    free(exact);
    return hash;
}

#define HASH(literal) hash_of(literal, sizeof(literal) - 1)

static void test_ascii_known_answers(void) {
    CHECK_EQ(pymq_java_hash(0, NULL, 0), 0);
    CHECK_EQ(HASH("a"), 97);
    CHECK_EQ(HASH("TagA"), 2598919);
    CHECK_EQ(HASH("hello"), 99162322);
    CHECK_EQ(HASH("polygenelubricants"), INT32_MIN);
}

/* The eight-at-a-time way and the plain rule, for every length around its step. */
static void test_every_ascii_length_follows_the_rule(void) {
    uint8_t text[70];
    uint32_t expected = 0;
    for (size_t size = 0; size < sizeof text; size++) {
        CHECK_EQ(hash_of(text, size), (int32_t)expected);
        text[size] = (uint8_t)(33 + size * 7 % 90);
        expected = expected * 31 + text[size];
    }
}

static uint32_t units(const uint16_t *source, size_t count) {
    uint32_t hash = 0;
    for (size_t i = 0; i < count; i++) {
        hash = hash * 31 + source[i];
    }
    return hash;
}

#define UNITS(...) \
    (int32_t)units((const uint16_t[]){__VA_ARGS__}, sizeof((const uint16_t[]){__VA_ARGS__}) / sizeof(uint16_t))

static void test_multi_byte_sequences_become_utf16_units(void) {
    CHECK_EQ(HASH("\xc2\x80"), UNITS(0x80));
    CHECK_EQ(HASH("\xdf\xbf"), UNITS(0x7ff));
    CHECK_EQ(HASH("\xe0\xa0\x80"), UNITS(0x800));
    CHECK_EQ(HASH("\xed\x9f\xbf"), UNITS(0xd7ff));
    CHECK_EQ(HASH("\xee\x80\x80"), UNITS(0xe000));
    CHECK_EQ(HASH("\xef\xbf\xbf"), UNITS(0xffff));
    CHECK_EQ(HASH("\xf0\x90\x80\x80"), UNITS(0xd800, 0xdc00));
    CHECK_EQ(HASH("\xf0\x9f\x98\x80"), UNITS(0xd83d, 0xde00));
    CHECK_EQ(HASH("\xf4\x8f\xbf\xbf"), UNITS(0xdbff, 0xdfff));
}

static void test_malformed_pieces_are_replaced_as_java_does(void) {
    CHECK_EQ(HASH("\x80"), UNITS(0xfffd));
    CHECK_EQ(HASH("\xc0\x80"), UNITS(0xfffd, 0xfffd));
    CHECK_EQ(HASH("\xc2"), UNITS(0xfffd));
    CHECK_EQ(HASH("\xc2" "A"), UNITS(0xfffd, 'A'));
    CHECK_EQ(HASH("\xe0\x9f\xbf"), UNITS(0xfffd, 0xfffd, 0xfffd)); /* overlong */
    CHECK_EQ(HASH("\xe2\x82"), UNITS(0xfffd));
    CHECK_EQ(HASH("\xe2\x82" "A"), UNITS(0xfffd, 'A'));
    CHECK_EQ(HASH("\xed\xa0\x80"), UNITS(0xfffd)); /* a surrogate is one piece */
    CHECK_EQ(HASH("\xed\xbf\xbf"), UNITS(0xfffd));
    CHECK_EQ(HASH("\xed\xa0"), UNITS(0xfffd));
    CHECK_EQ(HASH("\xed\xa0" "A"), UNITS(0xfffd, 'A'));
    CHECK_EQ(HASH("\xf0\x8f\xbf\xbf"), UNITS(0xfffd, 0xfffd, 0xfffd, 0xfffd));
    CHECK_EQ(HASH("\xf0\x90"), UNITS(0xfffd));
    CHECK_EQ(HASH("\xf0\x90\x80"), UNITS(0xfffd));
    CHECK_EQ(HASH("\xf0\x90\x80" "A"), UNITS(0xfffd, 'A'));
    CHECK_EQ(HASH("\xf4\x90\x80\x80"), UNITS(0xfffd, 0xfffd, 0xfffd, 0xfffd)); /* above U+10FFFF */
    CHECK_EQ(HASH("\xf5\x80\x80\x80"), UNITS(0xfffd, 0xfffd, 0xfffd, 0xfffd));
    CHECK_EQ(HASH("\xff"), UNITS(0xfffd));
}

static void test_hash_continues_over_whole_strings(void) {
    static const uint8_t text[] = "TopicTest#\xe4\xbd\xa0\xe5\xa5\xbd and some more ASCII";
    int32_t whole = pymq_java_hash(0, text, sizeof text - 1);
    int32_t head = pymq_java_hash(0, text, 10);
    CHECK_EQ(pymq_java_hash(head, text + 10, sizeof text - 11), whole);
}

static void test_index_key_hash_is_never_negative(void) {
    static const uint8_t topic[] = "TopicTest", key[] = "k";
    static const uint8_t joined[] = "TopicTest#k";
    int32_t plain = pymq_java_hash(0, joined, sizeof joined - 1);
    CHECK_EQ(pymq_index_key_hash(topic, 9, key, 1), plain < 0 ? -plain : plain);
    CHECK_EQ(pymq_index_key_hash(NULL, 0, NULL, 0), '#');
    /* "#" + this key hashes to INT32_MIN, whose absolute value is still negative: Apache takes 0. */
    CHECK_EQ(pymq_java_hash(0, (const uint8_t *)"#wga1ABD", 8), INT32_MIN);
    CHECK_EQ(pymq_index_key_hash(NULL, 0, (const uint8_t *)"wga1ABD", 7), 0);
}

int main(void) {
    RUN(test_ascii_known_answers);
    RUN(test_every_ascii_length_follows_the_rule);
    RUN(test_multi_byte_sequences_become_utf16_units);
    RUN(test_malformed_pieces_are_replaced_as_java_does);
    RUN(test_hash_continues_over_whole_strings);
    RUN(test_index_key_hash_is_never_negative);
    return check_summary();
}
