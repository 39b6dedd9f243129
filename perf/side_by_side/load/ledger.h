/* The ledger: what the generator knows about each message, for whoever compares it with what a store holds afterwards.
 *
 * Text, one line a message, ten columns separated by tabs, first line "# pymq-ledger 1", second the columns' names:
 *
 *   kind topic queue queueOffset msgId sender sequence intendedNs sentNs doneNs
 *
 *   A  acknowledged; doneNs is when the answer was read
 *   F  refused: msgId is "code:N", queueOffset "-"
 *   U  sent, and no answer came before the program ended: may or may not be in the store
 *   R  received by a consumer; sentNs is "-", doneNs when it was read; msgId as the broker would have answered it
 *   C  received, but the body is not one a generator wrote: sender, sequence and intendedNs are "-"
 *
 * sender and sequence are those of the body and name a message for good. Times are nanoseconds of the machine's
 * monotonic clock. Lines are buffered and written at the end, on failure too; a generator that is killed loses its last
 * buffer, not its first lines. */
#ifndef PYMQ_LOAD_LEDGER_H
#define PYMQ_LOAD_LEDGER_H

#include "decode.h"

#include <stdint.h>

struct ledger;

struct ledger_entry {
    char kind;
    int64_t queue;
    int64_t queue_offset; /* negative: unknown, written as "-"; so are the other numbers */
    struct text msg_id;   /* empty: "-" */
    int64_t sender;
    int64_t sequence;
    int64_t intended_ns;
    int64_t sent_ns;
    int64_t done_ns;
};

/* Write to `path`; fails with EXIT_MACHINE. What is buffered is also written at exit. */
struct ledger *ledger_open(const char *path, const char *topic);

/* Nothing when `ledger` is NULL. */
void ledger_write(struct ledger *ledger, const struct ledger_entry *entry);
void ledger_close(struct ledger *ledger);

#endif
