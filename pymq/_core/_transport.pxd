# What the binding uses of pymq/transport.h and pymq/command.h.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "pymq/transport.h" nogil:
    struct pymq_error:
        int status
        int sys_errno
        char *text

    struct pymq_host:
        uint8_t *address
        uint8_t size
        int32_t port

    struct pymq_slice:
        const uint8_t *data
        uint32_t size

    struct pymq_field:
        pymq_slice name
        pymq_slice value

    struct pymq_command:
        int32_t code
        int32_t version
        int32_t opaque
        int32_t flag
        uint8_t language
        uint8_t serialize_type
        uint32_t field_count
        pymq_slice remark
        pymq_slice body
        pymq_field *fields

    int pymq_command_decode(const uint8_t *frame, size_t size, uint8_t *scratch, size_t scratch_size,
                            pymq_command *command)

    enum:
        PYMQ_OK
        PYMQ_EINVAL
        PYMQ_ENOMEM
        PYMQ_LANE_CLIENT
        PYMQ_LANE_SEND
        PYMQ_LANE_PULL
        PYMQ_LANE_ADMIN
        PYMQ_LANE_REPLY
        PYMQ_LANE_EVENT
        PYMQ_LANES
        PYMQ_HANDED_FRAME
        PYMQ_HANDED_OPENED
        PYMQ_HANDED_CLOSED
        PYMQ_HANDED_TLS

    struct pymq_transport
    struct pymq_service

    struct pymq_transport_config:
        int32_t reactors
        int32_t connections_max
        uint32_t frame_size_max
        int32_t idle_timeout_ms
        int64_t output_size_max
        int64_t output_size_pause
        int32_t pinned_timeout_ms
        int32_t *lane_count_max
        int64_t *lane_bytes_max
        int32_t *lane_wait_ms
        int32_t turn_bytes_max

    struct pymq_handed:
        pymq_handed *next
        uint64_t connection
        pymq_host peer
        int64_t received_us
        int32_t code
        int32_t fd
        uint8_t kind
        uint8_t lane
        uint8_t reason
        uint32_t size
        uint8_t *frame

    struct pymq_transport_stats_s "pymq_transport_stats":
        int64_t accepted, closed, refused, open
        int64_t accept_failed
        int64_t idle_closed, broken_frames, output_closed, pinned_closed
        int64_t frames_in, bytes_in, bytes_out, turns, writes, reads, wakes
        int64_t *lane_waiting
        int64_t *lane_refused
        int64_t *lane_expired
        int64_t *lane_taken
        int64_t *lane_running
        int64_t buffer_bytes

    struct pymq_code_count:
        int32_t code
        int32_t reason
        int64_t count

    void pymq_transport_config_default(pymq_transport_config *config)
    int pymq_transport_open(const pymq_transport_config *config, const pymq_service *service, pymq_transport **transport,
                            pymq_error *error)
    int pymq_transport_listen(pymq_transport *transport, const char *host, int32_t port, int32_t *bound_port,
                              pymq_error *error)
    uint64_t pymq_transport_adopt(pymq_transport *transport, int fd, const pymq_host *peer, bint is_client,
                                  pymq_error *error)
    void pymq_transport_drain(pymq_transport *transport)
    bint pymq_transport_is_drained(pymq_transport *transport)
    void pymq_transport_close(pymq_transport *transport, int32_t drain_ms)
    void pymq_transport_set_tls_mode(pymq_transport *transport, int mode)
    void pymq_transport_set_lane(pymq_transport *transport, int32_t code, int lane)
    int pymq_transport_wake_fd(const pymq_transport *transport)
    void pymq_transport_clear_wake(pymq_transport *transport)
    pymq_handed *pymq_transport_take(pymq_transport *transport, int lane, size_t count_max)
    void pymq_transport_count_running(pymq_transport *transport, int lane, int64_t requests, int64_t bytes)
    void pymq_transport_count_expired(pymq_transport *transport, int lane)
    void pymq_handed_free(pymq_transport *transport, pymq_handed *handed)
    int pymq_transport_send(pymq_transport *transport, uint64_t connection, const uint8_t *frame, size_t size)
    int pymq_transport_queue(pymq_transport *transport, uint64_t connection, const uint8_t *frame, size_t size)
    void pymq_transport_ring(pymq_transport *transport)
    void pymq_transport_close_connection(pymq_transport *transport, uint64_t connection)
    void pymq_transport_stats_read "pymq_transport_stats" (const pymq_transport *transport, pymq_transport_stats_s *stats)
    size_t pymq_transport_code_counts(const pymq_transport *transport, pymq_code_count *rows, size_t count_max)
