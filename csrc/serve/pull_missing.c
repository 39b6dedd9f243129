/* Stands in for the pull half until it is there: pulls are handed over, nothing is held. Weak: the real ones win. */
#include "serve_internal.h"

#define WEAK __attribute__((weak))

WEAK int pymq_pull_open(struct pymq_serve *serve, struct pymq_error *error) {
    (void)serve, (void)error;
    return PYMQ_OK;
}
WEAK void pymq_pull_close(struct pymq_serve *serve) { (void)serve; }
WEAK int pymq_pull_request(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                           const struct pymq_command *command, const uint8_t *frame, size_t frame_size) {
    (void)state, (void)connection, (void)command, (void)frame, (void)frame_size;
    return PYMQ_HAND_OVER + PYMQ_REASON_CODE;
}
WEAK void pymq_pull_settle(struct pymq_serve_reactor *state) { (void)state; }
WEAK void pymq_pull_event(struct pymq_serve_reactor *state) { (void)state; }
WEAK int64_t pymq_pull_timer(struct pymq_serve_reactor *state, int64_t now_ms) {
    (void)state, (void)now_ms;
    return INT64_MAX;
}
WEAK void pymq_pull_closed(struct pymq_serve_reactor *state, pymq_connection_id connection) {
    (void)state, (void)connection;
}
WEAK void pymq_pull_topic_removed(struct pymq_serve *serve, struct pymq_topic *topic) { (void)serve, (void)topic; }
WEAK void pymq_pull_group_removed(struct pymq_serve *serve, struct pymq_group *group) { (void)serve, (void)group; }
WEAK void pymq_pull_subscription_removed(struct pymq_serve *serve, struct pymq_subscription *subscription) {
    (void)serve, (void)subscription;
}
WEAK void pymq_pull_topic_changed(struct pymq_serve *serve, struct pymq_topic *topic) { (void)serve, (void)topic; }
WEAK void pymq_pull_group_changed(struct pymq_serve *serve, struct pymq_group *group) { (void)serve, (void)group; }
WEAK void pymq_pull_subscription_changed(struct pymq_serve *serve, struct pymq_subscription *subscription) {
    (void)serve, (void)subscription;
}
WEAK void pymq_pull_configured(struct pymq_serve *serve, const struct pymq_serve_config *before) {
    (void)serve, (void)before;
}
WEAK void pymq_pull_offset_reset(struct pymq_serve *serve, struct pymq_offset_row *row, int32_t queue_id) {
    (void)serve, (void)row, (void)queue_id;
}
WEAK void pymq_pull_stats(const struct pymq_serve *serve, struct pymq_serve_stats *stats) {
    (void)serve, (void)stats;
}
