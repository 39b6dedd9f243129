/* What a store directory may hold that pymq does not read: found by name and refused before anything is touched.
 *
 * An Apache 5.5.0 broker always makes a few auxiliary directories (rocksdbstore, compaction, timerlog …); those hold
 * no messages that the log does not hold and are left alone.
 */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

#include "store_internal.h"

#define WAY_OUT "move the data with a broker that does, or remove the directory if it is a leftover"

struct foreign {
    const char *name;
    const char *what;
    const char *way_out; /* NULL: the general one */
};

static const struct foreign FOREIGN[] = {
    {"consumequeue_rocksdb", "consume queues in RocksDB (storeType=defaultRocksDB or combineCQ)", NULL},
    {"consumequeue_r", "consume queues in RocksDB (an older storeType=defaultRocksDB)", NULL},
    {"batchconsumequeue", "batch consume queues (queue.type=BatchCQ)", NULL},
    /* Units then hold addresses into these files where a tag's hash, or a delay's due time, belongs. */
    {"consumequeue_ext", "consume-queue extension files (enableConsumeQueueExt=true)",
     "remove this directory and consumequeue/ beside it: the queues are built again from the log, and SQL filters need "
     "no extension here"},
    {"dledger-n0", "a DLedger log (enableDLegerCommitLog=true)", NULL},
};

/* A regular, non-empty file anywhere below. */
static bool holds_data(const char *path, int depth) {
    DIR *stream = opendir(path);
    if (stream == NULL)
        return false;
    bool found = false;
    struct dirent *entry;
    while (!found && (entry = readdir(stream)) != NULL) {
        char child[PYMQ_PATH_MAX];
        struct stat status;
        if (entry->d_name[0] == '.')
            continue;
        int length = snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        if (length < 0 || (size_t)length >= sizeof child || stat(child, &status) != 0)
            continue;
        if (S_ISDIR(status.st_mode))
            found = depth > 0 && holds_data(child, depth - 1);
        else
            found = status.st_size > 0;
    }
    closedir(stream);
    return found;
}

int pymq_layout_check(const char *path, struct pymq_error *error) {
    for (size_t i = 0; i < sizeof FOREIGN / sizeof *FOREIGN; i++) {
        char child[PYMQ_PATH_MAX];
        int length = snprintf(child, sizeof child, "%s/%s", path, FOREIGN[i].name);
        if (length > 0 && (size_t)length < sizeof child && holds_data(child, 3))
            return pymq_fail(error, PYMQ_EUNSUPPORTED, 0, "%s: the store has %s, which pymq does not read; %s", child,
                             FOREIGN[i].what, FOREIGN[i].way_out != NULL ? FOREIGN[i].way_out : WAY_OUT);
    }
    return PYMQ_OK;
}
