/* UNIQ_KEY for messages that came without one. */
#ifndef PYMQ_SERVE_UNIQUE_KEY_H
#define PYMQ_SERVE_UNIQUE_KEY_H

#include "pymq/serve.h"

/* As pymq_unique_key, with a clock read once for many. Writes PYMQ_UNIQUE_KEY_SIZE characters. */
void pymq_unique_key_at(uint8_t *target, int64_t wall_ms);

#endif
