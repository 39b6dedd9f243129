/* What waits for a peer: chunks, one send per connection and turn, back-pressure.
 *
 * Replies are written straight into the last chunk of their connection and leave together at the end of the turn. A
 * chunk comes from the reactor's pool and returns to it when it is written, so an idle connection holds none. A
 * socket that takes less than it is given is left alone until epoll says that it takes more.
 */
#include "remoting_internal.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define PIECES_MAX 64 /* of one sendmsg */
#define POOLED_CAPACITY (CHUNK_SIZE - sizeof(struct chunk))

/* Room for at least `size` bytes. */
struct chunk *pymq_chunk_make(struct pymq_reactor *reactor, size_t size) {
    size_t capacity = size <= POOLED_CAPACITY ? POOLED_CAPACITY : size;
    struct chunk *chunk = reactor->pool;
    if (capacity == POOLED_CAPACITY && chunk != NULL) {
        reactor->pool = chunk->next;
        reactor->pooled--;
    } else {
        chunk = pymq_buffer_make(sizeof *chunk + capacity);
        if (chunk == NULL)
            return NULL;
    }
    memset(chunk, 0, sizeof *chunk);
    chunk->capacity = (uint32_t)capacity;
    return chunk;
}

/* A frame of another thread's, on its way to an output. */
struct chunk *pymq_chunk_of_frame(const uint8_t *frame, size_t size) {
    struct chunk *chunk = pymq_buffer_make(sizeof *chunk + size);
    if (chunk == NULL)
        return NULL;
    memset(chunk, 0, sizeof *chunk);
    chunk->capacity = chunk->size = (uint32_t)size;
    memcpy(chunk->data, frame, size);
    return chunk;
}

/* A chunk of bytes that is in no output. */
void pymq_chunk_discard(struct chunk *chunk) {
    if (chunk != NULL)
        pymq_buffer_free(chunk, sizeof *chunk + chunk->capacity);
}

void pymq_chunk_free(struct pymq_reactor *reactor, struct chunk *chunk) {
    if (chunk->store != NULL) {
        for (uint32_t i = chunk->span_sent; i < chunk->span_count; i++)
            pymq_span_release(chunk->store, &chunk_spans(chunk)[i]);
    }
    count(&reactor->counters.buffer_bytes, -(int64_t)(sizeof *chunk + chunk->capacity));
    if (chunk->capacity == POOLED_CAPACITY && reactor->pooled < CHUNKS_POOLED_MAX) {
        chunk->next = reactor->pool;
        reactor->pool = chunk;
        reactor->pooled++;
    } else {
        pymq_chunk_discard(chunk);
    }
}

void pymq_output_make_dirty(struct pymq_connection *connection) {
    if (connection->flags & CONNECTION_DIRTY)
        return;
    connection->flags |= CONNECTION_DIRTY;
    connection->next_dirty = connection->reactor->dirty_first;
    connection->reactor->dirty_first = connection;
}

/* Behind all others. Its bytes are counted by the caller. */
void pymq_output_append(struct pymq_connection *connection, struct chunk *chunk) {
    chunk->next = NULL;
    if (connection->output_last != NULL)
        connection->output_last->next = chunk;
    else
        connection->output_first = chunk;
    connection->output_last = chunk;
    count(&connection->reactor->counters.buffer_bytes, (int64_t)(sizeof *chunk + chunk->capacity));
    pymq_output_make_dirty(connection);
}

/* `size` more bytes wait. Above the maximum the peer has had its chance: one more attempt to write, then the end. */
void pymq_output_grown(struct pymq_connection *connection, size_t size) {
    struct pymq_reactor *reactor = connection->reactor;
    connection->output_bytes += (int64_t)size;
    count(&reactor->counters.output_bytes, (int64_t)size);
    if (connection->output_bytes <= reactor->transport->config.output_size_max)
        return;
    pymq_output_write(connection);
    if (connection->output_bytes > reactor->transport->config.output_size_max &&
        (connection->flags & CONNECTION_DOOMED) == 0) {
        count(&reactor->counters.output_closed, 1);
        pymq_connection_doom(connection);
    }
}

uint8_t *pymq_connection_reserve(struct pymq_connection *connection, size_t size) {
    if (connection->flags & (CONNECTION_DOOMED | CONNECTION_LAST_WRITES))
        return NULL;
    struct chunk *chunk = connection->output_last;
    if (chunk == NULL || chunk->capacity - chunk->size < size) {
        chunk = pymq_chunk_make(connection->reactor, size);
        if (chunk == NULL) {
            pymq_connection_doom(connection);
            return NULL;
        }
        pymq_output_append(connection, chunk);
    } else {
        pymq_output_make_dirty(connection);
    }
    connection->reserved = (uint32_t)size;
    return chunk->data + chunk->size;
}

void pymq_connection_commit(struct pymq_connection *connection, size_t size) {
    assert(size <= connection->reserved);
    connection->reserved = 0;
    connection->output_last->size += (uint32_t)size;
    pymq_output_grown(connection, size);
}

/* Small frames of the control loop join the last chunk; large ones stay in the memory they came in. */
void pymq_output_take_frame(struct pymq_connection *connection, struct chunk *frame) {
    size_t size = frame->size;
    if (size <= POOLED_CAPACITY / 4) {
        uint8_t *target = pymq_connection_reserve(connection, size);
        if (target != NULL) {
            memcpy(target, frame->data, size);
            pymq_connection_commit(connection, size);
        }
        pymq_chunk_discard(frame);
        return;
    }
    pymq_output_append(connection, frame);
    pymq_output_grown(connection, size);
}

static size_t gather(struct pymq_connection *connection, struct iovec *pieces, int *piece_count) {
    size_t total = 0;
    int used = 0;
    for (struct chunk *chunk = connection->output_first; chunk != NULL && used < PIECES_MAX; chunk = chunk->next) {
        if (chunk->store == NULL) {
            if (chunk->size == chunk->sent)
                continue;
            pieces[used].iov_base = chunk->data + chunk->sent;
            pieces[used].iov_len = chunk->size - chunk->sent;
            total += pieces[used++].iov_len;
            continue;
        }
        struct pymq_span *spans = chunk_spans(chunk);
        for (uint32_t i = chunk->span_sent; i < chunk->span_count; i++) {
            size_t skip = i == chunk->span_sent ? chunk->sent : 0, size = spans[i].size - skip;
            /* Neighbours in the log are one piece. */
            if (i > chunk->span_sent && spans[i - 1].data + spans[i - 1].size == spans[i].data) {
                pieces[used - 1].iov_len += size;
            } else {
                if (used == PIECES_MAX)
                    break;
                pieces[used].iov_base = (void *)(spans[i].data + skip);
                pieces[used++].iov_len = size;
            }
            total += size;
        }
    }
    *piece_count = used;
    return total;
}

static size_t consume_spans(struct chunk *chunk, size_t size) {
    struct pymq_span *spans = chunk_spans(chunk);
    while (chunk->span_sent < chunk->span_count) {
        size_t left = spans[chunk->span_sent].size - chunk->sent;
        if (size < left) {
            chunk->sent += (uint32_t)size;
            return 0;
        }
        size -= left;
        pymq_span_release(chunk->store, &spans[chunk->span_sent++]);
        chunk->sent = 0;
    }
    return size;
}

/* `size` bytes are with the kernel. Chunks that are done go; the last one too, so that an idle peer holds nothing. */
static void consume(struct pymq_connection *connection, size_t size) {
    struct pymq_reactor *reactor = connection->reactor;
    connection->output_bytes -= (int64_t)size;
    count(&reactor->counters.output_bytes, -(int64_t)size);
    while (connection->output_first != NULL) {
        struct chunk *chunk = connection->output_first;
        if (chunk->store != NULL) {
            size = consume_spans(chunk, size);
            if (chunk->span_sent < chunk->span_count)
                return;
        } else {
            size_t left = chunk->size - chunk->sent;
            if (size < left) {
                chunk->sent += (uint32_t)size;
                return;
            }
            size -= left;
        }
        connection->output_first = chunk->next;
        if (chunk->next == NULL)
            connection->output_last = NULL;
        pymq_chunk_free(reactor, chunk);
    }
}

static ssize_t give_to_kernel(struct pymq_connection *connection, size_t *asked) {
    struct iovec pieces[PIECES_MAX];
    int piece_count;
    *asked = gather(connection, pieces, &piece_count);
    if (piece_count == 0)
        return 0;
    count(&connection->reactor->counters.writes, 1);
    if (piece_count == 1)
        return send(connection->fd, pieces[0].iov_base, pieces[0].iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)piece_count};
    return sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Below half of the pause mark the peer is listened to again. */
static void resume(struct pymq_connection *connection) {
    if ((connection->flags & CONNECTION_PAUSED) == 0 ||
        connection->output_bytes > connection->reactor->transport->config.output_size_pause / 2)
        return;
    connection->flags &= ~(uint32_t)CONNECTION_PAUSED;
    pymq_reactor_make_ready(connection->reactor, connection);
}

/* As much as the socket takes. May doom the connection. */
void pymq_output_write(struct pymq_connection *connection) {
    while (connection->output_first != NULL && (connection->flags & (CONNECTION_WRITE_FULL | CONNECTION_DOOMED)) == 0) {
        size_t asked;
        ssize_t written = give_to_kernel(connection, &asked);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK)
                connection->flags |= CONNECTION_WRITE_FULL;
            else
                pymq_connection_doom(connection);
            break;
        }
        if (written > 0) {
            connection->active_ms = connection->wrote_ms = connection->reactor->now_ms;
            count(&connection->reactor->counters.bytes_out, written);
        }
        consume(connection, (size_t)written);
        if ((size_t)written < asked)
            connection->flags |= CONNECTION_WRITE_FULL;
    }
    if ((connection->flags & CONNECTION_ENDED) != 0 ||
        (connection->output_first == NULL && (connection->flags & CONNECTION_LAST_WRITES) != 0))
        pymq_connection_doom(connection);
    else if (connection->output_first != NULL)
        pymq_spans_settle(connection);
    resume(connection);
}

void pymq_output_write_all(struct pymq_reactor *reactor) {
    while (reactor->dirty_first != NULL) {
        struct pymq_connection *connection = reactor->dirty_first;
        reactor->dirty_first = connection->next_dirty;
        connection->flags &= ~(uint32_t)CONNECTION_DIRTY;
        if ((connection->flags & CONNECTION_DOOMED) == 0)
            pymq_output_write(connection);
    }
}

void pymq_output_free(struct pymq_connection *connection) {
    while (connection->output_first != NULL) {
        struct chunk *chunk = connection->output_first;
        connection->output_first = chunk->next;
        pymq_chunk_free(connection->reactor, chunk);
    }
    connection->output_last = NULL;
    count(&connection->reactor->counters.output_bytes, -connection->output_bytes);
    connection->output_bytes = 0;
}
