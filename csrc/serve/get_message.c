/* Reading a queue for a pull, with DefaultMessageStore.getMessage's results: what to answer, where to go on, when a
 * batch is full. Which records to send is decided by their units, and by a filter program that looks at their
 * properties if there is one; otherwise the log is touched only to make spans of them. */
#include <time.h>

#include "pull_internal.h"

#define UNIT_SIZE 20
#define FILTER_BYTES_MAX 16000              /* maxFilterMessageSize: units looked at in one pull, in bytes */
#define PULL_BYTES_MAX (128 * 1024 * 1024)  /* MAX_PULL_MSG_SIZE */
#define PULL_BYTES_MIN 100
#define SCAN_UNITS_MAX 16384                /* units one pull walks at most, however many messages it asks for */
#define UNITS_AT_ONCE 64
#define QUEUE_HOT_UNITS 1024               /* the newest units of a queue are taken to be in memory: 20 KiB */
#define PROBE_GAP (64 * 1024)               /* records closer than this are asked about together */
#define RETRIES_MAX 3                       /* log files removed between the look and the read */
#define FILTER_NS_MAX 10000000              /* CPU of a program in one pull or look: its expression may be costly … */
#define FILTER_SIZE_LOOKED_AT 256           /* … and above this size it is timed at every record, not every 64 */
#define TAGS_CODE_EXTENDED (-INT64_C(2147483648) - 1) /* at or below: an address of ConsumeQueueExt; matches */

bool pymq_filter_matches(const struct pymq_filter *filter, int64_t tags_code) {
    if (filter->all || filter->program != NULL || tags_code <= TAGS_CODE_EXTENDED)
        return true;
    int32_t code = (int32_t)tags_code; /* Long.intValue: the set holds hashes */
    for (uint32_t i = 0; i < filter->count; i++) {
        if (filter->hashes[i] == code)
            return true;
    }
    return false;
}

struct pymq_get_limits pymq_get_limits(const struct pymq_serve_config *config) {
    return (struct pymq_get_limits){config->transfer_bytes_memory, config->transfer_count_memory,
                                    config->transfer_bytes_disk,   config->transfer_count_disk,
                                    config->memory_bytes_max,      config->hot_bytes};
}

/* A get on its way. */
struct reading {
    struct pymq_store *store;
    const struct pymq_get_limits *limits;
    struct pymq_queue *queue;
    struct pymq_get *get;
    struct pymq_filter filter;
    int64_t log_end, log_begin;
    int64_t bytes_max;
    int64_t pulling; /* physical offset of the last unit looked at */
    struct pymq_record_reader records; /* for a program to look at */
    int64_t begin_ns;                  /* when it began to */
    size_t count;
    struct pymq_cq_unit units[PYMQ_GET_COUNT_MAX]; /* chosen */
    int64_t offsets[PYMQ_GET_COUNT_MAX];
};

/* isTheBatchFull. The first message goes whatever its size. */
static bool is_full(const struct reading *reading, int32_t size, bool in_memory) {
    const struct pymq_get_limits *limits = reading->limits;
    int64_t count = (int64_t)reading->count, bytes = (int64_t)reading->get->bytes;
    if (count == 0)
        return false;
    if (count >= PYMQ_GET_COUNT_MAX || count + 1 > reading->get->count_max || bytes + size > reading->bytes_max)
        return true;
    return in_memory ? bytes + size > limits->bytes_memory || count > (int64_t)limits->count_memory - 1
                     : bytes + size > limits->bytes_disk || count > (int64_t)limits->count_disk - 1;
}

/* Whether a record satisfies the program; one that cannot be read does, so that whoever sends it finds out why.
 * `*removed` when the log has it no more. */
static bool satisfies(struct pymq_record_reader *records, const struct pymq_shared_program *shared,
                      const struct pymq_cq_unit *unit, bool *removed) {
    const uint8_t *record;
    struct pymq_slice properties;
    int status = pymq_record_reader_at(records, unit, &record);
    *removed = status == PYMQ_ENOTFOUND;
    if (status != PYMQ_OK || !pymq_record_properties(record, (size_t)unit->size, &properties))
        return true;
    return pymq_filter_evaluate(&shared->program, properties.data, properties.size) == PYMQ_FILTER_TRUE;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Whether a program has had its share of the reactor's time, `index` records into a batch of units. */
static bool is_used_up(const struct pymq_shared_program *shared, int64_t begin_ns, ssize_t index) {
    return shared != NULL && (index == 0 || shared->program.size > FILTER_SIZE_LOOKED_AT) &&
           now_ns() - begin_ns > FILTER_NS_MAX;
}

/* Look at one unit; false when the batch ends before it. */
static bool take(struct reading *reading, const struct pymq_cq_unit *unit, int64_t offset) {
    struct pymq_get *get = reading->get;
    bool in_memory = reading->log_end - unit->physical_offset <= reading->limits->memory_bytes_max;
    if (is_full(reading, unit->size, in_memory) || (int64_t)get->bytes >= reading->bytes_max)
        return false;
    reading->pulling = unit->physical_offset;
    get->next_offset = offset + 1;
    if (!pymq_filter_matches(&reading->filter, unit->tags_code)) {
        if (reading->count == 0)
            get->status = PYMQ_GET_NO_MATCHED_MESSAGE;
        return true;
    }
    if (unit->physical_offset < reading->log_begin || unit->size == PYMQ_CQ_BLANK_RECORD_SIZE) {
        if (reading->count == 0)
            get->status = PYMQ_GET_MESSAGE_WAS_REMOVING;
        return true;
    }
    bool removed = false;
    if (reading->filter.program != NULL &&
        (!satisfies(&reading->records, reading->filter.program, unit, &removed) || removed)) {
        if (reading->count == 0)
            get->status = removed ? PYMQ_GET_MESSAGE_WAS_REMOVING : PYMQ_GET_NO_MATCHED_MESSAGE;
        return true;
    }
    get->status = PYMQ_GET_FOUND;
    reading->units[reading->count] = *unit;
    reading->offsets[reading->count++] = offset;
    get->bytes += (uint64_t)unit->size;
    return true;
}

/* How many units may be walked. Differs: Apache walks as many as messages are asked for, be it a hundred million. */
static int64_t scan_max_of(const struct pymq_get *get) {
    int32_t wanted_bytes = (int32_t)((uint32_t)get->count_max * UNIT_SIZE); /* Java's int multiplication */
    int64_t wanted = (pymq_max64(FILTER_BYTES_MAX, wanted_bytes) + UNIT_SIZE - 1) / UNIT_SIZE;
    return pymq_min64(pymq_min64(wanted, SCAN_UNITS_MAX), get->max_offset - get->offset);
}

/* Do `visit` with the ranges of the log that hold these records and are not among its newest, until it says no. */
static bool for_older(const struct reading *reading, const struct pymq_cq_unit *units, size_t count,
                      bool (*visit)(struct pymq_store *store, int64_t begin, int64_t size)) {
    int64_t hot_from = reading->log_end - reading->limits->hot_bytes;
    int64_t begin = -1, end = -1;
    for (size_t i = 0; i < count; i++) {
        int64_t at = units[i].physical_offset, behind = at + units[i].size;
        if (at >= hot_from || at < reading->log_begin || units[i].size == PYMQ_CQ_BLANK_RECORD_SIZE)
            continue;
        if (begin >= 0 && at >= begin && at <= end + PROBE_GAP) {
            end = pymq_max64(end, behind);
            continue;
        }
        if (begin >= 0 && !visit(reading->store, begin, end - begin))
            return false;
        begin = at;
        end = behind;
    }
    return begin < 0 || visit(reading->store, begin, end - begin);
}

static bool load(struct pymq_store *store, int64_t begin, int64_t size) {
    pymq_store_load(store, begin, size, 0);
    return true;
}

/* Whether these records can be read without waiting for the disk. The newest are not asked about. */
static bool is_resident(const struct reading *reading, const struct pymq_cq_unit *units, size_t count) {
    return for_older(reading, units, count, pymq_store_is_resident);
}

/* Records a program is about to look at: who may wait brings them in whole, so that who may not finds them there. */
static bool may_look_at(const struct reading *reading, const struct pymq_cq_unit *units, size_t count) {
    if (reading->filter.program == NULL)
        return true;
    return reading->get->no_wait ? is_resident(reading, units, count) : for_older(reading, units, count, load);
}

/* Choose the records by walking units. */
static int choose(struct reading *reading) {
    struct pymq_get *get = reading->get;
    int64_t end = get->offset + scan_max_of(get);
    int64_t step = pymq_max64(1, pymq_min64(get->count_max, UNITS_AT_ONCE));
    get->status = PYMQ_GET_NO_MATCHED_MESSAGE;
    for (int64_t at = get->offset; at < end;) {
        struct pymq_cq_unit units[UNITS_AT_ONCE];
        ssize_t got =
            pymq_queue_units(reading->store, reading->queue, at, units, (size_t)pymq_min64(step, end - at));
        if (got <= 0)
            return reading->count > 0 ? PYMQ_OK : got == 0 ? PYMQ_ENOTFOUND : (int)got;
        if (!may_look_at(reading, units, (size_t)got)) {
            if (reading->count == 0) /* otherwise: what has been found so far */
                get->status = PYMQ_GET_COLD;
            return PYMQ_OK;
        }
        for (ssize_t i = 0; i < got; i++, at++) {
            if (at > get->offset && is_used_up(reading->filter.program, reading->begin_ns, i))
                return PYMQ_OK; /* the client goes on from here */
            if (!take(reading, &units[i], at))
                return PYMQ_OK;
        }
        step = UNITS_AT_ONCE; /* a filter that lets little through: in longer steps */
    }
    return PYMQ_OK;
}

static bool units_are_resident(const struct reading *reading) {
    const struct pymq_get *get = reading->get;
    if (get->max_offset - get->offset <= QUEUE_HOT_UNITS)
        return true;
    /* Without a filter no more are looked at than taken; with one, maybe all that may be. */
    int64_t count = scan_max_of(get);
    if (reading->filter.all)
        count = pymq_min64(count, pymq_max64(1, get->count_max));
    return pymq_queue_is_resident(reading->store, reading->queue, get->offset, count);
}

/* Make spans of the chosen records. PYMQ_ENOTFOUND: the log's oldest file went meanwhile, look again. */
static int make_spans(struct reading *reading, struct pymq_span *spans, size_t span_max) {
    struct pymq_get *get = reading->get;
    size_t span_count = 0;
    int status;
    size_t done =
        pymq_store_records(reading->store, reading->units, reading->count, spans, span_max, &span_count, &status);
    get->span_count = (uint32_t)span_count;
    get->message_count = (uint32_t)done;
    if (done == reading->count)
        return PYMQ_OK;
    if (done == 0)
        return status != PYMQ_OK ? status : PYMQ_EINVAL;
    get->next_offset = reading->offsets[done]; /* what can be read goes; the rest is met again */
    get->bytes = 0;
    for (size_t i = 0; i < done; i++)
        get->bytes += (uint64_t)reading->units[i].size;
    return PYMQ_OK;
}

static void fail(struct pymq_get *get, int status) {
    get->status = PYMQ_GET_ERROR;
    get->error_status = status;
}

/* offset lies in [min, max). */
static int read_messages(struct reading *reading, struct pymq_span *spans, size_t span_max) {
    struct pymq_get *get = reading->get;
    get->next_offset = get->offset;
    get->bytes = 0;
    reading->count = 0;
    reading->pulling = 0;
    if (get->no_wait && !units_are_resident(reading)) {
        get->status = PYMQ_GET_COLD;
        return PYMQ_OK;
    }
    pymq_record_reader_begin(&reading->records, reading->store);
    reading->begin_ns = reading->filter.program != NULL ? now_ns() : 0;
    int status = choose(reading);
    pymq_record_reader_end(&reading->records);
    if (status == PYMQ_ENOTFOUND) {
        get->status = PYMQ_GET_OFFSET_FOUND_NULL;
        return PYMQ_OK;
    }
    if (status != PYMQ_OK)
        return status;
    get->suggest_slave = reading->log_end - reading->pulling > reading->limits->memory_bytes_max;
    if (reading->count == 0)
        return PYMQ_OK;
    if (get->no_wait && !is_resident(reading, reading->units, reading->count)) {
        get->status = PYMQ_GET_COLD;
        return PYMQ_OK;
    }
    return make_spans(reading, spans, span_max);
}

/* Where the offset lies decides everything but the messages themselves. True when it lies in the queue. */
static bool place(struct pymq_get *get, struct pymq_queue *queue) {
    struct pymq_queue_info info = {.min_offset = 0};
    if (queue != NULL)
        pymq_queue_info(queue, &info);
    get->min_offset = info.min_offset;
    get->max_offset = info.max_offset;
    if (info.max_offset == 0) {
        get->status = PYMQ_GET_NO_MESSAGE_IN_QUEUE;
        get->next_offset = 0;
    } else if (get->offset < info.min_offset) {
        get->status = PYMQ_GET_OFFSET_TOO_SMALL;
        get->next_offset = info.min_offset;
    } else if (get->offset == info.max_offset) {
        get->status = PYMQ_GET_OFFSET_OVERFLOW_ONE;
        get->next_offset = get->offset;
    } else if (get->offset > info.max_offset) {
        get->status = PYMQ_GET_OFFSET_OVERFLOW_BADLY;
        get->next_offset = info.max_offset;
    } else {
        return true;
    }
    return false;
}

void pymq_get_read(struct pymq_store *store, const struct pymq_get_limits *limits, struct pymq_queue *queue,
                   struct pymq_get *get, struct pymq_span *spans, size_t span_max) {
    struct reading reading; /* large: only what is read is set */
    reading.store = store;
    reading.limits = limits;
    reading.queue = queue;
    reading.get = get;
    reading.filter = (struct pymq_filter){get->tag_hashes == NULL && get->program == NULL, get->tag_count,
                                          get->tag_hashes, get->program};
    reading.bytes_max = get->bytes_max <= 0 ? PULL_BYTES_MAX
                                            : pymq_min64(PULL_BYTES_MAX, pymq_max64(PULL_BYTES_MIN, get->bytes_max));
    get->error_status = PYMQ_OK;
    get->suggest_slave = false;
    get->span_count = get->message_count = 0;
    get->bytes = 0;
    for (int attempt = 0; attempt < RETRIES_MAX; attempt++) {
        if (!place(get, queue))
            return;
        struct pymq_watermarks marks;
        pymq_store_watermarks(store, &marks);
        reading.log_end = marks.written;
        reading.log_begin = marks.min;
        int status = read_messages(&reading, spans, span_max);
        if (status == PYMQ_OK)
            return;
        fail(get, status);
        if (status != PYMQ_ENOTFOUND)
            return;
    }
}

void pymq_serve_get(struct pymq_serve *serve, struct pymq_get *get, struct pymq_span *spans, size_t span_max) {
    struct pymq_queue *queue = NULL;
    pthread_mutex_lock(&serve->tables.control_lock); /* settings change only under it */
    struct pymq_get_limits limits = pymq_get_limits(&serve->config);
    pthread_mutex_unlock(&serve->tables.control_lock);
    if (pymq_store_queue(serve->store, get->topic.data, get->topic.size, get->queue_id, false, &queue) != PYMQ_OK)
        queue = NULL;
    pymq_get_read(serve->store, &limits, queue, get, spans, span_max);
}

int64_t pymq_get_first_match(struct pymq_store *store, struct pymq_queue *queue, int64_t from, int64_t to,
                             const struct pymq_filter *filter, int64_t hot_bytes) {
    struct pymq_record_reader records;
    struct pymq_watermarks marks = {.written = 0};
    bool found = filter->all;
    int64_t begin_ns = filter->program != NULL ? now_ns() : 0;
    if (filter->program != NULL)
        pymq_store_watermarks(store, &marks);
    pymq_record_reader_begin(&records, store);
    while (from < to && !found) {
        struct pymq_cq_unit units[UNITS_AT_ONCE];
        ssize_t got = pymq_queue_units(store, queue, from, units, (size_t)pymq_min64(UNITS_AT_ONCE, to - from));
        if (got <= 0)
            break; /* expired meanwhile, or unreadable: let the pull itself find out */
        for (ssize_t i = 0; i < got && !found; i++) {
            bool removed = false;
            found = pymq_filter_matches(filter, units[i].tags_code);
            if (filter->program != NULL)
                found = is_used_up(filter->program, begin_ns, i) ||
                        units[i].physical_offset < marks.written - hot_bytes ||
                        satisfies(&records, filter->program, &units[i], &removed);
            from += !found;
        }
    }
    pymq_record_reader_end(&records);
    return from;
}
