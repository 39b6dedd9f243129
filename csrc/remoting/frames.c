/* One whole frame: decoded, offered to the service, handed over when it does not take it. */
#include "remoting_internal.h"

#define RESPONSE_SYSTEM_BUSY 2
#define HEADER_SIZE_MASK 0xffffff
/* A header only Python can read costs the control loop about 100 ns a byte; where it costs more Python has a limit of
 * its own (FORGIVEN_HEADER_SIZE_MAX). One with the longest properties there are, all of it escapes, has 192 KiB; beyond
 * this no client's header lies, and its connection is closed. */
#define UNREADABLE_HEADER_SIZE_MAX (256 * 1024)

/* Of a frame whose prefix is there; more than the frame has when it lies. */
static size_t header_size_of(const uint8_t *frame) { return pymq_load_be32(frame + 4) & HEADER_SIZE_MASK; }

/* Strings unescape to no more than the header has. A header beyond the reactor's own scratch gets memory for the
 * moment. */
static int decode(struct pymq_reactor *reactor, const uint8_t *frame, size_t size, uint8_t **borrowed) {
    size_t header_size = header_size_of(frame);
    *borrowed = NULL;
    if (header_size <= SCRATCH_SIZE || header_size > size)
        return pymq_command_decode(frame, size, reactor->scratch, SCRATCH_SIZE, &reactor->command);
    *borrowed = pymq_buffer_make(header_size);
    if (*borrowed == NULL)
        return PYMQ_EUNSUPPORTED;
    return pymq_command_decode(frame, size, *borrowed, header_size, &reactor->command);
}

/* A frame decoded outside of a turn. NULL when it cannot be, or there is no memory for it. */
struct frame_reading *pymq_frame_read(const uint8_t *frame, size_t size) {
    if (size < PYMQ_FRAME_PREFIX_SIZE || header_size_of(frame) > size)
        return NULL;
    size_t room = sizeof(struct frame_reading) + header_size_of(frame);
    struct frame_reading *reading = pymq_buffer_make(room);
    if (reading == NULL)
        return NULL;
    reading->room = room;
    if (pymq_command_decode(frame, size, reading->scratch, room - sizeof *reading, &reading->command) == PYMQ_OK)
        return reading;
    pymq_frame_read_free(reading);
    return NULL;
}

void pymq_frame_read_free(struct frame_reading *reading) {
    if (reading != NULL)
        pymq_buffer_free(reading, reading->room);
}

static void serve_request(struct pymq_connection *connection, const struct pymq_command *command, const uint8_t *frame,
                          size_t size) {
    struct pymq_reactor *reactor = connection->reactor;
    const struct pymq_service *service = reactor->transport->service;
    int answer = PYMQ_HAND_OVER;
    if (service != NULL && service->request != NULL) {
        reactor->settle_due = true;
        answer = service->request(service->context, reactor, connection, command, frame, size);
    }
    if (answer == PYMQ_SERVED) {
        pymq_count_code(reactor, command->code, -1);
        return;
    }
    int32_t reason = answer - PYMQ_HAND_OVER;
    pymq_count_code(reactor, command->code, reason);
    pymq_lane_put(reactor->transport, pymq_lane_of(reactor->transport, command->code), connection_id(connection),
                  &connection->peer, reactor->now_us, command, frame, size, (uint8_t)reason);
}

/* The code of a frame that could not be decoded, as far as a glance tells; -1 when it does not. Only the lane depends
 * on it: sends that Python must read stay in one lane with those of their connection that must wait for them. */
static int32_t glance_at_code(const uint8_t *frame, size_t size) {
    static const char NAME[] = "\"code\":";
    size_t header_size = header_size_of(frame);
    const uint8_t *header = frame + PYMQ_FRAME_PREFIX_SIZE, *end = header + header_size;
    if (header_size < 2 || PYMQ_FRAME_PREFIX_SIZE + header_size > size)
        return -1;
    if (frame[4] == PYMQ_SERIALIZE_ROCKETMQ)
        return (int16_t)pymq_load_be16(header);
    const uint8_t *at = memmem(header, header_size, NAME, sizeof NAME - 1);
    if (at == NULL)
        return -1;
    for (at += sizeof NAME - 1; at < end && *at == ' ';)
        at++;
    int32_t code = -1;
    for (int digits = 0; at < end && *at >= '0' && *at <= '9' && digits < 9; at++, digits++)
        code = (digits == 0 ? 0 : code * 10) + (*at - '0');
    return code;
}

bool pymq_frame_serve(struct pymq_connection *connection, const uint8_t *frame, size_t size) {
    struct pymq_reactor *reactor = connection->reactor;
    uint8_t *borrowed;
    int status = decode(reactor, frame, size, &borrowed);
    const struct pymq_command *command = &reactor->command;
    bool trusted = true;
    if (status == PYMQ_OK && (command->flag & PYMQ_COMMAND_RESPONSE) != 0) {
        pymq_lane_put(reactor->transport, PYMQ_LANE_REPLY, connection_id(connection), &connection->peer,
                      reactor->now_us, command, frame, size, 0);
    } else if (status == PYMQ_OK) {
        serve_request(connection, command, frame, size);
    } else if (status == PYMQ_EUNSUPPORTED && header_size_of(frame) <= UNREADABLE_HEADER_SIZE_MAX) {
        const struct pymq_service *service = reactor->transport->service;
        if (service != NULL && service->unreadable != NULL)
            service->unreadable(service->context, reactor, connection, frame, size);
        pymq_count_code(reactor, -1, PYMQ_TRANSPORT_REASON_HEADER);
        pymq_lane_put(reactor->transport, pymq_lane_of(reactor->transport, glance_at_code(frame, size)),
                      connection_id(connection), &connection->peer, reactor->now_us, NULL, frame, size,
                      PYMQ_TRANSPORT_REASON_HEADER);
    } else {
        trusted = false;
    }
    if (borrowed != NULL)
        pymq_buffer_free(borrowed, header_size_of(frame));
    count(&reactor->counters.frames_in, 1);
    return trusted;
}

/* Answer SYSTEM_BUSY with `remark`, in the request's own serialization. Oneway requests get no answer. */
void pymq_frame_refuse(struct pymq_transport *transport, pymq_connection_id id, const struct pymq_command *command,
                       const char *remark, size_t remark_size) {
    if (command->flag & (PYMQ_COMMAND_ONEWAY | PYMQ_COMMAND_RESPONSE))
        return;
    uint8_t answer[PYMQ_HEADER_ROOM];
    struct pymq_header_writer writer;
    struct pymq_slice text = {.data = (const uint8_t *)remark, .size = (uint32_t)remark_size};
    pymq_header_begin(&writer, answer, sizeof answer, command->serialize_type, RESPONSE_SYSTEM_BUSY,
                      PYMQ_COMMAND_RESPONSE, command->opaque, text);
    ssize_t size = pymq_header_end(&writer, 0);
    if (size > 0)
        pymq_transport_send(transport, id, answer, (size_t)size);
}
