/* The failing table itself: it fails what it is told to, exactly as often, counts everything and names the path. */
#include "../../csrc/testing/fault_io.h"
#include "../../csrc/testing/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

static char root[PYMQ_PATH_MAX];

static int create(const char *name) {
    char path[PYMQ_PATH_MAX];
    scratch_join(path, sizeof path, root, name);
    return pymq_io->open(path, O_RDWR | O_CREAT, 0644);
}

static void nth_sync_fails_and_only_that_one(void) {
    int rule = fault_io_add(&(struct fault_rule){FAULT_SYNC, 2, 1, EIO, "a-file"});
    int a = create("a-file");
    int b = create("b-file");
    CHECK(pymq_io->fdatasync(a) == 0 && pymq_io->fdatasync(b) == 0, "early");
    CHECK(pymq_io->fsync(b) == 0, "another file");
    CHECK(pymq_io->fsync(a) == -1 && errno == EIO, "the second on a must fail");
    CHECK(pymq_io->fsync(a) == 0, "the third works again");
    CHECK(fault_io_hits(rule) == 1 && fault_io_count(FAULT_SYNC) == 5, "counts");
    char path[PYMQ_PATH_MAX];
    fault_io_last_path(path, sizeof path);
    CHECK(strstr(path, "a-file") != NULL, "path %s", path);
    CHECK(pymq_io_sync_directory(root) == PYMQ_OK && fault_io_count(FAULT_SYNC_DIRECTORY) == 1, "directories apart");
    fault_io_clear();
    pymq_io->close(a);
    pymq_io->close(b);
}

static void short_and_interrupted_transfers_are_completed_by_the_loops(void) {
    uint8_t source[100], target[100];
    int fd = create("c-file");
    memset(source, 7, sizeof source);
    fault_io_add(&(struct fault_rule){FAULT_PWRITE, 1, 3, 0, NULL});
    fault_io_add(&(struct fault_rule){FAULT_PWRITE, 4, 1, EINTR, NULL});
    fault_io_add(&(struct fault_rule){FAULT_PREAD, 1, 2, 0, NULL});
    fault_io_add(&(struct fault_rule){FAULT_PREAD, 3, 1, EINTR, NULL});
    CHECK(pymq_io_pwrite_full(fd, source, sizeof source, 0) == PYMQ_OK, "write");
    CHECK(pymq_io_pread_full(fd, target, sizeof target, 0) == sizeof target, "read");
    CHECK(memcmp(source, target, sizeof source) == 0, "content");
    fault_io_clear();
    fault_io_add(&(struct fault_rule){FAULT_PWRITE, 1, FAULT_FOREVER, ENOSPC, NULL});
    CHECK(pymq_io_pwrite_full(fd, source, sizeof source, 0) == PYMQ_ENOSPC, "full");
    fault_io_clear();
    pymq_io->close(fd);
}

static void refusals_of_memory_calls_and_leaks_are_seen(void) {
    int fd = create("d-file");
    CHECK(pymq_io->fallocate(fd, 0, 4096) == 0, "fallocate");
    fault_io_add(&(struct fault_rule){FAULT_MMAP, 1, 1, ENOMEM, NULL});
    fault_io_add(&(struct fault_rule){FAULT_MLOCK, 1, FAULT_FOREVER, EPERM, NULL});
    fault_io_add(&(struct fault_rule){FAULT_FALLOCATE, 1, 1, ENOSPC, NULL});
    CHECK(pymq_io->mmap(4096, PROT_READ, fd, 0) == MAP_FAILED && errno == ENOMEM, "mmap");
    void *map = pymq_io->mmap(4096, PROT_READ, fd, 0);
    CHECK(map != MAP_FAILED, "second mmap");
    CHECK(pymq_io->mlock(map, 4096) == -1 && errno == EPERM, "mlock");
    CHECK(pymq_io->fallocate(fd, 0, 8192) == ENOSPC, "fallocate returns the errno");
    CHECK(fault_io_open_mappings() == 1 && fault_io_open_descriptors() == 1, "one of each is open");
    pymq_io->munmap(map, 4096);
    pymq_io->close(fd);
    CHECK(fault_io_open_mappings() == 0 && fault_io_open_descriptors() == 0, "nothing is open");
    fault_io_clear();
}

static void delayed_sync_takes_at_least_the_delay(void) {
    int fd = create("e-file");
    fault_io_delay_sync(3000);
    int64_t begin_us = monotonic_us();
    CHECK(pymq_io->fdatasync(fd) == 0, "sync");
    CHECK(monotonic_us() - begin_us >= 3000, "returned early");
    fault_io_delay_sync(0);
    pymq_io->close(fd);
}

int main(void) {
    scratch_make(root, sizeof root, "fault-io");
    fault_io_start(NULL);
    nth_sync_fails_and_only_that_one();
    short_and_interrupted_transfers_are_completed_by_the_loops();
    refusals_of_memory_calls_and_leaks_are_seen();
    delayed_sync_takes_at_least_the_delay();
    fault_io_stop();
    scratch_remove(root);
    printf("test_fault_io: ok\n");
    return 0;
}
