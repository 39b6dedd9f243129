/* One index file: its name, its life on disk and in memory, adding an item, walking a chain.
 *
 * The layout and the rules about who may touch what are in index_file.h.
 */
#include "index_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "pymq/io.h"

_Static_assert(PYMQ_INDEX_HEADER_SIZE % sizeof(uint32_t) == 0, "slots are aligned, so that one store publishes one");
_Static_assert(PYMQ_INDEX_ALLOCATION_STEP % PYMQ_PAGE_SIZE == 0, "steps end where pages do");

#define HEADER_BEGIN_TIMESTAMP_AT 0
#define HEADER_END_TIMESTAMP_AT 8
#define HEADER_BEGIN_OFFSET_AT 16
#define HEADER_END_OFFSET_AT 24
#define HEADER_SLOT_USED_AT 32
#define HEADER_ITEM_COUNT_AT 36

void pymq_index_header_decode(const uint8_t *source, struct pymq_index_header *header) {
    header->begin_timestamp_ms = (int64_t)pymq_load_be64(source + HEADER_BEGIN_TIMESTAMP_AT);
    header->end_timestamp_ms = (int64_t)pymq_load_be64(source + HEADER_END_TIMESTAMP_AT);
    header->begin_offset = (int64_t)pymq_load_be64(source + HEADER_BEGIN_OFFSET_AT);
    header->end_offset = (int64_t)pymq_load_be64(source + HEADER_END_OFFSET_AT);
    header->slot_used = (int32_t)pymq_load_be32(source + HEADER_SLOT_USED_AT);
    header->item_count = (int32_t)pymq_load_be32(source + HEADER_ITEM_COUNT_AT);
}

void pymq_index_header_encode(const struct pymq_index_header *header, uint8_t *target) {
    pymq_store_be64(target + HEADER_BEGIN_TIMESTAMP_AT, (uint64_t)header->begin_timestamp_ms);
    pymq_store_be64(target + HEADER_END_TIMESTAMP_AT, (uint64_t)header->end_timestamp_ms);
    pymq_store_be64(target + HEADER_BEGIN_OFFSET_AT, (uint64_t)header->begin_offset);
    pymq_store_be64(target + HEADER_END_OFFSET_AT, (uint64_t)header->end_offset);
    pymq_store_be32(target + HEADER_SLOT_USED_AT, (uint32_t)header->slot_used);
    pymq_store_be32(target + HEADER_ITEM_COUNT_AT, (uint32_t)header->item_count);
}

/* ---- names ---------------------------------------------------------------------------------------------- */

bool pymq_index_name_is_valid(const char *name) {
    size_t digits = strspn(name, "0123456789");
    return digits == PYMQ_INDEX_NAME_SIZE && name[digits] == '\0';
}

static int name_format(const struct tm *calendar, int milliseconds, char name[PYMQ_INDEX_NAME_SIZE + 1]) {
    char text[64];
    int size = snprintf(text, sizeof text, "%04d%02d%02d%02d%02d%02d%03d", calendar->tm_year + 1900,
                        calendar->tm_mon + 1, calendar->tm_mday, calendar->tm_hour, calendar->tm_min,
                        calendar->tm_sec, milliseconds);
    if (size != PYMQ_INDEX_NAME_SIZE) {
        errno = EOVERFLOW;
        return PYMQ_EIO;
    }
    memcpy(name, text, PYMQ_INDEX_NAME_SIZE + 1);
    return PYMQ_OK;
}

static int digits_value(const char *digits, size_t count) {
    int value = 0;
    for (size_t i = 0; i < count; i++)
        value = value * 10 + (digits[i] - '0');
    return value;
}

/* One millisecond later, on the calendar itself: through the time zone, the hour that a change to winter time
 * repeats would sort before its first passage. */
static int name_successor(const char *last, char name[PYMQ_INDEX_NAME_SIZE + 1]) {
    struct tm calendar = {
        .tm_year = digits_value(last, 4) - 1900,
        .tm_mon = digits_value(last + 4, 2) - 1,
        .tm_mday = digits_value(last + 6, 2),
        .tm_hour = digits_value(last + 8, 2),
        .tm_min = digits_value(last + 10, 2),
        .tm_sec = digits_value(last + 12, 2),
    };
    int milliseconds = digits_value(last + 14, 3) + 1;
    time_t seconds = timegm(&calendar) + milliseconds / 1000;
    if (gmtime_r(&seconds, &calendar) == NULL) {
        errno = EOVERFLOW;
        return PYMQ_EIO;
    }
    int status = name_format(&calendar, milliseconds % 1000, name);
    if (status == PYMQ_OK && memcmp(name, last, PYMQ_INDEX_NAME_SIZE) <= 0) { /* digits that were no date */
        errno = EOVERFLOW;
        return PYMQ_EIO;
    }
    return status;
}

int pymq_index_name_next(const char *last, char name[PYMQ_INDEX_NAME_SIZE + 1]) {
    struct timespec now;
    struct tm calendar;
    clock_gettime(CLOCK_REALTIME, &now);
    if (localtime_r(&now.tv_sec, &calendar) == NULL)
        return PYMQ_EIO;
    int status = name_format(&calendar, (int)(now.tv_nsec / 1000000), name);
    if (status == PYMQ_OK && last[0] != '\0' && memcmp(name, last, PYMQ_INDEX_NAME_SIZE) <= 0)
        status = name_successor(last, name);
    return status;
}

int pymq_index_file_path(const char *directory, const char *name, char path[PYMQ_PATH_MAX]) {
    int size = snprintf(path, PYMQ_PATH_MAX, "%s/%s", directory, name);
    if (size < 0 || size >= PYMQ_PATH_MAX) {
        errno = ENAMETOOLONG;
        return PYMQ_EIO;
    }
    return PYMQ_OK;
}

/* ---- life ----------------------------------------------------------------------------------------------- */

void pymq_index_file_adopt(struct index_file *file, const struct index_layout *layout,
                           const struct pymq_index_header *header) {
    int32_t item_count = header->item_count;
    if (item_count < PYMQ_INDEX_ITEM_FIRST)
        item_count = PYMQ_INDEX_ITEM_FIRST; /* Compat: a file without items says 0 on disk and means 1 */
    if (item_count > layout->item_limit)
        item_count = layout->item_limit; /* nonsense: treated as full, so that nothing is overwritten */
    atomic_store_explicit(&file->begin_timestamp_ms, header->begin_timestamp_ms, memory_order_relaxed);
    atomic_store_explicit(&file->end_timestamp_ms, header->end_timestamp_ms, memory_order_relaxed);
    atomic_store_explicit(&file->begin_offset, header->begin_offset, memory_order_relaxed);
    atomic_store_explicit(&file->end_offset, header->end_offset, memory_order_relaxed);
    atomic_store_explicit(&file->slot_used, header->slot_used, memory_order_relaxed);
    atomic_store_explicit(&file->item_count, item_count, memory_order_release);
}

static struct index_file *file_allocate(const char *name) {
    struct index_file *file = calloc(1, sizeof *file);
    if (file != NULL) {
        memcpy(file->name, name, PYMQ_INDEX_NAME_SIZE);
        file->fd = -1;
    } else {
        errno = ENOMEM;
    }
    return file;
}

/* Give [offset, offset + size) blocks. A store through the mapping into a hole of a full disk would be a SIGBUS. */
static int allocate_blocks(int fd, int64_t offset, int64_t size) {
    int code;
    do {
        code = pymq_io->fallocate(fd, offset, size);
    } while (code == EINTR);
    if (code == 0)
        return PYMQ_OK;
    errno = code;
    return pymq_io_status(code);
}

static int map_file(struct index_file *file, const struct index_layout *layout) {
    void *map = pymq_io->mmap((size_t)layout->file_size, PROT_READ | PROT_WRITE, file->fd, 0);
    if (map == MAP_FAILED)
        return pymq_io_status(errno);
    /* Slots are hit at random: a fault must not read what lies around them. A refusal costs speed only. */
    pymq_io->madvise(map, (size_t)(layout->items_at), MADV_RANDOM);
    file->map = map;
    return PYMQ_OK;
}

/* Size, blocks and mapping of a file whose descriptor was just made. */
static int create_fill(struct index_file *file, const struct index_layout *layout) {
    if (pymq_io->ftruncate(file->fd, layout->file_size) != 0)
        return pymq_io_status(errno);
    int64_t end = pymq_min64(layout->items_at + PYMQ_INDEX_ALLOCATION_STEP, layout->file_size);
    int status = allocate_blocks(file->fd, 0, end);
    if (status == PYMQ_OK)
        status = map_file(file, layout);
    if (status == PYMQ_OK)
        file->allocated_end = end;
    return status;
}

int pymq_index_file_create(const char *directory, const struct index_layout *layout, const char *name,
                           int64_t end_offset, int64_t end_timestamp_ms, struct index_file **file) {
    char path[PYMQ_PATH_MAX];
    int status = pymq_index_file_path(directory, name, path);
    if (status != PYMQ_OK)
        return status;
    struct index_file *made = file_allocate(name);
    if (made == NULL)
        return PYMQ_ENOMEM;
    made->fd = pymq_io->open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
    if (made->fd < 0) {
        status = pymq_io_status(errno);
        free(made);
        return status;
    }
    status = create_fill(made, layout);
    if (status != PYMQ_OK) {
        int saved = errno;
        pymq_io->close(made->fd);
        pymq_io->unlink(path);
        free(made);
        errno = saved;
        return status;
    }
    struct pymq_index_header header = {0};
    if (end_offset > 0)
        header.begin_offset = header.end_offset = end_offset;
    if (end_timestamp_ms > 0)
        header.begin_timestamp_ms = header.end_timestamp_ms = end_timestamp_ms;
    pymq_index_header_encode(&header, made->map);
    pymq_index_file_adopt(made, layout, &header);
    *file = made;
    return PYMQ_OK;
}

int pymq_index_file_load(const char *directory, const struct index_layout *layout, const char *name,
                         struct index_file **file) {
    char path[PYMQ_PATH_MAX];
    uint8_t bytes[PYMQ_INDEX_HEADER_SIZE];
    int status = pymq_index_file_path(directory, name, path);
    if (status != PYMQ_OK)
        return status;
    int fd = pymq_io->open(path, O_RDONLY, 0);
    if (fd < 0)
        return pymq_io_status(errno);
    ssize_t size = pymq_io_pread_full(fd, bytes, sizeof bytes, 0);
    int saved = errno;
    pymq_io->close(fd);
    errno = saved;
    if (size < 0)
        return (int)size;
    if (size != sizeof bytes)
        return PYMQ_ETRUNCATED;
    struct index_file *loaded = file_allocate(name);
    if (loaded == NULL)
        return PYMQ_ENOMEM;
    struct pymq_index_header header;
    pymq_index_header_decode(bytes, &header);
    pymq_index_file_adopt(loaded, layout, &header);
    loaded->synced_item_count = atomic_load_explicit(&loaded->item_count, memory_order_relaxed);
    *file = loaded;
    return PYMQ_OK;
}

int pymq_index_file_attach(struct index_file *file, const struct index_layout *layout, const char *directory) {
    char path[PYMQ_PATH_MAX];
    int status = pymq_index_file_path(directory, file->name, path);
    if (status != PYMQ_OK)
        return status;
    file->fd = pymq_io->open(path, O_RDWR, 0);
    if (file->fd < 0) {
        file->fd = -1;
        return pymq_io_status(errno);
    }
    status = map_file(file, layout);
    if (status != PYMQ_OK) {
        int saved = errno;
        pymq_io->close(file->fd);
        file->fd = -1;
        errno = saved;
    }
    file->allocated_end = 0;
    return status;
}

void pymq_index_file_detach(struct index_file *file, const struct index_layout *layout) {
    if (file->map != NULL)
        pymq_io->munmap(file->map, (size_t)layout->file_size);
    if (file->fd >= 0)
        pymq_io->close(file->fd);
    file->map = NULL;
    file->fd = -1;
}

/* ---- put ------------------------------------------------------------------------------------------------ */

/* Blocks for the header, the slots and the item at `item_at`, before the first byte is stored there. */
static int ensure_allocated(struct index_file *file, const struct index_layout *layout, int64_t item_at) {
    int64_t item_end = item_at + PYMQ_INDEX_ITEM_SIZE;
    if (item_end <= file->allocated_end)
        return PYMQ_OK;
    int64_t begin = file->allocated_end;
    if (begin == 0) { /* a file of an earlier run: which of its blocks exist is not known */
        int status = allocate_blocks(file->fd, 0, layout->items_at);
        if (status != PYMQ_OK)
            return status;
        begin = item_at & ~(int64_t)(PYMQ_PAGE_SIZE - 1);
    }
    int64_t end = pymq_min64(pymq_max64(begin + PYMQ_INDEX_ALLOCATION_STEP, item_end), layout->file_size);
    int status = allocate_blocks(file->fd, begin, end - begin);
    if (status == PYMQ_OK)
        file->allocated_end = end;
    return status;
}

static int32_t seconds_since_begin(int64_t begin_timestamp_ms, int64_t store_timestamp_ms) {
    if (begin_timestamp_ms <= 0)
        return 0;
    /* Unsigned, because a nonsense timestamp wraps in Java and must not be undefined here. */
    int64_t seconds = (int64_t)((uint64_t)store_timestamp_ms - (uint64_t)begin_timestamp_ms) / 1000;
    if (seconds < 0)
        return 0;
    return seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
}

static uint32_t *slot_pointer(const uint8_t *map, const struct index_layout *layout, int32_t hash) {
    return (uint32_t *)(uintptr_t)(map + index_slot_at(layout, hash));
}

int pymq_index_file_put(struct index_file *file, const struct index_layout *layout, int32_t hash, int64_t offset,
                        int64_t store_timestamp_ms) {
    int32_t number = atomic_load_explicit(&file->item_count, memory_order_relaxed);
    int64_t item_at = index_item_at(layout, number);
    int status = ensure_allocated(file, layout, item_at);
    if (status != PYMQ_OK)
        return status;
    uint8_t *header = file->map;
    uint8_t *item = file->map + item_at;
    uint32_t *slot = slot_pointer(file->map, layout, hash);
    int32_t previous = (int32_t)__builtin_bswap32(__atomic_load_n(slot, __ATOMIC_RELAXED));
    if (previous < PYMQ_INDEX_ITEM_FIRST || previous >= number)
        previous = 0;

    /* Compat: the first item's time still counts from the begin the file was born with, the end of the one before. */
    int64_t begin_timestamp_ms = atomic_load_explicit(&file->begin_timestamp_ms, memory_order_relaxed);
    pymq_store_be32(item, (uint32_t)hash);
    pymq_store_be64(item + 4, (uint64_t)offset);
    pymq_store_be32(item + 12, (uint32_t)seconds_since_begin(begin_timestamp_ms, store_timestamp_ms));
    pymq_store_be32(item + 16, (uint32_t)previous);
    if (number == PYMQ_INDEX_ITEM_FIRST) {
        pymq_store_be64(header + HEADER_BEGIN_OFFSET_AT, (uint64_t)offset);
        pymq_store_be64(header + HEADER_BEGIN_TIMESTAMP_AT, (uint64_t)store_timestamp_ms);
        atomic_store_explicit(&file->begin_offset, offset, memory_order_relaxed);
        atomic_store_explicit(&file->begin_timestamp_ms, store_timestamp_ms, memory_order_relaxed);
    }
    __atomic_store_n(slot, __builtin_bswap32((uint32_t)number), __ATOMIC_RELEASE);

    if (previous == 0) {
        int32_t slot_used = atomic_load_explicit(&file->slot_used, memory_order_relaxed) + 1;
        pymq_store_be32(header + HEADER_SLOT_USED_AT, (uint32_t)slot_used);
        atomic_store_explicit(&file->slot_used, slot_used, memory_order_relaxed);
    }
    pymq_store_be64(header + HEADER_END_OFFSET_AT, (uint64_t)offset);
    pymq_store_be64(header + HEADER_END_TIMESTAMP_AT, (uint64_t)store_timestamp_ms);
    pymq_store_be32(header + HEADER_ITEM_COUNT_AT, (uint32_t)number + 1);
    atomic_store_explicit(&file->end_offset, offset, memory_order_relaxed);
    atomic_store_explicit(&file->end_timestamp_ms, store_timestamp_ms, memory_order_relaxed);
    atomic_store_explicit(&file->item_count, number + 1, memory_order_release);
    return PYMQ_OK;
}

/* ---- query ---------------------------------------------------------------------------------------------- */

/* Where a query reads: the mapping of a file that has one, else a descriptor of its own. */
struct index_reader {
    const struct index_layout *layout;
    const uint8_t *map;
    int fd;
};

/* PYMQ_OK, PYMQ_EIO, or PYMQ_ETRUNCATED when the file ends before the bytes do. */
static int reader_bytes(const struct index_reader *reader, int64_t at, uint8_t *target, size_t size) {
    if (at + (int64_t)size > reader->layout->file_size)
        return PYMQ_ETRUNCATED;
    if (reader->map != NULL) {
        memcpy(target, reader->map + at, size);
        return PYMQ_OK;
    }
    ssize_t got = pymq_io_pread_full(reader->fd, target, size, at);
    if (got < 0)
        return (int)got;
    return (size_t)got == size ? PYMQ_OK : PYMQ_ETRUNCATED;
}

static int reader_slot(const struct index_reader *reader, int32_t hash, int32_t *number) {
    uint32_t value;
    if (reader->map != NULL) {
        value = __atomic_load_n(slot_pointer(reader->map, reader->layout, hash), __ATOMIC_ACQUIRE);
    } else {
        int status = reader_bytes(reader, index_slot_at(reader->layout, hash), (uint8_t *)&value, sizeof value);
        if (status != PYMQ_OK)
            return status;
    }
    *number = (int32_t)__builtin_bswap32(value);
    return PYMQ_OK;
}

static bool offset_is_taken(const struct index_query *query, int64_t offset) {
    for (size_t i = query->count; i > 0; i--) {
        if (query->offsets[i - 1] == offset)
            return true;
    }
    return false;
}

/* Ask the verifier about one item that matches hash and time. */
static int offer(struct index_query *query, int64_t offset) {
    if (offset < query->offset_min || offset >= query->offset_max || offset == query->candidate_last)
        return PYMQ_OK;
    query->candidate_last = offset;
    if (offset_is_taken(query, offset))
        return PYMQ_OK;
    int verdict = query->verify(query->context, offset);
    if (verdict > 0)
        query->offsets[query->count++] = offset;
    return verdict < 0 ? verdict : PYMQ_OK;
}

static int walk_chain(const struct index_file *file, const struct index_reader *reader, struct index_query *query) {
    int32_t number = 0;
    int status = reader_slot(reader, query->hash, &number);
    if (status != PYMQ_OK)
        return status == PYMQ_ETRUNCATED ? PYMQ_OK : status;
    /* A writer in the middle of a put has stored the slot and not yet the count: that item may be read already. The
     * slot's acquire made it visible; the count only bounds nonsense. */
    int32_t item_count = atomic_load_explicit(&file->item_count, memory_order_relaxed);
    int64_t begin_ms = atomic_load_explicit(&file->begin_timestamp_ms, memory_order_relaxed);
    if (number > item_count || number >= reader->layout->item_limit)
        number = 0;
    while (number >= PYMQ_INDEX_ITEM_FIRST && query->count < query->count_max) {
        uint8_t bytes[PYMQ_INDEX_ITEM_SIZE];
        struct index_item item;
        status = reader_bytes(reader, index_item_at(reader->layout, number), bytes, sizeof bytes);
        if (status != PYMQ_OK)
            return status == PYMQ_ETRUNCATED ? PYMQ_OK : status;
        index_item_decode(bytes, &item);
        if (item.seconds < 0)
            break;
        /* Differs: the first item's time is the begin time, because the seconds it keeps count from the end of the file
         * before (see put); Apache adds them to the begin and then misses a message that came after a quiet hour. */
        int64_t seconds = number == PYMQ_INDEX_ITEM_FIRST ? 0 : item.seconds;
        /* Unsigned for the sake of a nonsense begin time; Java wraps too. */
        int64_t time_ms = (int64_t)((uint64_t)begin_ms + (uint64_t)seconds * 1000);
        if (time_ms < query->begin_ms)
            break;
        if (item.hash == query->hash && time_ms <= query->end_ms) {
            status = offer(query, item.offset);
            if (status != PYMQ_OK)
                return status;
        }
        /* Numbers only go down a chain, so one that does not is damage, and no damage can make a circle. */
        number = item.previous < number ? item.previous : 0;
    }
    return PYMQ_OK;
}

int pymq_index_file_query(const struct index_file *file, const struct index_layout *layout, const char *directory,
                          struct index_query *query) {
    struct index_reader reader = {.layout = layout, .map = file->map, .fd = -1};
    if (reader.map == NULL) {
        char path[PYMQ_PATH_MAX];
        int status = pymq_index_file_path(directory, file->name, path);
        if (status != PYMQ_OK)
            return status;
        reader.fd = pymq_io->open(path, O_RDONLY, 0);
        if (reader.fd < 0)
            return errno == ENOENT ? PYMQ_OK : pymq_io_status(errno); /* expired while we looked */
    }
    int status = walk_chain(file, &reader, query);
    if (reader.fd >= 0) {
        int saved = errno;
        pymq_io->close(reader.fd);
        errno = saved;
    }
    return status;
}
