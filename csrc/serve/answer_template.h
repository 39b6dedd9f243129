/* The most frequent answer of all, with only its holes to fill: one message sent, JSON header.
 *
 * The general writer writes it once with marks in the holes; what lies between them is copied from then on. So there is
 * one place that says what an answer looks like, and when the marks cannot be found again (a region named like one of
 * them) there is no template and every answer is written by the general writer. */
#ifndef PYMQ_SERVE_ANSWER_TEMPLATE_H
#define PYMQ_SERVE_ANSWER_TEMPLATE_H

#include "answer.h"

#define PYMQ_TEMPLATE_SIZE_MAX 1024
enum { PYMQ_HOLE_QUEUE_ID, PYMQ_HOLE_KEY, PYMQ_HOLE_MESSAGE_ID, PYMQ_HOLE_QUEUE_OFFSET, PYMQ_HOLE_OPAQUE, PYMQ_HOLES };

struct pymq_answer_template {
    bool is_usable;
    uint16_t begins[PYMQ_HOLES + 1]; /* of the pieces in `text`; piece i stands before hole i, the last behind all */
    uint16_t sizes[PYMQ_HOLES + 1];
    uint32_t size; /* of all pieces, and of the largest values of all holes but the key */
    uint8_t text[PYMQ_TEMPLATE_SIZE_MAX];
};

void pymq_answer_template_make(struct pymq_answer_template *template, const struct pymq_serve_config *config);

/* Whether it fits this answer. */
bool pymq_answer_template_fits(const struct pymq_answer_template *template, const struct pymq_sent *sent);

/* Write the frame into `template->size + sent->key.size` bytes at most; returns its size. */
size_t pymq_answer_template_write(const struct pymq_answer_template *template, const struct pymq_sent *sent,
                                  uint8_t *target);

#endif
