/* QUERY_CONSUMER_OFFSET and UPDATE_CONSUMER_OFFSET, natively. */
#ifndef PYMQ_SERVE_OFFSET_REQUEST_H
#define PYMQ_SERVE_OFFSET_REQUEST_H

#include "serve_internal.h"

enum pymq_offset_code { PYMQ_CODE_QUERY_CONSUMER_OFFSET = 14, PYMQ_CODE_UPDATE_CONSUMER_OFFSET = 15 };

/* PYMQ_SERVED or PYMQ_HAND_OVER + reason. */
int pymq_offset_request(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                        const struct pymq_command *command);

#endif
