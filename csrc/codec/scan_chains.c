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

size_t pymq_scan_index_chains(const int32_t *key_hash, const int32_t *previous, size_t count, const int32_t *slots,
                              int32_t slot_count, const struct pymq_chain_move *moves, size_t move_count,
                              int32_t *newest, struct pymq_chain_fault *faults, size_t fault_max) {
    struct fault_list list = {faults, fault_max, 0};
    size_t move = 0;
    memset(newest, 0, (size_t)slot_count * sizeof *newest);
    for (size_t row = 0; row < count; row++) {
        int32_t item = (int32_t)row + 1;
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
    for (int32_t slot = 0; slot < slot_count; slot++) {
        if (slots[slot] != newest[slot]) {
            add_fault(&list, 0, slot, newest[slot], slots[slot]);
        }
    }
    return list.count;
}
