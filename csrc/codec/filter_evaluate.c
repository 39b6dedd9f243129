/* A filter program run on the properties of one record. What each operation gives is what Apache's class of it gives:
 * ComparisonExpression, LogicExpression, UnaryExpression. The program was verified, so nothing of it is checked here.
 */
#include <math.h>

#include "filter_ops.h"
#include "pymq/filter_program.h"

#define NAME_BITS 63 /* name sizes from here on share a bit of name_sizes */

enum kind { KIND_NULL, KIND_BOOLEAN, KIND_INTEGER, KIND_LONG, KIND_DOUBLE, KIND_STRING };

struct value {
    enum kind kind;
    union {
        bool boolean;
        int32_t integer;
        int64_t number;
        double real;
        struct pymq_slice text;
    };
};

static const struct value NULL_VALUE = {.kind = KIND_NULL};

static struct value boolean_of(bool boolean) { return (struct value){.kind = KIND_BOOLEAN, .boolean = boolean}; }

static bool is_true(const struct value *value) { return value->kind == KIND_BOOLEAN && value->boolean; }

static bool is_false(const struct value *value) { return value->kind == KIND_BOOLEAN && !value->boolean; }

/* ---- comparing ------------------------------------------------------------------------------------------------ */

#define THROWS 2 /* besides -1, 0 and 1 */

static int compare_int64(int64_t left, int64_t right) { return (left > right) - (left < right); }

/* Double.compareTo: -0.0 before 0.0, a NaN behind everything and equal to itself. */
static int compare_double(double left, double right) {
    if (left < right)
        return -1;
    if (left > right)
        return 1;
    if (isnan(left) || isnan(right))
        return (isnan(left) != 0) - (isnan(right) != 0);
    return (signbit(right) != 0) - (signbit(left) != 0);
}

static int compare_text(struct pymq_slice left, struct pymq_slice right) {
    bool equal = left.size == right.size && memcmp(left.data, right.data, left.size) == 0;
    return equal ? 0 : 1; /* strings are only ever asked whether they are equal */
}

/* Boolean.valueOf. */
static bool boolean_text(struct pymq_slice text) {
    static const char TRUE_TEXT[] = "true";
    if (text.size != sizeof TRUE_TEXT - 1)
        return false;
    for (uint32_t i = 0; i < text.size; i++) {
        if ((text.data[i] | 0x20) != TRUE_TEXT[i])
            return false;
    }
    return true;
}

static double double_of(const struct value *number) {
    return number->kind == KIND_INTEGER ? number->integer
           : number->kind == KIND_LONG  ? (double)number->number
                                        : number->real;
}

static int64_t int64_of(const struct value *number) {
    return number->kind == KIND_INTEGER ? number->integer : number->number;
}

/* Two numbers of any kinds. */
static int compare_numbers(const struct value *left, const struct value *right) {
    if (left->kind == KIND_DOUBLE || right->kind == KIND_DOUBLE)
        return compare_double(double_of(left), double_of(right));
    return compare_int64(int64_of(left), int64_of(right));
}

/* A string against something else, whose class it is converted to. */
static int compare_converted(struct pymq_slice text, const struct value *other) {
    struct value converted = {.kind = other->kind};
    switch (other->kind) {
    case KIND_BOOLEAN:
        return compare_int64(boolean_text(text), other->boolean);
    case KIND_INTEGER:
        return pymq_java_int32(text.data, text.size, &converted.integer) ? compare_numbers(&converted, other) : THROWS;
    case KIND_LONG:
        return pymq_java_int64(text.data, text.size, &converted.number) ? compare_numbers(&converted, other) : THROWS;
    default:
        return pymq_java_double(text.data, text.size, &converted.real) ? compare_numbers(&converted, other) : THROWS;
    }
}

/* __compare of two values that are not NULL. */
static int compare(const struct value *left, const struct value *right) {
    if (left->kind == KIND_STRING && right->kind == KIND_STRING)
        return compare_text(left->text, right->text);
    if (left->kind == KIND_BOOLEAN && right->kind == KIND_BOOLEAN)
        return compare_int64(left->boolean, right->boolean);
    if (left->kind == KIND_BOOLEAN) /* Compat: 5.5.0 casts the Boolean instead of the string */
        return right->kind == KIND_STRING ? THROWS : -1;
    if (left->kind == KIND_STRING)
        return compare_converted(left->text, right);
    if (right->kind == KIND_BOOLEAN)
        return -1;
    if (right->kind == KIND_STRING) {
        int order = compare_converted(right->text, left);
        return order == THROWS ? THROWS : -order;
    }
    return compare_numbers(left, right);
}

static bool holds(uint8_t op, int order) {
    switch (op) {
    case OP_GREATER:
        return order > 0;
    case OP_GREATER_EQUAL:
        return order >= 0;
    case OP_LESS:
        return order < 0;
    case OP_LESS_EQUAL:
        return order <= 0;
    default:
        return order == 0;
    }
}

/* Into `left`; false when it throws. */
static bool evaluate_equal(struct value *left, const struct value *right) {
    bool no_left = left->kind == KIND_NULL, no_right = right->kind == KIND_NULL;
    if (no_left || no_right) { /* Compat: NULL = NULL is TRUE, NULL = x is NULL, x = NULL is FALSE */
        *left = no_left && !no_right ? NULL_VALUE : boolean_of(no_left);
        return true;
    }
    int order = compare(left, right);
    *left = boolean_of(order == 0);
    return order != THROWS;
}

static bool evaluate_order(uint8_t op, struct value *left, const struct value *right) {
    int order;
    if (left->kind == KIND_NULL || right->kind == KIND_NULL) {
        *left = NULL_VALUE;
        return true;
    }
    if (left->kind == KIND_STRING && right->kind == KIND_STRING) {
        double a, b;
        order = pymq_java_double(left->text.data, left->text.size, &a) &&
                        pymq_java_double(right->text.data, right->text.size, &b)
                    ? compare_double(a, b)
                    : THROWS;
    } else {
        order = compare(left, right);
    }
    *left = boolean_of(holds(op, order));
    return order != THROWS;
}

/* ---- other operations ----------------------------------------------------------------------------------------- */

static void negate(struct value *value) {
    switch (value->kind) {
    case KIND_INTEGER:
        value->integer = (int32_t)(0u - (uint32_t)value->integer);
        break;
    case KIND_LONG:
        value->number = (int64_t)(UINT64_C(0) - (uint64_t)value->number);
        break;
    case KIND_DOUBLE:
        value->real = -value->real;
        break;
    default:
        *value = NULL_VALUE;
    }
}

static bool matches(uint8_t op, struct pymq_slice text, struct pymq_slice search) {
    if (search.size > text.size)
        return false;
    switch (op & ~FILTER_NEGATED) {
    case OP_CONTAINS:
        return memmem(text.data, text.size, search.data, search.size) != NULL;
    case OP_STARTSWITH:
        return memcmp(text.data, search.data, search.size) == 0;
    default:
        return memcmp(text.data + text.size - search.size, search.data, search.size) == 0;
    }
}

static struct pymq_slice text_at(const uint8_t *code) {
    return (struct pymq_slice){code + 2, pymq_load_be16(code)};
}

/* CONTAINS and its like, on the value in place. Returns the code behind the operand. */
static const uint8_t *evaluate_match(uint8_t op, struct value *value, const uint8_t *code) {
    struct pymq_slice search = text_at(code);
    bool is_text = value->kind == KIND_STRING && search.size > 0;
    *value = boolean_of(is_text && matches(op, value->text, search) != ((op & FILTER_NEGATED) != 0));
    return search.data + search.size;
}

/* IN on the value in place. Returns the code behind the list. */
static const uint8_t *evaluate_in(uint8_t op, struct value *value, const uint8_t *code) {
    bool found = false;
    uint32_t count = pymq_load_be16(code);
    code += 2;
    for (; count > 0; count--) {
        struct pymq_slice item = text_at(code);
        found = found || (value->kind == KIND_STRING && compare_text(value->text, item) == 0);
        code = item.data + item.size;
    }
    *value = value->kind == KIND_STRING ? boolean_of(found != ((op & FILTER_NEGATED) != 0)) : NULL_VALUE;
    return code;
}

/* AND and OR into `left`: `decides` is what one operand needs to be for the other not to matter. */
static bool evaluate_logic(struct value *left, const struct value *right, bool decides) {
    if (left->kind > KIND_BOOLEAN || right->kind > KIND_BOOLEAN)
        return false;
    if ((left->kind == KIND_BOOLEAN && left->boolean == decides) ||
        (right->kind == KIND_BOOLEAN && right->boolean == decides))
        *left = boolean_of(decides);
    else
        *left = left->kind == KIND_NULL || right->kind == KIND_NULL ? NULL_VALUE : boolean_of(!decides);
    return true;
}

/* ---- a record ------------------------------------------------------------------------------------------------- */

/* The values of the program's names, the last one of a name that stands twice. */
static void find_values(const struct pymq_filter_program *program, const uint8_t *properties, size_t size,
                        struct pymq_slice *values) {
    struct pymq_property property;
    size_t position = 0;
    for (uint32_t i = 0; i < program->name_count; i++)
        values[i] = (struct pymq_slice){NULL, 0};
    while (pymq_properties_next(properties, size, &position, &property)) {
        uint32_t name_size = property.name.size;
        if ((program->name_sizes & UINT64_C(1) << (name_size < NAME_BITS ? name_size : NAME_BITS)) == 0)
            continue;
        for (uint32_t i = 0; i < program->name_count; i++) {
            if (program->names[i].size == name_size &&
                memcmp(program->names[i].data, property.name.data, name_size) == 0)
                values[i] = property.value;
        }
    }
}

static enum pymq_filter_verdict verdict_of(const struct value *value) {
    if (value->kind == KIND_BOOLEAN)
        return value->boolean ? PYMQ_FILTER_TRUE : PYMQ_FILTER_FALSE;
    return value->kind == KIND_NULL ? PYMQ_FILTER_NULL : PYMQ_FILTER_OTHER;
}

static struct value double_at(const uint8_t *code) {
    uint64_t bits = pymq_load_be64(code);
    struct value value = {.kind = KIND_DOUBLE};
    memcpy(&value.real, &bits, sizeof value.real);
    return value;
}

enum pymq_filter_verdict pymq_filter_evaluate(const struct pymq_filter_program *program, const uint8_t *properties,
                                              size_t size) {
    struct pymq_slice values[PYMQ_FILTER_PROPERTIES_MAX];
    struct value stack[PYMQ_FILTER_STACK_MAX + 1];
    struct value *top = stack; /* the lowest is never used */
    const uint8_t *code = program->bytes + program->code_at;
    find_values(program, properties, size, values);
    for (;;) {
        uint8_t op = *code++;
        bool jumps = false;
        switch (op) {
        case OP_NULL:
            *++top = NULL_VALUE;
            break;
        case OP_TRUE:
        case OP_FALSE:
            *++top = boolean_of(op == OP_TRUE);
            break;
        case OP_INTEGER:
            *++top = (struct value){.kind = KIND_INTEGER, .integer = (int32_t)pymq_load_be32(code)};
            code += 4;
            break;
        case OP_LONG:
            *++top = (struct value){.kind = KIND_LONG, .number = (int64_t)pymq_load_be64(code)};
            code += 8;
            break;
        case OP_DOUBLE:
            *++top = double_at(code);
            code += 8;
            break;
        case OP_STRING:
            *++top = (struct value){.kind = KIND_STRING, .text = text_at(code)};
            code = top->text.data + top->text.size;
            break;
        case OP_PROPERTY:
            *++top = (struct value){.kind = values[*code].data != NULL ? KIND_STRING : KIND_NULL,
                                    .text = values[*code]};
            code++;
            break;
        case OP_NEGATE:
            negate(top);
            break;
        case OP_NOT:
            if (top->kind > KIND_BOOLEAN)
                return PYMQ_FILTER_ERROR;
            if (top->kind == KIND_BOOLEAN)
                top->boolean = !top->boolean;
            break;
        case OP_CAST:
            if (top->kind > KIND_BOOLEAN)
                *top = boolean_of(false);
            break;
        case OP_EQUAL:
            top--;
            if (!evaluate_equal(top, top + 1))
                return PYMQ_FILTER_ERROR;
            break;
        case OP_GREATER:
        case OP_GREATER_EQUAL:
        case OP_LESS:
        case OP_LESS_EQUAL:
            top--;
            if (!evaluate_order(op, top, top + 1))
                return PYMQ_FILTER_ERROR;
            break;
        case OP_IN:
        case OP_NOT_IN:
            code = evaluate_in(op, top, code);
            break;
        case OP_AND:
        case OP_OR:
            top--;
            if (!evaluate_logic(top, top + 1, op == OP_OR))
                return PYMQ_FILTER_ERROR;
            break;
        case OP_AND_JUMP:
            jumps = is_false(top);
            code += 2;
            break;
        case OP_OR_JUMP:
            jumps = is_true(top);
            code += 2;
            break;
        case OP_NULL_JUMP:
            jumps = top->kind == KIND_NULL;
            code += 2;
            break;
        case OP_UNLESS_JUMP:
            jumps = !is_true(top--);
            code += 2;
            break;
        case OP_RETURN:
            return verdict_of(top);
        default: /* CONTAINS and its like: verified programs hold nothing else */
            code = evaluate_match(op, top, code);
        }
        if (jumps)
            code = program->bytes + pymq_load_be16(code - 2);
    }
}
