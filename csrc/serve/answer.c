/* See answer.h. Which fields stand where is what Apache's answers have: JSON headers in the order of a hash map, binary
 * ones in the order of the header class with what was added behind it. */
#include "answer.h"

#include <inttypes.h>
#include <stdio.h>

#define NAME(text) (text), sizeof(text) - 1

size_t pymq_message_id(uint8_t *target, const struct pymq_host *host, int64_t physical_offset) {
    static const char DIGITS[] = "0123456789ABCDEF";
    uint8_t bytes[16 + 4 + 8];
    size_t size = host->size;
    memcpy(bytes, host->address, size);
    pymq_store_be32(bytes + size, (uint32_t)host->port);
    pymq_store_be64(bytes + size + 4, (uint64_t)physical_offset);
    size += 12;
    for (size_t i = 0; i < size; i++) {
        target[2 * i] = (uint8_t)DIGITS[bytes[i] >> 4];
        target[2 * i + 1] = (uint8_t)DIGITS[bytes[i] & 15];
    }
    return 2 * size;
}

/* One id after the other, in room behind the frame where they are read from while it is written. */
static size_t put_message_ids(uint8_t *target, const struct pymq_host *host, const struct pymq_sent *sent) {
    size_t size = 0;
    for (uint32_t i = 0; i < sent->item_count; i++) {
        if (i > 0)
            target[size++] = ',';
        size += pymq_message_id(target + size, host, sent->items[i].physical_offset);
    }
    return size;
}

size_t pymq_answer_sent_room(const struct pymq_sent *sent) {
    size_t ids = (size_t)sent->item_count * (PYMQ_MESSAGE_ID_SIZE_MAX + 1);
    return PYMQ_HEADER_ROOM + 2 * ids + 6 * (size_t)sent->key.size; /* a key's byte becomes at most six in JSON */
}

static void put_broker_fields(struct pymq_header_writer *writer, const struct pymq_serve_config *config) {
    pymq_header_field(writer, NAME("TRACE_ON"), (const uint8_t *)(config->trace_on ? "true" : "false"),
                      config->trace_on ? 4 : 5);
    pymq_header_field(writer, NAME("MSG_REGION"), (const uint8_t *)config->region, strlen(config->region));
}

size_t pymq_answer_sent(const struct pymq_serve_config *config, const struct pymq_sent *sent, uint8_t *target,
                        size_t capacity) {
    size_t ids_room = (size_t)sent->item_count * (PYMQ_MESSAGE_ID_SIZE_MAX + 1);
    uint8_t *ids = target + capacity - ids_room;
    size_t ids_size = put_message_ids(ids, &config->store_host, sent);
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, target, capacity - ids_room, sent->asker.serialize_type, PYMQ_RESPONSE_SUCCESS,
                      PYMQ_COMMAND_RESPONSE, sent->asker.opaque, (struct pymq_slice){NULL, 0});
    if (sent->asker.serialize_type == PYMQ_SERIALIZE_JSON) {
        pymq_header_field_int64(&writer, NAME("queueId"), sent->queue_id);
        if (sent->key.data != NULL)
            pymq_header_field(&writer, NAME("transactionId"), sent->key.data, sent->key.size);
        pymq_header_field(&writer, NAME("msgId"), ids, ids_size);
        put_broker_fields(&writer, config);
        pymq_header_field_int64(&writer, NAME("queueOffset"), sent->queue_offset);
    } else {
        pymq_header_field(&writer, NAME("msgId"), ids, ids_size);
        pymq_header_field_int64(&writer, NAME("queueId"), sent->queue_id);
        pymq_header_field_int64(&writer, NAME("queueOffset"), sent->queue_offset);
        if (sent->key.data != NULL)
            pymq_header_field(&writer, NAME("transactionId"), sent->key.data, sent->key.size);
        put_broker_fields(&writer, config);
    }
    ssize_t size = pymq_header_end(&writer, 0);
    return size > 0 ? (size_t)size : 0; /* the room always suffices */
}

size_t pymq_answer_recode(const uint8_t *frame, size_t size, int32_t code, uint8_t *target) {
    static const char JSON_HEAD[] = "{\"code\":0";
    const size_t head = sizeof JSON_HEAD - 1;
    if (frame[4] != PYMQ_SERIALIZE_JSON || size < PYMQ_FRAME_PREFIX_SIZE + head) {
        memcpy(target, frame, size);
        pymq_store_be16(target + PYMQ_FRAME_PREFIX_SIZE, (uint16_t)code);
        return size;
    }
    char text[16];
    size_t text_size = (size_t)snprintf(text, sizeof text, "%" PRId32, code);
    size_t grown = size - 1 + text_size;
    uint8_t *at = target;
    memcpy(at, frame, PYMQ_FRAME_PREFIX_SIZE + head - 1);
    at += PYMQ_FRAME_PREFIX_SIZE + head - 1;
    memcpy(at, text, text_size);
    memcpy(at + text_size, frame + PYMQ_FRAME_PREFIX_SIZE + head, size - PYMQ_FRAME_PREFIX_SIZE - head);
    uint32_t header_size = (pymq_load_be32(frame + 4) & 0xffffff) + (uint32_t)(grown - size);
    pymq_store_be32(target, (uint32_t)(grown - 4));
    pymq_store_be32(target + 4, (uint32_t)PYMQ_SERIALIZE_JSON << 24 | header_size);
    return grown;
}

/* ---- refusals --------------------------------------------------------------------------------------------------- */

#define PYMQ_BUSY_WORDS "[REJECTREQUEST]system busy, start flow control for a while"

static void say(struct pymq_refusal *refusal, int32_t code, bool has_fields, const char *remark) {
    refusal->code = code;
    refusal->has_fields = has_fields;
    refusal->remark_size = (uint32_t)snprintf(refusal->remark, sizeof refusal->remark, "%s", remark);
    if (refusal->remark_size >= sizeof refusal->remark)
        refusal->remark_size = sizeof refusal->remark - 1;
}

void pymq_refusal_make(struct pymq_refusal *refusal, const struct pymq_serve *serve, int status) {
    char text[PYMQ_REMARK_MAX];
    struct pymq_error failure;
    struct pymq_store_stats stats;
    int64_t held_ms;
    int32_t limit_ms;
    switch (status) {
    case PYMQ_ETOOBIG:
    case PYMQ_EPROPERTIES:
    case PYMQ_ETOPIC:
        snprintf(text, sizeof text,
                 "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
                 "%" PRId32 "B, msg properties length limit 32KB.",
                 serve->config.message_size_max);
        say(refusal, PYMQ_RESPONSE_MESSAGE_ILLEGAL, true, text);
        return;
    case PYMQ_EREADONLY:
    case PYMQ_ECLOSED:
        say(refusal, PYMQ_RESPONSE_SERVICE_NOT_AVAILABLE, true,
            "service not available now. It may be caused by one of the following reasons: the broker's disk is full, "
            "messages are put to the slave, message store has been shut down, etc.");
        return;
    case PYMQ_EPOOL:
        pymq_store_stats(serve->store, &stats);
        if (stats.pool_size == 0)
            snprintf(text, sizeof text, PYMQ_BUSY_WORDS ": the commit log's next file was not there within %dms",
                     PYMQ_APPEND_WAIT_MS_MAX);
        else
            snprintf(text, sizeof text,
                     PYMQ_BUSY_WORDS ": the transient store pool has %" PRId64 " of %" PRId64
                                     " buffers free (transientStorePoolSize)",
                     stats.pool_free, stats.pool_size);
        say(refusal, PYMQ_RESPONSE_SYSTEM_BUSY, false, text); /* rejected before it is looked at: no fields */
        return;
    case PYMQ_ETIMEDOUT:
        held_ms = pymq_store_lock_held_ms(serve->store, &limit_ms);
        snprintf(text, sizeof text,
                 PYMQ_BUSY_WORDS ": the commit log has been locked for %" PRId64
                                 "ms, limit %" PRId32 "ms (osPageCacheBusyTimeOutMills)",
                 pymq_max64(held_ms, limit_ms), limit_ms);
        say(refusal, PYMQ_RESPONSE_SYSTEM_BUSY, false, text);
        return;
    case PYMQ_ENOTFOUND:
        say(refusal, PYMQ_RESPONSE_TOPIC_NOT_EXIST, true, "the topic was deleted while the message was on its way");
        return;
    case PYMQ_EFAILED:
        pymq_store_failure(serve->store, &failure);
        say(refusal, PYMQ_RESPONSE_SYSTEM_ERROR, true, failure.text[0] != '\0' ? failure.text : "UNKNOWN_ERROR");
        return;
    default: /* PYMQ_ENOSPC, PYMQ_EIO, PYMQ_ENOMEM, PYMQ_EMAPS: there is no room to write to */
        say(refusal, PYMQ_RESPONSE_SYSTEM_ERROR, true, "create mapped file failed, server is busy or broken.");
        return;
    }
}

void pymq_refusal_for(struct pymq_refusal *refusal, const struct pymq_serve *serve, const struct pymq_asker *asker,
                      int status) {
    char text[PYMQ_REMARK_MAX];
    pymq_refusal_make(refusal, serve, status);
    if (asker->asked == PYMQ_ASKED_SEND)
        return;
    refusal->has_fields = false;
    if (asker->asked == PYMQ_ASKED_BACK) {
        snprintf(text, sizeof text, "the message was not stored again: %.*s", (int)refusal->remark_size,
                 refusal->remark);
        say(refusal, PYMQ_RESPONSE_SYSTEM_ERROR, false, text);
    }
}

struct pymq_slice pymq_late_remark(const struct pymq_asker *asker) {
    static const char BACK[] =
        "stored, but not on stable storage in time: it may come back although this was not acknowledged";
    return asker->asked == PYMQ_ASKED_BACK ? (struct pymq_slice){(const uint8_t *)BACK, sizeof BACK - 1}
                                           : (struct pymq_slice){NULL, 0};
}

size_t pymq_answer_plain(const struct pymq_asker *asker, int32_t code, struct pymq_slice remark, uint8_t *target,
                         size_t capacity) {
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, target, capacity, asker->serialize_type, code, PYMQ_COMMAND_RESPONSE, asker->opaque,
                      remark);
    ssize_t size = pymq_header_end(&writer, 0);
    return size > 0 ? (size_t)size : 0;
}

void pymq_refusal_parked(struct pymq_refusal *refusal, const struct pymq_serve *serve, int64_t waiting) {
    char text[PYMQ_REMARK_MAX];
    snprintf(text, sizeof text,
             PYMQ_BUSY_WORDS ": %" PRId64 " of %" PRId32 " sends wait for a flush or a replica, each for up to "
                             "%" PRId32 "ms (syncFlushTimeout)",
             waiting, serve->config.parked_max, serve->config.send_timeout_ms);
    say(refusal, PYMQ_RESPONSE_SYSTEM_BUSY, false, text);
}

size_t pymq_answer_refused(const struct pymq_serve_config *config, const struct pymq_asker *asker,
                           const struct pymq_refusal *refusal, uint8_t *target, size_t capacity) {
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, target, capacity, asker->serialize_type, refusal->code, PYMQ_COMMAND_RESPONSE,
                      asker->opaque, (struct pymq_slice){(const uint8_t *)refusal->remark, refusal->remark_size});
    if (refusal->has_fields)
        put_broker_fields(&writer, config);
    ssize_t size = pymq_header_end(&writer, 0);
    return size > 0 ? (size_t)size : 0;
}
