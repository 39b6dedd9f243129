/* Bit flips (R4): one bit of one file of a store is turned over, and the store is opened. It may refuse, naming the
 * file; it may lose what the bit destroyed; it may not crash, hang, or deliver a wrong body.
 *
 * Every kind of file in turn: log, queue, index, checkpoint, abort, lock; half of the time after a clean stop, half
 * after a kill; half of it with a CRC over every record, when nothing that recovery has read may be wrong in any bit.
 * By default a sample of PYMQ_FLIPS (1,200) over all kinds, drawn from the seed; with PYMQ_FULL=1 every bit of the
 * first 4 KiB of each kind of file, then RANDOM_FLIPS of each kind, both without and with the CRC.
 */
#include "../../csrc/testing/message_content.h"
#include "../../csrc/testing/message_model.h"
#include "../../csrc/testing/random.h"
#include "../../csrc/testing/scratch.h"
#include "../../csrc/testing/small_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define MESSAGES 40
#define FLIPS_DEFAULT 1200
#define RANDOM_FLIPS 10000
#define FIRST_BYTES 4096
#define QUEUES_MAX 64
#define UNITS_MAX 64
#define NEVER_MS 3600000 /* one checkpoint, in the middle: the second half is dispatched again after the kill */
#define HANG_S 60        /* of one open and read of a store of 40 messages */

static const char *const kinds[] = {"commitlog", "consumequeue/TopicA/0", "index", "checkpoint", "abort", "lock"};
#define KINDS (sizeof kinds / sizeof kinds[0])

static struct pymq_store_config config;
static struct message_model model;
static struct test_random random_source;
static char root[PYMQ_PATH_MAX], bases[2][PYMQ_PATH_MAX], flipped[PYMQ_PATH_MAX];
static char what[192]; /* the flip at hand */
static int64_t proved_from; /* records from here on are proved by their own CRC; INT64_MAX when they are not */
static uint64_t flips, refused, damaged, harmless, bodies;

static void make_base(const char *path, bool clean) {
    struct pymq_store *store = small_store_open(path, &config);
    message_model_rewind(&model, 0);
    for (int i = 0; i < MESSAGES; i++) {
        int status = message_model_send(&model, store, (uint8_t)(i % 3), (uint8_t)(i % 2), 40 + (uint32_t)i * 20, true);
        CHECK(status == PYMQ_OK, "send: %s", pymq_status_name(status));
        if (i == MESSAGES / 2)
            CHECK(pymq_store_checkpoint(store) == PYMQ_OK, "checkpoint");
    }
    CHECK(pymq_store_wait_dispatched(store, 10000) == PYMQ_OK, "dispatch");
    if (clean)
        CHECK(pymq_store_close(store) == PYMQ_OK, "close");
    else
        pymq_store_abandon(store);
}

/* The body is the one of the id it carries, in the record and through it in the index. CRC checked as a client does. */
static void check_span(const struct pymq_span *span, int64_t offset) {
    struct pymq_record record;
    ssize_t size = pymq_record_decode(span->data, span->size, PYMQ_CHECK_BODY_CRC, 0, &record);
    if (size <= 0) {
        damaged++; /* seen: a reader gets an error, not a message */
        return;
    }
    CHECK(offset < proved_from || pymq_record_crc_state(span->data, &record) == PYMQ_RECORD_CRC_MATCHES,
          "%s: a record at %lld whose CRC is missing or wrong", what, (long long)offset);
    CHECK(record.body.size >= MODEL_BODY_SIZE_MIN, "%s: a body of %u bytes", what, record.body.size);
    uint64_t id = pymq_load_be64(record.body.data);
    CHECK(id < MESSAGES, "%s: message %llu was never sent", what, (unsigned long long)id);
    uint8_t *body = malloc(model.messages[id].body_size);
    CHECK(body != NULL, "out of memory");
    model_body(&model.messages[id], (uint32_t)id, body);
    CHECK(record.body.size == model.messages[id].body_size && memcmp(record.body.data, body, record.body.size) == 0,
          "%s: message %llu has a wrong body", what, (unsigned long long)id);
    free(body);
    bodies++;
}

static void read_queues(struct pymq_store *store) {
    struct pymq_queue *queues[QUEUES_MAX];
    size_t count = pymq_store_queues(store, queues, QUEUES_MAX);
    for (size_t q = 0; q < count && q < QUEUES_MAX; q++) {
        struct pymq_queue_info info;
        struct pymq_cq_unit units[UNITS_MAX];
        pymq_queue_info(queues[q], &info);
        ssize_t got = pymq_queue_units(store, queues[q], info.min_offset, units, UNITS_MAX);
        for (ssize_t i = 0; i < got; i++) {
            struct pymq_span span;
            if (pymq_store_record(store, units[i].physical_offset, (uint32_t)units[i].size, &span) != PYMQ_OK) {
                damaged++;
                continue;
            }
            check_span(&span, units[i].physical_offset);
            pymq_span_release(store, &span);
        }
    }
}

static void read_index(struct pymq_store *store) {
    for (uint32_t id = 0; id < MESSAGES; id += 3) {
        char key[MODEL_KEY_MAX];
        int64_t offsets[8];
        const char *topic = model_topic(model.messages[id].topic);
        model_own_key(id, key);
        ssize_t got = pymq_store_query(store, (const uint8_t *)topic, strlen(topic), (const uint8_t *)key, strlen(key),
                                       0, INT64_MAX, offsets, 8);
        for (ssize_t i = 0; i < got; i++) {
            struct pymq_span span;
            CHECK(pymq_store_record(store, offsets[i], 0, &span) == PYMQ_OK, "%s: key %s leads nowhere", what, key);
            struct pymq_record record;
            CHECK(pymq_record_decode(span.data, span.size, PYMQ_CHECK_BODY_CRC, 0, &record) <= 0 ||
                      pymq_load_be64(record.body.data) == id,
                  "%s: key %s leads to another message", what, key);
            check_span(&span, offsets[i]);
            pymq_span_release(store, &span);
        }
    }
}

/* Name of the k-th regular file below kinds[kind] in sorted order, 0 being the first; false when there is none. */
static bool name_file(const char *store_path, size_t kind, uint64_t drawn, char *path, size_t capacity) {
    struct stat found;
    struct dirent **entries = NULL;
    scratch_join(path, capacity, store_path, kinds[kind]);
    if (stat(path, &found) != 0)
        return false;
    if (S_ISREG(found.st_mode))
        return found.st_size > 0;
    char directory[PYMQ_PATH_MAX];
    memcpy(directory, path, strlen(path) + 1);
    int count = scandir(directory, &entries, NULL, alphasort);
    CHECK(count > 2, "no file in %s", directory);
    scratch_join(path, capacity, directory, entries[2 + drawn % (uint64_t)(count - 2)]->d_name); /* after . and .. */
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return stat(path, &found) == 0 && found.st_size > 0;
}

static void report_hang(int number) {
    (void)number;
    check_failed(__FILE__, __LINE__, "%s: no end after %d s", what, HANG_S);
}

/* Flip bit `bit` (taken modulo the file's size) of a file of this kind and open. */
static void flip(size_t kind, uint64_t file, uint64_t bit, bool clean) {
    char path[PYMQ_PATH_MAX];
    struct stat found;
    uint8_t byte;
    scratch_copy(bases[clean ? 1 : 0], flipped);
    if (!name_file(flipped, kind, file, path, sizeof path)) {
        scratch_remove(flipped); /* `abort` after a clean stop, an empty `lock`: nothing to flip */
        return;
    }
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && fstat(fd, &found) == 0, "open %s", path);
    bit %= (uint64_t)found.st_size * 8;
    CHECK(pread(fd, &byte, 1, (off_t)(bit / 8)) == 1, "read %s", path);
    byte ^= (uint8_t)(1u << (bit % 8));
    CHECK(pwrite(fd, &byte, 1, (off_t)(bit / 8)) == 1, "write %s", path);
    close(fd);
    snprintf(what, sizeof what, "bit %llu of %s, file %llu, after a %s%s", (unsigned long long)bit, kinds[kind],
             (unsigned long long)file, clean ? "clean stop" : "kill", model.record_crc ? ", with CRCs" : "");
    /* After a kill recovery reads what follows the checkpoint, if `abort` tells it that there are CRCs. */
    const struct model_message *middle = &model.messages[MESSAGES / 2];
    bool proved = model.record_crc && !clean && strcmp(kinds[kind], "abort") != 0;
    proved_from = proved ? middle->physical_offset + middle->size : INT64_MAX;
    flips++;
    struct pymq_store *store = NULL;
    struct pymq_error error = {0};
    uint64_t damaged_before = damaged;
    alarm(HANG_S);
    if (pymq_store_open(flipped, &config, &store, &error) != PYMQ_OK) {
        CHECK(strlen(error.text) > 0, "%s: refused without a reason", what);
        refused++;
    } else {
        pymq_store_wait_dispatched(store, 2000); /* a store that found the damage stops there: read what there is */
        read_queues(store);
        read_index(store);
        pymq_store_abandon(store);
        harmless += damaged == damaged_before;
    }
    alarm(0);
    scratch_remove(flipped);
}

static void flip_all(bool record_crc, bool full, int64_t sample) {
    small_store_config(&config, PYMQ_SYNC_FLUSH);
    config.queue_flush_interval_ms = config.queue_flush_thorough_interval_ms = NEVER_MS;
    config.append_record_crc = record_crc;
    message_model_open(&model, MESSAGES, &config);
    make_base(bases[0], false);
    make_base(bases[1], true);
    /* What no checksum covers by default and recovery builds on: every bit of the last record's queue id, offsets and
     * flags. */
    const struct model_message *last = &model.messages[MESSAGES - 1];
    uint64_t last_file = (uint64_t)(last->physical_offset / config.log_file_size);
    uint64_t last_bit = (uint64_t)(last->physical_offset % config.log_file_size) * 8;
    for (uint64_t bit = 0; bit < PYMQ_RECORD_BORN_HOST_AT * 8; bit++)
        flip(0, last_file, last_bit + bit, false);
    for (uint64_t bit = PYMQ_RECORD_BORN_HOST_AT * 8; record_crc && bit < last->size * UINT64_C(8); bit += full ? 1 : 7)
        flip(0, last_file, last_bit + bit, false);
    for (uint64_t bit = 0; full && bit < FIRST_BYTES * 8; bit++)
        for (size_t kind = 0; kind < KINDS; kind++)
            flip(kind, 0, bit, (bit / 8 + kind) % 2 == 0);
    for (int64_t i = 0; i < sample; i++) {
        /* Headers are where structure is: every other draw stays in the first 512 bytes. */
        uint64_t bit = i % 2 == 0 ? test_random_below(&random_source, 512 * 8) : test_random_next(&random_source) >> 1;
        flip((size_t)i / 2 % KINDS, test_random_below(&random_source, 8), bit, test_random_chance(&random_source, 50));
    }
    message_model_close(&model);
    scratch_remove(bases[0]);
    scratch_remove(bases[1]);
}

int main(void) {
    random_source.state = environment_seed("test_crash_bit_flips");
    int64_t sample = environment_integer("PYMQ_FLIPS", FLIPS_DEFAULT) / 2;
    bool full = environment_integer("PYMQ_FULL", 0) != 0;
    if (full)
        sample = RANDOM_FLIPS * (int64_t)KINDS;
    scratch_make_in_memory(root, sizeof root, "bit-flips");
    scratch_join(bases[0], sizeof bases[0], root, "killed");
    scratch_join(bases[1], sizeof bases[1], root, "clean");
    scratch_join(flipped, sizeof flipped, root, "flipped");
    signal(SIGALRM, report_hang);
    pymq_io_use(&pymq_io_unsynced);
    flip_all(false, full, sample);
    flip_all(true, full, sample);
    pymq_io_use(NULL);
    scratch_remove(root);
    printf("test_crash_bit_flips: %llu flips: %llu refused at open, %llu harmless, %llu bad records met and reported, "
           "%llu bodies read and right: ok\n",
           (unsigned long long)flips, (unsigned long long)refused, (unsigned long long)harmless,
           (unsigned long long)damaged, (unsigned long long)bodies);
    return 0;
}
