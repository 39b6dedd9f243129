/* A look at every instruction of a filter program, so that evaluating it needs no look at all. */
#include <math.h>
#include <stdlib.h>

#include "filter_ops.h"
#include "pymq/filter_program.h"

#define HEAD_SIZE 4
#define NAME_BITS 63        /* name sizes from here on share a bit */
#define UNKNOWN UINT16_MAX  /* no jump has named this place */

struct look {
    const uint8_t *bytes;
    size_t size, at;
    uint32_t name_count;
    int depth;           /* of the stack; -1 behind a RETURN, where only a jump arrives */
    uint16_t *depths;    /* by place, of the jumps that name it */
    size_t open_targets; /* places named and not yet reached */
};

static bool take_names(struct look *look, struct pymq_filter_program *program) {
    for (uint32_t i = 0; i < look->name_count; i++) {
        if (look->at >= look->size)
            return false;
        uint32_t size = look->bytes[look->at];
        if (size == 0 || size > look->size - look->at - 1)
            return false;
        program->names[i] = (struct pymq_slice){look->bytes + look->at + 1, size};
        program->name_sizes |= UINT64_C(1) << (size < NAME_BITS ? size : NAME_BITS);
        look->at += 1 + size;
    }
    return true;
}

static bool skip(struct look *look, size_t count) {
    if (count > look->size - look->at)
        return false;
    look->at += count;
    return true;
}

static bool skip_text(struct look *look) {
    return look->size - look->at >= 2 && skip(look, 2u + pymq_load_be16(look->bytes + look->at));
}

static bool skip_texts(struct look *look) {
    if (look->size - look->at < 2)
        return false;
    uint32_t count = pymq_load_be16(look->bytes + look->at);
    look->at += 2;
    for (; count > 0; count--) {
        if (!skip_text(look))
            return false;
    }
    return true;
}

/* Take `popped` values and leave `pushed`. */
static bool move(struct look *look, int popped, int pushed) {
    if (look->depth < popped || look->depth - popped + pushed > PYMQ_FILTER_STACK_MAX)
        return false;
    look->depth += pushed - popped;
    return true;
}

/* A jump whose operand is next, and which arrives with the stack as it is now. */
static bool take_jump(struct look *look) {
    if (look->size - look->at < 2)
        return false;
    size_t target = pymq_load_be16(look->bytes + look->at);
    look->at += 2;
    if (target < look->at || target >= look->size)
        return false;
    if (look->depths[target] == UNKNOWN)
        look->open_targets++;
    else if (look->depths[target] != look->depth)
        return false;
    look->depths[target] = (uint16_t)look->depth;
    return true;
}

static bool take_double(struct look *look) {
    if (look->size - look->at < 8)
        return false;
    uint64_t bits = pymq_load_be64(look->bytes + look->at);
    double value;
    memcpy(&value, &bits, sizeof value);
    look->at += 8;
    return !isnan(value);
}

static bool take_operands(struct look *look, uint8_t op) {
    switch (op) {
    case OP_NULL:
    case OP_TRUE:
    case OP_FALSE:
        return move(look, 0, 1);
    case OP_INTEGER:
        return skip(look, 4) && move(look, 0, 1);
    case OP_LONG:
        return skip(look, 8) && move(look, 0, 1);
    case OP_DOUBLE:
        return take_double(look) && move(look, 0, 1);
    case OP_STRING:
        return skip_text(look) && move(look, 0, 1);
    case OP_PROPERTY:
        return skip(look, 1) && look->bytes[look->at - 1] < look->name_count && move(look, 0, 1);
    case OP_NEGATE:
    case OP_NOT:
    case OP_CAST:
        return move(look, 1, 1);
    case OP_EQUAL:
    case OP_GREATER:
    case OP_GREATER_EQUAL:
    case OP_LESS:
    case OP_LESS_EQUAL:
    case OP_AND:
    case OP_OR:
        return move(look, 2, 1);
    case OP_CONTAINS:
    case OP_NOT_CONTAINS:
    case OP_STARTSWITH:
    case OP_NOT_STARTSWITH:
    case OP_ENDSWITH:
    case OP_NOT_ENDSWITH:
        return skip_text(look) && move(look, 1, 1);
    case OP_IN:
    case OP_NOT_IN:
        return skip_texts(look) && move(look, 1, 1);
    case OP_AND_JUMP:
    case OP_OR_JUMP:
    case OP_NULL_JUMP:
        return move(look, 1, 1) && take_jump(look);
    case OP_UNLESS_JUMP:
        return move(look, 1, 0) && take_jump(look);
    case OP_RETURN:
        if (!move(look, 1, 0))
            return false;
        look->depth = -1;
        return true;
    default:
        return false;
    }
}

static bool look_at_code(struct look *look) {
    while (look->at < look->size) {
        if (look->depths[look->at] != UNKNOWN) {
            if (look->depth >= 0 && look->depth != look->depths[look->at])
                return false;
            look->depth = look->depths[look->at];
            look->open_targets--;
        }
        if (look->depth < 0) /* nobody comes here */
            return false;
        uint8_t op = look->bytes[look->at++];
        if (!take_operands(look, op))
            return false;
    }
    return look->depth < 0 && look->open_targets == 0;
}

int pymq_filter_verify(const uint8_t *bytes, size_t size, struct pymq_filter_program *program) {
    if (size > PYMQ_FILTER_SIZE_MAX)
        return PYMQ_ETOOBIG;
    if (size <= HEAD_SIZE || bytes[0] != 'S' || bytes[1] != 'Q' || bytes[2] != PYMQ_FILTER_VERSION ||
        bytes[3] > PYMQ_FILTER_PROPERTIES_MAX)
        return PYMQ_ECORRUPT;
    struct look look = {.bytes = bytes, .size = size, .at = HEAD_SIZE, .name_count = bytes[3]};
    program->bytes = bytes;
    program->size = (uint32_t)size;
    program->name_count = look.name_count;
    program->name_sizes = 0;
    if (!take_names(&look, program))
        return PYMQ_ECORRUPT;
    program->code_at = (uint32_t)look.at;
    look.depths = malloc(size * sizeof *look.depths);
    if (look.depths == NULL)
        return PYMQ_ENOMEM;
    memset(look.depths, 0xff, size * sizeof *look.depths);
    bool whole = look_at_code(&look);
    free(look.depths);
    return whole ? PYMQ_OK : PYMQ_ECORRUPT;
}
