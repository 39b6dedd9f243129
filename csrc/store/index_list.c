/* The list of index files: references to its entries, opening a directory, closing.
 *
 * Locks and ownership are described in index_file.h. No system call is made under list_lock.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "index_file.h"
#include "pymq/io.h"

#define FILE_CAPACITY_FIRST 16

/* ---- references and the list ---------------------------------------------------------------------------- */

void pymq_index_file_release(struct pymq_index *index, struct index_file *file) {
    struct index_file let_go = {.fd = -1};
    bool freed = false;
    pthread_mutex_lock(&index->list_lock);
    file->references--;
    if (file->references == 0 && (file->settled || file->removed)) {
        let_go.map = file->map;
        let_go.fd = file->fd;
        file->map = NULL;
        file->fd = -1;
        freed = file->removed;
    }
    pthread_mutex_unlock(&index->list_lock);
    pymq_index_file_detach(&let_go, &index->layout); /* outside the lock: unmapping a large file takes its time */
    if (freed)
        free(file);
}

struct index_file *pymq_index_file_before(struct pymq_index *index, uint64_t sequence) {
    struct index_file *found = NULL;
    pthread_mutex_lock(&index->list_lock);
    for (int32_t i = index->file_count; i > 0 && found == NULL; i--) {
        if (index->files[i - 1]->sequence < sequence)
            found = index->files[i - 1];
    }
    if (found != NULL)
        found->references++;
    pthread_mutex_unlock(&index->list_lock);
    return found;
}

struct index_file *pymq_index_file_unsettled(struct pymq_index *index, uint64_t from, uint64_t to) {
    struct index_file *found = NULL;
    pthread_mutex_lock(&index->list_lock);
    for (int32_t i = 0; i < index->file_count && found == NULL; i++) {
        struct index_file *file = index->files[i];
        if (!file->settled && file->sequence >= from && file->sequence <= to)
            found = file;
    }
    if (found != NULL)
        found->references++;
    pthread_mutex_unlock(&index->list_lock);
    return found;
}

int32_t pymq_index_count_unsettled(struct pymq_index *index) {
    int32_t count = 0;
    pthread_mutex_lock(&index->list_lock);
    while (count < index->file_count && !index->files[index->file_count - 1 - count]->settled)
        count++;
    pthread_mutex_unlock(&index->list_lock);
    return count;
}

int pymq_index_list_reserve(struct pymq_index *index) {
    int status = PYMQ_OK;
    pthread_mutex_lock(&index->list_lock);
    if (index->file_count == index->file_capacity) {
        int32_t capacity = index->file_capacity == 0 ? FILE_CAPACITY_FIRST : index->file_capacity * 2;
        struct index_file **files = realloc(index->files, (size_t)capacity * sizeof *files);
        if (files != NULL) {
            index->files = files;
            index->file_capacity = capacity;
        } else {
            errno = ENOMEM;
            status = PYMQ_ENOMEM;
        }
    }
    pthread_mutex_unlock(&index->list_lock);
    return status;
}

void pymq_index_list_append(struct pymq_index *index, struct index_file *file) {
    file->sequence = index->sequence_next++;
    pthread_mutex_lock(&index->list_lock);
    index->files[index->file_count++] = file;
    pthread_mutex_unlock(&index->list_lock);
    index->writer_file = file;
    memcpy(index->name_last, file->name, sizeof index->name_last);
}

int pymq_index_list_remove(struct pymq_index *index, struct index_file *file) {
    char path[PYMQ_PATH_MAX];
    int status = pymq_index_file_path(index->directory, file->name, path);
    if (status != PYMQ_OK)
        return status;
    pthread_mutex_lock(&index->list_lock);
    file->references++;
    pthread_mutex_unlock(&index->list_lock);
    /* First the name, then the entry: a file that cannot be unlinked stays known. */
    if (pymq_io->unlink(path) != 0 && errno != ENOENT) {
        int saved = errno;
        pymq_index_file_release(index, file);
        errno = saved;
        return PYMQ_EIO;
    }
    pthread_mutex_lock(&index->list_lock);
    index->directory_dirty = true;
    for (int32_t i = 0; i < index->file_count; i++) {
        if (index->files[i] == file) {
            index->file_count--;
            memmove(index->files + i, index->files + i + 1, (size_t)(index->file_count - i) * sizeof *index->files);
            file->removed = true;
            break;
        }
    }
    pthread_mutex_unlock(&index->list_lock);
    pymq_index_file_release(index, file);
    return PYMQ_OK;
}

/* ---- open and close ------------------------------------------------------------------------------------- */

/* Whether a file that is too short never held an item: the header is missing or says so. */
static bool is_unborn(const struct pymq_index *index, const char *name) {
    struct index_file *file = NULL;
    int status = pymq_index_file_load(index->directory, &index->layout, name, &file);
    bool unborn = status == PYMQ_ETRUNCATED;
    if (status == PYMQ_OK) {
        unborn = atomic_load_explicit(&file->item_count, memory_order_relaxed) <= PYMQ_INDEX_ITEM_FIRST;
        free(file);
    }
    return unborn;
}

/* Take one file of the directory into the list. */
static int open_file(struct pymq_index *index, const char *name, bool last, struct pymq_error *error) {
    char path[PYMQ_PATH_MAX];
    struct stat found;
    if (pymq_index_file_path(index->directory, name, path) != PYMQ_OK || stat(path, &found) != 0)
        return pymq_fail(error, PYMQ_EIO, errno, "index file %s/%s: %s", index->directory, name, strerror(errno));
    if (found.st_size != index->layout.file_size) {
        /* An empty file anywhere, or a short last one: its size never reached the disk, so nothing in it was ever
         * vouched for by a checkpoint. */
        if ((last || found.st_size == 0) && found.st_size < index->layout.file_size && is_unborn(index, name)) {
            if (pymq_io->unlink(path) != 0 || pymq_io_sync_directory(index->directory) != PYMQ_OK)
                return pymq_fail(error, PYMQ_EIO, errno, "index file %s: left by a crash during its creation and "
                                 "cannot be removed: %s", path, strerror(errno));
            return PYMQ_OK;
        }
        return pymq_fail(error, PYMQ_EMISMATCH, 0,
                         "index file %s has %lld bytes, but maxHashSlotNum=%d and maxIndexNum=%d make files of %lld: "
                         "open the store with the settings it was written with",
                         path, (long long)found.st_size, index->layout.slot_count, index->layout.item_limit,
                         (long long)index->layout.file_size);
    }
    struct index_file *file = NULL;
    int status = pymq_index_list_reserve(index);
    if (status == PYMQ_OK)
        status = pymq_index_file_load(index->directory, &index->layout, name, &file);
    if (status != PYMQ_OK)
        return pymq_fail(error, status, errno, "index file %s: %s", path, strerror(errno));
    file->settled = !last || index_file_is_full(file, &index->layout);
    if (!file->settled) {
        status = pymq_index_file_attach(file, &index->layout, index->directory);
        if (status != PYMQ_OK) {
            free(file);
            return pymq_fail(error, status, errno, "index file %s cannot be mapped: %s", path, strerror(errno));
        }
    }
    pymq_index_list_append(index, file);
    return PYMQ_OK;
}

static int keep_all(const struct dirent *entry) { return strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."); }

static int compare_names(const void *left, const void *right) {
    const struct dirent *const *a = left;
    const struct dirent *const *b = right;
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool is_index_file(const struct pymq_index *index, const char *name) {
    char path[PYMQ_PATH_MAX];
    struct stat found;
    return pymq_index_name_is_valid(name) && pymq_index_file_path(index->directory, name, path) == PYMQ_OK &&
           stat(path, &found) == 0 && S_ISREG(found.st_mode);
}

static int open_directory(struct pymq_index *index, struct pymq_error *error) {
    struct dirent **entries = NULL;
    if (pymq_io_make_directories(index->directory, true) != PYMQ_OK)
        return pymq_fail(error, PYMQ_EIO, errno, "index directory %s: %s", index->directory, strerror(errno));
    int count = scandir(index->directory, &entries, keep_all, NULL);
    if (count < 0)
        return pymq_fail(error, PYMQ_EIO, errno, "index directory %s: %s", index->directory, strerror(errno));
    int kept = 0;
    const char *stray = NULL;
    int stray_count = 0;
    for (int i = 0; i < count; i++) { /* ours to the front */
        struct dirent *entry = entries[i];
        if (is_index_file(index, entry->d_name)) {
            entries[i] = entries[kept];
            entries[kept++] = entry;
        } else {
            stray = entry->d_name;
            stray_count++;
        }
    }
    if (kept > 0)
        qsort(entries, (size_t)kept, sizeof *entries, compare_names);
    int status = PYMQ_OK;
    for (int i = 0; i < kept && status == PYMQ_OK; i++)
        status = open_file(index, entries[i]->d_name, i == kept - 1, error);
    if (status == PYMQ_OK && stray != NULL)
        pymq_fail(error, PYMQ_OK, 0, "index directory %s: %d entries are no index files and are left alone, as %s",
                  index->directory, stray_count, stray);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return status;
}

int pymq_index_open(const char *directory, int32_t slot_count, int32_t item_count, struct pymq_index **index,
                    struct pymq_error *error) {
    *index = NULL;
    pymq_fail(error, PYMQ_OK, 0, "%s", "");
    if (slot_count < 1 || item_count <= PYMQ_INDEX_ITEM_FIRST)
        return pymq_fail(error, PYMQ_EINVAL, 0, "maxHashSlotNum=%d must be at least 1, maxIndexNum=%d at least 2",
                         slot_count, item_count);
    struct pymq_index *made = calloc(1, sizeof *made);
    char *copy = strdup(directory);
    if (made == NULL || copy == NULL) {
        free(made);
        free(copy);
        return pymq_fail(error, PYMQ_ENOMEM, ENOMEM, "index directory %s: no memory", directory);
    }
    made->directory = copy;
    made->layout.slot_count = slot_count;
    made->layout.item_limit = item_count;
    made->layout.items_at = PYMQ_INDEX_HEADER_SIZE + (int64_t)slot_count * PYMQ_INDEX_SLOT_SIZE;
    made->layout.file_size = made->layout.items_at + (int64_t)item_count * PYMQ_INDEX_ITEM_SIZE;
    made->resume_offset = -1;
    pthread_mutex_init(&made->list_lock, NULL);
    pthread_mutex_init(&made->flush_lock, NULL);
    int status = open_directory(made, error);
    if (status != PYMQ_OK) {
        pymq_index_abandon(made);
        return status;
    }
    *index = made;
    return PYMQ_OK;
}

void pymq_index_abandon(struct pymq_index *index) {
    if (index == NULL)
        return;
    for (int32_t i = 0; i < index->file_count; i++) {
        pymq_index_file_detach(index->files[i], &index->layout);
        free(index->files[i]);
    }
    pthread_mutex_destroy(&index->list_lock);
    pthread_mutex_destroy(&index->flush_lock);
    free(index->files);
    free(index->directory);
    free(index);
}

int pymq_index_close(struct pymq_index *index) {
    if (index == NULL)
        return PYMQ_OK;
    int status = pymq_index_flush(index);
    pymq_index_abandon(index);
    return status;
}
