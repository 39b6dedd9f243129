/* Starting and stopping the store's threads. */
#include "store_internal.h"
#include "thread.h"

void pymq_worker_init(struct pymq_worker *worker) {
    memset(worker, 0, sizeof *worker);
    pymq_gate_init(&worker->gate);
}

int pymq_worker_start(struct pymq_worker *worker, const char *name, void *(*run)(void *), struct pymq_store *store) {
    if (pymq_thread_start(&worker->thread, name, run, store) != 0)
        return PYMQ_ENOMEM;
    worker->started = true;
    return PYMQ_OK;
}

void pymq_worker_stop(struct pymq_worker *worker) {
    if (!worker->started)
        return;
    atomic_store(&worker->stop, true);
    pymq_gate_ring_slow(&worker->gate);
    pthread_join(worker->thread, NULL);
    worker->started = false;
}
