/* Making one possible disk of an image: which names are there, which version each page has, which pages are torn.
 *
 * A disk is drawn in two steps, names first, then files, and every choice comes from the caller's generator.
 */
#include "crash_disk.h"
#include "crash_model.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define FEW_MAX 3
#define SECTORS (CRASH_PAGE_SIZE / CRASH_SECTOR_SIZE)

struct draw {
    const struct crash_model *model;
    enum crash_style style;
    struct test_random *random;
    uint32_t keep_percent; /* of the random styles */
    uint64_t time_split;   /* of NEWEST and OLDEST */
    size_t few[FEW_MAX];   /* numbers of the choices DROP_FEW and KEEP_FEW are about */
    size_t few_count;
    size_t next_choice; /* numbers dirty pages and pending names in the order they are met */
};

const char *crash_style_name(enum crash_style style) {
    static const char *const names[CRASH_STYLES] = {
        "nothing",  "everything",   "newest",       "oldest",      "drop-few",
        "keep-few", "drop-sectors", "random-pages", "random-torn", "random-files",
    };
    return (unsigned)style < CRASH_STYLES ? names[style] : "unknown";
}

static bool is_dirty(const struct crash_page *page) { return page->count > 1; }

size_t crash_image_choices(const struct crash_image *image) {
    const struct crash_model *model = &image->model;
    size_t count = model->change_count;
    for (size_t i = 0; i < model->inode_count; i++) {
        count += model->inodes[i]->size_count > 1 ? 1 : 0;
        for (size_t p = 0; p < model->inodes[i]->page_count; p++)
            count += is_dirty(&model->inodes[i]->pages[p]) ? 1 : 0;
    }
    return count;
}

static uint64_t latest_time(const struct crash_model *model) {
    uint64_t latest = 0;
    for (size_t i = 0; i < model->change_count; i++)
        latest = model->changes[i].time > latest ? model->changes[i].time : latest;
    for (size_t i = 0; i < model->inode_count; i++) {
        const struct crash_inode *inode = model->inodes[i];
        for (size_t p = 0; p < inode->page_count; p++) {
            uint64_t time = inode->pages[p].versions[inode->pages[p].count - 1].time;
            latest = time > latest ? time : latest;
        }
    }
    return latest;
}

static bool is_among_few(struct draw *draw) {
    size_t number = draw->next_choice++;
    for (size_t i = 0; i < draw->few_count; i++)
        if (draw->few[i] == number)
            return true;
    return false;
}

/* Whether a single choice last changed at `time` has reached the disk. */
static bool reached(struct draw *draw, uint64_t time) {
    switch (draw->style) {
    case CRASH_NOTHING:
        return false;
    case CRASH_EVERYTHING:
    case CRASH_DROP_SECTORS:
        return true;
    case CRASH_NEWEST:
        return time >= draw->time_split;
    case CRASH_OLDEST:
        return time < draw->time_split;
    case CRASH_DROP_FEW:
        return !is_among_few(draw);
    case CRASH_KEEP_FEW:
        return is_among_few(draw);
    default:
        return test_random_chance(draw->random, draw->keep_percent);
    }
}

/* ---- names ---------------------------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct crash_name *)a)->path, ((const struct crash_name *)b)->path);
}

static void draw_names(struct draw *draw, struct crash_names *names) {
    const struct crash_model *model = draw->model;
    for (size_t i = 0; i < model->durable.count; i++)
        crash_names_set(names, model->durable.list[i].path, model->durable.list[i].inode);
    /* A journal keeps the order of changes, so half of the random disks take a prefix of them. */
    bool prefix = draw->style >= CRASH_RANDOM_PAGES && test_random_chance(draw->random, 50);
    size_t prefix_count = prefix ? test_random_below(draw->random, model->change_count + 1) : 0;
    for (size_t i = 0; i < model->change_count; i++)
        if (prefix ? i < prefix_count : reached(draw, model->changes[i].time))
            crash_names_apply(names, &model->changes[i]);
    if (names->count > 0)
        qsort(names->list, names->count, sizeof *names->list, compare_names); /* parents before what is in them */
}

/* ---- contents ------------------------------------------------------------------------------------------------- */

static const uint8_t *version_bytes(const struct crash_page *page, uint32_t version) {
    static const uint8_t zeros[CRASH_PAGE_SIZE];
    const struct crash_blob *blob = page->versions[version].blob;
    return blob != NULL ? blob->bytes : zeros;
}

/* One of the versions that can stand beside the chosen size; the durable one when the page has not reached the disk. */
static uint32_t draw_version(struct draw *draw, const struct crash_inode *inode, size_t index, uint64_t size_time,
                             bool page_reached) {
    const struct crash_page *page = &inode->pages[index];
    uint32_t fitting[CRASH_VERSIONS_MAX];
    uint32_t count = 0;
    for (uint32_t v = 0; v < page->count; v++)
        if (crash_inode_agrees(inode, index, page->versions[v].time, size_time))
            fitting[count++] = v;
    if (count == 0) /* only when the middle versions were forgotten: the nearest end then */
        return page_reached ? page->count - 1 : 0;
    if (!page_reached)
        return fitting[0];
    if (draw->style < CRASH_RANDOM_PAGES || test_random_chance(draw->random, 60))
        return fitting[count - 1];
    return fitting[test_random_below(draw->random, count)];
}

static void draw_page(struct draw *draw, const struct crash_inode *inode, size_t index, uint64_t size_time, int whole,
                      uint8_t *target) {
    const struct crash_page *page = &inode->pages[index];
    bool dirty = is_dirty(page);
    bool page_reached = dirty && (whole >= 0 ? whole > 0 : reached(draw, page->versions[page->count - 1].time));
    uint32_t version = draw_version(draw, inode, index, size_time, page_reached);
    memcpy(target, version_bytes(page, version), CRASH_PAGE_SIZE);
    if (dirty && draw->style == CRASH_DROP_SECTORS && test_random_chance(draw->random, 50)) {
        uint32_t old = draw_version(draw, inode, index, size_time, false);
        for (uint64_t left = 1 + test_random_below(draw->random, 2); left > 0; left--) {
            size_t at = test_random_below(draw->random, SECTORS) * CRASH_SECTOR_SIZE;
            memcpy(target + at, version_bytes(page, old) + at, CRASH_SECTOR_SIZE);
        }
    }
    if (!dirty || draw->style != CRASH_RANDOM_TORN || test_random_chance(draw->random, 40))
        return;
    /* Torn: a prefix, a suffix or any set of sectors comes from another version. */
    uint32_t other = draw_version(draw, inode, index, size_time, !page_reached);
    uint64_t kind = test_random_below(draw->random, 3);
    size_t cut = test_random_below(draw->random, SECTORS + 1);
    for (size_t s = 0; s < SECTORS; s++) {
        bool take = kind == 0 ? s < cut : kind == 1 ? s >= cut : test_random_chance(draw->random, 50);
        if (take)
            memcpy(target + s * CRASH_SECTOR_SIZE, version_bytes(page, other) + s * CRASH_SECTOR_SIZE,
                   CRASH_SECTOR_SIZE);
    }
}

static struct crash_size draw_size(struct draw *draw, const struct crash_inode *inode, int whole) {
    uint32_t last = inode->size_count - 1;
    if (last == 0 || whole == 0)
        return inode->sizes[0];
    if (whole > 0)
        return inode->sizes[last];
    if (!reached(draw, inode->sizes[last].time))
        return inode->sizes[0];
    if (draw->style < CRASH_RANDOM_PAGES || test_random_chance(draw->random, 60))
        return inode->sizes[last];
    return inode->sizes[test_random_below(draw->random, inode->size_count)];
}

static void draw_file(struct draw *draw, const struct crash_inode *inode, const char *path) {
    int whole = draw->style != CRASH_RANDOM_FILES ? -1 : test_random_chance(draw->random, draw->keep_percent) ? 1 : 0;
    struct crash_size size = draw_size(draw, inode, whole);
    size_t page_count = (size_t)((size.size + CRASH_PAGE_SIZE - 1) / CRASH_PAGE_SIZE);
    size_t capacity = (page_count > inode->page_count ? page_count : inode->page_count) * CRASH_PAGE_SIZE;
    uint8_t *content = calloc(1, capacity + 1);
    CHECK(content != NULL, "out of memory");
    for (size_t i = 0; i < inode->page_count; i++)
        draw_page(draw, inode, i, size.time, whole, content + i * CRASH_PAGE_SIZE);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    CHECK(fd >= 0, "cannot create %s: %s", path, strerror(errno));
    CHECK(write(fd, content, (size_t)size.size) == size.size, "cannot write %s: %s", path, strerror(errno));
    close(fd);
    free(content);
}

static void prepare(struct draw *draw, size_t choices) {
    static const uint32_t keep_percents[] = {5, 25, 50, 75, 95};
    uint64_t latest = latest_time(draw->model);
    uint64_t span = latest < 64 || test_random_chance(draw->random, 30) ? latest : 64;
    draw->keep_percent = keep_percents[test_random_below(draw->random, 5)];
    draw->time_split = latest - test_random_below(draw->random, span + 1);
    draw->few_count = 1 + test_random_below(draw->random, FEW_MAX);
    for (size_t i = 0; i < draw->few_count; i++)
        draw->few[i] = test_random_below(draw->random, choices);
}

void crash_image_write(const struct crash_image *image, enum crash_style style, struct test_random *random,
                       const char *directory) {
    struct draw draw = {.model = &image->model, .style = style, .random = random};
    struct crash_names names = {NULL, 0, 0};
    prepare(&draw, crash_image_choices(image));
    draw_names(&draw, &names);
    CHECK(mkdir(directory, 0755) == 0, "cannot make %s: %s", directory, strerror(errno));
    for (size_t i = 0; i < names.count; i++) {
        const struct crash_inode *inode = image->model.inodes[names.list[i].inode];
        char path[PYMQ_PATH_MAX];
        scratch_join(path, sizeof path, directory, names.list[i].path);
        if (inode->is_directory) {
            CHECK(mkdir(path, 0755) == 0 || errno == ENOENT, "cannot make %s: %s", path, strerror(errno));
            continue;
        }
        char *slash = strrchr(path, '/');
        *slash = '\0';
        bool reachable = access(path, F_OK) == 0; /* a directory that is not there hides everything below it */
        *slash = '/';
        if (reachable)
            draw_file(&draw, inode, path);
    }
    free(names.list);
}
