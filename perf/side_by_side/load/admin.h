/* The few requests around a run: make the topic, announce a consumer, ask how far the queues reach.
 *
 * They are made one at a time on a connection that has nothing else under way, and wait for their answer. */
#ifndef PYMQ_LOAD_ADMIN_H
#define PYMQ_LOAD_ADMIN_H

#include "connection.h"
#include "options.h"

#include <stdint.h>

/* Make the topic with `options->queues` queues, readable and writable; fails unless the broker says yes. */
void admin_create_topic(struct connection *connection, const struct options *options, int64_t deadline_ns);

/* The heartbeat of a push consumer that subscribes to everything; makes the group if the broker does not know it. */
void admin_register_consumer(struct connection *connection, const struct options *options, unsigned member,
                             int64_t deadline_ns);

/* Where a queue ends for consumers: what dispatch has reached, not only the log. */
int64_t admin_max_offset(struct connection *connection, const struct options *options, unsigned queue,
                         int64_t deadline_ns);

/* The same, summed over all queues. */
int64_t admin_max_offset_sum(struct connection *connection, const struct options *options, int64_t deadline_ns);

/* Wait until the sum has reached `sum`. */
void admin_settle(struct connection *connection, const struct options *options, int64_t sum, int64_t deadline_ns);

#endif
