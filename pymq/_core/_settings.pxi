# A StoreConfig becomes the core's struct; the one place that knows both sets of names.

cdef void report_progress(void *context, const char *phase, int64_t done, int64_t total) noexcept with gil:
    (<object>context)(phase.decode("utf-8", "replace"), done, total)


cdef int fill_config(object config, pymq_store_config *target, _StoreHandle store) except -1:
    """Copy a StoreConfig into the core's struct; names differ, meanings do not."""
    from pymq.store.config import parse_host
    cdef bytes levels = " ".join(config.message_delay_level.split()).encode("ascii")
    pymq_store_config_default(target)
    target.log_file_size = config.mapped_file_size_commit_log
    target.queue_file_size = config.mapped_file_size_consume_queue
    target.index_slot_count = config.max_hash_slot_num
    target.index_item_count = config.max_index_num
    target.index_enable = config.message_index_enable
    target.message_size_max = config.max_message_size
    target.flush_mode = PYMQ_SYNC_FLUSH if config.flush_disk_type == "SYNC_FLUSH" else PYMQ_ASYNC_FLUSH
    target.replica_gate = config.broker_role == "SYNC_MASTER"
    target.sync_flush_timeout_ms = config.sync_flush_timeout_ms
    target.flush_interval_ms = config.flush_interval_commit_log_ms
    target.flush_least_pages = config.flush_commit_log_least_pages
    target.flush_thorough_interval_ms = config.flush_commit_log_thorough_interval_ms
    target.commit_interval_ms = config.commit_interval_commit_log_ms
    target.commit_least_pages = config.commit_commit_log_least_pages
    target.commit_thorough_interval_ms = config.commit_commit_log_thorough_interval_ms
    target.queue_flush_interval_ms = config.flush_interval_consume_queue_ms
    target.queue_flush_least_pages = config.flush_consume_queue_least_pages
    target.queue_flush_thorough_interval_ms = config.flush_consume_queue_thorough_interval_ms
    target.queue_flush_slice = config.queue_flush_slice
    target.transient_pool_enable = config.transient_store_pool_enable
    target.transient_pool_size = config.transient_store_pool_size
    target.transient_pool_wait_ms = config.transient_store_pool_wait_ms
    target.warm_file_enable = config.warm_mapped_file_enable
    target.lock_log_memory = config.lock_log_memory
    target.prefault_size = config.prefault_bytes
    target.log_window_size = config.log_window_bytes
    target.log_map_size_max = config.log_map_bytes_max
    target.queue_map_count_max = config.queue_map_count_max
    target.page_cache_busy_ms = config.os_page_cache_busy_timeout_ms
    target.check_crc_on_recover = config.check_crc_on_recover
    target.append_record_crc = config.enabled_append_prop_crc
    target.require_record_crc = config.force_verify_prop_crc
    target.truncate_damaged = config.truncate_damaged
    target.checkpoint_bytes_max = config.checkpoint_bytes_max
    if pymq_delay_levels_parse(levels, &target.delay_levels) != PYMQ_OK:
        raise _InvalidArgumentError(f"message_delay_level {config.message_delay_level!r} cannot be read")
    address, port = parse_host(config.store_host)
    target.store_host.size = <uint8_t>len(address)
    memcpy(target.store_host.address, <const char *><bytes>address, <size_t>len(address))
    target.store_host.port = port
    store.host = target.store_host
    store.log_file_size = target.log_file_size
    store.message_size_max = target.message_size_max
    store.properties_size_max = <uint32_t>(
        PYMQ_PROPERTIES_SIZE_MAX - (PYMQ_RECORD_CRC_SIZE if target.append_record_crc else 0))
    store.pool_size = target.transient_pool_size
    store.pool_wait_ms = target.transient_pool_wait_ms
    store.sync_flush_timeout_ms = target.sync_flush_timeout_ms
    return 0
