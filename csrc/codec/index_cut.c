/* See pymq/index_cut.h; the layout of slots and items stands in docs/formats.md, section 6. */
#include "pymq/index_cut.h"

#define SLOT_SIZE 4
#define ITEM_SIZE 20
#define ITEM_PREVIOUS_AT 16

int32_t pymq_index_cut_slots(uint8_t *slots, int32_t slot_count, const uint8_t *items, int32_t item_limit,
                             int32_t cut_number) {
    int32_t used = 0;
    for (int32_t i = 0; i < slot_count; i++) {
        uint8_t *slot = slots + (size_t)i * SLOT_SIZE;
        int32_t number = (int32_t)pymq_load_be32(slot);
        if (number == 0)
            continue;
        if (number >= cut_number && number < item_limit) {
            while (number >= cut_number) {
                const uint8_t *item = items + (size_t)number * ITEM_SIZE;
                int32_t previous = (int32_t)pymq_load_be32(item + ITEM_PREVIOUS_AT);
                number = previous >= 0 && previous < number ? previous : 0;
            }
            pymq_store_be32(slot, (uint32_t)number);
        }
        used += number != 0;
    }
    return used;
}
