/* What a message of the model consists of, shared by the half that sends and the half that judges. */
#ifndef PYMQ_TESTING_MESSAGE_CONTENT_H
#define PYMQ_TESTING_MESSAGE_CONTENT_H

#include "message_model.h"

#include <stdio.h>

#define MODEL_KEY_MAX 24
#define MODEL_PROPERTIES_MAX 160
#define MODEL_TAGS 3

static inline void model_unique_key(uint32_t id, char *target) { snprintf(target, MODEL_KEY_MAX, "U%08u", id); }
static inline void model_own_key(uint32_t id, char *target) { snprintf(target, MODEL_KEY_MAX, "K%u", id); }
static inline void model_tag(uint32_t id, char *target) { snprintf(target, MODEL_KEY_MAX, "T%u", id % MODEL_TAGS); }
static inline void model_group_key(uint32_t id, char *target) {
    snprintf(target, MODEL_KEY_MAX, "G%u", id % MODEL_GROUPS);
}

/* The body: id 8, body size 4, topic 1, queue 1, then bytes that follow from the id. */
void model_body(const struct model_message *message, uint32_t id, uint8_t *body);

size_t model_properties(uint32_t id, uint8_t target[MODEL_PROPERTIES_MAX]);

#endif
