/* Half messages that somebody has claimed, to end them or to put them again, and those that have ended natively. */
#ifndef PYMQ_SERVE_TRANSACTIONS_H
#define PYMQ_SERVE_TRANSACTIONS_H

#include "serve_internal.h"

struct pymq_transactions *pymq_transactions_make(void); /* NULL without memory */
void pymq_transactions_free(struct pymq_transactions *transactions);

/* Claim for a reactor: only a half of this start, and while there is room to tell the control loop. */
bool pymq_transaction_claim_native(struct pymq_serve *serve, int64_t queue_offset, int64_t physical_offset);

/* Nothing came of it. */
void pymq_transaction_unclaim_native(struct pymq_serve *serve, int64_t queue_offset);

/* A native claim has come to its end; its commit, if it is one, is in the log. */
void pymq_transaction_note(struct pymq_serve *serve, int64_t queue_offset, int32_t how);

#endif
