/* A hash map of rows that carry their own links: found without a lock, changed under exclusion (tables.h). */
#ifndef PYMQ_SERVE_ROW_MAP_H
#define PYMQ_SERVE_ROW_MAP_H

#include "pymq/base.h"

struct pymq_row {
    struct pymq_row *next;
    uint64_t hash;
};

struct pymq_row_map {
    struct pymq_row **buckets;
    size_t bucket_count; /* a power of two */
    size_t count;
};

#define PYMQ_TABLE_ROWS_MAX 1000000 /* rows of one table; beyond, publishing is refused with PYMQ_ENOMEM */

int pymq_row_map_init(struct pymq_row_map *map);
/* Frees the buckets; rows are the caller's. */
void pymq_row_map_destroy(struct pymq_row_map *map);

/* PYMQ_OK or PYMQ_ENOMEM. The row is not in the map yet. */
int pymq_row_map_insert(struct pymq_row_map *map, struct pymq_row *row);
void pymq_row_map_remove(struct pymq_row_map *map, struct pymq_row *row);

/* The first row of a hash's chain; rows of other hashes stand in it too. */
static inline struct pymq_row *pymq_row_map_chain(const struct pymq_row_map *map, uint64_t hash) {
    return map->buckets[hash & (map->bucket_count - 1)];
}

/* Step through all rows: start with row NULL. The next one is found before `row` may be removed and freed. */
struct pymq_row *pymq_row_map_next(const struct pymq_row_map *map, const struct pymq_row *row);

uint64_t pymq_name_hash(const uint8_t *name, size_t size);
/* Of a pair: `first` and `second` in this order (topic, group). */
uint64_t pymq_pair_hash(const uint8_t *first, size_t first_size, const uint8_t *second, size_t second_size);

#endif
