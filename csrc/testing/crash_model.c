/* Operations on the model of a disk: versions of pages and sizes, names and their pending changes. */
#include "crash_model.h"

#include "scratch.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t zero_page[CRASH_PAGE_SIZE];

static void *grow(void *list, size_t *capacity, size_t count, size_t item_size) {
    if (count < *capacity)
        return list;
    *capacity = *capacity == 0 ? 16 : *capacity * 2;
    list = realloc(list, *capacity * item_size);
    CHECK(list != NULL, "out of memory");
    return list;
}

/* ---- blobs ---------------------------------------------------------------------------------------------------- */

static struct crash_blob *blob_new(const uint8_t *bytes) {
    if (memcmp(bytes, zero_page, CRASH_PAGE_SIZE) == 0)
        return NULL;
    struct crash_blob *blob = malloc(sizeof *blob);
    CHECK(blob != NULL, "out of memory");
    atomic_init(&blob->references, 1);
    memcpy(blob->bytes, bytes, CRASH_PAGE_SIZE);
    return blob;
}

static struct crash_blob *blob_keep(struct crash_blob *blob) {
    if (blob != NULL)
        atomic_fetch_add(&blob->references, 1);
    return blob;
}

static void blob_drop(struct crash_blob *blob) {
    if (blob != NULL && atomic_fetch_sub(&blob->references, 1) == 1)
        free(blob);
}

/* ---- inodes --------------------------------------------------------------------------------------------------- */

struct crash_inode *crash_model_add_inode(struct crash_model *model, bool is_directory) {
    model->inodes = grow(model->inodes, &model->inode_capacity, model->inode_count, sizeof *model->inodes);
    struct crash_inode *inode = calloc(1, sizeof *inode);
    CHECK(inode != NULL, "out of memory");
    inode->id = model->inode_count;
    inode->is_directory = is_directory;
    inode->read_fd = -1;
    inode->size_count = 1; /* size 0, durable with whatever name leads here */
    model->inodes[model->inode_count++] = inode;
    return inode;
}

static void reserve_pages(struct crash_inode *inode, size_t count) {
    if (count <= inode->page_count)
        return;
    inode->pages = realloc(inode->pages, count * sizeof *inode->pages);
    CHECK(inode->pages != NULL, "out of memory");
    memset(inode->pages + inode->page_count, 0, (count - inode->page_count) * sizeof *inode->pages);
    for (size_t i = inode->page_count; i < count; i++)
        inode->pages[i].count = 1; /* durable as zeros */
    inode->page_count = count;
}

/* Takes over `blob`. When the list is full the version before the last goes: the extremes stay. */
static void push_version(struct crash_page *page, uint64_t time, struct crash_blob *blob) {
    if (page->count == CRASH_VERSIONS_MAX) {
        blob_drop(page->versions[CRASH_VERSIONS_MAX - 2].blob);
        page->versions[CRASH_VERSIONS_MAX - 2] = page->versions[CRASH_VERSIONS_MAX - 1];
        page->count--;
    }
    page->versions[page->count].time = time;
    page->versions[page->count].blob = blob;
    page->count++;
}

static void push_size(struct crash_size *list, uint32_t *count, uint64_t time, int64_t size) {
    if (*count == CRASH_VERSIONS_MAX) {
        list[CRASH_VERSIONS_MAX - 2] = list[CRASH_VERSIONS_MAX - 1];
        (*count)--;
    }
    list[*count].time = time;
    list[*count].size = size;
    (*count)++;
}

size_t crash_inode_sample(struct crash_inode *inode, uint64_t time) {
    struct stat found;
    uint8_t bytes[CRASH_PAGE_SIZE];
    size_t unallocated = 0;
    if (inode->read_fd < 0)
        return 0;
    CHECK(fstat(inode->read_fd, &found) == 0, "fstat: %s", strerror(errno));
    if (found.st_size != inode->sizes[inode->size_count - 1].size)
        push_size(inode->sizes, &inode->size_count, time, found.st_size);
    size_t count = (size_t)((found.st_size + CRASH_PAGE_SIZE - 1) / CRASH_PAGE_SIZE);
    reserve_pages(inode, count);
    for (size_t i = 0; i < count; i++) {
        struct crash_page *page = &inode->pages[i];
        const struct crash_blob *latest = page->versions[page->count - 1].blob;
        memset(bytes, 0, sizeof bytes);
        ssize_t got = pread(inode->read_fd, bytes, sizeof bytes, (off_t)(i * CRASH_PAGE_SIZE));
        CHECK(got >= 0, "pread: %s", strerror(errno));
        if (memcmp(bytes, latest != NULL ? latest->bytes : zero_page, sizeof bytes) == 0)
            continue;
        push_version(page, time, blob_new(bytes));
        unallocated += page->allocated ? 0 : 1;
    }
    return unallocated;
}

void crash_inode_shrunk(struct crash_inode *inode, uint64_t time, int64_t size) {
    push_size(inode->sizes, &inode->size_count, time, size);
    push_size(inode->shrinks, &inode->shrink_count, time, size);
    size_t first = (size_t)((size + CRASH_PAGE_SIZE - 1) / CRASH_PAGE_SIZE);
    for (size_t i = first; i < inode->page_count; i++) {
        struct crash_page *page = &inode->pages[i];
        page->allocated = false;
        if (page->versions[page->count - 1].blob != NULL)
            push_version(page, time, NULL);
    }
}

void crash_inode_allocated(struct crash_inode *inode, int64_t offset, int64_t size) {
    if (size <= 0)
        return;
    size_t end = (size_t)((offset + size + CRASH_PAGE_SIZE - 1) / CRASH_PAGE_SIZE);
    reserve_pages(inode, end);
    for (size_t i = (size_t)(offset / CRASH_PAGE_SIZE); i < end; i++)
        inode->pages[i].allocated = true;
}

void crash_inode_punched(struct crash_inode *inode, int64_t offset, int64_t size) {
    int64_t file_size = inode->sizes[inode->size_count - 1].size;
    for (size_t i = 0; i < inode->page_count; i++) {
        int64_t begin = (int64_t)i * CRASH_PAGE_SIZE;
        int64_t end = pymq_min64(begin + CRASH_PAGE_SIZE, file_size);
        if (offset <= begin && offset + size >= end)
            inode->pages[i].allocated = false;
    }
}

void crash_inode_synced(struct crash_inode *inode) {
    for (size_t i = 0; i < inode->page_count; i++) {
        struct crash_page *page = &inode->pages[i];
        for (uint32_t v = 0; v + 1 < page->count; v++)
            blob_drop(page->versions[v].blob);
        page->versions[0] = page->versions[page->count - 1];
        page->count = 1;
    }
    inode->sizes[0] = inode->sizes[inode->size_count - 1];
    inode->size_count = 1;
    inode->shrink_count = 0;
}

void crash_inode_forget(struct crash_inode *inode) {
    for (size_t i = 0; i < inode->page_count; i++)
        for (uint32_t v = 0; v < inode->pages[i].count; v++)
            blob_drop(inode->pages[i].versions[v].blob);
    free(inode->pages);
    inode->pages = NULL;
    inode->page_count = 0;
    if (inode->read_fd >= 0)
        close(inode->read_fd);
    inode->read_fd = -1;
    inode->gone = true;
}

bool crash_inode_agrees(const struct crash_inode *inode, size_t page_index, uint64_t version_time, uint64_t size_time) {
    for (uint32_t i = 0; i < inode->shrink_count; i++) {
        const struct crash_size *shrink = &inode->shrinks[i];
        if ((int64_t)(page_index * CRASH_PAGE_SIZE) < shrink->size)
            continue; /* the page was not cut off, or only in part: its bytes are ordinary versions */
        if ((version_time < shrink->time) != (size_time < shrink->time))
            return false;
    }
    return true;
}

/* ---- names ---------------------------------------------------------------------------------------------------- */

static size_t find_name(const struct crash_names *names, const char *path) {
    size_t i = 0;
    while (i < names->count && strcmp(names->list[i].path, path) != 0)
        i++;
    return i;
}

struct crash_inode *crash_names_find(const struct crash_model *model, const struct crash_names *names,
                                     const char *path) {
    size_t i = find_name(names, path);
    return i < names->count ? model->inodes[names->list[i].inode] : NULL;
}

static void copy_path(char *target, const char *source) {
    size_t size = strlen(source) + 1;
    CHECK(size <= CRASH_NAME_MAX, "path below the root too long: %s", source);
    memcpy(target, source, size);
}

void crash_names_set(struct crash_names *names, const char *path, uint64_t inode) {
    size_t i = find_name(names, path);
    if (i == names->count) {
        names->list = grow(names->list, &names->capacity, names->count, sizeof *names->list);
        names->count++;
    }
    copy_path(names->list[i].path, path);
    names->list[i].inode = inode;
}

void crash_names_remove(struct crash_names *names, const char *path) {
    size_t i = find_name(names, path);
    if (i < names->count)
        names->list[i] = names->list[--names->count];
}

void crash_names_apply(struct crash_names *names, const struct crash_change *change) {
    switch (change->kind) {
    case CRASH_LINK:
        crash_names_set(names, change->path, change->inode);
        break;
    case CRASH_UNLINK:
        crash_names_remove(names, change->path);
        break;
    case CRASH_RENAME:
        crash_names_remove(names, change->path);
        crash_names_set(names, change->target, change->inode);
        break;
    }
}

void crash_model_change(struct crash_model *model, enum crash_change_kind kind, uint64_t time, uint64_t inode,
                        const char *path, const char *target) {
    model->changes = grow(model->changes, &model->change_capacity, model->change_count, sizeof *model->changes);
    struct crash_change *change = &model->changes[model->change_count++];
    change->kind = kind;
    change->time = time;
    change->inode = inode;
    copy_path(change->path, path);
    copy_path(change->target, target);
    crash_names_apply(&model->live, change);
}

/* Whether `path` is an entry of `directory` itself. */
static bool is_entry_of(const char *path, const char *directory) {
    const char *slash = strrchr(path, '/');
    size_t parent_size = slash != NULL ? (size_t)(slash - path) : 0;
    return parent_size == strlen(directory) && memcmp(path, directory, parent_size) == 0;
}

static void forget_unreachable(struct crash_model *model) {
    for (size_t i = 0; i < model->inode_count; i++) {
        struct crash_inode *inode = model->inodes[i];
        bool reachable = inode->gone || inode->open_count > 0;
        for (size_t n = 0; n < model->live.count && !reachable; n++)
            reachable = model->live.list[n].inode == i;
        for (size_t n = 0; n < model->durable.count && !reachable; n++)
            reachable = model->durable.list[n].inode == i;
        for (size_t n = 0; n < model->change_count && !reachable; n++)
            reachable = model->changes[n].inode == i;
        if (!reachable)
            crash_inode_forget(inode);
    }
}

void crash_model_sync_directory(struct crash_model *model, const char *directory) {
    size_t kept = 0;
    for (size_t i = 0; i < model->change_count; i++) {
        if (is_entry_of(model->changes[i].path, directory))
            crash_names_apply(&model->durable, &model->changes[i]);
        else
            model->changes[kept++] = model->changes[i];
    }
    model->change_count = kept;
    forget_unreachable(model);
}

/* ---- whole models --------------------------------------------------------------------------------------------- */

static void *copy_list(const void *list, size_t count, size_t item_size) {
    if (count == 0)
        return NULL;
    void *copy = malloc(count * item_size);
    CHECK(copy != NULL, "out of memory");
    memcpy(copy, list, count * item_size);
    return copy;
}

void crash_model_copy(struct crash_model *target, const struct crash_model *source) {
    memset(target, 0, sizeof *target);
    target->inodes = copy_list(source->inodes, source->inode_count, sizeof *source->inodes);
    target->inode_count = target->inode_capacity = source->inode_count;
    for (size_t i = 0; i < source->inode_count; i++) {
        struct crash_inode *inode = copy_list(source->inodes[i], 1, sizeof *inode);
        inode->pages = copy_list(inode->pages, inode->page_count, sizeof *inode->pages);
        inode->read_fd = -1;
        for (size_t p = 0; p < inode->page_count; p++)
            for (uint32_t v = 0; v < inode->pages[p].count; v++)
                blob_keep(inode->pages[p].versions[v].blob);
        target->inodes[i] = inode;
    }
    target->durable.list = copy_list(source->durable.list, source->durable.count, sizeof *source->durable.list);
    target->durable.count = target->durable.capacity = source->durable.count;
    target->changes = copy_list(source->changes, source->change_count, sizeof *source->changes);
    target->change_count = target->change_capacity = source->change_count;
}

void crash_model_free(struct crash_model *model) {
    for (size_t i = 0; i < model->inode_count; i++) {
        crash_inode_forget(model->inodes[i]);
        free(model->inodes[i]);
    }
    free(model->inodes);
    free(model->live.list);
    free(model->durable.list);
    free(model->changes);
    memset(model, 0, sizeof *model);
}
