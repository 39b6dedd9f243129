/* Letters to a reactor from other threads: frames to send, connections to start or to close.
 *
 * Posting is one allocation and one compare-and-swap. The eventfd is written only when the reactor sleeps: it says so
 * before it looks at the inbox a last time, and the poster looks after putting its letter in, both sequentially
 * consistent, so one of the two sees the other.
 */
#include "remoting_internal.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The eventfds of a reactor are edge-triggered: each write is an edge, and nobody ever reads them. */
void pymq_reactor_ring(struct pymq_reactor *reactor) {
    uint64_t one = 1;
    ssize_t written = write(reactor->wake_fd, &one, sizeof one);
    (void)written; /* only a count of 2^64 - 1 rings could refuse it */
    atomic_fetch_add_explicit(&reactor->transport->wakes, 1, memory_order_relaxed);
}

/* Wake the reactor if it sleeps on letters. */
void pymq_inbox_ring(struct pymq_reactor *reactor) {
    if (atomic_load(&reactor->sleeping) && atomic_exchange(&reactor->sleeping, false))
        pymq_reactor_ring(reactor);
}

/* Takes `frame` over in every case; the caller rings. PYMQ_OK or PYMQ_ENOMEM. */
int pymq_reactor_post(struct pymq_reactor *reactor, enum letter_kind kind, pymq_connection_id connection,
                      uint32_t flags, struct chunk *frame) {
    struct letter *letter = malloc(sizeof *letter);
    if (letter == NULL) {
        pymq_chunk_discard(frame);
        return PYMQ_ENOMEM;
    }
    letter->kind = kind;
    letter->flags = flags;
    letter->connection = connection;
    letter->frame = frame;
    atomic_fetch_add(&reactor->posted, 1);
    struct letter *first = atomic_load_explicit(&reactor->inbox, memory_order_relaxed);
    do {
        letter->next = first;
    } while (!atomic_compare_exchange_weak(&reactor->inbox, &first, letter));
    return PYMQ_OK;
}

/* All letters, oldest first. */
static struct letter *inbox_take(struct pymq_reactor *reactor) {
    if (atomic_load_explicit(&reactor->inbox, memory_order_relaxed) == NULL)
        return NULL;
    struct letter *stack = atomic_exchange(&reactor->inbox, NULL), *queue = NULL;
    while (stack != NULL) {
        struct letter *next = stack->next;
        stack->next = queue;
        queue = stack;
        stack = next;
    }
    return queue;
}

/* The end of a connection that nobody times out is not put off: what the socket takes now is all it gets. */
static void close_after_writes(struct pymq_connection *connection) {
    connection->flags |= CONNECTION_LAST_WRITES;
    pymq_output_write(connection);
    if (connection->output_first == NULL || (connection->flags & CONNECTION_ON_WHEEL) == 0)
        pymq_connection_doom(connection);
}

static void letter_open(struct pymq_reactor *reactor, struct letter *letter) {
    struct pymq_connection *connection = pymq_connection_named(reactor, letter->connection);
    bool usable = connection != NULL && (connection->flags & (CONNECTION_DOOMED | CONNECTION_LAST_WRITES)) == 0;
    switch (letter->kind) {
    case LETTER_START:
        if (usable)
            pymq_connection_start(connection, letter->flags);
        break;
    case LETTER_SEND:
        if (usable)
            pymq_output_take_frame(connection, letter->frame);
        else
            pymq_chunk_discard(letter->frame);
        break;
    case LETTER_CLOSE:
        if (usable)
            close_after_writes(connection);
        break;
    }
}

void pymq_inbox_empty(struct pymq_reactor *reactor) {
    struct letter *letter = inbox_take(reactor);
    while (letter != NULL) {
        struct letter *next = letter->next;
        letter_open(reactor, letter);
        free(letter);
        atomic_fetch_sub(&reactor->posted, 1); /* after the bytes count as output: is_drained never sees neither */
        letter = next;
    }
}

/* The reactor has ended. */
void pymq_inbox_discard(struct pymq_reactor *reactor) {
    struct letter *letter = inbox_take(reactor);
    while (letter != NULL) {
        struct letter *next = letter->next;
        pymq_chunk_discard(letter->frame);
        free(letter);
        letter = next;
    }
}
