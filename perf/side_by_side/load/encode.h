/* Requests as a Java client writes them, in either header codec.
 *
 * A frame is: length (4, of all that follows), serialization type (1) and header length (3), header, body.
 *
 *   JSON     {"code":…,"extFields":{"k":"v",…},"flag":0,"language":"JAVA","opaque":…,"serializeTypeCurrentRPC":"JSON",
 *            "version":513}: compact, every field value a string, control characters as \u00XX
 *   ROCKETMQ code (2) language (1) version (2) opaque (4) flag (4) remark length (4) fields length (4), then for
 *            each field key length (2), key, value length (4), value
 *
 * A request sent a million times is encoded once: `encode_request` says where the opaque went, the caller finds its
 * place-holders, and per message only digits are patched. */
#ifndef PYMQ_LOAD_ENCODE_H
#define PYMQ_LOAD_ENCODE_H

#include <stddef.h>
#include <stdint.h>

enum codec { CODEC_JSON = 0, CODEC_ROCKETMQ = 1 };

enum request_code {
    REQUEST_PULL_MESSAGE = 11,
    REQUEST_UPDATE_AND_CREATE_TOPIC = 17,
    REQUEST_GET_MAX_OFFSET = 30,
    REQUEST_HEART_BEAT = 34,
    REQUEST_CONSUMER_SEND_MSG_BACK = 36,
    REQUEST_END_TRANSACTION = 37,
    REQUEST_SEND_MESSAGE_V2 = 310,
    REQUEST_SEND_BATCH_MESSAGE = 320,
};

#define CLIENT_VERSION 513 /* V5_5_0 as its client announces it */
#define FRAME_PREFIX_SIZE 8

/* Seven digits in JSON whatever the request, so that patching never moves a byte. */
#define OPAQUE_FIRST 1000000
#define OPAQUE_DIGITS 7
#define OPAQUE_END 9999999

struct field {
    const char *key;
    const char *value;
};

struct request {
    int code;
    const struct field *fields;
    size_t field_count;
    const uint8_t *body;
    size_t body_size;
};

/* Encode into `target`. `*opaque_position` is where the opaque stands, to be written by `patch_opaque`; it is
 * OPAQUE_FIRST until then. Returns the frame's size, or 0 when `capacity` is too small. */
size_t encode_request(uint8_t *target, size_t capacity, enum codec codec, const struct request *request,
                      size_t *opaque_position);

void patch_opaque(uint8_t *frame, size_t opaque_position, enum codec codec, uint32_t opaque);

#endif
