/* The chains of an index file against what its items would have made; the contract stands in pymq/scan.h. */
#include "pymq/scan.h"

/* Faults on their way out: counted always, filled while there is room. */
struct fault_list {
    struct pymq_chain_fault *faults;
    size_t max;
    size_t count;
};

static void add_fault(struct fault_list *list, int32_t item, int32_t slot, int32_t expected, int32_t actual) {
    if (list->count < list->max) {
        list->faults[list->count] = (struct pymq_chain_fault){item, slot, expected, actual};
    }
    list->count++;
}

void pymq_scan_items(const uint8_t *source, size_t count, const struct pymq_index_columns *columns) {
    for (size_t row = 0; row < count; row++) {
        const uint8_t *item = source + row * PYMQ_INDEX_ITEM_SIZE;
        columns->key_hash[row] = (int32_t)pymq_load_be32(item);
        columns->physical_offset[row] = (int64_t)pymq_load_be64(item + 4);
        columns->seconds[row] = (int32_t)pymq_load_be32(item + 12);
        columns->previous[row] = (int32_t)pymq_load_be32(item + 16);
    }
}

/* The first of `moves` at or behind `item`. */
static size_t first_move(const struct pymq_chain_move *moves, size_t move_count, int32_t item) {
    size_t move = 0;
    while (move < move_count && moves[move].item < item) {
        move++;
    }
    return move;
}

size_t pymq_scan_chain_items(const int32_t *key_hash, const int32_t *previous, size_t count, int32_t first_item,
                             int32_t slot_count, const struct pymq_chain_move *moves, size_t move_count,
                             int32_t *newest, struct pymq_chain_fault *faults, size_t fault_max) {
    struct fault_list list = {faults, fault_max, 0};
    size_t move = first_move(moves, move_count, first_item);
    for (size_t row = 0; row < count; row++) {
        int32_t item = first_item + (int32_t)row;
        int32_t slot = key_hash[row] % slot_count; /* a hash is never negative unless it is damaged */
        if (slot < 0) {
            slot += slot_count;
        }
        if (move < move_count && moves[move].item == item) {
            slot = moves[move++].slot;
        }
        if (previous[row] != newest[slot]) {
            add_fault(&list, item, slot, newest[slot], previous[row]);
        }
        newest[slot] = item;
    }
    return list.count;
}

size_t pymq_scan_chain_slots(const int32_t *slots, const int32_t *newest, int32_t slot_count,
                             struct pymq_chain_fault *faults, size_t fault_max) {
    struct fault_list list = {faults, fault_max, 0};
    for (int32_t slot = 0; slot < slot_count; slot++) {
        if (slots[slot] != newest[slot]) {
            add_fault(&list, 0, slot, newest[slot], slots[slot]);
        }
    }
    return list.count;
}
