/* The CRC over the record (__CRC32#): its bytes, what it covers, what it leaves alone, and the store that adds it. */
#include "store_help.h"

#include <fcntl.h>

#include "pymq/crc32.h"

#define ROOM 64
#define RECORD_MAX (64 * 1024)
#define REQUIRED (PYMQ_CHECK_RECORD_CRC_REQUIRED | PYMQ_CHECK_BODY_CRC)

static uint8_t buffer[RECORD_MAX];

static struct pymq_slice slice(const void *data, size_t size) {
    struct pymq_slice made = {data, (uint32_t)size};
    return made;
}

/* Encode into `buffer`; returns the size. */
static size_t encode(const char *properties, size_t properties_size, uint8_t host_size, size_t topic_size) {
    static char topic[200];
    memset(topic, 't', sizeof topic);
    struct pymq_record record = {.queue_id = 1, .body = slice("body", 4), .topic = slice(topic, topic_size)};
    record.born_host = record.store_host = (struct pymq_host){.address = {127, 0, 0, 1}, .size = host_size, .port = 9};
    record.properties = slice(properties, properties_size);
    ssize_t size = pymq_record_encode(&record, buffer, sizeof buffer - ROOM);
    CHECK(size > 0);
    return (size_t)size;
}

static size_t encode_text(const char *properties) { return encode(properties, strlen(properties), 4, 5); }

static struct pymq_record decode(size_t size, unsigned checks) {
    struct pymq_record record;
    CHECK_EQ(pymq_record_decode(buffer, size, checks, 0, &record), size);
    return record;
}

static size_t append_crc(size_t size) {
    ssize_t prepared = pymq_record_crc_prepare(buffer, size);
    CHECK(prepared > 0);
    uint32_t room = pymq_record_crc_room(buffer, (size_t)prepared);
    uint32_t done = pymq_record_crc_append(buffer, (size_t)prepared);
    CHECK_EQ(done, prepared + room);
    return done;
}

/* The number counted out here by the plain tables, digit by digit from the format's description. */
static void check_bytes_at_end(size_t size) {
    uint32_t crc = pymq_crc32_table(0, buffer, size - 20) & 0x7fffffff;
    const uint8_t *property = buffer + size - 20;
    CHECK(memcmp(property, "__CRC32#\1", 9) == 0);
    for (int i = 0; i < 10; i++, crc /= 10)
        CHECK_EQ(property[9 + i], '0' + crc % 10);
    CHECK_EQ(property[19], 2);
    CHECK_EQ(pymq_load_be32(buffer), size);
}

static void test_the_last_twenty_bytes_are_the_number_least_digit_first(void) {
    static const struct {
        uint8_t host_size;
        size_t topic_size;
        const char *properties;
    } kinds[] = {{4, 5, "KEYS\1a\2"}, {16, 5, "KEYS\1a\2"}, {4, 200, "KEYS\1a\2"}, {4, 5, ""}, {4, 5, "KEYS\1a"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t plain = encode(kinds[i].properties, strlen(kinds[i].properties), kinds[i].host_size,
                              kinds[i].topic_size);
        CHECK_EQ(decode(plain, PYMQ_CHECK_RECORD_CRC).total_size, plain); /* none to be checked */
        bool separated = i != 4;
        size_t size = append_crc(plain);
        CHECK_EQ(size, plain + 20 + !separated);
        check_bytes_at_end(size);
        struct pymq_record record = decode(size, REQUIRED);
        CHECK_EQ(pymq_record_crc_state(buffer, &record), PYMQ_RECORD_CRC_MATCHES);
        CHECK_EQ(record.properties.size, strlen(kinds[i].properties) + 20 + !separated);
        CHECK(pymq_properties_find(record.properties.data, record.properties.size, PYMQ_RECORD_CRC_NAME, 8).size == 10);
    }
}

static void test_every_flipped_bit_is_found_and_a_missing_one_only_when_required(void) {
    struct pymq_record record;
    size_t plain = encode_text("KEYS\1a\2");
    CHECK_EQ(pymq_record_decode(buffer, plain, REQUIRED, 0, &record), PYMQ_ECORRUPT);
    size_t size = append_crc(plain);
    for (size_t bit = 0; bit < size * 8; bit++) {
        buffer[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(pymq_record_decode(buffer, size, REQUIRED, 0, &record) < 0);
        buffer[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    decode(size, REQUIRED);
}

static void test_a_number_copied_from_another_record_is_replaced(void) {
    static const char *const given[] = {
        "__CRC32#\1" "0123456789\2KEYS\1a\2", "KEYS\1a\2__CRC32#\1" "0123456789\2", "KEYS\1a\2__CRC32#\1" "7",
        "__CRC32#\1" "1\2KEYS\1a\2__CRC32#\1\2__CRC32#\1" "0\2",
    };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        size_t size = append_crc(encode_text(given[i]));
        struct pymq_record record = decode(size, REQUIRED);
        CHECK_BYTES(record.properties.data, record.properties.size - 20, "KEYS\1a\2", 7);
    }
    /* Names and values that only look like it stay. */
    static const char similar[] = "a__CRC32#\1" "5\2__CRC32#x\1" "6\2V\1__CRC32#\2";
    struct pymq_record record = decode(append_crc(encode_text(similar)), REQUIRED);
    CHECK_BYTES(record.properties.data, record.properties.size - 20, similar, sizeof similar - 1);
    record = decode(append_crc(encode_text("__CRC32#\1" "5\2")), REQUIRED);
    CHECK_EQ(record.properties.size, 20);
}

static void test_properties_leave_room_for_it_or_are_refused(void) {
    static char properties[PYMQ_PROPERTIES_SIZE_MAX];
    memset(properties, 'v', sizeof properties);
    memcpy(properties, "k\1", 2);
    for (int lacking = 0; lacking < 2; lacking++) { /* the last separator, which takes one more */
        for (int over = -1; over <= 1; over++) {
            size_t size = (size_t)(PYMQ_PROPERTIES_SIZE_MAX - 20 - lacking + over);
            properties[size - 1] = lacking ? 'v' : '\2';
            size_t encoded = encode(properties, size, 4, 5);
            if (over > 0)
                CHECK_EQ(pymq_record_crc_prepare(buffer, encoded), PYMQ_EPROPERTIES);
            else
                decode(append_crc(encoded), REQUIRED);
            properties[size - 1] = 'v';
        }
    }
}

static void test_bytes_that_are_no_record_are_refused(void) {
    size_t size = encode_text("KEYS\1a\2");
    uint8_t *exact = check_exact(buffer, size - 1);
    CHECK_EQ(pymq_record_crc_prepare(exact, size - 1), PYMQ_ECORRUPT);
    CHECK_EQ(pymq_record_crc_prepare(exact, 10), PYMQ_ECORRUPT);
    free(exact);
}

/* ---- in the store ------------------------------------------------------------------------------------------- */

static struct pymq_store_config crc_config(void) {
    struct pymq_store_config config = small_config();
    config.flush_mode = PYMQ_SYNC_FLUSH;
    config.append_record_crc = true;
    return config;
}

static struct sent put(struct pymq_store *store, const char *body, const char *properties) {
    struct sent sent = send_record(store, "crc", 0, text(body), properties, 0);
    CHECK_EQ(sent.status, PYMQ_OK);
    CHECK_EQ(pymq_store_wait_acknowledged(store, sent.end_offset, 5000), PYMQ_OK);
    return sent;
}

static void check_state(struct pymq_store *store, int64_t offset, enum pymq_record_crc_state expected) {
    struct pymq_span span;
    struct pymq_record record;
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    CHECK_EQ(pymq_store_record(store, offset, 0, &span), PYMQ_OK);
    CHECK_EQ(pymq_record_decode(span.data, span.size, PYMQ_CHECK_OFFSET, offset, &record), span.size);
    CHECK_EQ(pymq_record_crc_state(span.data, &record), expected);
    pymq_span_release(store, &span);
}

static void test_a_batch_carries_one_per_record_and_is_given_its_sizes(void) {
    const char *path = scratch("batch");
    struct pymq_store_config config = crc_config();
    struct pymq_store *store = open_or_die(path, &config);
    uint8_t records[3][256];
    struct pymq_append_item items[3];
    struct pymq_append_result result;
    uint32_t plain[3];
    for (int i = 0; i < 3; i++) {
        plain[i] = (uint32_t)encode_text(i == 1 ? "KEYS\1no-last-separator" : "KEYS\1a\2");
        memcpy(records[i], buffer, plain[i]);
        items[i] = (struct pymq_append_item){.record = records[i], .size = plain[i]};
        CHECK_EQ(pymq_store_queue(store, (const uint8_t *)"ttttt", 5, 1, true, &items[i].queue), PYMQ_OK);
    }
    CHECK_EQ(pymq_store_append(store, items, 3, PYMQ_APPEND_TOGETHER, &result), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_acknowledged(store, result.end_offset, 5000), PYMQ_OK);
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(items[i].size, plain[i] + 20 + (i == 1));
        CHECK_EQ(items[i].physical_offset, at);
        check_state(store, at, PYMQ_RECORD_CRC_MATCHES);
        at += items[i].size;
    }
    CHECK_EQ(result.end_offset, at);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* On, off and on again with kills between: neither are records without one dropped, nor are wrong ones kept. */
static void test_the_setting_may_change_at_every_kill(void) {
    const char *path = scratch("changing");
    struct pymq_store_config config = crc_config();
    struct sent sent[6];
    for (int run = 0; run < 6; run++) {
        config.append_record_crc = run % 3 != 1;
        struct pymq_store *store = open_or_die(path, &config);
        for (int i = 0; i < run; i++)
            check_state(store, sent[i].physical_offset,
                        i % 3 != 1 ? PYMQ_RECORD_CRC_MATCHES
                                   : i == 1 ? PYMQ_RECORD_CRC_ABSENT : PYMQ_RECORD_CRC_DIFFERS);
        /* In run 4 a message is passed on with the properties it had: somebody else's CRC, and nobody's business. */
        sent[run] = put(store, "changing", run == 4 ? "KEYS\1k\2__CRC32#\1" "0123456789\2" : "KEYS\1k\2");
        pymq_store_abandon(store);
    }
    scratch_end(path);
}

static void flip(const char *path, int64_t offset) {
    char log[600];
    uint8_t byte;
    snprintf(log, sizeof log, "%s/commitlog/00000000000000000000", path);
    int fd = open(log, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, offset) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, offset) == 1);
    close(fd);
}

/* The replica gate keeps a durable record from dispatch: the checkpoint vouches for the log beyond its queues. */
static void test_wrong_properties_below_the_durable_end_are_refused_by_name(void) {
    const char *path = scratch("named");
    struct pymq_store_config config = crc_config();
    struct pymq_error error;
    config.replica_gate = true;
    struct pymq_store *store = open_or_die(path, &config);
    pymq_store_set_replica(store, 0, true);
    struct sent sent = send_record(store, "crc", 0, text("durable"), "KEYS\1k\2", 0);
    CHECK_EQ(sent.status, PYMQ_OK);
    CHECK_EQ(pymq_store_flush(store), PYMQ_OK);
    CHECK_EQ(pymq_store_checkpoint(store), PYMQ_OK);
    pymq_store_abandon(store);

    flip(path, sent.end_offset - 22); /* the key */
    CHECK_EQ(pymq_store_open(path, &config, &store, &error), PYMQ_ECORRUPT);
    CHECK(strstr(error.text, PYMQ_RECORD_CRC_NAME) != NULL && strstr(error.text, "does not match") != NULL);
    flip(path, sent.end_offset - 22);
    config.replica_gate = false;
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "crc", 0).max_offset, 1);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static void test_a_record_without_one_is_refused_and_not_cut_when_it_is_demanded(void) {
    const char *path = scratch("demanded");
    struct pymq_store_config config = crc_config();
    struct pymq_store *store;
    struct pymq_error error;
    config.append_record_crc = false;
    config.queue_flush_interval_ms = config.queue_flush_thorough_interval_ms = 3600000;
    store = open_or_die(path, &config);
    struct sent first = put(store, "without", "KEYS\1k\2");
    pymq_store_abandon(store);
    config.append_record_crc = config.require_record_crc = true;
    CHECK_EQ(pymq_store_open(path, &config, &store, &error), PYMQ_EMISMATCH);
    CHECK(strstr(error.text, "forceVerifyPropCRC") != NULL);
    config.require_record_crc = false;
    store = open_or_die(path, &config);
    check_state(store, first.physical_offset, PYMQ_RECORD_CRC_ABSENT);
    pymq_store_abandon(store);
    config.require_record_crc = config.truncate_damaged = true; /* the operator's word */
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "crc", 0).max_offset, 0);
    put(store, "with", "KEYS\1k\2");
    pymq_store_abandon(store);
    config.truncate_damaged = false;
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "crc", 0).max_offset, 1);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

int main(void) {
    RUN(test_the_last_twenty_bytes_are_the_number_least_digit_first);
    RUN(test_every_flipped_bit_is_found_and_a_missing_one_only_when_required);
    RUN(test_a_number_copied_from_another_record_is_replaced);
    RUN(test_properties_leave_room_for_it_or_are_refused);
    RUN(test_bytes_that_are_no_record_are_refused);
    RUN(test_a_batch_carries_one_per_record_and_is_given_its_sizes);
    RUN(test_the_setting_may_change_at_every_kill);
    RUN(test_wrong_properties_below_the_durable_end_are_refused_by_name);
    RUN(test_a_record_without_one_is_refused_and_not_cut_when_it_is_demanded);
    return check_summary();
}
