/* A remoting frame and its header, as RocketMQ's clients and brokers write them.
 *
 *   total size        4      of everything behind these 4 bytes
 *   header mark       4      top byte: serialization type (0 JSON, 1 ROCKETMQ); lower 3 bytes: header size
 *   header            n
 *   body              m
 *
 * Decoding makes slices into the frame; strings that hold escapes are unescaped into the caller's scratch. Nothing is
 * allocated. A header this parser does not accept outright is not guessed at: it is PYMQ_EUNSUPPORTED, and the caller
 * gives the frame as it is to the Python codec (pymq.remoting), which is the slower and the more patient one.
 */
#ifndef PYMQ_COMMAND_H
#define PYMQ_COMMAND_H

#include "pymq/base.h"
#include "pymq/properties.h"

/* Of what the size field counts, as Apache's com.rocketmq.remoting.frameMaxLength. */
#define PYMQ_FRAME_SIZE_MAX (16 * 1024 * 1024)
#define PYMQ_FRAME_PREFIX_SIZE 8   /* total size and header mark */
#define PYMQ_COMMAND_FIELDS_MAX 64 /* more fields than any request of 5.5.0 has; more go to Python */

enum pymq_serialize_type { PYMQ_SERIALIZE_JSON = 0, PYMQ_SERIALIZE_ROCKETMQ = 1 };

enum pymq_command_flag { PYMQ_COMMAND_RESPONSE = 1 << 0, PYMQ_COMMAND_ONEWAY = 1 << 1 };

/* LanguageCode: the byte of the binary header; JSON has the name. What we answer with is JAVA, because it is what every
 * client has been tested against. */
enum pymq_language {
    PYMQ_LANGUAGE_JAVA = 0,
    PYMQ_LANGUAGE_PYTHON = 3,
    PYMQ_LANGUAGE_OTHER = 7,
    PYMQ_LANGUAGE_UNKNOWN = 255, /* none that 5.5.0 has a name for */
};

struct pymq_field {
    struct pymq_slice name;
    struct pymq_slice value; /* data NULL for null: as if absent, and never behind another of its name */
};

struct pymq_command {
    int32_t code;
    int32_t version;
    int32_t opaque;
    int32_t flag;
    uint8_t language;       /* enum pymq_language or another LanguageCode byte */
    uint8_t serialize_type; /* of this frame: answer in the same */
    uint32_t field_count;
    struct pymq_slice remark;
    struct pymq_slice body;
    struct pymq_field fields[PYMQ_COMMAND_FIELDS_MAX]; /* in the frame's order; of equal names the last one counts */
};

/* How many bytes the frame at `source` has in all (size field included), 0 when fewer than 4 bytes are there to tell,
 * PYMQ_ETOOBIG above `size_max` (or negative), PYMQ_ECORRUPT when it is too small to hold a header mark. Only looks at
 * what is there, so a lying length is refused before a buffer is made for it. */
ssize_t pymq_frame_size(const uint8_t *source, size_t size, uint32_t size_max);

/* Decode a whole frame (as sized by pymq_frame_size). `scratch` holds unescaped strings for as long as `command` is
 * used; `size` bytes of it always suffice.
 * PYMQ_OK; PYMQ_EUNSUPPORTED: well-framed but not accepted here, ask the Python codec; PYMQ_ECORRUPT: the header size
 * lies outside the frame or the serialization type is unknown, the stream cannot be trusted any more. Only with PYMQ_OK
 * does `command` say anything. */
int pymq_command_decode(const uint8_t *frame, size_t size, uint8_t *scratch, size_t scratch_size,
                        struct pymq_command *command);

/* The last field called `name`; NULL when absent or null. */
const struct pymq_slice *pymq_command_field(const struct pymq_command *command, const char *name, size_t name_size);

/* A field as Java's Long.parseLong / Integer.parseInt would read it: sign, ASCII digits, in range. PYMQ_OK,
 * PYMQ_ENOTFOUND when absent (NULL, or no data), PYMQ_EINVAL otherwise. */
int pymq_slice_int64(const struct pymq_slice *slice, int64_t *value);
int pymq_slice_int32(const struct pymq_slice *slice, int32_t *value);

/* ---- encoding --------------------------------------------------------------------------------------------- */

/* Writes one frame's prefix and header into a buffer the caller has reserved. The order of a JSON header is Apache's:
 * code, extFields, flag, language, opaque, remark, serializeTypeCurrentRPC, version; fields stand as they are added,
 * and the Python codec writes the same bytes. Usage: begin, field…, end. */
struct pymq_header_writer {
    uint8_t *target;
    size_t capacity;
    size_t size;    /* bytes written so far, or beyond capacity once it did not fit (then `end` says so) */
    size_t mark;    /* internal: where the field map begins */
    uint32_t fields;
    int32_t code, version, opaque, flag;
    uint8_t serialize_type, language;
    bool empty_fields; /* JSON: write the map of fields though none is added, as Apache does for some answers */
    struct pymq_slice remark;
};

/* `remark` may be {NULL, 0}. It, `writer->code` and the other values may still be changed before the first field is
 * added, `empty_fields` and (JSON) the remark until the end. The bytes `remark` points to are read at the end. */
void pymq_header_begin(struct pymq_header_writer *writer, uint8_t *target, size_t capacity, uint8_t serialize_type,
                       int32_t code, int32_t flag, int32_t opaque, struct pymq_slice remark);
void pymq_header_field(struct pymq_header_writer *writer, const char *name, size_t name_size, const uint8_t *value,
                       size_t value_size); /* value as UTF-8, escaped here */
void pymq_header_field_int64(struct pymq_header_writer *writer, const char *name, size_t name_size, int64_t value);

/* Close the header and fill the prefix for a body of `body_size` bytes that follows it. Returns the bytes written
 * (prefix and header), or PYMQ_ETRUNCATED when capacity did not suffice. */
ssize_t pymq_header_end(struct pymq_header_writer *writer, uint32_t body_size);

#define PYMQ_HEADER_ROOM 1024 /* enough for every answer written natively whose remark is short */

/* RemotingCommand.version of 5.5.0, said by every answer (MQVersion.CURRENT_VERSION). */
#define PYMQ_REMOTING_VERSION 513

#endif
