/* Requests that put a message of the log again, natively: what CONSUMER_SEND_MSG_BACK and END_TRANSACTION share. */
#ifndef PYMQ_SERVE_AGAIN_H
#define PYMQ_SERVE_AGAIN_H

#include "collect.h"
#include "reput.h"

enum pymq_again_code {
    PYMQ_CODE_CONSUMER_SEND_MSG_BACK = 36,
    PYMQ_CODE_END_TRANSACTION = 37,
};

/* PYMQ_SERVED (collected, or answered) or PYMQ_HAND_OVER + reason. */
int pymq_send_back_request(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                           const struct pymq_command *command);
int pymq_end_transaction_request(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                                 const struct pymq_command *command);

/* Whether anything may be stored now, without a word to anybody. PYMQ_SERVED, or PYMQ_HAND_OVER + why not. */
int pymq_again_check(const struct pymq_serve_reactor *state);

/* The record that begins at `offset`, whole and in memory; then `span` is the caller's to release. PYMQ_SERVED, or
 * PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE. */
int pymq_again_read(struct pymq_serve_reactor *state, int64_t offset, struct pymq_span *span,
                    struct pymq_record *record);

/* Where a message is to be put again. */
struct pymq_again {
    struct pymq_reput reput;  /* topic and queue given */
    struct pymq_topic *topic; /* the row of it */
    uint8_t asked;            /* enum pymq_asked */
    int64_t half_offset;      /* of a commit */
};

/* Collect `source`, edited, for this turn's append. PYMQ_SERVED, or PYMQ_HAND_OVER + reason: nothing is collected. */
int pymq_again_collect(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                       const struct pymq_command *command, const struct pymq_again *again,
                       const struct pymq_record *source);

#endif
