/* The key index: putting a record's keys, querying, flushing, expiry.
 *
 * Locks and ownership are described in index_file.h: flush_lock before list_lock. A put that stays in its file takes
 * neither; a query holds a reference to the file it walks and no lock.
 */
#include <sys/stat.h>

#include "pymq/index.h"

#include <errno.h>
#include <stdlib.h>

#include "index_file.h"
#include "pymq/io.h"
#include "pymq/java_hash.h"

#define NAME_ATTEMPTS_MAX 16 /* for names that something other than the index has taken */

/* ---- put ------------------------------------------------------------------------------------------------ */

/* The next file, born with the end of the last. */
static int roll(struct pymq_index *index) {
    const struct index_file *last = index->writer_file;
    int64_t end_offset = 0;
    int64_t end_timestamp_ms = 0;
    if (last != NULL) {
        end_offset = atomic_load_explicit(&last->end_offset, memory_order_relaxed);
        end_timestamp_ms = atomic_load_explicit(&last->end_timestamp_ms, memory_order_relaxed);
    }
    char taken[PYMQ_INDEX_NAME_SIZE + 1];
    char name[PYMQ_INDEX_NAME_SIZE + 1];
    memcpy(taken, index->name_last, sizeof taken);
    struct index_file *file = NULL;
    int status = PYMQ_OK;
    if (pymq_index_count_unsettled(index) >= PYMQ_INDEX_UNSETTLED_MAX)
        status = pymq_index_flush(index);
    if (status == PYMQ_OK || status == PYMQ_ENOTFOUND) /* a file taken from us is the checkpoint's to report */
        status = pymq_index_list_reserve(index);
    if (status != PYMQ_OK)
        return status;
    for (int attempt = 0; attempt < NAME_ATTEMPTS_MAX; attempt++) {
        status = pymq_index_name_next(taken, name);
        if (status != PYMQ_OK)
            return status;
        status = pymq_index_file_create(index->directory, &index->layout, name, end_offset, end_timestamp_ms, &file);
        if (status == PYMQ_OK || errno != EEXIST)
            break;
        memcpy(taken, name, sizeof taken);
    }
    if (status != PYMQ_OK)
        return status;
    pthread_mutex_lock(&index->list_lock);
    index->directory_dirty = true;
    pthread_mutex_unlock(&index->list_lock);
    pymq_index_list_append(index, file);
    return PYMQ_OK;
}

/* The keys of one record on their way in. */
struct key_writer {
    struct pymq_index *index;
    const struct pymq_record *record;
    int32_t topic_hash; /* of `topic#` */
    int32_t skip;       /* keys an earlier, failed put of this record already brought in */
    int32_t done;
};

static int put_key(struct key_writer *writer, int32_t prefix_hash, struct pymq_slice key) {
    struct pymq_index *index = writer->index;
    if (writer->done < writer->skip) {
        writer->done++;
        return PYMQ_OK;
    }
    int status = PYMQ_OK;
    if (index->writer_file == NULL || index_file_is_full(index->writer_file, &index->layout))
        status = roll(index);
    if (status == PYMQ_OK) {
        int32_t hash = pymq_java_hash(prefix_hash, key.data, key.size);
        hash = hash == INT32_MIN ? 0 : abs(hash); /* as pymq_index_key_hash */
        status = pymq_index_file_put(index->writer_file, &index->layout, hash, writer->record->physical_offset,
                                     writer->record->store_timestamp_ms);
    }
    if (status == PYMQ_OK) {
        writer->done++;
    } else {
        index->resume_offset = writer->record->physical_offset;
        index->resume_count = writer->done;
    }
    return status;
}

/* Each word of `keys`; words are separated by any number of spaces. */
static int put_words(struct key_writer *writer, struct pymq_slice keys) {
    uint32_t begin = 0;
    while (begin < keys.size) {
        uint32_t end = begin;
        while (end < keys.size && keys.data[end] != ' ')
            end++;
        if (end > begin) {
            struct pymq_slice word = {.data = keys.data + begin, .size = end - begin};
            int status = put_key(writer, writer->topic_hash, word);
            if (status != PYMQ_OK)
                return status;
        }
        begin = end + 1;
    }
    return PYMQ_OK;
}

int pymq_index_put(struct pymq_index *index, const struct pymq_record *record, const struct pymq_record_keys *keys) {
    static const uint8_t separator[] = {'#'};
    static const uint8_t tag_type[] = {'T', '#'};
    if ((record->sys_flag & PYMQ_SYS_TRANSACTION_MASK) == PYMQ_SYS_TRANSACTION_ROLLBACK)
        return PYMQ_OK;
    if (index->writer_file != NULL && record->physical_offset <
                                          atomic_load_explicit(&index->writer_file->end_offset, memory_order_relaxed))
        return PYMQ_OK;
    struct key_writer writer = {.index = index, .record = record};
    if (record->physical_offset == index->resume_offset)
        writer.skip = index->resume_count;
    writer.topic_hash = pymq_java_hash(0, record->topic.data, record->topic.size);
    writer.topic_hash = pymq_java_hash(writer.topic_hash, separator, sizeof separator);

    int status = PYMQ_OK;
    if (keys->unique_key.data != NULL)
        status = put_key(&writer, writer.topic_hash, keys->unique_key);
    if (status == PYMQ_OK)
        status = put_words(&writer, keys->keys);
    if (status == PYMQ_OK && keys->tags.size > 0)
        status = put_key(&writer, pymq_java_hash(writer.topic_hash, tag_type, sizeof tag_type), keys->tags);
    if (status == PYMQ_OK)
        index->resume_offset = -1;
    return status;
}

/* ---- query ---------------------------------------------------------------------------------------------- */

/* Apache's test, in its own three cases: they differ from plain overlap when a clock went back inside the file. */
static bool time_matches(const struct index_query *query, int64_t file_begin_ms, int64_t file_end_ms) {
    return (query->begin_ms < file_begin_ms && query->end_ms > file_end_ms) ||
           (query->begin_ms >= file_begin_ms && query->begin_ms <= file_end_ms) ||
           (query->end_ms >= file_begin_ms && query->end_ms <= file_end_ms);
}

ssize_t pymq_index_query(struct pymq_index *index, const uint8_t *topic, size_t topic_size, const uint8_t *key,
                         size_t key_size, int64_t begin_ms, int64_t end_ms, int64_t offset_min, int64_t offset_max,
                         pymq_index_verify verify, void *context, int64_t *offsets, size_t count_max) {
    struct index_query query = {
        .hash = pymq_index_key_hash(topic, topic_size, key, key_size),
        .begin_ms = begin_ms,
        .end_ms = end_ms,
        .offset_min = offset_min,
        .offset_max = offset_max,
        .verify = verify,
        .context = context,
        .candidate_last = -1,
        .offsets = offsets,
        .count_max = count_max,
    };
    uint64_t sequence = UINT64_MAX;
    while (query.count < count_max) {
        struct index_file *file = pymq_index_file_before(index, sequence);
        if (file == NULL)
            break;
        sequence = file->sequence;
        int64_t file_begin_ms = atomic_load_explicit(&file->begin_timestamp_ms, memory_order_relaxed);
        int64_t file_end_ms = atomic_load_explicit(&file->end_timestamp_ms, memory_order_relaxed);
        int status = PYMQ_OK;
        if (time_matches(&query, file_begin_ms, file_end_ms))
            status = pymq_index_file_query(file, &index->layout, index->directory, &query);
        pymq_index_file_release(index, file);
        if (status != PYMQ_OK)
            return status;
        if (file_begin_ms < begin_ms)
            break;
    }
    return (ssize_t)query.count;
}

/* ---- flush and expiry ----------------------------------------------------------------------------------- */

/* Sync one file as far as it is written; a full one is settled thereby. */
static int flush_file(struct pymq_index *index, struct index_file *file) {
    int32_t item_count = atomic_load_explicit(&file->item_count, memory_order_acquire);
    struct stat found;
    if (fstat(file->fd, &found) == 0 && found.st_nlink == 0)
        return PYMQ_ENOTFOUND; /* removed by somebody else: what it holds will be gone with our descriptor */
    if (item_count != file->synced_item_count && pymq_io->fdatasync(file->fd) != 0)
        return PYMQ_EFAILED;
    file->synced_item_count = item_count;
    if (item_count >= index->layout.item_limit) {
        pthread_mutex_lock(&index->list_lock);
        file->settled = true;
        pthread_mutex_unlock(&index->list_lock);
    }
    return PYMQ_OK;
}

static int flush_all(struct pymq_index *index) {
    /* The names first, and only files that had one by now: a file is never settled before its directory entry. */
    pthread_mutex_lock(&index->list_lock);
    bool directory_dirty = index->directory_dirty;
    index->directory_dirty = false;
    uint64_t to = index->file_count > 0 ? index->files[index->file_count - 1]->sequence : 0;
    pthread_mutex_unlock(&index->list_lock);
    if (directory_dirty && pymq_io_sync_directory(index->directory) != PYMQ_OK)
        return PYMQ_EFAILED;
    uint64_t from = 0;
    struct index_file *file;
    int result = PYMQ_OK;
    while ((file = pymq_index_file_unsettled(index, from, to)) != NULL) {
        from = file->sequence + 1;
        int status = flush_file(index, file);
        int saved = errno;
        pymq_index_file_release(index, file);
        errno = saved;
        if (status != PYMQ_OK && status != PYMQ_ENOTFOUND)
            return status;
        if (status == PYMQ_ENOTFOUND) /* it stays unsettled and keeps the marks back; those behind it need not wait */
            result = status;
    }
    return result;
}

int pymq_index_flush(struct pymq_index *index) {
    pthread_mutex_lock(&index->flush_lock);
    int status = index->failed != 0 ? PYMQ_EFAILED : flush_all(index);
    if (status != PYMQ_OK && status != PYMQ_ENOTFOUND && index->failed == 0)
        index->failed = errno != 0 ? errno : EIO;
    int failed = index->failed;
    pthread_mutex_unlock(&index->flush_lock);
    if (status == PYMQ_EFAILED)
        errno = failed;
    return status;
}

void pymq_index_marks(struct pymq_index *index, struct pymq_index_marks *marks) {
    *marks = (struct pymq_index_marks){.open_begin_offset = INT64_MAX, .end_offset = -1};
    pthread_mutex_lock(&index->list_lock);
    marks->file_count = index->file_count;
    for (int32_t i = 0; i < index->file_count; i++) {
        const struct index_file *file = index->files[i];
        if (file->settled) {
            marks->full_end_timestamp_ms = atomic_load_explicit(&file->end_timestamp_ms, memory_order_relaxed);
        } else if (marks->open_begin_offset == INT64_MAX) {
            marks->open_begin_offset = atomic_load_explicit(&file->begin_offset, memory_order_relaxed);
            marks->open_begin_timestamp_ms = atomic_load_explicit(&file->begin_timestamp_ms, memory_order_relaxed);
        }
        if (atomic_load_explicit(&file->item_count, memory_order_acquire) > PYMQ_INDEX_ITEM_FIRST)
            marks->end_offset = atomic_load_explicit(&file->end_offset, memory_order_relaxed);
    }
    pthread_mutex_unlock(&index->list_lock);
}

ssize_t pymq_index_remove_expired(struct pymq_index *index, int64_t offset_min) {
    ssize_t removed = 0;
    for (;;) {
        struct index_file *oldest = NULL;
        pthread_mutex_lock(&index->list_lock);
        if (index->file_count > 1 &&
            atomic_load_explicit(&index->files[0]->end_offset, memory_order_relaxed) < offset_min) {
            oldest = index->files[0];
            oldest->references++;
        }
        pthread_mutex_unlock(&index->list_lock);
        if (oldest == NULL)
            return removed;
        int status = pymq_index_list_remove(index, oldest);
        pymq_index_file_release(index, oldest);
        if (status != PYMQ_OK)
            return status;
        removed++;
    }
}

int pymq_index_destroy_files(struct pymq_index *index) {
    index->resume_offset = -1;
    index->writer_file = NULL;
    while (index->file_count > 0) {
        int status = pymq_index_list_remove(index, index->files[index->file_count - 1]);
        if (status != PYMQ_OK) {
            index->writer_file = index->files[index->file_count - 1];
            return status;
        }
    }
    return pymq_io_sync_directory(index->directory);
}
