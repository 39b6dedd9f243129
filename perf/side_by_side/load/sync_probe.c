/* Mode sync-probe: what this disk takes for the bytes of a group commit, with nothing of a broker in the way.
 *
 * A file is allocated ahead as a log file is, and filled front to back: --batch records of --body-size bytes by one
 * pwrite, then fdatasync, again and again. The time of a round is what the senders of one group commit would wait at
 * least. */
#include "modes.h"

#include "bytes.h"
#include "fail.h"
#include "histogram.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PROBE_FILE_SIZE (256LL << 20)

void run_sync_probe(const struct options *options) {
    static struct histogram rounds;
    char path[4096];
    size_t size = options->body_size * options->batch;
    uint8_t *bytes = malloc(size);
    int length = snprintf(path, sizeof path, "%s/sync-probe", options->directory);
    if (bytes == NULL || length < 0 || (size_t)length >= sizeof path)
        fail(EXIT_MACHINE, "no memory for %zu bytes, or the path is too long", size);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        fail(EXIT_MACHINE, "%s cannot be made: %s", path, strerror(errno));
    unlink(path);
    int status = posix_fallocate(fd, 0, PROBE_FILE_SIZE);
    if (status != 0 || fsync(fd) != 0)
        fail(EXIT_MACHINE, "%s cannot be allocated: %s", path, strerror(status != 0 ? status : errno));
    memset(bytes, 'p', size);
    histogram_clear(&rounds);
    int64_t begin_ns = monotonic_ns(), end_ns = begin_ns + (int64_t)(options->duration_s * NS_PER_S), now_ns = begin_ns;
    uint64_t count_max = options->count_max / options->batch;
    for (off_t at = 0; at + (off_t)size <= PROBE_FILE_SIZE && rounds.count < count_max && now_ns < end_ns;
         at += (off_t)size) {
        int64_t before_ns = monotonic_ns();
        if (pwrite(fd, bytes, size, at) != (ssize_t)size || fdatasync(fd) != 0)
            fail(EXIT_MACHINE, "writing %s: %s", path, strerror(errno));
        now_ns = monotonic_ns();
        histogram_add(&rounds, now_ns - before_ns);
    }
    close(fd);
    free(bytes);
    report_begin();
    report_text("mode", "sync-probe");
    report_integer("bytes_per_round", (int64_t)size);
    report_histogram("round_us", &rounds);
    report_end();
}
