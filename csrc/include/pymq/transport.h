/* The transport: sockets, frames, hand-over. It knows what a frame is and nothing of what a request means.
 *
 * A transport is a number of reactor threads, each with an epoll and its own connections. A reactor reads, cuts
 * frames, offers each to a service (csrc/serve, or none), and hands what the service did not take to the control loop
 * in bounded lanes. The control loop (Python, one thread) is woken through one eventfd, takes requests in batches and
 * sends frames back the same way. Name server, broker and client are the same transport with other services.
 *
 * Threads: functions marked [reactor] are for callbacks on that reactor's thread only. All others may be called from
 * any thread, and none of them blocks on the network.
 *
 * Turns: a reactor works in turns (wait, read, serve, write). During a turn it holds its own turn lock, which nobody
 * contends. pymq_transport_exclude takes the locks of all reactors: between exclude and include no reactor is inside
 * a turn, so tables the services read without any lock can be changed there, and what a reactor did before is
 * finished. That replaces deferred reclamation: publishing is rare and short, and a turn never waits for the disk.
 */
#ifndef PYMQ_TRANSPORT_H
#define PYMQ_TRANSPORT_H

#include "pymq/command.h"
#include "pymq/record.h"
#include "pymq/store.h"

struct pymq_transport;
struct pymq_reactor;    /* one thread's world */
struct pymq_connection; /* [reactor], valid within a callback */

/* Names a connection from anywhere: reactor (8 bits), slot (24), generation (32). Never reused while anybody could
 * hold an old one. 0 names nobody. */
typedef uint64_t pymq_connection_id;

#define PYMQ_REACTORS_MAX 16

/* Lanes of hand-over, each bounded by itself, served in turn by the control loop. */
enum pymq_lane {
    PYMQ_LANE_CLIENT = 0, /* heartbeats, membership: must never starve */
    PYMQ_LANE_SEND = 1,
    PYMQ_LANE_PULL = 2,
    PYMQ_LANE_ADMIN = 3,  /* offsets, queries, admin: whatever has no other lane */
    PYMQ_LANE_REPLY = 4,  /* responses to requests this side sent */
    PYMQ_LANE_EVENT = 5,  /* connections opened, closed, wanting TLS; bounded by the number of connections */
    PYMQ_LANES = 6,
};

struct pymq_transport_config {
    int32_t reactors;               /* threads, 1..PYMQ_REACTORS_MAX; 0 chooses */
    int32_t connections_max;        /* 0: what RLIMIT_NOFILE leaves */
    uint32_t frame_size_max;        /* PYMQ_FRAME_SIZE_MAX */
    int32_t idle_timeout_ms;        /* no byte either way for so long closes, 120000; 0 never.
                                     * serverChannelMaxIdleTimeSeconds */
    int64_t output_size_max;        /* bytes waiting for one peer before it is closed, 64 MiB */
    int64_t output_size_pause;      /* bytes waiting for one peer before nothing more is read from it, 1 MiB */
    int32_t pinned_timeout_ms;      /* how long a peer may hold spans of the log, 10000; then they are copied for one
                                     * that reads, however slowly, and one that does not is closed */
    int32_t lane_count_max[PYMQ_LANES];  /* requests waiting or running; beyond: SYSTEM_BUSY at once */
    int64_t lane_bytes_max[PYMQ_LANES];  /* their bytes */
    int32_t lane_wait_ms[PYMQ_LANES];    /* fast failure: older requests are answered SYSTEM_BUSY by the reactor
                                          * (checked every 10 ms), 0 never. waitTimeMillsInSendQueue 200, …PullQueue
                                          * 5000 */
    int32_t turn_bytes_max;         /* read from one connection before others get their turn, 256 KiB */
};

void pymq_transport_config_default(struct pymq_transport_config *config);

/* What serves frames natively. Every callback runs on a reactor's thread inside a turn and must not block. */
struct pymq_service {
    void *context;
    /* A whole, decoded request (never a response). Return PYMQ_SERVED when it has been or will be answered (or was
     * oneway), or a PYMQ_HAND_OVER + reason (0..255; the reason's number travels with the request and is counted per
     * code). `command` and `frame` are valid only during the call. Answers written with pymq_connection_* leave at
     * the end of the turn. */
    int (*request)(void *context, struct pymq_reactor *reactor, struct pymq_connection *connection,
                   const struct pymq_command *command, const uint8_t *frame, size_t frame_size);
    /* All frames that were there have been offered: append what was collected, answer. At least once per turn in which
     * `request` was called, and before anything is written. */
    void (*settle)(void *context, struct pymq_reactor *reactor);
    /* The turn's answers have been given to the sockets; in turns in which `settle` was called. NULL allowed. */
    void (*written)(void *context, struct pymq_reactor *reactor);
    /* The reactor's eventfd rang (pymq_reactor_event_fd: store watermarks, arrivals, posted work). */
    void (*event)(void *context, struct pymq_reactor *reactor);
    /* Called when the time given by the last answer has come; returns when it wants to be called next
     * (CLOCK_MONOTONIC ms), INT64_MAX for not before something else happens. Also called once at the reactor's start.
     */
    int64_t (*timer)(void *context, struct pymq_reactor *reactor, int64_t now_ms);
    void (*closed)(void *context, struct pymq_reactor *reactor, pymq_connection_id connection);
    /* A frame whose header only the control loop's codec can read is about to be handed over, code -1. It may be
     * anything, a send too: what order needs is done here, before anybody can take it. NULL allowed. */
    void (*unreadable)(void *context, struct pymq_reactor *reactor, struct pymq_connection *connection,
                       const uint8_t *frame, size_t frame_size);
    /* A request that `request` had handed over, or a frame told as `unreadable` (code -1), will not be taken by the
     * control loop: it was answered SYSTEM_BUSY (lane full, or it waited too long), could not be answered, or the
     * transport closes. Any thread, also outside turns; NULL: nobody wants to know. */
    void (*dropped)(void *context, pymq_connection_id connection, int32_t code, const uint8_t *frame, size_t size);
    /* Every reactor thread has ended and the transport is about to be freed: when this has returned it must not be
     * used any more. Called once, by pymq_transport_close on its caller's thread; only `dropped` may follow. NULL
     * allowed. */
    void (*stopped)(void *context);
};

enum { PYMQ_SERVED = 0, PYMQ_HAND_OVER = 1000 };

/* The reason with which a frame is handed over whose header pymq_command_decode did not accept outright. Its code is
 * -1; its lane is that of the code it seems to have, PYMQ_LANE_ADMIN when that cannot be told. Equal to serve.h's
 * PYMQ_REASON_HEADER. */
#define PYMQ_TRANSPORT_REASON_HEADER 2

/* `service` may be NULL (everything is handed over); it must outlive the transport. */
int pymq_transport_open(const struct pymq_transport_config *config, const struct pymq_service *service,
                        struct pymq_transport **transport, struct pymq_error *error);

/* Listen on `host:port` (port 0: the kernel's choice, returned in `*bound_port`). Several times for several ports. */
int pymq_transport_listen(struct pymq_transport *transport, const char *host, int32_t port, int32_t *bound_port,
                          struct pymq_error *error);

/* Take over a connected, non-blocking stream socket as an ordinary connection (client connections; the inner end of a
 * TLS pump). `peer` is the address to say for it. Returns its id or 0. `is_client` ones are never idle-closed. */
pymq_connection_id pymq_transport_adopt(struct pymq_transport *transport, int fd, const struct pymq_host *peer,
                                        bool is_client, struct pymq_error *error);

/* Stop in order: stop accepting and reading; let the control loop empty the lanes (the caller keeps taking and
 * sending until pymq_transport_is_drained); write what is written for up to drain_ms; then close joins threads and
 * frees. Idempotent. */
void pymq_transport_drain(struct pymq_transport *transport);
bool pymq_transport_is_drained(struct pymq_transport *transport); /* lanes empty, outputs empty */
void pymq_transport_close(struct pymq_transport *transport, int32_t drain_ms);

void pymq_transport_exclude(struct pymq_transport *transport);
void pymq_transport_include(struct pymq_transport *transport);

/* TLS: with a mode other than disabled the first byte of an accepted connection is looked at (MSG_PEEK); one that
 * begins a TLS handshake leaves the reactor as an event with its descriptor. enforcing closes plain ones. */
enum pymq_tls_mode { PYMQ_TLS_DISABLED = 0, PYMQ_TLS_PERMISSIVE = 1, PYMQ_TLS_ENFORCING = 2 };
void pymq_transport_set_tls_mode(struct pymq_transport *transport, enum pymq_tls_mode mode);

/* ---- the control loop's side --------------------------------------------------------------------------------- */

/* Which lane requests of `code` take; PYMQ_LANE_ADMIN unless said. */
void pymq_transport_set_lane(struct pymq_transport *transport, int32_t code, enum pymq_lane lane);

enum pymq_handed_kind {
    PYMQ_HANDED_FRAME = 0,
    PYMQ_HANDED_OPENED = 1, /* not for adopted client connections, whose adopter knows */
    PYMQ_HANDED_CLOSED = 2, /* after all frames of the connection have been handed over, though in another lane */
    PYMQ_HANDED_TLS = 3,    /* fd is the taker's now; the connection is 0 and was never OPENED */
};

struct pymq_handed {
    struct pymq_handed *next; /* free for the taker */
    pymq_connection_id connection;
    struct pymq_host peer;
    int64_t received_us; /* CLOCK_MONOTONIC */
    int32_t code;        /* of a decoded header; -1 when only the Python codec can tell */
    int32_t fd;          /* PYMQ_HANDED_TLS */
    uint8_t kind, lane, reason;
    uint32_t size;
    uint8_t frame[];     /* a copy of the whole frame */
};

/* Readable while lanes hold something. It is lowered only by pymq_transport_clear_wake, and only when all lanes are
 * empty: call that after taking, not before, and without having emptied everything simply return to the poller, which
 * says it again. */
int pymq_transport_wake_fd(const struct pymq_transport *transport);
void pymq_transport_clear_wake(struct pymq_transport *transport);

/* Take up to `count_max` entries of one lane, oldest first; returns a list to be freed with pymq_handed_free one by
 * one. */
struct pymq_handed *pymq_transport_take(struct pymq_transport *transport, enum pymq_lane lane, size_t count_max);
void pymq_handed_free(struct pymq_transport *transport, struct pymq_handed *handed);
/* What was taken and waits for something else before it is answered, a disk or a client: so many requests more of that
 * lane, or fewer, and so many bytes. The lane's limits count them as if they had not been taken. */
void pymq_transport_count_running(struct pymq_transport *transport, enum pymq_lane lane, int64_t requests,
                                  int64_t bytes);
/* One of them waited longer than its lane allows, and was answered so by who took it. */
void pymq_transport_count_expired(struct pymq_transport *transport, enum pymq_lane lane);

/* Send a whole frame. PYMQ_OK when queued (not: arrived), PYMQ_ECLOSED when the connection is gone. */
int pymq_transport_send(struct pymq_transport *transport, pymq_connection_id connection, const uint8_t *frame,
                        size_t size);
/* The same for many: queue each, then ring once. A queued frame may leave before the ring, and does at the latest
 * after it. */
int pymq_transport_queue(struct pymq_transport *transport, pymq_connection_id connection, const uint8_t *frame,
                         size_t size);
void pymq_transport_ring(struct pymq_transport *transport);
/* Close after what is queued has been written. */
void pymq_transport_close_connection(struct pymq_transport *transport, pymq_connection_id connection);
/* Hand a request over as if it had just been read (a hold that has ended, for requests the control loop serves).
 * PYMQ_OK; PYMQ_ECLOSED when the connection is gone; PYMQ_EPOOL when the lane is full: then the peer has been answered
 * SYSTEM_BUSY and `dropped` was called. */
int pymq_transport_hand_over(struct pymq_transport *transport, pymq_connection_id connection, const uint8_t *frame,
                             size_t size, uint8_t reason);

/* ---- the service's side [reactor] ----------------------------------------------------------------------------- */

unsigned pymq_reactor_index(const struct pymq_reactor *reactor);
struct pymq_transport *pymq_reactor_transport(const struct pymq_reactor *reactor);
int pymq_reactor_event_fd(const struct pymq_reactor *reactor); /* give it to pymq_store_listen; write 1 from anywhere */
int64_t pymq_reactor_now_ms(const struct pymq_reactor *reactor);     /* CLOCK_MONOTONIC, read once a turn */
int64_t pymq_reactor_wall_ms(const struct pymq_reactor *reactor);    /* CLOCK_REALTIME, read once a turn */
void pymq_reactor_set_timer(struct pymq_reactor *reactor, int64_t due_ms); /* call `timer` by then at the latest */

pymq_connection_id pymq_connection_name(const struct pymq_connection *connection);
/* The connection, or NULL when it is gone. */
struct pymq_connection *pymq_reactor_find(struct pymq_reactor *reactor, pymq_connection_id connection);
const struct pymq_host *pymq_connection_peer(const struct pymq_connection *connection);

/* Room for a reply of up to `size` bytes in the connection's output, or NULL (then it is being closed: drop the reply).
 * Follow with commit of what was written. Reserve and commit of other connections may lie between only after commit. */
uint8_t *pymq_connection_reserve(struct pymq_connection *connection, size_t size);
void pymq_connection_commit(struct pymq_connection *connection, size_t size);

/* A reply of `head` (copied) followed by spans of the log. Ownership of the spans passes over in every case: they are
 * released when written, or when the connection goes. Small spans are copied at once, neighbours are joined. What the
 * socket does not take at once is copied when it is at most 64 KiB and stays pinned otherwise, with
 * pinned_timeout_ms. */
void pymq_connection_send_spans(struct pymq_connection *connection, struct pymq_store *store, const uint8_t *head,
                                size_t head_size, struct pymq_span *spans, size_t span_count);

/* ---- counters ------------------------------------------------------------------------------------------------- */

struct pymq_transport_stats {
    int64_t accepted, closed, refused, open; /* connections; refused: above connections_max */
    int64_t accept_failed;                   /* no descriptor or memory for it: accepting pauses for a while */
    int64_t idle_closed, broken_frames, output_closed, pinned_closed;
    int64_t frames_in, bytes_in, bytes_out, turns, writes, reads, wakes; /* wakes: eventfds written */
    int64_t lane_waiting[PYMQ_LANES], lane_refused[PYMQ_LANES], lane_expired[PYMQ_LANES], lane_taken[PYMQ_LANES];
    int64_t lane_running[PYMQ_LANES]; /* taken and not answered yet, as counted by pymq_transport_count_running */
    int64_t buffer_bytes; /* input and output buffers held now */
};

void pymq_transport_stats(const struct pymq_transport *transport, struct pymq_transport_stats *stats);

/* Per request code: how many the service took, and how many were handed over by reason. Fills at most `count_max`;
 * returns how many rows there are. */
struct pymq_code_count {
    int32_t code;
    int32_t reason; /* -1: served natively */
    int64_t count;
};
size_t pymq_transport_code_counts(const struct pymq_transport *transport, struct pymq_code_count *rows,
                                  size_t count_max);

#endif
