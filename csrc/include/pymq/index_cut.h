/* An index file as it was when the log ended earlier: what a dump of a running store needs.
 *
 * Items are in log order, so those of later records are a suffix. Chains lead from newer to older items, so a slot that
 * names one of the suffix is followed down its chain until an item that stays; nothing else of a file depends on the
 * items behind the cut but its header. What stays is left as it is, damage included: a dump shows what was there.
 */
#ifndef PYMQ_INDEX_CUT_H
#define PYMQ_INDEX_CUT_H

#include "pymq/base.h"

/* Let `slots` (a copy of a file's `slot_count` slots, big-endian) know only items below `cut_number`.
 *
 * `items` are the file's items from number 0 on, `item_limit` of them; they may grow while they are read, by a writer
 * that stores an item before its slot. A chain that does not descend above the cut ends there. Slots that no writer
 * leaves (below 0, or from `item_limit` on) stay as they are. Returns how many slots are in use. */
int32_t pymq_index_cut_slots(uint8_t *slots, int32_t slot_count, const uint8_t *items, int32_t item_limit,
                             int32_t cut_number);

#endif
