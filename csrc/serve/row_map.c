/* See row_map.h. Chained, doubled when full on average; never shrunk, because tables live as long as their broker. */
#include "row_map.h"

#include <stdlib.h>

#define BUCKETS_MIN 64

int pymq_row_map_init(struct pymq_row_map *map) {
    map->count = 0;
    map->bucket_count = BUCKETS_MIN;
    map->buckets = calloc(map->bucket_count, sizeof *map->buckets);
    return map->buckets != NULL ? PYMQ_OK : PYMQ_ENOMEM;
}

void pymq_row_map_destroy(struct pymq_row_map *map) {
    free(map->buckets);
    memset(map, 0, sizeof *map);
}

/* Without memory for more buckets the map stays as it is: longer chains are slow, not wrong. */
static void grow(struct pymq_row_map *map) {
    size_t wider_count = map->bucket_count * 2;
    struct pymq_row **wider = calloc(wider_count, sizeof *wider);
    if (wider == NULL)
        return;
    for (size_t i = 0; i < map->bucket_count; i++) {
        while (map->buckets[i] != NULL) {
            struct pymq_row *row = map->buckets[i];
            map->buckets[i] = row->next;
            row->next = wider[row->hash & (wider_count - 1)];
            wider[row->hash & (wider_count - 1)] = row;
        }
    }
    free(map->buckets);
    map->buckets = wider;
    map->bucket_count = wider_count;
}

int pymq_row_map_insert(struct pymq_row_map *map, struct pymq_row *row) {
    if (map->count >= PYMQ_TABLE_ROWS_MAX)
        return PYMQ_ENOMEM;
    if (map->count >= map->bucket_count)
        grow(map);
    struct pymq_row **bucket = &map->buckets[row->hash & (map->bucket_count - 1)];
    row->next = *bucket;
    *bucket = row;
    map->count++;
    return PYMQ_OK;
}

void pymq_row_map_remove(struct pymq_row_map *map, struct pymq_row *row) {
    struct pymq_row **link = &map->buckets[row->hash & (map->bucket_count - 1)];
    while (*link != row)
        link = &(*link)->next;
    *link = row->next;
    map->count--;
}

struct pymq_row *pymq_row_map_next(const struct pymq_row_map *map, const struct pymq_row *row) {
    if (row != NULL && row->next != NULL)
        return row->next;
    size_t i = row != NULL ? (row->hash & (map->bucket_count - 1)) + 1 : 0;
    for (; i < map->bucket_count; i++) {
        if (map->buckets[i] != NULL)
            return map->buckets[i];
    }
    return NULL;
}

/* Eight bytes a step: names are short and the tables are ours alone. */
static inline uint64_t mix(uint64_t hash, const uint8_t *name, size_t size) {
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, name, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
        name += 8;
        size -= 8;
    }
    uint64_t word = 0;
    if (size != 0)
        memcpy(&word, name, size);
    hash = (hash ^ word ^ (uint64_t)size << 56) * 0xff51afd7ed558ccdu;
    return hash ^ hash >> 29;
}

uint64_t pymq_name_hash(const uint8_t *name, size_t size) { return mix(0xcbf29ce484222325u, name, size); }

uint64_t pymq_pair_hash(const uint8_t *first, size_t first_size, const uint8_t *second, size_t second_size) {
    return mix(pymq_name_hash(first, first_size), second, second_size);
}
