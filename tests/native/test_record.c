/* Records: encode and decode at every bound of the format, torn and flipped ones, blank tails, the golden log. */
#include "pymq/record.h"

#include "pymq/crc32.h"

#include "check.h"

#define CHECK_ALL (PYMQ_CHECK_BODY_CRC | PYMQ_CHECK_OFFSET)

static const char sample_properties[] = "UNIQ_KEY\1" "0A275FFD\2TAGS\1TagA\2KEYS\1k1 k2\2";

static struct pymq_slice slice(const void *data, size_t size) {
    struct pymq_slice made = {data, (uint32_t)size};
    return made;
}

static struct pymq_record sample(void) {
    struct pymq_record record;
    memset(&record, 0, sizeof record);
    record.queue_id = 3;
    record.flag = -7;
    record.queue_offset = 11;
    record.physical_offset = 4099;
    record.sys_flag = PYMQ_SYS_COMPRESSED;
    record.born_timestamp_ms = 1794794160044;
    memcpy(record.born_host.address, "\x7f\0\0\1", 4);
    record.born_host.size = 4;
    record.born_host.port = 35384;
    record.store_timestamp_ms = 1794794160158;
    memcpy(record.store_host.address, "\x0a\1\2\3", 4);
    record.store_host.size = 4;
    record.store_host.port = 10911;
    record.reconsume_times = 2;
    record.prepared_transaction_offset = 77;
    record.body = slice("hello", 5);
    record.topic = slice("TopicTest", 9);
    record.properties = slice(sample_properties, sizeof sample_properties - 1);
    return record;
}

static void check_same(const struct pymq_record *actual, const struct pymq_record *expected) {
    CHECK_EQ(actual->queue_id, expected->queue_id);
    CHECK_EQ(actual->flag, expected->flag);
    CHECK_EQ(actual->queue_offset, expected->queue_offset);
    CHECK_EQ(actual->physical_offset, expected->physical_offset);
    CHECK_EQ(actual->born_timestamp_ms, expected->born_timestamp_ms);
    CHECK_EQ(actual->store_timestamp_ms, expected->store_timestamp_ms);
    CHECK_EQ(actual->reconsume_times, expected->reconsume_times);
    CHECK_EQ(actual->prepared_transaction_offset, expected->prepared_transaction_offset);
    CHECK_BYTES(actual->born_host.address, actual->born_host.size, expected->born_host.address,
                expected->born_host.size);
    CHECK_EQ(actual->born_host.port, expected->born_host.port);
    CHECK_BYTES(actual->store_host.address, actual->store_host.size, expected->store_host.address,
                expected->store_host.size);
    CHECK_EQ(actual->store_host.port, expected->store_host.port);
    CHECK_BYTES(actual->body.data, actual->body.size, expected->body.data, expected->body.size);
    CHECK_BYTES(actual->topic.data, actual->topic.size, expected->topic.data, expected->topic.size);
    CHECK_BYTES(actual->properties.data, actual->properties.size, expected->properties.data,
                expected->properties.size);
}

/* Encode into an exact buffer, decode it fully checked, compare; one byte less is too small. Returns the buffer. */
static uint8_t *round_trip(const struct pymq_record *record, size_t *size) {
    struct pymq_record decoded;
    ssize_t expected = pymq_record_size(record);
    uint8_t *target;
    CHECK(expected >= PYMQ_RECORD_SIZE_MIN);
    *size = (size_t)expected;
    target = malloc(*size);
    CHECK(target != NULL);
    CHECK_EQ(pymq_record_encode(record, target, *size - 1), PYMQ_ETRUNCATED);
    CHECK_EQ(pymq_record_encode(record, target, *size), expected);
    CHECK_EQ(pymq_record_decode(target, *size, CHECK_ALL | PYMQ_CHECK_HOLES, record->physical_offset, &decoded),
             expected);
    check_same(&decoded, record);
    return target;
}

static void test_layout_of_the_sample_is_exact(void) {
    struct pymq_record record = sample();
    size_t size;
    uint8_t *bytes = round_trip(&record, &size);
    CHECK_EQ(size, PYMQ_RECORD_SIZE_MIN + 5 + 9 + sizeof sample_properties - 1);
    CHECK_EQ(pymq_load_be32(bytes), size);
    CHECK_EQ(pymq_load_be32(bytes + 4), PYMQ_RECORD_MAGIC_V1);
    CHECK_EQ(pymq_load_be32(bytes + 8), pymq_body_crc(record.body.data, 5));
    CHECK_EQ(pymq_load_be32(bytes + 12), 3);
    CHECK_EQ((int32_t)pymq_load_be32(bytes + 16), -7);
    CHECK_EQ(pymq_load_be64(bytes + 20), 11);
    CHECK_EQ(pymq_load_be64(bytes + 28), 4099);
    CHECK_EQ(pymq_load_be32(bytes + 36), PYMQ_SYS_COMPRESSED);
    CHECK_EQ(pymq_load_be64(bytes + 40), 1794794160044);
    CHECK_BYTES(bytes + 48, 8, "\x7f\0\0\1\0\0\x8a\x38", 8);
    CHECK_EQ(pymq_load_be64(bytes + 56), 1794794160158);
    CHECK_BYTES(bytes + 64, 8, "\x0a\1\2\3\0\0\x2a\x9f", 8);
    CHECK_EQ(pymq_load_be32(bytes + 72), 2);
    CHECK_EQ(pymq_load_be64(bytes + 76), 77);
    CHECK_BYTES(bytes + 84, 19, "\0\0\0\5hello\11TopicTest", 19);
    CHECK_EQ(pymq_load_be16(bytes + 103), sizeof sample_properties - 1);
    CHECK_BYTES(bytes + 105, size - 105, sample_properties, sizeof sample_properties - 1);
    free(bytes);
}

static void test_all_four_host_combinations(void) {
    for (int combination = 0; combination < 4; combination++) {
        struct pymq_record record = sample();
        struct pymq_record decoded;
        size_t size, expected = PYMQ_RECORD_SIZE_MIN + 5 + 9 + sizeof sample_properties - 1;
        uint8_t *bytes;
        record.sys_flag = PYMQ_SYS_BORN_HOST_V6 | PYMQ_SYS_STORE_HOST_V6; /* must follow the hosts, not this */
        if (combination & 1) {
            memcpy(record.born_host.address, "\xfd\0\0\1\2\3\4\5\6\7\x08\x09\x0a\x0b\x0c\x0d", 16);
            record.born_host.size = 16;
            expected += 12;
        }
        if (combination & 2) {
            memcpy(record.store_host.address, "\xfe\x80\0\1\2\3\4\5\6\7\x08\x09\x0a\x0b\x0c\x0e", 16);
            record.store_host.size = 16;
            expected += 12;
        }
        bytes = round_trip(&record, &size);
        CHECK_EQ(size, expected);
        CHECK_EQ(pymq_record_store_timestamp_ms(bytes), record.store_timestamp_ms);
        pymq_record_stamp(bytes, 21, 22, 23);
        CHECK_EQ(pymq_record_decode(bytes, size, CHECK_ALL, 22, &decoded), size);
        CHECK_EQ(decoded.queue_offset, 21);
        CHECK_EQ(decoded.physical_offset, 22);
        CHECK_EQ(decoded.store_timestamp_ms, 23);
        CHECK_EQ(decoded.sys_flag, ((combination & 1) ? PYMQ_SYS_BORN_HOST_V6 : 0) |
                                       ((combination & 2) ? PYMQ_SYS_STORE_HOST_V6 : 0));
        free(bytes);
    }
}

static void test_topic_length_chooses_the_version(void) {
    char *topic = malloc(PYMQ_TOPIC_SIZE_MAX + 1);
    static const size_t sizes[] = {1, 126, 127, 128, 129, 255, 256, PYMQ_TOPIC_SIZE_MAX};
    CHECK(topic != NULL);
    memset(topic, 't', PYMQ_TOPIC_SIZE_MAX + 1);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct pymq_record record = sample();
        size_t size;
        uint8_t *bytes;
        record.topic = slice(topic, sizes[i]);
        record.magic = PYMQ_RECORD_MAGIC_V1; /* does not help above 127 */
        bytes = round_trip(&record, &size);
        CHECK_EQ(pymq_load_be32(bytes + 4), sizes[i] <= 127 ? PYMQ_RECORD_MAGIC_V1 : PYMQ_RECORD_MAGIC_V2);
        CHECK_EQ(size, 96 + sizes[i] + sizeof sample_properties - 1 + (sizes[i] > 127));
        free(bytes);
        record.magic = PYMQ_RECORD_MAGIC_V2; /* asked for */
        bytes = round_trip(&record, &size);
        CHECK_EQ(pymq_load_be32(bytes + 4), PYMQ_RECORD_MAGIC_V2);
        free(bytes);
    }
    {
        struct pymq_record record = sample();
        uint8_t target[8];
        record.topic = slice(topic, PYMQ_TOPIC_SIZE_MAX + 1);
        CHECK_EQ(pymq_record_size(&record), PYMQ_ETOPIC);
        CHECK_EQ(pymq_record_encode(&record, target, sizeof target), PYMQ_ETOPIC);
    }
    free(topic);
}

static void test_topics_that_are_no_file_name_are_refused(void) {
    static const struct {
        const char *text;
        size_t size;
    } refused[] = {{"", 0}, {".", 1}, {"..", 2}, {"a/b", 3}, {"/", 1}, {"a\0b", 3}, {"\0", 1}};
    static const char *const accepted[] = {"...", ".a", "%RETRY%group", "a b", "\xe4\xbd\xa0"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct pymq_record record = sample();
        record.topic = slice(refused[i].text, refused[i].size);
        CHECK_EQ(pymq_record_size(&record), PYMQ_ETOPIC);
    }
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        struct pymq_record record = sample();
        size_t size;
        record.topic = slice(accepted[i], strlen(accepted[i]));
        free(round_trip(&record, &size));
    }
}

static void test_empty_body_is_valid_and_its_crc_ignored(void) {
    struct pymq_record record = sample();
    struct pymq_record decoded;
    size_t size;
    uint8_t *bytes;
    record.body = slice(NULL, 0);
    record.properties = slice(NULL, 0);
    bytes = round_trip(&record, &size);
    CHECK_EQ(size, PYMQ_RECORD_SIZE_MIN + 9);
    CHECK_EQ(pymq_load_be32(bytes + 8), 0);
    pymq_store_be32(bytes + 8, 12345);
    CHECK_EQ(pymq_record_decode(bytes, size, CHECK_ALL, 4099, &decoded), size);
    free(bytes);
}

static void test_properties_up_to_32767(void) {
    char *text = malloc(PYMQ_PROPERTIES_SIZE_MAX + 1);
    struct pymq_record record = sample();
    CHECK(text != NULL);
    memset(text, 'v', PYMQ_PROPERTIES_SIZE_MAX + 1);
    text[1] = PYMQ_NAME_VALUE_SEPARATOR;
    for (size_t size = PYMQ_PROPERTIES_SIZE_MAX - 1; size <= PYMQ_PROPERTIES_SIZE_MAX; size++) {
        size_t record_size;
        record.properties = slice(text, size);
        free(round_trip(&record, &record_size));
        CHECK_EQ(record_size, 105 + size);
    }
    record.properties = slice(text, PYMQ_PROPERTIES_SIZE_MAX + 1);
    CHECK_EQ(pymq_record_size(&record), PYMQ_EPROPERTIES);
    free(text);
}

static void test_total_size_beyond_int32_is_refused(void) {
    struct pymq_record record = sample();
    record.body = slice("x", 0);
    record.body.size = INT32_MAX; /* never read: the size alone decides */
    CHECK_EQ(pymq_record_size(&record), PYMQ_ETOOBIG);
    record.body.size = UINT32_MAX;
    CHECK_EQ(pymq_record_size(&record), PYMQ_ETOOBIG);
    record.body.size = (uint32_t)(INT32_MAX - (100 + (int)sizeof sample_properties - 1));
    CHECK_EQ(pymq_record_size(&record), INT32_MAX);
    record.body.size++;
    CHECK_EQ(pymq_record_size(&record), PYMQ_ETOOBIG);
}

/* Cut at every byte: never a whole record. */
static void test_truncated_at_every_byte(void) {
    struct pymq_record record = sample();
    struct pymq_record decoded;
    size_t size;
    uint8_t *bytes = round_trip(&record, &size);
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *exact = check_exact(bytes, cut);
        CHECK_EQ(pymq_record_decode(exact, cut, CHECK_ALL, 4099, &decoded), PYMQ_ETRUNCATED);
        free(exact);
    }
    free(bytes);
}

/* Zeros from every byte on, as a file that was allocated but not written: no prefix passes for the record. */
static void test_zeroed_from_every_byte(void) {
    struct pymq_record record = sample();
    struct pymq_record decoded;
    size_t size, properties_at;
    uint8_t *bytes = round_trip(&record, &size);
    uint8_t *torn = malloc(size);
    CHECK(torn != NULL);
    properties_at = size - record.properties.size;
    for (size_t cut = 0; cut < size; cut++) {
        ssize_t status;
        memset(torn, 0, size);
        memcpy(torn, bytes, cut);
        status = pymq_record_decode(torn, size, CHECK_ALL, 4099, &decoded);
        if (cut <= properties_at + 8) { /* the first name/value separator is not there yet */
            CHECK(status < 0);
        }
        /* With the cut on a sector's edge, where real tears lie, the rest of the properties is covered too. */
        pymq_store_be64(torn + PYMQ_RECORD_PHYSICAL_OFFSET_AT, 512 * 1000 - cut);
        if (cut >= PYMQ_RECORD_PHYSICAL_OFFSET_AT + 8) {
            CHECK(pymq_record_decode(torn, size, CHECK_ALL | PYMQ_CHECK_HOLES, 512 * 1000 - (int64_t)cut, &decoded) <
                  0);
        }
    }
    free(torn);
    free(bytes);
}

/* A long string of properties over three sectors: each missing sector shows, a sector of user NULs only to the check
 * that looks for holes. */
static void test_missing_sector_inside_properties_shows(void) {
    static char text[1700];
    struct pymq_record record = sample();
    struct pymq_record decoded;
    size_t size, properties_at;
    uint8_t *bytes;
    memset(text, 'v', sizeof text);
    text[1] = PYMQ_NAME_VALUE_SEPARATOR;
    record.properties = slice(text, sizeof text);
    record.physical_offset = 512 * 9 + 100;
    bytes = round_trip(&record, &size);
    properties_at = size - sizeof text;
    for (size_t sector = 512 - 100; sector < size; sector += 512) {
        uint8_t *torn = check_exact(bytes, size);
        size_t left = size - sector;
        CHECK(sector > properties_at);
        memset(torn + sector, 0, left < 512 ? left : 512);
        CHECK_EQ(pymq_record_decode(torn, size, CHECK_ALL, record.physical_offset, &decoded), size);
        CHECK_EQ(pymq_record_decode(torn, size, CHECK_ALL | PYMQ_CHECK_HOLES, record.physical_offset, &decoded),
                 PYMQ_ECORRUPT);
        torn[sector + (left < 512 ? left : 512) - 1] = 1; /* one byte present: not a hole */
        CHECK_EQ(pymq_record_decode(torn, size, CHECK_ALL | PYMQ_CHECK_HOLES, record.physical_offset, &decoded), size);
        free(torn);
    }
    free(bytes);
}

/* The same at every byte: a record whose last bytes never reached the disk and read as zeros is not a whole one. */
static void test_properties_cut_short_by_zeros_show_at_every_byte(void) {
    struct pymq_record record = sample();
    struct pymq_record decoded;
    size_t size;
    uint8_t *bytes = round_trip(&record, &size);
    for (size_t cut = size - record.properties.size; cut < size; cut++) {
        uint8_t *torn = check_exact(bytes, size);
        memset(torn + cut, 0, size - cut);
        CHECK_EQ(pymq_record_decode(torn, size, CHECK_ALL | PYMQ_CHECK_HOLES, record.physical_offset, &decoded),
                 PYMQ_ECORRUPT);
        free(torn);
    }
    free(bytes);
}

/* Refused before it is stored: exactly what recovery would take for a hole, over both versions and all host sizes. */
static void test_what_recovery_would_take_for_torn_looks_torn(void) {
    static char zeros[700];
    static char topic[200];
    memset(topic, 't', sizeof topic);
    for (int kind = 0; kind < 8; kind++) {
        struct pymq_record record = sample();
        uint8_t bytes[4096];
        record.born_host.size = kind & 1 ? 16 : 4;
        record.store_host.size = kind & 2 ? 16 : 4;
        if (kind & 4)
            record.topic = slice(topic, sizeof topic);
        ssize_t size = pymq_record_encode(&record, bytes, sizeof bytes);
        CHECK(size > 0);
        CHECK(!pymq_record_looks_torn(bytes, (size_t)size));
        CHECK(pymq_record_looks_torn(bytes, (size_t)size - 1));
        static const int runs[] = {1, 511, 512, 600};
        for (int i = 0; i < 4; i++) {
            memset(zeros, 0, sizeof zeros);
            memcpy(zeros, "n\1", 2);
            zeros[2 + runs[i]] = PYMQ_PROPERTY_SEPARATOR;
            record.properties = slice(zeros, (size_t)runs[i] + 3);
            size = pymq_record_encode(&record, bytes, sizeof bytes);
            CHECK_EQ(pymq_record_looks_torn(bytes, (size_t)size), runs[i] >= 512);
            record.properties = slice(zeros, (size_t)runs[i] + 2);
            size = pymq_record_encode(&record, bytes, sizeof bytes);
            CHECK(pymq_record_looks_torn(bytes, (size_t)size));
        }
        record.properties = slice(zeros, 0);
        size = pymq_record_encode(&record, bytes, sizeof bytes);
        CHECK(!pymq_record_looks_torn(bytes, (size_t)size));
    }
}

static void test_flipped_bit_in_lengths_magic_offset_or_body_shows(void) {
    struct pymq_record record = sample();
    struct pymq_record decoded;
    size_t size;
    uint8_t *bytes = round_trip(&record, &size);
    for (size_t at = 0; at < size; at++) {
        bool checked = at < 12 || (at >= 28 && at < 36) || (at >= 84 && at < 94) || at == 103 || at == 104;
        for (int bit = 0; bit < 8 && checked; bit++) {
            bytes[at] ^= (uint8_t)(1 << bit);
            CHECK(pymq_record_decode(bytes, size, CHECK_ALL, 4099, &decoded) < 0);
            bytes[at] ^= (uint8_t)(1 << bit);
        }
    }
    bytes[39] ^= PYMQ_SYS_BORN_HOST_V6; /* moves everything behind it */
    CHECK(pymq_record_decode(bytes, size, CHECK_ALL, 4099, &decoded) < 0);
    free(bytes);
}

static void test_checks_are_only_those_asked_for(void) {
    struct pymq_record record = sample();
    struct pymq_record decoded;
    size_t size;
    uint8_t *bytes = round_trip(&record, &size);
    bytes[88] ^= 1; /* body */
    CHECK_EQ(pymq_record_decode(bytes, size, PYMQ_CHECK_STRUCTURE, -1, &decoded), size);
    CHECK_EQ(pymq_record_decode(bytes, size, PYMQ_CHECK_OFFSET, 4099, &decoded), size);
    CHECK_EQ(pymq_record_decode(bytes, size, PYMQ_CHECK_OFFSET, 4100, &decoded), PYMQ_ECORRUPT);
    CHECK_EQ(pymq_record_decode(bytes, size, PYMQ_CHECK_BODY_CRC, -1, &decoded), PYMQ_ECORRUPT);
    free(bytes);
}

static void test_sizes_below_the_smallest_record(void) {
    uint8_t bytes[PYMQ_RECORD_SIZE_MIN] = {0};
    struct pymq_record decoded;
    CHECK_EQ(pymq_record_decode(bytes, sizeof bytes, 0, 0, &decoded), PYMQ_ECORRUPT); /* never written */
    pymq_store_be32(bytes + 4, PYMQ_RECORD_MAGIC_V1);
    for (int32_t total = -1; total < PYMQ_RECORD_SIZE_MIN; total++) {
        pymq_store_be32(bytes, (uint32_t)total);
        CHECK_EQ(pymq_record_decode(bytes, sizeof bytes, 0, 0, &decoded), PYMQ_ECORRUPT);
    }
    pymq_store_be32(bytes, PYMQ_RECORD_SIZE_MIN);
    CHECK_EQ(pymq_record_decode(bytes, sizeof bytes, 0, 0, &decoded), PYMQ_ECORRUPT); /* empty topic */
    pymq_store_be32(bytes, PYMQ_RECORD_SIZE_MIN + 1);
    CHECK_EQ(pymq_record_decode(bytes, sizeof bytes, 0, 0, &decoded), PYMQ_ETRUNCATED);
    pymq_store_be32(bytes, INT32_MAX);
    CHECK_EQ(pymq_record_decode(bytes, sizeof bytes, 0, 0, &decoded), PYMQ_ETRUNCATED);
}

static void test_blank_tails(void) {
    uint8_t bytes[16];
    struct pymq_record decoded;
    static const uint32_t sizes[] = {8, 9, 16, 170, INT32_MAX};
    memset(bytes, 0xee, sizeof bytes);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        pymq_record_encode_blank(bytes, sizes[i]);
        for (size_t size = 0; size <= sizeof bytes; size++) {
            uint8_t *exact = check_exact(bytes, size);
            ssize_t status = pymq_record_decode(exact, size, CHECK_ALL, 0, &decoded);
            CHECK_EQ(status, size < 8 ? PYMQ_ETRUNCATED : 0);
            if (status == 0) {
                CHECK_EQ(decoded.total_size, sizes[i]);
                CHECK_EQ(decoded.magic, PYMQ_RECORD_MAGIC_BLANK);
            }
            free(exact);
        }
        CHECK_EQ(bytes[8], 0xee); /* the rest is left as it is */
    }
    pymq_record_encode_blank(bytes, 7);
    CHECK_EQ(pymq_record_decode(bytes, sizeof bytes, 0, 0, &decoded), PYMQ_ECORRUPT);
    pymq_record_encode_blank(bytes, UINT32_MAX);
    CHECK_EQ(pymq_record_decode(bytes, sizeof bytes, 0, 0, &decoded), PYMQ_ECORRUPT);
}

/* Every record Apache RocketMQ wrote decodes under all checks and encodes to the same bytes. */
static void test_golden_log_round_trips(void) {
    static const char *const files[] = {"tests/data/golden-store/store/commitlog/00000000000000000000",
                                        "tests/data/golden-store/store/commitlog/00000000000000065536"};
    size_t count = 0;
    for (size_t i = 0; i < 2; i++) {
        size_t size, at = 0;
        uint8_t *bytes = check_read_file(files[i], &size);
        uint8_t *again = malloc(size);
        CHECK(again != NULL);
        for (;;) {
            struct pymq_record record;
            ssize_t step = pymq_record_decode(bytes + at, size - at, CHECK_ALL | PYMQ_CHECK_HOLES,
                                              (int64_t)(i * 65536 + at), &record);
            if (step <= 0) {
                CHECK_EQ(step, i == 0 ? 0 : PYMQ_ECORRUPT); /* a blank tail, then zeros never written */
                CHECK(i != 0 || (size_t)record.total_size == size - at);
                break;
            }
            CHECK_EQ(pymq_record_encode(&record, again, size), step);
            CHECK_BYTES(again, step, bytes + at, step);
            at += (size_t)step;
            count++;
        }
        free(again);
        free(bytes);
    }
    CHECK_EQ(count, 325);
}

static void test_arbitrary_bytes_stay_inside(void) {
    uint64_t random = 29;
    for (int round = 0; round < 20000; round++) {
        struct pymq_record record = sample();
        struct pymq_record decoded;
        uint8_t bytes[256];
        size_t size = (size_t)pymq_record_encode(&record, bytes, sizeof bytes);
        uint8_t *exact;
        for (int flips = (int)(check_random(&random) % 4); flips >= 0; flips--) {
            bytes[check_random(&random) % size] = (uint8_t)(check_random(&random) >> 32);
        }
        exact = check_exact(bytes, size);
        if (pymq_record_decode(exact, size, (unsigned)round & 7, 4099, &decoded) > 0) {
            CHECK(decoded.properties.data + decoded.properties.size == exact + size);
        }
        free(exact);
    }
}

int main(void) {
    RUN(test_layout_of_the_sample_is_exact);
    RUN(test_all_four_host_combinations);
    RUN(test_topic_length_chooses_the_version);
    RUN(test_topics_that_are_no_file_name_are_refused);
    RUN(test_empty_body_is_valid_and_its_crc_ignored);
    RUN(test_properties_up_to_32767);
    RUN(test_total_size_beyond_int32_is_refused);
    RUN(test_truncated_at_every_byte);
    RUN(test_zeroed_from_every_byte);
    RUN(test_missing_sector_inside_properties_shows);
    RUN(test_flipped_bit_in_lengths_magic_offset_or_body_shows);
    RUN(test_checks_are_only_those_asked_for);
    RUN(test_sizes_below_the_smallest_record);
    RUN(test_properties_cut_short_by_zeros_show_at_every_byte);
    RUN(test_what_recovery_would_take_for_torn_looks_torn);
    RUN(test_blank_tails);
    RUN(test_golden_log_round_trips);
    RUN(test_arbitrary_bytes_stay_inside);
    return check_summary();
}
