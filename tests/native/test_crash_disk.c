/* The crash disk itself, on small hand-made workloads: what is durable never changes, what is not takes every value
 * it may, and nothing else is ever found. */
#include "../../csrc/testing/crash_disk.h"
#include "../../csrc/testing/scratch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DRAWS 400
#define PAGE 4096
#define SECTOR 512

static char root[PYMQ_PATH_MAX];
static char state[PYMQ_PATH_MAX];
static struct test_random random_source;

static int create(const char *name) {
    char path[PYMQ_PATH_MAX];
    scratch_join(path, sizeof path, root, name);
    int fd = pymq_io->open(path, O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0, "cannot create %s", path);
    return fd;
}

static void fill(int fd, uint8_t byte, size_t size, off_t offset) {
    uint8_t bytes[2 * PAGE];
    memset(bytes, byte, size);
    CHECK(pymq_io_pwrite_full(fd, bytes, size, offset) == PYMQ_OK, "pwrite");
}

/* The file's content in the disk just drawn: its size, or -1 when it is not there. */
static ssize_t read_state(const char *name, uint8_t *content, size_t capacity) {
    char path[PYMQ_PATH_MAX];
    scratch_join(path, sizeof path, state, name);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return -1;
    ssize_t size = read(fd, content, capacity);
    close(fd);
    return size;
}

static void draw(const struct crash_image *image, int number) {
    scratch_remove(state);
    crash_image_write(image, (enum crash_style)(number % CRASH_STYLES), &random_source, state);
}

static void begin(void) {
    scratch_make(root, sizeof root, "crash-disk");
    crash_disk_start(root, NULL, NULL);
}

static void end(void) {
    crash_disk_stop();
    scratch_remove(root);
}

static void unsynced_file_may_be_absent_empty_or_in_part(void) {
    uint8_t content[4 * PAGE];
    int absent = 0, empty = 0, part = 0, whole = 0;
    begin();
    int fd = create("a");
    fill(fd, 1, 2 * PAGE, 0);
    struct crash_image *image = crash_disk_image(false);
    for (int i = 0; i < DRAWS; i++) {
        draw(image, i);
        ssize_t size = read_state("a", content, sizeof content);
        CHECK(size == -1 || size == 0 || size == 2 * PAGE, "size %zd", size);
        bool full = size == 2 * PAGE && content[0] == 1 && content[PAGE] == 1;
        absent += size == -1;
        empty += size == 0;
        whole += full;
        part += size == 2 * PAGE && !full;
    }
    CHECK(absent > 0 && empty > 0 && part > 0 && whole > 0, "%d %d %d %d", absent, empty, part, whole);
    crash_image_free(image);
    pymq_io->close(fd);
    end();
}

static void synced_file_in_synced_directory_is_always_whole(void) {
    uint8_t content[4 * PAGE];
    begin();
    int fd = create("a");
    fill(fd, 1, 2 * PAGE, 0);
    CHECK(pymq_io->fdatasync(fd) == 0 && pymq_io_sync_directory(root) == PYMQ_OK, "sync");
    struct crash_image *image = crash_disk_image(false);
    CHECK(crash_image_choices(image) == 0, "%zu choices left", crash_image_choices(image));
    for (int i = 0; i < CRASH_STYLES; i++) {
        draw(image, i);
        CHECK(read_state("a", content, sizeof content) == 2 * PAGE, "size");
        CHECK(content[0] == 1 && content[2 * PAGE - 1] == 1, "content");
    }
    crash_image_free(image);
    pymq_io->close(fd);
    end();
}

static void file_below_an_unsynced_directory_may_vanish(void) {
    uint8_t content[PAGE];
    char path[PYMQ_PATH_MAX];
    int absent = 0, there = 0;
    begin();
    scratch_join(path, sizeof path, root, "d");
    CHECK(pymq_io->mkdir(path, 0755) == 0, "mkdir");
    int fd = create("d/a");
    fill(fd, 1, PAGE, 0);
    CHECK(pymq_io->fsync(fd) == 0 && pymq_io_sync_directory(path) == PYMQ_OK, "sync"); /* d itself is not */
    struct crash_image *image = crash_disk_image(false);
    for (int i = 0; i < DRAWS; i++) {
        draw(image, i);
        ssize_t size = read_state("d/a", content, sizeof content);
        CHECK(size == -1 || (size == PAGE && content[0] == 1), "size %zd", size);
        absent += size == -1;
        there += size != -1;
    }
    CHECK(absent > 0 && there > 0, "%d %d", absent, there);
    crash_image_free(image);
    pymq_io->close(fd);
    end();
}

static void mapped_stores_are_seen_torn_by_sectors_and_in_between_versions(void) {
    uint8_t content[PAGE];
    int versions[4] = {0}, torn = 0;
    begin();
    int fd = create("a");
    CHECK(pymq_io->fallocate(fd, 0, PAGE) == 0, "fallocate");
    uint8_t *map = pymq_io->mmap(PAGE, PROT_READ | PROT_WRITE, fd, 0);
    CHECK(map != MAP_FAILED, "mmap");
    memset(map, 1, PAGE);
    CHECK(pymq_io->fdatasync(fd) == 0 && pymq_io_sync_directory(root) == PYMQ_OK, "sync");
    memset(map, 2, PAGE);
    crash_disk_sample();
    memset(map, 3, PAGE);
    struct crash_image *image = crash_disk_image(false);
    for (int i = 0; i < DRAWS; i++) {
        draw(image, i);
        CHECK(read_state("a", content, sizeof content) == PAGE, "size");
        for (size_t at = 0; at < PAGE; at++)
            CHECK(content[at] >= 1 && content[at] <= 3 && content[at] == content[at - at % SECTOR], "byte %zu", at);
        if (memcmp(content, content + SECTOR, PAGE - SECTOR) == 0)
            versions[content[0]]++;
        else
            torn++;
    }
    CHECK(versions[1] > 0 && versions[2] > 0 && versions[3] > 0 && torn > 0, "%d %d %d %d", versions[1], versions[2],
          versions[3], torn);
    CHECK(crash_disk_unallocated_writes() == 0, "an allocated page was counted");
    crash_image_free(image);
    pymq_io->munmap(map, PAGE);
    pymq_io->close(fd);
    end();
}

static void store_into_a_hole_is_counted(void) {
    begin();
    int fd = create("a");
    CHECK(pymq_io->ftruncate(fd, 2 * PAGE) == 0, "ftruncate");
    uint8_t *map = pymq_io->mmap(2 * PAGE, PROT_READ | PROT_WRITE, fd, 0);
    map[PAGE] = 1;
    crash_disk_sample();
    CHECK(crash_disk_unallocated_writes() == 1, "%llu", (unsigned long long)crash_disk_unallocated_writes());
    pymq_io->munmap(map, 2 * PAGE);
    pymq_io->close(fd);
    end();
}

static void truncated_bytes_do_not_return_beside_the_later_size(void) {
    uint8_t content[4 * PAGE];
    begin();
    int fd = create("a");
    fill(fd, 1, 2 * PAGE, 0);
    CHECK(pymq_io->fsync(fd) == 0 && pymq_io_sync_directory(root) == PYMQ_OK, "sync");
    CHECK(pymq_io->ftruncate(fd, PAGE) == 0 && pymq_io->fallocate(fd, 0, 3 * PAGE) == 0, "resize");
    struct crash_image *image = crash_disk_image(false);
    for (int i = 0; i < DRAWS; i++) {
        draw(image, i);
        ssize_t size = read_state("a", content, sizeof content);
        CHECK(size == PAGE || size == 2 * PAGE || size == 3 * PAGE, "size %zd", size);
        CHECK(content[0] == 1, "the first page was durable");
        CHECK(size != 2 * PAGE || content[PAGE] == 1, "the old size has the old bytes");
        CHECK(size != 3 * PAGE || content[PAGE] == 0, "the new size has no old bytes");
    }
    crash_image_free(image);
    pymq_io->close(fd);
    end();
}

static void replaced_file_is_old_or_new_never_else(void) {
    uint8_t content[PAGE];
    char path[PYMQ_PATH_MAX];
    int old_found = 0, new_found = 0;
    struct crash_image *images[64];
    begin();
    scratch_join(path, sizeof path, root, "checkpoint");
    int old = create("checkpoint");
    CHECK(pymq_io_pwrite_full(old, "old!", 4, 0) == PYMQ_OK && pymq_io->fsync(old) == 0, "write");
    pymq_io->close(old);
    CHECK(pymq_io_sync_directory(root) == PYMQ_OK, "sync");
    size_t count = 0;
    images[count++] = crash_disk_image(false);
    int fd = create("checkpoint.tmp");
    CHECK(pymq_io_pwrite_full(fd, "new", 3, 0) == PYMQ_OK && pymq_io->fsync(fd) == 0, "write");
    pymq_io->close(fd);
    images[count++] = crash_disk_image(false);
    char temporary[PYMQ_PATH_MAX];
    scratch_join(temporary, sizeof temporary, root, "checkpoint.tmp");
    CHECK(pymq_io->rename(temporary, path) == 0, "rename");
    images[count++] = crash_disk_image(false);
    CHECK(pymq_io_sync_directory(root) == PYMQ_OK, "sync");
    images[count++] = crash_disk_image(false);
    for (size_t n = 0; n < count; n++) {
        for (int i = 0; i < DRAWS / 4; i++) {
            draw(images[n], i);
            ssize_t size = read_state("checkpoint", content, sizeof content);
            bool is_old = size == 4 && memcmp(content, "old!", 4) == 0;
            bool is_new = size == 3 && memcmp(content, "new", 3) == 0;
            CHECK(is_old || is_new, "neither: size %zd", size);
            CHECK(n != 3 || is_new, "old after the directory was synced");
            old_found += is_old;
            new_found += is_new;
        }
        crash_image_free(images[n]);
    }
    CHECK(old_found > 0 && new_found > 0, "%d %d", old_found, new_found);
    end();
}

static int before_count, after_count, barrier_count;

static void count_events(void *context, const struct crash_event *event) {
    (void)context;
    before_count += event->moment == CRASH_BEFORE;
    after_count += event->moment == CRASH_AFTER;
    barrier_count += event->barrier;
    crash_image_free(crash_disk_image(true));
}

static void hook_sees_both_sides_of_every_event(void) {
    scratch_make(root, sizeof root, "crash-disk");
    crash_disk_start(root, count_events, NULL);
    int fd = create("a");
    fill(fd, 1, 10, 0);
    CHECK(pymq_io->fsync(fd) == 0, "fsync");
    pymq_io->close(fd);
    CHECK(before_count == 3 && after_count == 3 && barrier_count == 2, "%d %d %d", before_count, after_count,
          barrier_count);
    CHECK(crash_disk_event_count() == 3, "events");
    end();
}

int main(void) {
    random_source.state = environment_seed("test_crash_disk");
    scratch_make(state, sizeof state, "crash-state");
    unsynced_file_may_be_absent_empty_or_in_part();
    synced_file_in_synced_directory_is_always_whole();
    file_below_an_unsynced_directory_may_vanish();
    mapped_stores_are_seen_torn_by_sectors_and_in_between_versions();
    store_into_a_hole_is_counted();
    truncated_bytes_do_not_return_beside_the_later_size();
    replaced_file_is_old_or_new_never_else();
    hook_sees_both_sides_of_every_event();
    scratch_remove(state);
    printf("test_crash_disk: ok\n");
    return 0;
}
