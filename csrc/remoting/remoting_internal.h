/* What the files of the transport share. The contract, and what a turn is, stand in pymq/transport.h.
 *
 * Who owns what
 *   A connection belongs to one reactor; only its thread touches it, inside a turn. The exceptions are `live`, the
 *   generation under which others may name it, and the free list of slots, which has a lock because
 *   pymq_transport_adopt gives out an id on the caller's thread.
 *   Others reach a reactor through its inbox: a lock-free stack of letters, emptied at the begin of each turn.
 *   Lanes have a lock each. Counters have one writer each and are read relaxed by anybody.
 *
 * Lock order: exclude_lock, then turn locks by index, then any one of the leaves (slot lock, lane lock).
 */
#ifndef PYMQ_REMOTING_INTERNAL_H
#define PYMQ_REMOTING_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#include "pymq/transport.h"

#define CONNECTIONS_PER_SLAB 256
#define SLOTS_MAX (1u << 24)           /* what an id has room for */
#define SLABS_MAX (SLOTS_MAX / CONNECTIONS_PER_SLAB)
#define LISTENERS_MAX 16
#define EVENTS_PER_TURN 256            /* epoll events taken at once */
#define TURN_BYTES_ALL_MAX (1 << 20)   /* read in one turn over all: answers and excluders wait for its end */
#define CARRIED_SIZE_MAX (16 * 1024)   /* a cut frame up to here is copied before the next read; larger grow in place */
#define SCRATCH_SIZE (64 * 1024)       /* unescaped header strings; a larger header gets its own for the moment */
#define CHUNK_SIZE (16 * 1024)         /* a pooled output chunk, its own head included */
#define CHUNKS_POOLED_MAX 64
#define LANE_TICK_MS 10                /* how often waiting requests are looked at for their age */
#define IDLE_SLOTS 32                  /* of the idle wheel */
#define CODE_ROWS 1024                 /* (code, reason) pairs counted per reactor */
#define LANE_ROWS 512                  /* codes with a lane of their own */
#define TAG_WAKE 1                     /* epoll tags; a connection's is its address, far above */
#define TAG_EVENT 2
#define TAG_LISTENER 16
#define NOBODY UINT32_MAX              /* end of a list of slots */

/* Bytes (or spans of the log) waiting to be written to one peer. */
struct chunk {
    struct chunk *next;
    uint32_t capacity; /* bytes of data[]; 0 for spans */
    uint32_t size;     /* bytes written into data[] */
    uint32_t sent;
    uint32_t span_count, span_sent; /* spans: how many, how many are gone; `sent` counts in the first of the rest */
    struct pymq_store *store;       /* spans: whom to give them back; NULL for bytes */
    int64_t pinned_ms;              /* spans: since when they wait for the peer, 0 while they do not */
    uint8_t data[];                 /* bytes, or struct pymq_span[] */
};

enum connection_flag {
    CONNECTION_STARTED = 1 << 0,     /* in the epoll */
    CONNECTION_READABLE = 1 << 1,    /* the socket may hold bytes */
    CONNECTION_HANGUP = 1 << 2,      /* the peer ended its side: read on until 0, edges do not come again */
    CONNECTION_WRITE_FULL = 1 << 3,  /* the socket took no more; the next edge says when it does */
    CONNECTION_PAUSED = 1 << 4,      /* too much waits for the peer: nothing is read or parsed */
    CONNECTION_READY = 1 << 5,       /* on the ready list */
    CONNECTION_DIRTY = 1 << 6,       /* on the dirty list */
    CONNECTION_DOOMED = 1 << 7,      /* on the doomed list: torn down at the end of the turn */
    CONNECTION_LAST_WRITES = 1 << 8, /* close once all is written; nothing more is read */
    CONNECTION_CLIENT = 1 << 9,      /* adopted as a client's: never idle-closed */
    CONNECTION_FIRST_BYTE = 1 << 10, /* its first byte is still to be looked at for TLS */
    CONNECTION_OPENED = 1 << 11,     /* the control loop knows it: tell when it closes */
    CONNECTION_ON_WHEEL = 1 << 12,
    CONNECTION_ENDED = 1 << 14,      /* the peer has closed: the end follows this turn's writes */
    CONNECTION_PINNING = 1 << 13,    /* on the list of those whose output holds spans */
};

/* All that an idle connection costs in user space. */
struct pymq_connection {
    _Atomic uint32_t live;  /* the generation, while the connection can be named; 0 otherwise */
    uint32_t generation;
    uint32_t slot;
    uint32_t flags;
    int fd;
    uint32_t idle_previous, idle_next; /* slots: neighbours on the idle wheel; idle_next also links free slots */
    uint16_t idle_place;
    struct pymq_host peer;
    struct pymq_reactor *reactor;
    int64_t active_ms; /* last byte either way */
    int64_t wrote_ms;  /* last byte the socket took */
    int64_t pinned_sampled_ms; /* when the next was looked at, 0: not yet */
    uint32_t pinned_queued;    /* bytes the kernel held for the peer then */

    uint8_t *input; /* bytes of frames not yet served; NULL when there are none */
    uint32_t input_start, input_size, input_capacity;

    struct chunk *output_first, *output_last;
    int64_t output_bytes;
    uint32_t reserved;

    struct pymq_connection *next_ready, *next_dirty, *next_doomed, *next_pinning;
};

_Static_assert(sizeof(struct pymq_connection) <= 192, "ten thousand idle connections are 2 MB and not more");

enum letter_kind { LETTER_START, LETTER_SEND, LETTER_CLOSE };

/* Something for a reactor from another thread. A LETTER_SEND is at the same time an output chunk with the frame. */
struct letter {
    struct letter *next;
    enum letter_kind kind;
    uint32_t flags; /* LETTER_START: enum connection_flag */
    pymq_connection_id connection;
    struct chunk *frame;
};

/* One writer, many readers. */
typedef _Atomic int64_t counter;
static inline void count(counter *value, int64_t by) {
    atomic_store_explicit(value, atomic_load_explicit(value, memory_order_relaxed) + by, memory_order_relaxed);
}
static inline int64_t counted(const counter *value) { return atomic_load_explicit(value, memory_order_relaxed); }

struct reactor_counters {
    counter accepted, closed, refused, accept_failed, idle_closed, broken_frames, output_closed, pinned_closed;
    counter frames_in, bytes_in, bytes_out, turns, writes, reads;
    counter buffer_bytes, output_bytes;
};

struct code_row {
    _Atomic uint64_t key; /* code and reason, never 0 once used */
    counter count;
};

struct pymq_reactor {
    struct pymq_transport *transport;
    unsigned index;
    int epoll_fd, wake_fd, event_fd;
    pthread_t thread;
    bool started;
    _Atomic uintptr_t self; /* pthread_self() of the running thread */

    pthread_mutex_t turn_lock;
    int64_t now_ms, now_us, wall_ms;
    int64_t service_due_ms, idle_due_ms, pinned_due_ms, lane_due_ms, accept_due_ms;
    bool settle_due, written_due, draining;

    struct pymq_connection *ready_first, *ready_last;
    struct pymq_connection *dirty_first;
    struct pymq_connection *doomed_first;
    struct pymq_connection *pinning_first;
    struct chunk *pool;
    unsigned pooled;

    uint8_t *read_buffer; /* CARRIED_SIZE_MAX + turn_bytes_max */
    uint8_t *scratch;
    struct pymq_command command; /* of the frame being served; 4 KiB that no stack needs to hold */

    uint32_t idle_heads[IDLE_SLOTS];
    int64_t idle_tick_ms;
    int64_t idle_position; /* ticks of the clock already looked at */

    _Atomic(struct letter *) inbox;
    _Atomic int64_t posted;    /* letters not yet dealt with */
    _Atomic bool sleeping;     /* in epoll_wait, or about to be: a poster must ring */
    _Atomic bool drain_seen;
    _Atomic uint32_t open;     /* connections, for spreading */

    pthread_mutex_t slot_lock; /* guards the three below */
    uint32_t slot_free_first, slot_free_last, slot_count;
    _Atomic(struct pymq_connection *) *slabs; /* SLABS_MAX pointers, of which few are ever touched */

    struct reactor_counters counters;
    struct code_row code_rows[CODE_ROWS];
    counter code_rows_used;
};

struct lane {
    pthread_mutex_t lock;
    struct pymq_handed *first, *last;
    int64_t bytes;
    _Atomic int64_t waiting; /* written under the lock, read by anybody */
    _Atomic int64_t refused, expired, taken;
    _Atomic int64_t running, running_bytes; /* taken, and not answered yet */
};

struct pymq_transport {
    struct pymq_transport_config config;
    const struct pymq_service *service; /* NULL: everything is handed over */
    unsigned reactor_count;
    struct pymq_reactor *reactors[PYMQ_REACTORS_MAX];
    _Atomic int tls_mode;
    _Atomic int64_t open; /* connections and those about to be */
    _Atomic bool draining, stopping;

    pthread_mutex_t listener_lock;
    int listeners[LISTENERS_MAX];
    _Atomic unsigned listener_count;

    pthread_mutex_t exclude_lock; /* held from exclude to include */
    _Atomic int excluders;

    struct lane lanes[PYMQ_LANES];
    _Atomic int64_t waiting; /* over all lanes */
    int wake_fd;
    _Atomic bool wake_raised;
    _Atomic int64_t wakes;
    _Atomic uint64_t lane_rows[LANE_ROWS];
};

/* Whether the caller runs on this reactor's thread. Not by a thread-local variable: the core is linked into several
 * extension modules, and each would have one of its own. */
static inline bool reactor_is_here(const struct pymq_reactor *reactor) {
    return atomic_load_explicit(&reactor->self, memory_order_relaxed) == (uintptr_t)pthread_self();
}

/* The reactor whose thread this is, or NULL. */
static inline struct pymq_reactor *reactor_here(const struct pymq_transport *transport) {
    for (unsigned i = 0; i < transport->reactor_count; i++) {
        if (reactor_is_here(transport->reactors[i]))
            return transport->reactors[i];
    }
    return NULL;
}

/* reactor.c */
void *pymq_reactor_run(void *reactor);
void pymq_reactor_ring(struct pymq_reactor *reactor);
void pymq_reactor_read_clocks(struct pymq_reactor *reactor);
void pymq_reactor_make_ready(struct pymq_reactor *reactor, struct pymq_connection *connection);

/* reactor_life.c */
int pymq_reactor_make(struct pymq_transport *transport, unsigned index, struct pymq_error *error);
void pymq_reactor_free(struct pymq_reactor *reactor);

/* buffers.c */
void *pymq_buffer_make(size_t size);
void *pymq_buffer_grow(void *memory, size_t size, size_t grown);
void pymq_buffer_free(void *memory, size_t size);

/* inbox.c */
int pymq_reactor_post(struct pymq_reactor *reactor, enum letter_kind kind, pymq_connection_id connection,
                      uint32_t flags, struct chunk *frame);
void pymq_inbox_ring(struct pymq_reactor *reactor);
void pymq_inbox_empty(struct pymq_reactor *reactor);
void pymq_inbox_discard(struct pymq_reactor *reactor);

/* connection.c */
static inline pymq_connection_id connection_id(const struct pymq_connection *connection) {
    return (uint64_t)connection->reactor->index << 56 | (uint64_t)connection->slot << 32 | connection->generation;
}
struct pymq_reactor *pymq_reactor_of(struct pymq_transport *transport, pymq_connection_id id);
struct pymq_connection *pymq_connection_at(struct pymq_reactor *reactor, uint32_t slot);
struct pymq_connection *pymq_connection_named(struct pymq_reactor *reactor, pymq_connection_id id);
struct pymq_connection *pymq_connection_make(struct pymq_reactor *reactor, int fd, const struct pymq_host *peer);
void pymq_connection_abandon(struct pymq_connection *connection);
void pymq_connection_start(struct pymq_connection *connection, uint32_t flags);
void pymq_connection_doom(struct pymq_connection *connection);
void pymq_connection_end(struct pymq_connection *connection, bool keep_fd);
void pymq_connection_end_doomed(struct pymq_reactor *reactor);

/* input.c */
size_t pymq_connection_read(struct pymq_connection *connection);
void pymq_input_free(struct pymq_connection *connection);

/* frames.c: offer one whole frame; false when the stream cannot be trusted any more */
struct frame_reading {
    struct pymq_command command;
    size_t room; /* bytes of all this */
    uint8_t scratch[];
};
struct frame_reading *pymq_frame_read(const uint8_t *frame, size_t size);
void pymq_frame_read_free(struct frame_reading *reading);
bool pymq_frame_serve(struct pymq_connection *connection, const uint8_t *frame, size_t size);
void pymq_frame_refuse(struct pymq_transport *transport, pymq_connection_id id, const struct pymq_command *command,
                       const char *remark, size_t remark_size);

/* output.c, spans.c */
struct chunk *pymq_chunk_make(struct pymq_reactor *reactor, size_t size);
struct chunk *pymq_chunk_of_frame(const uint8_t *frame, size_t size);
void pymq_chunk_discard(struct chunk *chunk);
void pymq_chunk_free(struct pymq_reactor *reactor, struct chunk *chunk);
void pymq_output_append(struct pymq_connection *connection, struct chunk *chunk);
void pymq_output_make_dirty(struct pymq_connection *connection);
void pymq_output_grown(struct pymq_connection *connection, size_t size);
void pymq_output_take_frame(struct pymq_connection *connection, struct chunk *chunk);
void pymq_output_write(struct pymq_connection *connection);
void pymq_output_write_all(struct pymq_reactor *reactor);
void pymq_output_free(struct pymq_connection *connection);
static inline struct pymq_span *chunk_spans(struct chunk *chunk) { return (struct pymq_span *)(void *)chunk->data; }
void pymq_spans_settle(struct pymq_connection *connection);
void pymq_spans_check(struct pymq_reactor *reactor);

/* lanes.c */
void pymq_lanes_make(struct pymq_transport *transport);
void pymq_lanes_free(struct pymq_transport *transport);
enum pymq_lane pymq_lane_of(const struct pymq_transport *transport, int32_t code);
int pymq_lane_put(struct pymq_transport *transport, enum pymq_lane lane, pymq_connection_id id,
                  const struct pymq_host *peer, int64_t now_us, const struct pymq_command *command,
                  const uint8_t *frame, size_t size, uint8_t reason);
void pymq_lane_put_event(struct pymq_transport *transport, enum pymq_handed_kind kind, pymq_connection_id id,
                         const struct pymq_host *peer, int64_t now_us, int fd);
int64_t pymq_lanes_expire(struct pymq_transport *transport, int64_t now_us);

/* listener.c */
struct pymq_reactor *pymq_reactor_least_loaded(struct pymq_transport *transport);
void pymq_listener_accept(struct pymq_reactor *reactor, unsigned index);
void pymq_listener_resume(struct pymq_reactor *reactor);
void pymq_listeners_close(struct pymq_transport *transport);
bool pymq_first_byte_look(struct pymq_connection *connection);

/* timers.c */
void pymq_idle_add(struct pymq_connection *connection);
void pymq_idle_remove(struct pymq_connection *connection);
int pymq_timers_wait_ms(const struct pymq_reactor *reactor);
void pymq_timers_run(struct pymq_reactor *reactor);

/* counters.c */
void pymq_count_code(struct pymq_reactor *reactor, int32_t code, int32_t reason);

#endif
