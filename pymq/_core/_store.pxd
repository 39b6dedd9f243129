# The C core as Cython sees it.
# The headers under csrc/include/pymq are the contract; only what _store.pyx uses is repeated here.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "<sys/types.h>" nogil:
    ctypedef long ssize_t

cdef extern from "pymq/base.h" nogil:
    int PYMQ_OK, PYMQ_ECORRUPT, PYMQ_ETRUNCATED, PYMQ_EINVAL, PYMQ_ENOMEM, PYMQ_EIO, PYMQ_ENOSPC, PYMQ_ETOOBIG
    int PYMQ_EPROPERTIES, PYMQ_ETOPIC, PYMQ_EFAILED, PYMQ_ECLOSED, PYMQ_ETIMEDOUT, PYMQ_EPOOL, PYMQ_ENOTFOUND, PYMQ_EUNSUPPORTED
    int PYMQ_EREADONLY, PYMQ_EMAPS
    int PYMQ_ERROR_TEXT_MAX, PYMQ_PROPERTIES_SIZE_MAX, PYMQ_RECORD_OVERHEAD_MAX

    struct pymq_error:
        int status
        int sys_errno
        char text[1024]

    const char *pymq_status_name(int status)

cdef extern from "pymq/properties.h" nogil:
    struct pymq_slice:
        const uint8_t *data
        uint32_t size

    struct pymq_property:
        pymq_slice name
        pymq_slice value

    int pymq_properties_next(const uint8_t *source, size_t size, size_t *position, pymq_property *property)

cdef extern from "pymq/cq_unit.h" nogil:
    struct pymq_cq_unit:
        int64_t physical_offset
        int32_t size
        int64_t tags_code

cdef extern from "pymq/java_hash.h" nogil:
    int32_t pymq_java_hash(int32_t hash, const uint8_t *source, size_t size)

cdef extern from "pymq/record.h" nogil:
    unsigned int PYMQ_CHECK_BODY_CRC, PYMQ_CHECK_OFFSET
    int PYMQ_RECORD_CRC_SIZE

    struct pymq_host:
        uint8_t address[16]
        uint8_t size
        int32_t port

    struct pymq_record:
        int32_t total_size
        uint32_t magic
        int32_t body_crc
        int32_t queue_id
        int32_t flag
        int64_t queue_offset
        int64_t physical_offset
        int32_t sys_flag
        int64_t born_timestamp_ms
        pymq_host born_host
        int64_t store_timestamp_ms
        pymq_host store_host
        int32_t reconsume_times
        int64_t prepared_transaction_offset
        pymq_slice body
        pymq_slice topic
        pymq_slice properties

    struct pymq_delay_levels:
        int32_t count

    ssize_t pymq_record_size(const pymq_record *record)
    ssize_t pymq_record_encode(const pymq_record *record, uint8_t *target, size_t capacity)
    ssize_t pymq_record_decode(const uint8_t *source, size_t size, unsigned int checks, int64_t physical_offset,
                               pymq_record *record)
    int64_t pymq_record_store_timestamp_ms(const uint8_t *record)
    int pymq_delay_levels_parse(const char *text, pymq_delay_levels *levels)

cdef extern from "pymq/store.h" nogil:
    ctypedef enum pymq_flush_mode "enum pymq_flush_mode":
        PYMQ_ASYNC_FLUSH
        PYMQ_SYNC_FLUSH

    ctypedef enum pymq_boundary "enum pymq_boundary":
        PYMQ_BOUNDARY_LOWER
        PYMQ_BOUNDARY_UPPER

    unsigned int PYMQ_APPEND_TOGETHER, PYMQ_EVENT_ACKNOWLEDGED, PYMQ_EVENT_ARRIVAL
    int PYMQ_LATENCY_BUCKETS

    struct pymq_store:
        pass

    struct pymq_queue:
        pass

    struct pymq_store_config:
        int64_t log_file_size
        int64_t queue_file_size
        int32_t index_slot_count
        int32_t index_item_count
        bint index_enable
        int32_t message_size_max
        pymq_flush_mode flush_mode
        int32_t sync_flush_timeout_ms
        int32_t flush_interval_ms
        int32_t flush_least_pages
        int32_t flush_thorough_interval_ms
        int32_t commit_interval_ms
        int32_t commit_least_pages
        int32_t commit_thorough_interval_ms
        int32_t queue_flush_interval_ms
        int32_t queue_flush_least_pages
        int32_t queue_flush_thorough_interval_ms
        int32_t queue_flush_slice
        bint transient_pool_enable
        int32_t transient_pool_size
        int32_t transient_pool_wait_ms
        bint warm_file_enable
        bint lock_log_memory
        int64_t prefault_size
        int64_t log_window_size
        int64_t log_map_size_max
        int32_t queue_map_count_max
        int32_t page_cache_busy_ms
        bint check_crc_on_recover
        bint append_record_crc
        bint require_record_crc
        bint truncate_damaged
        bint replica_gate
        int64_t checkpoint_bytes_max
        pymq_delay_levels delay_levels
        pymq_host store_host
        void (*progress)(void *context, const char *phase, int64_t done, int64_t total)
        void *progress_context

    void pymq_store_config_default(pymq_store_config *config)
    int pymq_store_open(const char *path, const pymq_store_config *config, pymq_store **store, pymq_error *error)
    int pymq_store_shut(pymq_store *store)
    int pymq_store_close(pymq_store *store)
    void pymq_store_abandon(pymq_store *store)

    int pymq_store_queue(pymq_store *store, const uint8_t *topic, size_t topic_size, int32_t queue_id, bint create,
                         pymq_queue **queue)

    struct pymq_append_item:
        pymq_queue *queue
        uint8_t *record
        uint32_t size
        int64_t queue_offset
        int64_t physical_offset

    struct pymq_append_result:
        size_t appended
        int64_t end_offset
        int64_t store_timestamp_ms

    int pymq_store_append(pymq_store *store, pymq_append_item *items, size_t count, unsigned int flags,
                          pymq_append_result *result)
    int pymq_store_wait_acknowledged(pymq_store *store, int64_t end_offset, int32_t timeout_ms)
    int pymq_store_poll_acknowledged(pymq_store *store, int64_t end_offset)
    int pymq_store_listen(pymq_store *store, int fd, unsigned int events)
    void pymq_store_unlisten(pymq_store *store, int fd)

    struct pymq_watermarks:
        int64_t written
        int64_t committed
        int64_t flushed
        int64_t replica
        int64_t visible
        int64_t dispatched
        int64_t min

    void pymq_store_watermarks(const pymq_store *store, pymq_watermarks *marks)
    void pymq_store_set_replica(pymq_store *store, int64_t offset, bint in_sync)
    void pymq_store_set_writable(pymq_store *store, bint writable)
    bint pymq_store_is_writable(const pymq_store *store)
    int pymq_store_flush(pymq_store *store)
    int pymq_store_checkpoint(pymq_store *store)
    int pymq_store_wait_dispatched(pymq_store *store, int32_t timeout_ms)

    struct pymq_queue_info_s "pymq_queue_info":
        pymq_slice topic
        int32_t queue_id
        int64_t min_offset
        int64_t max_offset

    void pymq_queue_info(const pymq_queue *queue, pymq_queue_info_s *info)
    size_t pymq_store_queues(pymq_store *store, pymq_queue **queues, size_t count_max)

    struct pymq_span:
        const uint8_t *data
        uint32_t size
        void *owner

    void pymq_span_release(pymq_store *store, pymq_span *span)
    ssize_t pymq_queue_units(pymq_store *store, pymq_queue *queue, int64_t offset, pymq_cq_unit *units,
                             size_t count_max)
    ssize_t pymq_queue_units_by_tag(pymq_store *store, pymq_queue *queue, int64_t offset, const int64_t *hashes,
                                    size_t hash_count, pymq_cq_unit *units, int64_t *offsets, size_t count_max,
                                    int64_t *next)
    int pymq_store_record(pymq_store *store, int64_t physical_offset, uint32_t size, pymq_span *span)
    int64_t pymq_queue_offset_by_time(pymq_store *store, pymq_queue *queue, int64_t timestamp_ms,
                                      pymq_boundary boundary)
    ssize_t pymq_store_query(pymq_store *store, const uint8_t *topic, size_t topic_size, const uint8_t *key,
                             size_t key_size, int64_t begin_ms, int64_t end_ms, int64_t *offsets, size_t count_max)
    int pymq_queue_wait(pymq_store *store, pymq_queue *queue, int64_t offset, int32_t timeout_ms)
    int64_t pymq_store_indexed(pymq_store *store)
    bint pymq_store_is_resident(pymq_store *store, int64_t physical_offset, int64_t size)
    int pymq_store_remove_topic(pymq_store *store, const uint8_t *topic, size_t topic_size, int32_t timeout_ms)

    struct pymq_log_file_info:
        int64_t base_offset
        int64_t size
        int64_t modified_ms
        int64_t last_store_timestamp_ms
        bint active

    size_t pymq_store_log_files(pymq_store *store, pymq_log_file_info *files, size_t count_max)
    int pymq_store_remove_oldest(pymq_store *store, pymq_log_file_info *removed)
    ssize_t pymq_store_clean_queues(pymq_store *store)

    struct pymq_store_stats_s "pymq_store_stats":
        int64_t put_count
        int64_t put_bytes
        int64_t put_failed
        int64_t put_latency[13]
        int64_t put_latency_us_max
        int64_t get_count
        int64_t get_bytes
        int64_t get_missed
        int64_t lock_hold_us_max
        int64_t lock_contended
        int64_t flush_rounds
        int64_t flush_us_total
        int64_t flush_us_max
        int64_t commit_rounds
        int64_t dispatch_records
        int64_t dispatch_batches
        int64_t log_files_created
        int64_t mapped_log_bytes
        int64_t mapped_queue_windows
        int64_t window_evictions
        int64_t pool_free
        int64_t pool_size
        int64_t recovered_from
        int64_t recovered_to
        int64_t recovered_records
        int64_t recover_us
        bint recovered_clean
        bint memory_lock_refused
        bint page_cache_busy
        int failed_status

    void pymq_store_stats(const pymq_store *store, pymq_store_stats_s *stats)
    void pymq_store_failure(const pymq_store *store, pymq_error *error)
    void pymq_store_count_put(pymq_store *store, int64_t messages, int64_t bytes, int64_t latency_us)
