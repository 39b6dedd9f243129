/* Reading and cutting frames.
 *
 * All connections of a reactor read into its one buffer, and frames are served where they lie in it. Only what is
 * left over is kept with the connection: a frame cut off by the end of the read, or whole frames of a peer that must
 * wait. That memory follows the bytes that have really come, whatever a length field announces, and is given back
 * when it is empty.
 *
 * A left-over of up to CARRIED_SIZE_MAX is copied in front of the next read. A larger one is a frame with a large
 * body, which grows where it is: the read goes to its end first, and what is behind it goes into the shared buffer.
 */
#include "remoting_internal.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define INPUT_SIZE_MIN 64
#define INPUT_SIZE_LARGE (4 * CARRIED_SIZE_MAX)

void pymq_input_free(struct pymq_connection *connection) {
    if (connection->input == NULL)
        return;
    count(&connection->reactor->counters.buffer_bytes, -(int64_t)connection->input_capacity);
    pymq_buffer_free(connection->input, connection->input_capacity);
    connection->input = NULL;
    connection->input_start = connection->input_size = connection->input_capacity = 0;
}

/* Room for `size` bytes in all: at most twice what has come, and no more than the `frame_size` that is to come. */
static bool input_room(struct pymq_connection *connection, size_t size, size_t frame_size) {
    if (size <= connection->input_capacity)
        return true;
    size_t capacity = size < INPUT_SIZE_MIN ? INPUT_SIZE_MIN : size;
    if (connection->input_capacity != 0 && capacity < (size_t)connection->input_capacity * 2)
        capacity = (size_t)connection->input_capacity * 2;
    if (capacity > frame_size && frame_size >= size)
        capacity = frame_size;
    uint8_t *grown = pymq_buffer_grow(connection->input, connection->input_capacity, capacity);
    if (grown == NULL)
        return false;
    count(&connection->reactor->counters.buffer_bytes, (int64_t)capacity - connection->input_capacity);
    connection->input = grown;
    connection->input_capacity = (uint32_t)capacity;
    return true;
}

/* Keep `size` bytes at `source`, which may lie in the input itself, as all there is. */
static void input_keep(struct pymq_connection *connection, const uint8_t *source, size_t size) {
    if (size == 0) {
        pymq_input_free(connection);
        return;
    }
    bool lies_inside = connection->input != NULL && source >= connection->input &&
                       source < connection->input + connection->input_capacity;
    if (lies_inside && size <= CARRIED_SIZE_MAX && connection->input_capacity > INPUT_SIZE_LARGE) {
        uint32_t large_size = connection->input_capacity;
        uint8_t *large = connection->input; /* the remains of a large frame's memory are not kept for a small rest */
        count(&connection->reactor->counters.buffer_bytes, -(int64_t)connection->input_capacity);
        connection->input = NULL;
        connection->input_capacity = 0;
        input_keep(connection, source, size);
        pymq_buffer_free(large, large_size);
        return;
    }
    if (lies_inside) {
        connection->input_start = (uint32_t)(source - connection->input);
        connection->input_size = connection->input_start + (uint32_t)size;
        return;
    }
    if (!input_room(connection, size, SIZE_MAX)) {
        pymq_connection_doom(connection);
        return;
    }
    memcpy(connection->input, source, size);
    connection->input_start = 0;
    connection->input_size = (uint32_t)size;
}

static bool must_wait(struct pymq_connection *connection) {
    if (connection->output_bytes > connection->reactor->transport->config.output_size_pause)
        connection->flags |= CONNECTION_PAUSED;
    uint32_t waits = CONNECTION_PAUSED | CONNECTION_DOOMED | CONNECTION_LAST_WRITES | CONNECTION_ENDED;
    return (connection->flags & waits) != 0;
}

/* Serve whole frames from `source`; returns how many bytes they had. */
static size_t serve_frames(struct pymq_connection *connection, const uint8_t *source, size_t size) {
    struct pymq_reactor *reactor = connection->reactor;
    size_t position = 0;
    while (!must_wait(connection)) {
        ssize_t frame_size =
            pymq_frame_size(source + position, size - position, reactor->transport->config.frame_size_max);
        if (frame_size < 0 || (frame_size > 0 && (size_t)frame_size <= size - position &&
                               !pymq_frame_serve(connection, source + position, (size_t)frame_size))) {
            count(&reactor->counters.broken_frames, 1);
            pymq_connection_doom(connection);
            break;
        }
        if (frame_size == 0 || (size_t)frame_size > size - position)
            break;
        position += (size_t)frame_size;
    }
    return position;
}

/* Serve from `source` and keep the rest. */
static void serve_and_keep(struct pymq_connection *connection, const uint8_t *source, size_t size) {
    size_t served = serve_frames(connection, source, size);
    if (connection->flags & CONNECTION_DOOMED)
        pymq_input_free(connection);
    else
        input_keep(connection, source + served, size - served);
}

/* recv or recvmsg, with what it says about the socket put into the flags. Returns bytes read, 0 for none. */
static size_t read_pieces(struct pymq_connection *connection, struct iovec *pieces, int piece_count) {
    struct pymq_reactor *reactor = connection->reactor;
    size_t asked = pieces[0].iov_len + (piece_count == 2 ? pieces[1].iov_len : 0);
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)piece_count};
    ssize_t got;
    do {
        got = piece_count == 1 ? recv(connection->fd, pieces[0].iov_base, asked, MSG_DONTWAIT)
                               : recvmsg(connection->fd, &message, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    count(&reactor->counters.reads, 1);
    if (got > 0) {
        /* A short read has emptied the socket: what comes later is a new edge. After a hang-up there is none. */
        if ((size_t)got < asked && (connection->flags & CONNECTION_HANGUP) == 0)
            connection->flags &= ~(uint32_t)CONNECTION_READABLE;
        connection->active_ms = reactor->now_ms;
        count(&reactor->counters.bytes_in, got);
        return (size_t)got;
    }
    connection->flags &= ~(uint32_t)CONNECTION_READABLE;
    if (got == 0) { /* what it asked before is still answered, as far as that happens in this turn */
        connection->flags |= CONNECTION_ENDED;
        pymq_output_make_dirty(connection);
    } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
        pymq_connection_doom(connection);
    }
    return 0;
}

/* A little left over, or nothing: in front of the shared buffer, and all in one piece. */
static size_t read_shared(struct pymq_connection *connection, size_t carried) {
    struct pymq_reactor *reactor = connection->reactor;
    uint8_t *buffer = reactor->read_buffer;
    if (carried != 0)
        memcpy(buffer, connection->input + connection->input_start, carried);
    struct iovec piece = {.iov_base = buffer + carried, .iov_len = (size_t)reactor->transport->config.turn_bytes_max};
    size_t got = read_pieces(connection, &piece, 1);
    if (got != 0)
        serve_and_keep(connection, buffer, carried + got);
    return got;
}

/* A large frame in progress: to its end in place, the rest into the shared buffer. */
static size_t read_in_place(struct pymq_connection *connection, size_t carried) {
    struct pymq_reactor *reactor = connection->reactor;
    if (connection->input_start != 0) {
        memmove(connection->input, connection->input + connection->input_start, carried);
        connection->input_start = 0;
        connection->input_size = (uint32_t)carried;
    }
    ssize_t frame_size = pymq_frame_size(connection->input, carried, reactor->transport->config.frame_size_max);
    size_t missing = (size_t)frame_size - carried; /* sized before it was kept, and not whole */
    size_t room = connection->input_capacity - carried < missing ? connection->input_capacity - carried : missing;
    struct iovec pieces[2] = {
        {.iov_base = connection->input + carried, .iov_len = room},
        {.iov_base = reactor->read_buffer, .iov_len = (size_t)reactor->transport->config.turn_bytes_max},
    };
    size_t got = read_pieces(connection, pieces, 2);
    if (got <= room) {
        connection->input_size += (uint32_t)got;
        if (got < missing || got == 0)
            return got;
        serve_and_keep(connection, connection->input, connection->input_size);
        return got;
    }
    size_t behind = got - room;                                          /* bytes in the shared buffer */
    size_t mine = behind < missing - room ? behind : missing - room;     /* of those, still this frame's */
    if (!input_room(connection, carried + room + mine, (size_t)frame_size)) {
        pymq_connection_doom(connection);
        return got;
    }
    memcpy(connection->input + carried + room, reactor->read_buffer, mine);
    connection->input_size = (uint32_t)(carried + room + mine);
    if (connection->input_size < (size_t)frame_size)
        return got;
    serve_frames(connection, connection->input, connection->input_size); /* this one, or it is doomed */
    pymq_input_free(connection);
    if ((connection->flags & CONNECTION_DOOMED) == 0)
        serve_and_keep(connection, reactor->read_buffer + mine, behind - mine);
    return got;
}

/* One turn of one connection: what was kept back, then one read. Returns the bytes read. */
size_t pymq_connection_read(struct pymq_connection *connection) {
    if ((connection->flags & CONNECTION_FIRST_BYTE) != 0 && !pymq_first_byte_look(connection))
        return 0;
    size_t carried = connection->input_size - connection->input_start;
    if (carried != 0) {
        serve_and_keep(connection, connection->input + connection->input_start, carried);
        carried = connection->input_size - connection->input_start;
    }
    if (must_wait(connection) || (connection->flags & CONNECTION_READABLE) == 0)
        return 0;
    size_t got = carried <= CARRIED_SIZE_MAX ? read_shared(connection, carried) : read_in_place(connection, carried);
    if ((connection->flags & (CONNECTION_READABLE | CONNECTION_PAUSED | CONNECTION_DOOMED)) == CONNECTION_READABLE)
        pymq_reactor_make_ready(connection->reactor, connection);
    return got;
}
