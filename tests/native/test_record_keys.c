/* What dispatch takes from a record: tags code, keys, unique key, delivery time; and the delay levels' text. */
#include "pymq/record.h"

#include "pymq/java_hash.h"

#include "check.h"

static const char apache_levels[] = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

static struct pymq_record_keys keys_of(const char *topic, const char *properties) {
    struct pymq_record record;
    struct pymq_delay_levels levels;
    struct pymq_record_keys keys;
    CHECK_EQ(pymq_delay_levels_parse(apache_levels, &levels), PYMQ_OK);
    memset(&record, 0, sizeof record);
    record.topic.data = (const uint8_t *)topic;
    record.topic.size = (uint32_t)strlen(topic);
    record.properties.data = (const uint8_t *)properties;
    record.properties.size = (uint32_t)strlen(properties);
    record.store_timestamp_ms = 1000000;
    pymq_record_keys(&record, &levels, &keys);
    return keys;
}

static void test_tags_keys_and_unique_key(void) {
    struct pymq_record_keys keys = keys_of("T", "UNIQ_KEY\1u1\2KEYS\1a b\2TAGS\1TagA\2TAGSX\1no\2DELAY\1" "3\2");
    CHECK_EQ(keys.tags_code, 2598919);
    CHECK_BYTES(keys.tags.data, keys.tags.size, "TagA", 4);
    CHECK_BYTES(keys.keys.data, keys.keys.size, "a b", 3);
    CHECK_BYTES(keys.unique_key.data, keys.unique_key.size, "u1", 2);
}

static void test_absent_keys(void) {
    struct pymq_record_keys keys = keys_of("T", "");
    CHECK_EQ(keys.tags_code, 0);
    CHECK(keys.tags.data == NULL && keys.keys.data == NULL && keys.unique_key.data == NULL);
    keys = keys_of("T", "TAGS\1\2KEYS\1\2"); /* empty values do not exist to the decoder */
    CHECK(keys.tags.data == NULL && keys.keys.data == NULL);
    CHECK_EQ(keys.tags_code, 0);
}

static void test_last_of_equal_names_wins(void) {
    struct pymq_record_keys keys = keys_of("T", "TAGS\1x\2TAGS\1TagA\2");
    CHECK_EQ(keys.tags_code, 2598919);
}

static void test_negative_hash_is_extended_with_its_sign(void) {
    struct pymq_record_keys keys = keys_of("T", "TAGS\1polygenelubricants\2");
    CHECK_EQ(keys.tags_code, INT32_MIN);
}

static void test_delay_topic_holds_the_delivery_time(void) {
    static const char topic[] = "SCHEDULE_TOPIC_XXXX";
    CHECK_EQ(keys_of(topic, "DELAY\1" "1\2").tags_code, 1000000 + 1000);
    CHECK_EQ(keys_of(topic, "TAGS\1TagA\2DELAY\1" "5\2").tags_code, 1000000 + 60000);
    CHECK_EQ(keys_of(topic, "DELAY\1" "18\2").tags_code, 1000000 + 7200000);
    CHECK_EQ(keys_of(topic, "DELAY\1" "19\2").tags_code, 1000000 + 7200000); /* capped at the last level */
    CHECK_EQ(keys_of(topic, "DELAY\1" "2147483647\2").tags_code, 1000000 + 7200000);
    CHECK_EQ(keys_of(topic, "DELAY\1+2\2").tags_code, 1000000 + 5000);
}

static void test_no_delay_keeps_the_tags(void) {
    static const char topic[] = "SCHEDULE_TOPIC_XXXX";
    CHECK_EQ(keys_of(topic, "TAGS\1TagA\2").tags_code, 2598919);
    CHECK_EQ(keys_of(topic, "TAGS\1TagA\2DELAY\1" "0\2").tags_code, 2598919);
    CHECK_EQ(keys_of(topic, "TAGS\1TagA\2DELAY\1-1\2").tags_code, 2598919);
    CHECK_EQ(keys_of(topic, "TAGS\1TagA\2DELAY\1x\2").tags_code, 2598919);
    CHECK_EQ(keys_of(topic, "TAGS\1TagA\2DELAY\1" "2147483648\2").tags_code, 2598919);
    CHECK_EQ(keys_of(topic, "TAGS\1TagA\2DELAY\1+\2").tags_code, 2598919);
    CHECK_EQ(keys_of("SCHEDULE_TOPIC_XXXY", "TAGS\1TagA\2DELAY\1" "1\2").tags_code, 2598919);
    CHECK_EQ(keys_of("SCHEDULE_TOPIC_XXX", "TAGS\1TagA\2DELAY\1" "1\2").tags_code, 2598919);
}

static void test_levels_parse(void) {
    struct pymq_delay_levels levels;
    CHECK_EQ(pymq_delay_levels_parse(apache_levels, &levels), PYMQ_OK);
    CHECK_EQ(levels.count, 18);
    CHECK_EQ(levels.delay_ms[0], 1000);
    CHECK_EQ(levels.delay_ms[4], 60000);
    CHECK_EQ(levels.delay_ms[17], 7200000);
    CHECK_EQ(pymq_delay_levels_parse("1d  ", &levels), PYMQ_OK); /* trailing spaces */
    CHECK_EQ(levels.count, 1);
    CHECK_EQ(levels.delay_ms[0], 86400000);
}

static void test_bad_levels_are_refused_and_change_nothing(void) {
    static const char *const bad[] = {"",   " ",      "1",   "s",    "1s  2s", " 1s", "1x", "-1s",
                                      "1S", "1s\t2s", "1s2", "1s,2s", "99999999999999999999s", "9223372036854775807d"};
    struct pymq_delay_levels levels = {7, {42}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_EQ(pymq_delay_levels_parse(bad[i], &levels), PYMQ_EINVAL);
        CHECK_EQ(levels.count, 7);
    }
}

static void test_level_count_at_its_bound(void) {
    char text[3 * (PYMQ_DELAY_LEVELS_MAX + 1) + 1];
    struct pymq_delay_levels levels;
    for (int i = 0; i <= PYMQ_DELAY_LEVELS_MAX; i++) {
        memcpy(text + 3 * i, "1s ", 4);
    }
    CHECK_EQ(pymq_delay_levels_parse(text, &levels), PYMQ_EINVAL);
    text[3 * PYMQ_DELAY_LEVELS_MAX] = '\0';
    CHECK_EQ(pymq_delay_levels_parse(text, &levels), PYMQ_OK);
    CHECK_EQ(levels.count, PYMQ_DELAY_LEVELS_MAX);
}

int main(void) {
    RUN(test_tags_keys_and_unique_key);
    RUN(test_absent_keys);
    RUN(test_last_of_equal_names_wins);
    RUN(test_negative_hash_is_extended_with_its_sign);
    RUN(test_delay_topic_holds_the_delivery_time);
    RUN(test_no_delay_keeps_the_tags);
    RUN(test_levels_parse);
    RUN(test_bad_levels_are_refused_and_change_nothing);
    RUN(test_level_count_at_its_bound);
    return check_summary();
}
