/* Answers that wait: for the disk (SYNC_FLUSH), for a replica (SYNC_MASTER).
 *
 * Each reactor has a list of its own, ordered by the log offset that must be acknowledged, naming connections by id.
 * The store raises a watermark and rings the reactor's eventfd; the reactor answers from the list's head, drops entries
 * of closed connections, and times out by its timer. Ten thousand waiting sends cost no thread and one fdatasync.
 *
 * Sends that came through the control loop wait here too: they are left in an inbox and join the list in the next turn.
 */
#ifndef PYMQ_SERVE_PARKED_H
#define PYMQ_SERVE_PARKED_H

#include "answer.h"

struct pymq_parked_entry;
struct pymq_parked_block;

struct pymq_parked {
    struct pymq_parked_entry *head, *tail; /* the reactor's; by end offset, the smallest first */
    struct pymq_parked_entry *unused;      /* of the blocks */
    struct pymq_parked_block *blocks;
    _Atomic int64_t count; /* of list and inbox */

    pthread_mutex_t inbox_lock; /* guards the next two; a leaf */
    struct pymq_parked_entry *inbox, *inbox_tail;
    _Atomic int event_fd; /* of the reactor; -1 until it runs */
};

int pymq_parked_init(struct pymq_parked *parked);
void pymq_parked_destroy(struct pymq_parked *parked); /* entries are dropped: their connections are gone */

/* Park a send of this reactor until its last message is acknowledged. Without memory for that it stays without an
 * answer, and the producer's own time-out takes over. [reactor] */
void pymq_parked_send(struct pymq_serve_reactor *state, const struct pymq_sent *sent, int64_t end_offset);

/* The same for a request whose answer says nothing but that it was done. [reactor] */
void pymq_parked_plain(struct pymq_serve_reactor *state, const struct pymq_asker *asker, int64_t end_offset);

/* Answer what has been acknowledged or failed. [reactor] */
void pymq_parked_complete(struct pymq_serve_reactor *state);

/* … and what is due. Returns when it wants to be called next, INT64_MAX for never. [reactor] */
int64_t pymq_parked_expire(struct pymq_serve_reactor *state, int64_t now_ms);

#endif
