/* Native serving put together, for the files of csrc/serve only.
 *
 * service.c is the door: it takes what the transport calls and passes it to one of two halves.
 *   sends and offsets:  send.c collect.c answer.c parked.c order.c offset_request.c put.c reput.c due.c
 *                       send_back.c end_transaction.c transactions.c again.c
 *   pulls:              pull_request.c get_message.c hold_table.c cold_reads.c (pull_internal.h)
 * Each half has its own state per reactor, touched only inside that reactor's turn unless it says otherwise.
 */
#ifndef PYMQ_SERVE_INTERNAL_H
#define PYMQ_SERVE_INTERNAL_H

#include "tables.h"

struct pymq_collect;      /* sends of this turn, to be appended together: collect.h */
struct pymq_parked;       /* answers that wait for a flush or a replica: parked.h */
struct pymq_order;        /* handed-over sends that later ones must not overtake: order.h */
struct pymq_broker_properties; /* what is added to every message: send.h */
struct pymq_answer_template; /* the answer to one message: answer_template.h */
struct pymq_transactions; /* half messages that were claimed: transactions.h */
struct pymq_pull_reactor; /* holds, cold reads: pull_internal.h */
struct pymq_pull_serve;   /* what the pull half shares between reactors: pull_internal.h */

/* Counters: one writer each (the reactor), read by anybody. */
struct pymq_serve_counters {
    _Atomic int64_t sent_messages, sent_bytes, commits;        /* send half */
    _Atomic int64_t sent_back, transactions;
    _Atomic int64_t pulled_messages, pulled_bytes, cold_reads; /* pull half */
    _Atomic int64_t holds_ended_arrival, holds_ended_time, holds_ended_other;
    _Atomic int64_t parked_late;
};

/* Add to a counter that only this thread writes: a plain addition, no locked instruction. */
static inline void pymq_count(_Atomic int64_t *counter, int64_t by) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by, memory_order_relaxed);
}

/* One reactor's part of the serving. */
struct pymq_serve_reactor {
    struct pymq_serve *serve;
    struct pymq_reactor *reactor; /* NULL until its first callback */
    unsigned index;
    bool listening;               /* the store rings this reactor's eventfd */
    struct pymq_collect *collect; /* NULL until the first send */
    struct pymq_parked *parked;
    struct pymq_order *order;
    struct pymq_pull_reactor *pull;
    int64_t resident_from, resident_to; /* a part of the log that was found to be in memory in this turn */
    struct pymq_serve_counters counters;
} __attribute__((aligned(128)));

struct pymq_serve {
    struct pymq_serve_config config; /* replaced under exclusion */
    struct pymq_store *store;
    struct pymq_transport *transport; /* NULL until pymq_serve_attach */
    struct pymq_service service;
    struct pymq_tables tables;
    struct pymq_broker_properties *added;         /* made from the settings, replaced with them */
    struct pymq_answer_template *answer_template; /* the same */
    struct pymq_pull_serve *pull;
    struct pymq_transactions *transactions;
    _Atomic int64_t put_messages, put_bytes; /* by the control loop: put.c */
    struct pymq_serve_reactor reactors[PYMQ_REACTORS_MAX];
};

/* The serving's state of the reactor a callback was made for. */
struct pymq_serve_reactor *pymq_serve_reactor(struct pymq_serve *serve, struct pymq_reactor *reactor);

/* ---- what service.c calls in the pull half ---------------- */

int pymq_pull_open(struct pymq_serve *serve, struct pymq_error *error);
void pymq_pull_close(struct pymq_serve *serve); /* after the transport has been closed: no reactor runs any more */
/* Codes 11 and 361. PYMQ_SERVED or PYMQ_HAND_OVER + reason; only called while `native` is on. */
int pymq_pull_request(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                      const struct pymq_command *command, const uint8_t *frame, size_t frame_size);
void pymq_pull_settle(struct pymq_serve_reactor *state); /* behind the appends of the turn */
void pymq_pull_event(struct pymq_serve_reactor *state);
/* Returns when it wants to be called next, INT64_MAX for never. The first call comes at the reactor's start. */
int64_t pymq_pull_timer(struct pymq_serve_reactor *state, int64_t now_ms);
void pymq_pull_closed(struct pymq_serve_reactor *state, pymq_connection_id connection);
/* Returns when it wants to be called next, INT64_MAX for never. First called at the reactor's start. */
void pymq_pull_topic_removed(struct pymq_serve *serve, struct pymq_topic *topic);
void pymq_pull_group_removed(struct pymq_serve *serve, struct pymq_group *group);
void pymq_pull_subscription_removed(struct pymq_serve *serve, struct pymq_subscription *subscription);
/* Under exclusion, after a row or the settings changed in a way that may decide held pulls otherwise. */
void pymq_pull_topic_changed(struct pymq_serve *serve, struct pymq_topic *topic);
void pymq_pull_group_changed(struct pymq_serve *serve, struct pymq_group *group);
/* Published, perhaps for the first time; `filter_changed`: asks for other messages than before. */
void pymq_pull_subscription_changed(struct pymq_serve *serve, struct pymq_subscription *subscription,
                                    bool filter_changed);
void pymq_pull_configured(struct pymq_serve *serve, const struct pymq_serve_config *before);
void pymq_pull_offset_reset(struct pymq_serve *serve, struct pymq_offset_row *row, int32_t queue_id);
/* The hold count, and whatever else only the pull half knows; counters of reactors are added by the caller. */
void pymq_pull_stats(const struct pymq_serve *serve, struct pymq_serve_stats *stats);

/* ---- what the pull half may call in the other -------------- */

/* A commit riding on a pull. False when the row or cell is missing: hand the request over (GROUP_UNKNOWN). */
bool pymq_offset_commit_native(struct pymq_serve_reactor *state, pymq_connection_id connection, const uint8_t *topic,
                               size_t topic_size, const uint8_t *group, size_t group_size, int32_t queue_id,
                               int64_t offset);
int64_t pymq_monotonic_ms(void); /* pymq_reactor_now_ms for other threads */

#endif
