/* See records.h. */
#include "records.h"

#include "bytes.h"

#define MAGIC_V1 0xDAA320A7U
#define MAGIC_V2 0xDAA320ABU
#define SYS_FLAG_BORN_HOST_V6 (1U << 4)
#define SYS_FLAG_STORE_HOST_V6 (1U << 5)
#define HOST_V4_SIZE 8U
#define HOST_V6_SIZE 20U
#define BORN_HOST_POSITION 48U

int record_next(const uint8_t *source, size_t size, size_t *position, struct record *record) {
    const uint8_t *at = source + *position;
    size_t left = size - *position;
    if (left == 0)
        return 0;
    if (left < BORN_HOST_POSITION)
        return -1;
    size_t record_size = get_be32(at);
    uint32_t magic = get_be32(at + 4), sys_flag = get_be32(at + 36);
    size_t born_host_size = sys_flag & SYS_FLAG_BORN_HOST_V6 ? HOST_V6_SIZE : HOST_V4_SIZE;
    size_t store_host_size = sys_flag & SYS_FLAG_STORE_HOST_V6 ? HOST_V6_SIZE : HOST_V4_SIZE;
    size_t store_host_position = BORN_HOST_POSITION + born_host_size + 8;
    size_t body_position = store_host_position + store_host_size + 16;
    if (record_size > left || record_size < body_position || (magic != MAGIC_V1 && magic != MAGIC_V2))
        return -1;
    size_t body_size = get_be32(at + body_position - 4);
    if (body_size > record_size - body_position)
        return -1;
    *record = (struct record){
        .queue_id = get_be32(at + 12),
        .queue_offset = (int64_t)get_be64(at + 20),
        .physical_offset = (int64_t)get_be64(at + 28),
        .store_host = at + store_host_position,
        .store_host_size = store_host_size,
        .body = at + body_position,
        .body_size = body_size,
    };
    *position += record_size;
    return 1;
}

size_t record_msg_id(const struct record *record, char target[MSG_ID_SIZE_MAX]) {
    size_t size = 0;
    for (size_t i = 0; i < record->store_host_size; i++, size += 2)
        put_hex((uint8_t *)target + size, record->store_host[i], 2);
    put_hex((uint8_t *)target + size, (uint64_t)record->physical_offset, 16);
    return size + 16;
}
