/* Pulls whose records are on disk only. A thread makes the same get with leave to wait, brings every page of it into
 * memory and asks for more behind it, and posts the pull back to its reactor, which runs it again. */
#include <stdlib.h>

#include "../store/thread.h"
#include "pull_internal.h"

struct pymq_cold_reads {
    struct pymq_store *store;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct pymq_cold_job *first, **last; /* waiting; guarded by lock */
    bool stop;
    _Atomic int32_t jobs; /* posted and not yet back */
    int32_t thread_count;
    pthread_t threads[];
};

/* The pages of what the get found. */
static void load_spans(struct pymq_store *store, struct pymq_cold_job *job, struct pymq_span *spans) {
    struct pymq_get *get = &job->get;
    struct pymq_cq_unit unit;
    for (uint32_t i = 0; i < get->span_count; i++) {
        const uint8_t *data = spans[i].data;
        int64_t offset = (int64_t)pymq_load_be64(data + PYMQ_RECORD_PHYSICAL_OFFSET_AT);
        pymq_store_load(store, offset, spans[i].size, i + 1 == get->span_count ? PYMQ_COLD_AHEAD : 0);
    }
    if (get->span_count == 0 && pymq_queue_units(store, job->queue, get->offset, &unit, 1) == 1)
        pymq_store_load(store, unit.physical_offset, unit.size, PYMQ_COLD_AHEAD);
}

static void read_job(struct pymq_cold_reads *cold, struct pymq_cold_job *job) {
    struct pymq_span spans[PYMQ_GET_COUNT_MAX];
    pymq_queue_load(cold->store, job->queue, job->get.offset, PYMQ_COLD_UNITS);
    job->get.no_wait = false;
    pymq_get_read(cold->store, &job->limits, job->queue, &job->get, spans, PYMQ_GET_COUNT_MAX);
    load_spans(cold->store, job, spans);
    for (uint32_t i = 0; i < job->get.span_count; i++)
        pymq_span_release(cold->store, &spans[i]);
}

static void post_back(struct pymq_cold_reads *cold, struct pymq_cold_job *job) {
    struct pymq_pull_reactor *home = job->home;
    pthread_mutex_lock(&home->inbox_lock);
    job->next = home->cold_done;
    home->cold_done = job;
    pthread_mutex_unlock(&home->inbox_lock);
    atomic_fetch_sub(&cold->jobs, 1);
    pymq_pull_wake(home);
}

static void *run(void *context) {
    struct pymq_cold_reads *cold = context;
    pthread_mutex_lock(&cold->lock);
    for (;;) {
        while (cold->first == NULL && !cold->stop)
            pthread_cond_wait(&cold->wake, &cold->lock);
        if (cold->stop)
            break;
        struct pymq_cold_job *job = cold->first;
        cold->first = job->next;
        if (cold->first == NULL)
            cold->last = &cold->first;
        pthread_mutex_unlock(&cold->lock);
        read_job(cold, job);
        post_back(cold, job);
        pthread_mutex_lock(&cold->lock);
    }
    pthread_mutex_unlock(&cold->lock);
    return NULL;
}

int pymq_cold_open(struct pymq_store *store, int32_t threads, struct pymq_cold_reads **result) {
    threads = threads < 1 ? 1 : threads;
    struct pymq_cold_reads *cold = calloc(1, sizeof *cold + (size_t)threads * sizeof cold->threads[0]);
    if (cold == NULL)
        return PYMQ_ENOMEM;
    cold->store = store;
    cold->last = &cold->first;
    pthread_mutex_init(&cold->lock, NULL);
    pthread_cond_init(&cold->wake, NULL);
    for (; cold->thread_count < threads; cold->thread_count++) {
        if (pymq_thread_start(&cold->threads[cold->thread_count], "pymq-cold", run, cold) != 0)
            break;
    }
    if (cold->thread_count == 0) {
        pymq_cold_close(cold);
        return PYMQ_ENOMEM;
    }
    *result = cold;
    return PYMQ_OK;
}

void pymq_cold_free(struct pymq_cold_job *job) {
    pymq_shared_program_leave(job->get.program);
    free(job);
}

void pymq_cold_close(struct pymq_cold_reads *cold) {
    if (cold == NULL)
        return;
    pthread_mutex_lock(&cold->lock);
    cold->stop = true;
    pthread_cond_broadcast(&cold->wake);
    pthread_mutex_unlock(&cold->lock);
    for (int32_t i = 0; i < cold->thread_count; i++)
        pthread_join(cold->threads[i], NULL);
    while (cold->first != NULL) { /* their connections are gone with the transport */
        struct pymq_cold_job *job = cold->first;
        cold->first = job->next;
        pymq_cold_free(job);
    }
    pthread_mutex_destroy(&cold->lock);
    pthread_cond_destroy(&cold->wake);
    free(cold);
}

int pymq_cold_post(struct pymq_serve_reactor *state, pymq_connection_id connection, const uint8_t *frame,
                   size_t frame_size, const struct pymq_pull_run *run_of, struct pymq_queue *queue,
                   const struct pymq_get *get) {
    struct pymq_cold_reads *cold = state->serve->pull->cold;
    if (atomic_fetch_add(&cold->jobs, 1) >= PYMQ_COLD_JOBS_MAX) {
        atomic_fetch_sub(&cold->jobs, 1);
        return PYMQ_ETOOBIG;
    }
    size_t kept_size = pymq_pull_kept_size(frame, frame_size);
    struct pymq_cold_job *job = malloc(sizeof *job + kept_size);
    if (job == NULL) {
        atomic_fetch_sub(&cold->jobs, 1);
        return PYMQ_ENOMEM;
    }
    job->next = NULL;
    job->home = state->pull;
    job->connection = connection;
    job->run = *run_of;
    job->run.cold_rounds++;
    job->queue = queue;
    job->limits = pymq_get_limits(&state->serve->config);
    job->get = *get;
    if (get->tag_hashes != NULL) {
        if (get->tag_count > 0)
            memcpy(job->hashes, get->tag_hashes, get->tag_count * sizeof *job->hashes);
        job->get.tag_hashes = job->hashes;
    }
    job->get.program = pymq_shared_program_use(get->program); /* the subscription may go meanwhile */
    job->frame_size = (uint32_t)kept_size;
    pymq_pull_keep(job->frame, kept_size, frame, frame_size);
    pymq_count(&state->counters.cold_reads, 1);
    pthread_mutex_lock(&cold->lock);
    *cold->last = job;
    cold->last = &job->next;
    pthread_cond_signal(&cold->wake);
    pthread_mutex_unlock(&cold->lock);
    return PYMQ_OK;
}
