/* Sends that were handed over and must not be overtaken.
 *
 * When a send of a connection to a topic goes to the control loop, later ones of the same connection to the same topic
 * go there too until the earlier are in the log: a pipelined producer is not reordered by the switch of planes. The
 * reactor enters, the control loop leaves; nearly always there is nothing here, and the check is one load. */
#ifndef PYMQ_SERVE_ORDER_H
#define PYMQ_SERVE_ORDER_H

#include <pthread.h>
#include <stdatomic.h>

#include "pymq/serve.h"
#include "row_map.h"

struct pymq_order {
    _Atomic size_t count;      /* entries; read without the lock by the reactor, which alone makes them */
    pthread_mutex_t lock;      /* guards the rest; a leaf: nothing is taken inside */
    struct pymq_row_map entries;
};

int pymq_order_init(struct pymq_order *order);
void pymq_order_destroy(struct pymq_order *order);

/* Whether a send handed over earlier is not settled yet. [reactor] */
bool pymq_order_is_waiting(struct pymq_order *order, pymq_connection_id connection, const uint8_t *topic, size_t size,
                           int64_t now_ms);

/* A send is handed over. Without memory for an entry order is not kept for it, which no acknowledgement promises. */
void pymq_order_enter(struct pymq_order *order, pymq_connection_id connection, const uint8_t *topic, size_t size);

/* It is in the log, refused, or gone. Any thread. */
void pymq_order_leave(struct pymq_order *order, pymq_connection_id connection, const uint8_t *topic, size_t size);

/* A frame was handed over that only the Python codec can read: perhaps a send, to whatever topic. Every send of the
 * connection waits until `expires_ms`, or until as many were left as entered: nobody leaves for frames that were not
 * sends. */
void pymq_order_enter_any(struct pymq_order *order, pymq_connection_id connection, int64_t expires_ms);
void pymq_order_leave_any(struct pymq_order *order, pymq_connection_id connection);

/* The connection is closed: nobody pipelines on it any more. */
void pymq_order_forget(struct pymq_order *order, pymq_connection_id connection);

#endif
