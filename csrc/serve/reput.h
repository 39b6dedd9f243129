/* Messages put again, log to log: what the parts of it share. */
#ifndef PYMQ_SERVE_REPUT_H
#define PYMQ_SERVE_REPUT_H

#include "serve_internal.h"

/* Rewrite properties: without those named in `remove` (each name followed by 0x02), without the record's own CRC, with
 * `set` behind the rest in place of any of its names. The last separator is always there. PYMQ_OK, PYMQ_EINVAL when
 * `set` is not pairs with their separators, PYMQ_EPROPERTIES when the result is longer than `capacity` or a record
 * allows. */
int pymq_reput_properties(struct pymq_slice source, struct pymq_slice remove, struct pymq_slice set, uint8_t *target,
                          size_t capacity, uint32_t *size);

/* A record as `reput` wants it, from the one it was: topic and queue found, flags and counts set, properties written to
 * `target`. PYMQ_OK or one of pymq_serve_reput's statuses. The result points into all of its sources. */
int pymq_reput_edit(const struct pymq_reput *reput, const struct pymq_record *source, const struct pymq_host *host,
                    uint8_t *target, size_t capacity, struct pymq_record *result);

#endif
