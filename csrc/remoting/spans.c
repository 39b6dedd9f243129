/* Answers that carry pieces of the mapped log.
 *
 * A span pins its window of the log. It normally lives for one turn: the socket takes it at once. What the socket
 * leaves is copied when that is little, and stays pinned when it is much. At its deadline it is copied, too, for a peer
 * that reads, however slowly; a peer that does not read at all is closed.
 */
#include "remoting_internal.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#define SPANS_COPIED_MAX (12 * 1024) /* in all: below, a copy costs less than pieces of some hundred bytes (measured) */
#define REST_COPIED_MAX (64 * 1024) /* what a full socket left, up to here */

static void release_all(struct pymq_store *store, struct pymq_span *spans, size_t span_count) {
    for (size_t i = 0; i < span_count; i++)
        pymq_span_release(store, &spans[i]);
}

static bool append_spans(struct pymq_connection *connection, struct pymq_store *store, struct pymq_span *spans,
                         size_t span_count) {
    struct chunk *chunk = malloc(sizeof *chunk + span_count * sizeof *spans); /* capacity 0: small, to free() */
    if (chunk == NULL)
        return false;
    memset(chunk, 0, sizeof *chunk);
    chunk->store = store;
    chunk->span_count = (uint32_t)span_count;
    memcpy(chunk->data, spans, span_count * sizeof *spans);
    pymq_output_append(connection, chunk);
    return true;
}

void pymq_connection_send_spans(struct pymq_connection *connection, struct pymq_store *store, const uint8_t *head,
                                size_t head_size, struct pymq_span *spans, size_t span_count) {
    size_t total = 0;
    for (size_t i = 0; i < span_count; i++)
        total += spans[i].size;
    bool copied = total <= SPANS_COPIED_MAX;
    uint8_t *target = pymq_connection_reserve(connection, head_size + (copied ? total : 0));
    if (target == NULL) {
        release_all(store, spans, span_count);
        return;
    }
    memcpy(target, head, head_size);
    if (copied) {
        target += head_size;
        for (size_t i = 0; i < span_count; i++) {
            memcpy(target, spans[i].data, spans[i].size);
            target += spans[i].size;
        }
        release_all(store, spans, span_count);
        pymq_connection_commit(connection, head_size + total);
        return;
    }
    /* Head and spans count together, so that no limit falls between them and cuts the answer in two. */
    connection->reserved = 0;
    connection->output_last->size += (uint32_t)head_size;
    if (!append_spans(connection, store, spans, span_count)) {
        release_all(store, spans, span_count);
        pymq_connection_doom(connection); /* half an answer is none */
        return;
    }
    pymq_output_grown(connection, head_size + total);
}

static size_t rest_of(struct chunk *chunk) {
    size_t rest = 0;
    for (uint32_t i = chunk->span_sent; i < chunk->span_count; i++)
        rest += chunk_spans(chunk)[i].size;
    return rest - chunk->sent;
}

/* The rest of a span chunk as bytes in its place. */
static bool replace_with_copy(struct pymq_connection *connection, struct chunk **link, size_t rest) {
    struct chunk *chunk = *link;
    struct chunk *copy = pymq_chunk_make(connection->reactor, rest);
    if (copy == NULL)
        return false;
    for (uint32_t i = chunk->span_sent; i < chunk->span_count; i++) {
        size_t skip = i == chunk->span_sent ? chunk->sent : 0;
        const struct pymq_span *span = &chunk_spans(chunk)[i];
        memcpy(copy->data + copy->size, span->data + skip, span->size - skip);
        copy->size += (uint32_t)(span->size - skip);
    }
    copy->next = chunk->next;
    *link = copy;
    if (connection->output_last == chunk)
        connection->output_last = copy;
    count(&connection->reactor->counters.buffer_bytes, (int64_t)(sizeof *copy + copy->capacity));
    pymq_chunk_free(connection->reactor, chunk);
    return true;
}

/* Bytes the peer has not acknowledged. The socket says that it takes more only when a good part of it is free, which a
 * slow reader may not bring about within the deadline; this tells that it reads nevertheless. */
static uint32_t kernel_holds(const struct pymq_connection *connection) {
    int queued = 0;
    return ioctl(connection->fd, SIOCOUTQ, &queued) == 0 ? (uint32_t)queued : 0;
}

/* After a write that left something: let go of what is small, put a deadline on the rest. */
void pymq_spans_settle(struct pymq_connection *connection) {
    struct pymq_reactor *reactor = connection->reactor;
    size_t copied = 0;
    for (struct chunk **link = &connection->output_first; *link != NULL; link = &(*link)->next) {
        struct chunk *chunk = *link;
        if (chunk->store == NULL)
            continue;
        size_t rest = rest_of(chunk);
        if (copied + rest <= REST_COPIED_MAX && replace_with_copy(connection, link, rest)) {
            copied += rest;
            continue;
        }
        if (chunk->pinned_ms != 0)
            continue;
        chunk->pinned_ms = reactor->now_ms;
        reactor->pinned_due_ms =
            pymq_min64(reactor->pinned_due_ms, reactor->now_ms + reactor->transport->config.pinned_timeout_ms / 2);
        if ((connection->flags & CONNECTION_PINNING) == 0) {
            connection->flags |= CONNECTION_PINNING;
            connection->pinned_sampled_ms = 0;
            connection->next_pinning = reactor->pinning_first;
            reactor->pinning_first = connection;
        }
    }
}

/* Since when the oldest span of this peer's waits; 0 when there is none. */
static int64_t pinned_since(const struct pymq_connection *connection) {
    for (const struct chunk *chunk = connection->output_first; chunk != NULL; chunk = chunk->next) {
        if (chunk->pinned_ms != 0)
            return chunk->pinned_ms;
    }
    return 0;
}

static void copy_pinned(struct pymq_connection *connection) {
    for (struct chunk **link = &connection->output_first; *link != NULL; link = &(*link)->next) {
        if ((*link)->store == NULL)
            continue;
        if (!replace_with_copy(connection, link, rest_of(*link))) {
            pymq_connection_doom(connection);
            return;
        }
    }
}

/* Half of the time has passed: what is under way to the peer has arrived, and whatever moves from now on it has read.
 */
static void pinned_sample(struct pymq_connection *connection) {
    connection->pinned_sampled_ms = connection->reactor->now_ms;
    connection->pinned_queued = kernel_holds(connection);
}

/* The deadline has come. */
static void pinned_too_long(struct pymq_connection *connection) {
    if (connection->wrote_ms > connection->pinned_sampled_ms || kernel_holds(connection) < connection->pinned_queued) {
        copy_pinned(connection); /* bounded as all output is */
    } else {
        count(&connection->reactor->counters.pinned_closed, 1);
        pymq_connection_doom(connection);
    }
}

/* One peer whose spans wait. Returns when to look again, INT64_MAX when none of them waits any more. */
static int64_t pinned_look(struct pymq_connection *connection) {
    const struct pymq_reactor *reactor = connection->reactor;
    int64_t now_ms = reactor->now_ms, half_ms = reactor->transport->config.pinned_timeout_ms / 2;
    int64_t since = pinned_since(connection);
    if (since == 0)
        return INT64_MAX;
    if (connection->pinned_sampled_ms == 0) {
        if (now_ms < since + half_ms)
            return since + half_ms;
        pinned_sample(connection);
    }
    if (now_ms < connection->pinned_sampled_ms + half_ms + 1)
        return connection->pinned_sampled_ms + half_ms + 1;
    pinned_too_long(connection);
    return INT64_MAX;
}

void pymq_spans_check(struct pymq_reactor *reactor) {
    struct pymq_connection **link = &reactor->pinning_first;
    reactor->pinned_due_ms = INT64_MAX;
    while (*link != NULL) {
        struct pymq_connection *connection = *link;
        int64_t due_ms = (connection->flags & CONNECTION_DOOMED) == 0 ? pinned_look(connection) : INT64_MAX;
        if (due_ms == INT64_MAX) {
            connection->flags &= ~(uint32_t)CONNECTION_PINNING;
            *link = connection->next_pinning;
            continue;
        }
        reactor->pinned_due_ms = pymq_min64(reactor->pinned_due_ms, due_ms);
        link = &connection->next_pinning;
    }
}
