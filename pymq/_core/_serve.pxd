# What the binding uses of pymq/serve.h.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "pymq/serve.h" nogil:
    enum:
        PYMQ_OK
        PYMQ_EINVAL
        PYMQ_ENOMEM
        PYMQ_ENOTFOUND
        PYMQ_ECLOSED
        PYMQ_EMAPS
        PYMQ_TOPIC_SEND_SPECIAL
        PYMQ_TOPIC_PULL_SPECIAL
        PYMQ_GROUP_DISABLED
        PYMQ_GROUP_SPECIAL
        PYMQ_TAGS_MAX
        PYMQ_BROKER_NAME_MAX
        PYMQ_UNIQUE_KEY_SIZE
        PYMQ_GET_COUNT_MAX
        PYMQ_REASONS
        PYMQ_REASON_HEADER
        PYMQ_REASON_PLANE
        PYMQ_REASON_HOLD_ENDED
        PYMQ_GET_FOUND
        PYMQ_GET_NO_MATCHED_MESSAGE
        PYMQ_GET_MESSAGE_WAS_REMOVING
        PYMQ_GET_OFFSET_FOUND_NULL
        PYMQ_GET_OFFSET_OVERFLOW_BADLY
        PYMQ_GET_OFFSET_OVERFLOW_ONE
        PYMQ_GET_OFFSET_TOO_SMALL
        PYMQ_GET_NO_MATCHED_LOGIC_QUEUE
        PYMQ_GET_NO_MESSAGE_IN_QUEUE
        PYMQ_GET_COLD
        PYMQ_GET_ERROR

    struct pymq_error:
        int status
        int sys_errno
        char text[1024]

    const char *pymq_status_name(int status)

    struct pymq_host:
        uint8_t address[16]
        uint8_t size
        int32_t port

    struct pymq_slice:
        const uint8_t *data
        uint32_t size

    struct pymq_store
    struct pymq_transport
    struct pymq_service
    struct pymq_serve

    struct pymq_span:
        const uint8_t *data
        uint32_t size
        void *owner

    void pymq_span_release(pymq_store *store, pymq_span *span)
    bint pymq_store_is_busy(const pymq_store *store)

    struct pymq_serve_config:
        bint native
        bint long_polling
        int32_t short_polling_ms
        int32_t hold_check_ms
        int32_t holds_max
        int64_t holds_bytes_max
        int32_t parked_max
        int32_t send_timeout_ms
        int32_t transfer_bytes_memory
        int32_t transfer_count_memory
        int32_t transfer_bytes_disk
        int32_t transfer_count_disk
        int64_t memory_bytes_max
        int64_t hot_bytes
        int32_t cold_read_threads
        int32_t message_size_max
        int32_t delay_level_max
        bint transactions
        bint trace_on
        bint slave_read_enable
        bint begin_as_asked
        int32_t broker_permission
        pymq_host store_host
        char cluster[128]
        char region[128]
        char broker_ip[64]

    const char *pymq_reason_name(int reason)
    void pymq_serve_config_default(pymq_serve_config *config)
    int pymq_serve_open(const pymq_serve_config *config, pymq_store *store, pymq_serve **serve, pymq_error *error)
    const pymq_service *pymq_serve_service(pymq_serve *serve)
    void pymq_serve_attach(pymq_serve *serve, pymq_transport *transport)
    void pymq_serve_close(pymq_serve *serve)
    void pymq_serve_configure(pymq_serve *serve, const pymq_serve_config *config)

    struct pymq_topic_row:
        const uint8_t *name
        uint32_t name_size
        int32_t permission
        int32_t read_queues
        int32_t write_queues
        int32_t sys_flag
        uint32_t flags

    int pymq_serve_publish_topic(pymq_serve *serve, const pymq_topic_row *row)
    void pymq_serve_remove_topic(pymq_serve *serve, const uint8_t *name, uint32_t size, bint offsets_too)

    struct pymq_group_row:
        const uint8_t *name
        uint32_t name_size
        uint32_t flags
        int32_t sys_flag
        int64_t broker_id
        int64_t broker_id_when_slow
        int32_t retry_queues
        int32_t retry_max_times

    int pymq_serve_publish_group(pymq_serve *serve, const pymq_group_row *row)
    void pymq_serve_remove_group(pymq_serve *serve, const uint8_t *name, uint32_t size, bint offsets_too)

    struct pymq_subscription_row:
        const uint8_t *group
        const uint8_t *topic
        uint32_t group_size
        uint32_t topic_size
        int64_t version
        bint all
        bint special
        uint32_t tag_count
        int32_t tag_hashes[64]
        const uint8_t *program
        uint32_t program_size
        const uint8_t *expression
        uint32_t expression_size

    int pymq_serve_publish_subscription(pymq_serve *serve, const pymq_subscription_row *row)
    void pymq_serve_remove_subscription(pymq_serve *serve, const uint8_t *group, uint32_t group_size,
                                        const uint8_t *topic, uint32_t topic_size)
    void pymq_serve_send_settled(pymq_serve *serve, uint64_t connection, const uint8_t *topic, uint32_t topic_size)

    int pymq_serve_offset_query_by(pymq_serve *serve, uint64_t connection, const uint8_t *group, uint32_t group_size,
                                   const uint8_t *topic, uint32_t topic_size, int32_t queue_id, int64_t *offset)
    int64_t PYMQ_OFFSET_NONE
    int pymq_serve_offset_commit_by(pymq_serve *serve, uint64_t connection, const uint8_t *group, uint32_t group_size,
                                    const uint8_t *topic, uint32_t topic_size, int32_t queue_id, int64_t offset)
    int pymq_serve_offset_reset(pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                                uint32_t topic_size, int32_t queue_id, int64_t offset)
    void pymq_serve_offset_remove(pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                                  uint32_t topic_size)

    struct pymq_offset_entry:
        pymq_slice group
        pymq_slice topic
        int32_t queue_id
        int64_t offset
        int64_t pending
        int64_t pulled

    size_t pymq_serve_offsets(pymq_serve *serve, pymq_offset_entry *entries, size_t count_max)

    struct pymq_put:
        pymq_slice topic
        pymq_slice body
        pymq_slice properties
        int32_t queue_id
        int32_t flag
        int32_t sys_flag
        int32_t reconsume_times
        int64_t born_timestamp_ms
        int64_t prepared_transaction_offset
        pymq_host born_host
        int64_t queue_offset
        int64_t physical_offset
        int64_t end_offset
        int64_t store_timestamp_ms

    int pymq_serve_put(pymq_serve *serve, pymq_put *puts, size_t count, bint together)

    struct pymq_reput:
        int64_t source
        pymq_slice topic
        int32_t queue_id
        pymq_slice remove
        pymq_slice set
        int32_t sys_flag_clear
        int32_t sys_flag_set
        int32_t reconsume_times
        int64_t prepared_transaction_offset
        int status
        int64_t queue_offset
        int64_t physical_offset
        int64_t end_offset
        int64_t store_timestamp_ms

    size_t pymq_serve_reput(pymq_serve *serve, pymq_reput *items, size_t count, bint in_order)

    struct pymq_due:
        pymq_slice topic
        int32_t queue_id
        int64_t offset
        int64_t now_ms
        int64_t correct_max_ms
        size_t count_max
        pymq_slice remove
        int64_t next_offset
        size_t delivered
        int64_t next_due_ms
        int64_t last_end_offset
        int64_t lateness_ms_max
        int status

    void pymq_serve_deliver_due(pymq_serve *serve, pymq_due *due)

    struct pymq_transaction_end:
        int64_t queue_offset
        int32_t how

    void pymq_serve_transactions_begin(pymq_serve *serve, int64_t floor, int64_t begin_offset)
    bint pymq_serve_transaction_claim(pymq_serve *serve, int64_t queue_offset)
    void pymq_serve_transaction_release(pymq_serve *serve, int64_t queue_offset)
    size_t pymq_serve_transactions_ended(pymq_serve *serve, pymq_transaction_end *ends, size_t count_max)
    void pymq_serve_transactions_forget(pymq_serve *serve, int64_t floor)

    int pymq_serve_park(pymq_serve *serve, uint64_t connection, int64_t end_offset, const uint8_t *frame, size_t size,
                        const uint8_t *late, size_t late_size, const uint8_t *failed, size_t failed_size)

    struct pymq_refusal:
        int32_t code
        bint has_fields
        uint32_t remark_size
        char remark[512]

    void pymq_refusal_make(pymq_refusal *refusal, const pymq_serve *serve, int status)

    struct pymq_shared_program:
        pass

    int pymq_shared_program_make(const uint8_t *bytes, size_t size, pymq_shared_program **program)
    void pymq_shared_program_leave(pymq_shared_program *program)

    struct pymq_get_s "pymq_get":
        pymq_slice topic
        int32_t queue_id
        int64_t offset
        int32_t count_max
        int32_t bytes_max
        const int32_t *tag_hashes
        uint32_t tag_count
        pymq_shared_program *program
        bint no_wait
        int status
        int error_status
        int64_t next_offset
        int64_t min_offset
        int64_t max_offset
        bint suggest_slave
        uint32_t message_count
        uint32_t span_count
        uint64_t bytes

    void pymq_serve_get(pymq_serve *serve, pymq_get_s *get, pymq_span *spans, size_t span_max)
    int pymq_serve_hold(pymq_serve *serve, uint64_t connection, const uint8_t *frame, size_t size, const pymq_get_s *get,
                        const uint8_t *group, uint32_t group_size, int32_t timeout_ms)
    int pymq_serve_pull_begins(pymq_serve *serve, uint64_t connection, const uint8_t *group, uint32_t group_size,
                               const uint8_t *topic, uint32_t topic_size, int32_t queue_id, int64_t offset,
                               int64_t *reset_to)
    void pymq_serve_pulled(pymq_serve *serve, uint64_t connection, const uint8_t *group, uint32_t group_size,
                           const uint8_t *topic, uint32_t topic_size, int32_t queue_id, int64_t offset,
                           int64_t next_offset)
    void pymq_serve_count_pull(pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                               uint32_t topic_size, int64_t messages, int64_t size)
    size_t pymq_serve_stop_holds(pymq_serve *serve)
    size_t pymq_serve_end_holds(pymq_serve *serve, const uint8_t *topic, uint32_t topic_size, const uint8_t *group,
                                uint32_t group_size)
    void pymq_unique_key(uint8_t *target)

    struct pymq_serve_stats_s "pymq_serve_stats":
        int64_t holds
        int64_t holds_bytes
        int64_t holds_ended_arrival
        int64_t holds_ended_time
        int64_t holds_ended_other
        int64_t parked
        int64_t parked_late
        int64_t cold_reads
        int64_t sent_messages
        int64_t sent_bytes
        int64_t pulled_messages
        int64_t pulled_bytes
        int64_t commits
        int64_t sent_back
        int64_t transactions

    void pymq_serve_stats(const pymq_serve *serve, pymq_serve_stats_s *stats)

    struct pymq_traffic:
        pymq_slice topic
        pymq_slice group
        int64_t messages
        int64_t bytes

    size_t pymq_serve_traffic(pymq_serve *serve, pymq_traffic *rows, size_t count_max)
