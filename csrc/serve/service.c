/* The door of native serving: what the transport calls, and the object's life. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "again.h"
#include "answer_template.h"
#include "collect.h"
#include "offset_request.h"
#include "order.h"
#include "parked.h"
#include "transactions.h"

_Static_assert((int)PYMQ_REASON_HEADER == (int)PYMQ_TRANSPORT_REASON_HEADER, "the transport names one reason itself");
_Static_assert(PYMQ_REASONS <= 255, "a reason travels in a byte");

const char *pymq_reason_name(int reason) {
    static const char *const NAMES[PYMQ_REASONS] = {
        [PYMQ_REASON_CODE] = "code",
        [PYMQ_REASON_PLANE] = "plane",
        [PYMQ_REASON_HEADER] = "header",
        [PYMQ_REASON_FIELD] = "field",
        [PYMQ_REASON_TOPIC_UNKNOWN] = "topic-unknown",
        [PYMQ_REASON_TOPIC_SPECIAL] = "topic-special",
        [PYMQ_REASON_GROUP_UNKNOWN] = "group-unknown",
        [PYMQ_REASON_GROUP_SPECIAL] = "group-special",
        [PYMQ_REASON_SUBSCRIPTION] = "subscription",
        [PYMQ_REASON_FILTER] = "filter",
        [PYMQ_REASON_PROPERTY] = "property",
        [PYMQ_REASON_PERMISSION] = "permission",
        [PYMQ_REASON_ROLE] = "role",
        [PYMQ_REASON_STORE] = "store",
        [PYMQ_REASON_HOLD_ENDED] = "hold-ended",
        [PYMQ_REASON_ORDER] = "order",
        [PYMQ_REASON_MESSAGE] = "message",
        [PYMQ_REASON_TRANSACTION] = "transaction",
    };
    return reason >= 0 && reason < PYMQ_REASONS ? NAMES[reason] : "unknown";
}

/* How long sends of a connection wait for a frame that nobody but Python can read, and that may not be a send. */
#define UNREADABLE_WAIT_MS 5000

enum pymq_pull_code { CODE_PULL_MESSAGE = 11, CODE_LITE_PULL_MESSAGE = 361 };

/* ---- callbacks -------------------------------------------------------------------------------------------------- */

struct pymq_serve_reactor *pymq_serve_reactor(struct pymq_serve *serve, struct pymq_reactor *reactor) {
    struct pymq_serve_reactor *state = &serve->reactors[pymq_reactor_index(reactor)];
    if (state->reactor == NULL) { /* its first callback */
        state->reactor = reactor;
        /* A descriptor of our own: the transport closes its one before the store has been told to stop ringing. */
        int event_fd = fcntl(pymq_reactor_event_fd(reactor), F_DUPFD_CLOEXEC, 0);
        state->listening =
            event_fd >= 0 && pymq_store_listen(serve->store, event_fd, PYMQ_EVENT_ACKNOWLEDGED) == PYMQ_OK;
        atomic_store_explicit(&state->parked->event_fd, event_fd, memory_order_release);
    }
    return state;
}

static bool is_send(int32_t code) {
    return code == PYMQ_CODE_SEND_MESSAGE || code == PYMQ_CODE_SEND_MESSAGE_V2 || code == PYMQ_CODE_SEND_BATCH_MESSAGE;
}

/* dataPlane=python. Sends are noted all the same: the setting may change while they wait. */
static int hand_over_plane(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                           const struct pymq_command *command) {
    struct pymq_send send;
    if (!is_send(command->code))
        return PYMQ_HAND_OVER + PYMQ_REASON_PLANE;
    pymq_send_parse(command, &send);
    return pymq_send_hand_over(state, connection, &send, PYMQ_REASON_PLANE);
}

static int on_request(void *context, struct pymq_reactor *reactor, struct pymq_connection *connection,
                      const struct pymq_command *command, const uint8_t *frame, size_t frame_size) {
    struct pymq_serve *serve = context;
    struct pymq_serve_reactor *state = pymq_serve_reactor(serve, reactor);
    if (!serve->config.native)
        return hand_over_plane(state, connection, command);
    switch (command->code) {
    case PYMQ_CODE_SEND_MESSAGE:
    case PYMQ_CODE_SEND_MESSAGE_V2:
    case PYMQ_CODE_SEND_BATCH_MESSAGE:
        return pymq_send_request(state, connection, command);
    case CODE_PULL_MESSAGE:
    case CODE_LITE_PULL_MESSAGE:
        return pymq_pull_request(state, connection, command, frame, frame_size);
    case PYMQ_CODE_CONSUMER_SEND_MSG_BACK:
        return pymq_send_back_request(state, connection, command);
    case PYMQ_CODE_END_TRANSACTION:
        return pymq_end_transaction_request(state, connection, command);
    case PYMQ_CODE_QUERY_CONSUMER_OFFSET:
    case PYMQ_CODE_UPDATE_CONSUMER_OFFSET:
        return pymq_offset_request(state, connection, command);
    default:
        return PYMQ_HAND_OVER + PYMQ_REASON_CODE;
    }
}

/* A frame for the Python codec, perhaps a send. */
static void on_unreadable(void *context, struct pymq_reactor *reactor, struct pymq_connection *connection,
                          const uint8_t *frame, size_t size) {
    struct pymq_serve_reactor *state = pymq_serve_reactor(context, reactor);
    (void)frame, (void)size;
    pymq_collect_settle(state);
    pymq_order_enter_any(state->order, pymq_connection_name(connection),
                         pymq_reactor_now_ms(reactor) + UNREADABLE_WAIT_MS);
}

/* Now that the senders have their answers, let dispatch see what they sent. */
static void on_written(void *context, struct pymq_reactor *reactor) {
    (void)reactor;
    pymq_store_ring(((struct pymq_serve *)context)->store);
}

static void on_settle(void *context, struct pymq_reactor *reactor) {
    struct pymq_serve_reactor *state = pymq_serve_reactor(context, reactor);
    pymq_collect_settle(state);
    state->resident_from = state->resident_to = 0; /* in the next turn it may be otherwise */
    pymq_pull_settle(state);
}

static void on_event(void *context, struct pymq_reactor *reactor) {
    struct pymq_serve_reactor *state = pymq_serve_reactor(context, reactor);
    pymq_parked_complete(state);
    pymq_pull_event(state);
}

static int64_t on_timer(void *context, struct pymq_reactor *reactor, int64_t now_ms) {
    struct pymq_serve_reactor *state = pymq_serve_reactor(context, reactor);
    int64_t parked_due_ms = pymq_parked_expire(state, now_ms);
    return pymq_min64(parked_due_ms, pymq_pull_timer(state, now_ms));
}

static void on_closed(void *context, struct pymq_reactor *reactor, pymq_connection_id connection) {
    struct pymq_serve_reactor *state = pymq_serve_reactor(context, reactor);
    pymq_order_forget(state->order, connection);
    pymq_pull_closed(state, connection);
}

/* A handed-over send will never reach the control loop: later ones need not wait for it. */
static void on_dropped(void *context, pymq_connection_id connection, int32_t code, const uint8_t *frame, size_t size) {
    struct pymq_serve *serve = context;
    if (code == -1) /* one that only Python could have read */
        pymq_serve_send_settled(serve, connection, NULL, 0);
    if (!is_send(code))
        return;
    struct pymq_command *command = malloc(sizeof *command + size); /* and scratch behind it */
    if (command == NULL)
        return; /* sends of that connection go on through the control loop: slower, not wrong */
    struct pymq_send send;
    if (pymq_command_decode(frame, size, (uint8_t *)(command + 1), size, command) == PYMQ_OK) {
        pymq_send_parse(command, &send);
        if (send.topic.size > 0)
            pymq_serve_send_settled(serve, connection, send.topic.data, send.topic.size);
    }
    free(command);
}

/* The transport has no threads any more and is going: forget it, so that tables can still be changed. */
static void on_stopped(void *context) { pymq_serve_attach(context, NULL); }

void pymq_serve_send_settled(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *topic,
                             uint32_t topic_size) {
    uint64_t index = connection >> 56;
    if (index >= PYMQ_REACTORS_MAX)
        return;
    if (topic_size == 0)
        pymq_order_leave_any(serve->reactors[index].order, connection);
    else
        pymq_order_leave(serve->reactors[index].order, connection, topic, topic_size);
}

/* ---- open, configure, close ------------------------------------------------------------------------------------- */

void pymq_serve_config_default(struct pymq_serve_config *config) {
    memset(config, 0, sizeof *config);
    config->native = true;
    config->long_polling = true;
    config->short_polling_ms = 1000;
    config->hold_check_ms = 5000;
    config->holds_max = 100000;
    config->holds_bytes_max = 64 * 1024 * 1024; /* as many holds as that of a Java client's 400 bytes, and half again */
    config->parked_max = 100000;
    config->send_timeout_ms = 5000;
    config->transfer_bytes_memory = 262144;
    config->transfer_count_memory = 32;
    config->transfer_bytes_disk = 65536;
    config->transfer_count_disk = 8;
    config->memory_bytes_max = INT64_MAX;
    config->hot_bytes = 4 * 1024 * 1024;
    config->cold_read_threads = 2;
    config->message_size_max = PYMQ_MESSAGE_SIZE_MAX_DEFAULT;
    config->trace_on = true;
    config->broker_permission = 6;
    config->store_host = (struct pymq_host){.address = {127, 0, 0, 1}, .size = 4, .port = 10911};
    memcpy(config->cluster, "DefaultCluster", sizeof "DefaultCluster");
    memcpy(config->region, "DefaultRegion", sizeof "DefaultRegion");
    memcpy(config->broker_ip, "127.0.0.1", sizeof "127.0.0.1");
}

static bool is_value(const char *text, size_t size) {
    return memchr(text, '\0', size) != NULL && strchr(text, PYMQ_NAME_VALUE_SEPARATOR) == NULL &&
           strchr(text, PYMQ_PROPERTY_SEPARATOR) == NULL;
}

static int check_config(const struct pymq_serve_config *config, struct pymq_error *error) {
    if (!is_value(config->cluster, sizeof config->cluster) || !is_value(config->region, sizeof config->region))
        return pymq_fail(error, PYMQ_EINVAL, 0,
                         "brokerClusterName and regionId become message properties: at most %d bytes each, without the "
                         "separators 0x01 and 0x02",
                         PYMQ_BROKER_NAME_MAX);
    if (config->store_host.size != 4 && config->store_host.size != 16)
        return pymq_fail(error, PYMQ_EINVAL, 0, "brokerIP1: an address has 4 or 16 bytes, not %d",
                         config->store_host.size);
    if (config->message_size_max <= 0 || config->parked_max <= 0 || config->send_timeout_ms <= 0)
        return pymq_fail(error, PYMQ_EINVAL, 0, "maxMessageSize, parked sends and syncFlushTimeout must be positive");
    return PYMQ_OK;
}

static int open_reactor(struct pymq_serve *serve, unsigned index) {
    struct pymq_serve_reactor *state = &serve->reactors[index];
    state->serve = serve;
    state->index = index;
    state->order = calloc(1, sizeof *state->order);
    state->parked = calloc(1, sizeof *state->parked);
    state->collect = calloc(1, sizeof *state->collect);
    if (state->order == NULL || state->parked == NULL || state->collect == NULL)
        return PYMQ_ENOMEM;
    int status = pymq_parked_init(state->parked);
    if (status == PYMQ_OK)
        status = pymq_order_init(state->order);
    return status;
}

int pymq_serve_open(const struct pymq_serve_config *config, struct pymq_store *store, struct pymq_serve **result,
                    struct pymq_error *error) {
    *result = NULL;
    int status = check_config(config, error);
    if (status != PYMQ_OK)
        return status;
    struct pymq_serve *serve = NULL;
    if (posix_memalign((void **)&serve, _Alignof(struct pymq_serve), sizeof *serve) != 0)
        return pymq_fail(error, PYMQ_ENOMEM, 0, "no memory for the serving tables");
    memset(serve, 0, sizeof *serve);
    serve->config = *config;
    serve->store = store;
    serve->service = (struct pymq_service){
        .context = serve,
        .request = on_request,
        .settle = on_settle,
        .written = on_written,
        .event = on_event,
        .timer = on_timer,
        .closed = on_closed,
        .unreadable = on_unreadable,
        .dropped = on_dropped,
        .stopped = on_stopped,
    };
    status = pymq_tables_init(&serve->tables);
    if (status != PYMQ_OK) {
        free(serve);
        return pymq_fail(error, status, 0, "no memory for the serving tables");
    }
    serve->added = calloc(1, sizeof *serve->added);
    serve->answer_template = calloc(1, sizeof *serve->answer_template);
    serve->transactions = pymq_transactions_make();
    status = serve->added != NULL && serve->answer_template != NULL && serve->transactions != NULL ? PYMQ_OK
                                                                                                   : PYMQ_ENOMEM;
    for (unsigned i = 0; i < PYMQ_REACTORS_MAX && status == PYMQ_OK; i++)
        status = open_reactor(serve, i);
    if (status == PYMQ_OK) {
        pymq_broker_properties_make(serve->added, config);
        pymq_answer_template_make(serve->answer_template, config);
        status = pymq_pull_open(serve, error);
    } else {
        pymq_fail(error, status, 0, "no memory for the serving tables");
    }
    if (status != PYMQ_OK) {
        pymq_serve_close(serve);
        return status;
    }
    *result = serve;
    return PYMQ_OK;
}

const struct pymq_service *pymq_serve_service(struct pymq_serve *serve) { return &serve->service; }

void pymq_serve_attach(struct pymq_serve *serve, struct pymq_transport *transport) {
    pthread_mutex_lock(&serve->tables.control_lock);
    serve->transport = transport;
    serve->tables.transport = transport;
    pthread_mutex_unlock(&serve->tables.control_lock);
}

void pymq_serve_configure(struct pymq_serve *serve, const struct pymq_serve_config *config) {
    struct pymq_error error;
    if (check_config(config, &error) != PYMQ_OK)
        return; /* a setting that cannot be opened with cannot be changed to either */
    pymq_tables_begin(&serve->tables);
    struct pymq_serve_config before = serve->config;
    serve->config = *config;
    pymq_broker_properties_make(serve->added, config);
    pymq_answer_template_make(serve->answer_template, config);
    pymq_pull_configured(serve, &before);
    pymq_tables_end(&serve->tables);
}

static void close_reactor(struct pymq_serve *serve, struct pymq_serve_reactor *state) {
    int event_fd = state->parked != NULL ? atomic_load(&state->parked->event_fd) : -1;
    if (state->listening)
        pymq_store_unlisten(serve->store, event_fd);
    if (event_fd >= 0)
        close(event_fd);
    if (state->order != NULL && state->order->entries.buckets != NULL)
        pymq_order_destroy(state->order);
    if (state->parked != NULL)
        pymq_parked_destroy(state->parked);
    if (state->collect != NULL)
        pymq_collect_destroy(state->collect);
    free(state->order);
    free(state->parked);
    free(state->collect);
}

void pymq_serve_close(struct pymq_serve *serve) {
    if (serve == NULL)
        return;
    pymq_pull_close(serve);
    for (unsigned i = 0; i < PYMQ_REACTORS_MAX; i++)
        close_reactor(serve, &serve->reactors[i]);
    pymq_tables_destroy(&serve->tables);
    free(serve->added);
    free(serve->answer_template);
    pymq_transactions_free(serve->transactions);
    free(serve);
}

/* ---- statistics ------------------------------------------------------------------------------------------------- */

static int64_t load(const _Atomic int64_t *counter) { return atomic_load_explicit(counter, memory_order_relaxed); }

void pymq_serve_stats(const struct pymq_serve *serve, struct pymq_serve_stats *stats) {
    memset(stats, 0, sizeof *stats);
    stats->sent_messages = load(&serve->put_messages);
    stats->sent_bytes = load(&serve->put_bytes);
    for (unsigned i = 0; i < PYMQ_REACTORS_MAX; i++) {
        const struct pymq_serve_counters *counters = &serve->reactors[i].counters;
        stats->sent_messages += load(&counters->sent_messages);
        stats->sent_bytes += load(&counters->sent_bytes);
        stats->commits += load(&counters->commits);
        stats->sent_back += load(&counters->sent_back);
        stats->transactions += load(&counters->transactions);
        stats->pulled_messages += load(&counters->pulled_messages);
        stats->pulled_bytes += load(&counters->pulled_bytes);
        stats->cold_reads += load(&counters->cold_reads);
        stats->holds_ended_arrival += load(&counters->holds_ended_arrival);
        stats->holds_ended_time += load(&counters->holds_ended_time);
        stats->holds_ended_other += load(&counters->holds_ended_other);
        stats->parked += load(&serve->reactors[i].parked->count);
        stats->parked_late += load(&counters->parked_late);
    }
    pymq_pull_stats(serve, stats);
}
