/* A filter expression as a program: compiled by pymq/filter/program.py from SQL92, evaluated here on the properties of
 * a record, with the results of Apache RocketMQ's expression classes.
 *
 * Layout, numbers big-endian:
 *
 *   magic 2 ("SQ") | version 1 (1) | property count 1 | { name size 1, name }… | code to the end
 *
 * The code is for a stack of values, each NULL, Boolean, Integer (32 bits), Long, Double or String. Operands of jumps
 * are positions in the program and lie ahead, so every program ends; where a jump arrives the stack is as deep as
 * where it is reached otherwise.
 *
 *   op  operand                    stack, top on the right
 *   01  NULL                       -> NULL
 *   02  TRUE                       -> TRUE
 *   03  FALSE                      -> FALSE
 *   04  INTEGER  value 4           -> Integer
 *   05  LONG     value 8           -> Long
 *   06  DOUBLE   IEEE 754 bits 8   -> Double, not a NaN
 *   07  STRING   size 2, bytes     -> String (UTF-8)
 *   08  PROPERTY index 1           -> String, or NULL when the record has none of that name
 *   10  NEGATE                     number -> its negative; anything else -> NULL
 *   11  NOT                        Boolean -> its opposite; NULL -> NULL
 *   12  CAST                       NULL -> NULL; anything but a Boolean -> FALSE
 *   20  EQUAL                      left right -> Boolean or NULL
 *   21  GREATER  22 GREATER_EQUAL  23 LESS  24 LESS_EQUAL   left right -> Boolean or NULL
 *   30  CONTAINS  31 NOT_CONTAINS  32 STARTSWITH  33 NOT_STARTSWITH  34 ENDSWITH  35 NOT_ENDSWITH
 *                size 2, bytes     value -> Boolean
 *   38  IN       39 NOT_IN         count 2, { size 2, bytes }…   value -> Boolean or NULL
 *   40  AND      42 OR             left right -> Boolean or NULL
 *   41  AND_JUMP target 2          FALSE stays and jumps, anything else stays
 *   43  OR_JUMP  target 2          TRUE stays and jumps, anything else stays
 *   44  NULL_JUMP target 2         NULL stays and jumps, anything else stays
 *   45  UNLESS_JUMP target 2       value -> nothing; jumps unless it was TRUE
 *   50  RETURN                     value -> the program's result
 *
 * A conversion that Java refuses (a string that is no number compared with a number) ends the program: no match.
 */
#ifndef PYMQ_FILTER_PROGRAM_H
#define PYMQ_FILTER_PROGRAM_H

#include "pymq/properties.h"

#define PYMQ_FILTER_VERSION 1
#define PYMQ_FILTER_SIZE_MAX 65535      /* of a program: jumps have 16 bits */
#define PYMQ_FILTER_PROPERTIES_MAX 128  /* names in one program */
#define PYMQ_FILTER_STACK_MAX 256       /* values */

/* A verified program. It points into the bytes it was made of, which are the caller's and must stay. */
struct pymq_filter_program {
    const uint8_t *bytes;
    uint32_t size;
    uint32_t code_at;
    uint32_t name_count;
    uint64_t name_sizes; /* bit n: a name of n bytes; bit 63: of 63 or more */
    struct pymq_slice names[PYMQ_FILTER_PROPERTIES_MAX];
};

/* Look at every instruction: known, whole, within its bounds, the stack never empty nor too deep, jumps forward to the
 * beginning of an instruction, a RETURN on every way. PYMQ_OK, PYMQ_ECORRUPT when it is no program, PYMQ_ETOOBIG,
 * PYMQ_ENOMEM (it needs some while it looks). */
int pymq_filter_verify(const uint8_t *bytes, size_t size, struct pymq_filter_program *program);

enum pymq_filter_verdict {
    PYMQ_FILTER_FALSE = 0,
    PYMQ_FILTER_TRUE = 1,  /* the one that lets a message through */
    PYMQ_FILTER_NULL = 2,
    PYMQ_FILTER_ERROR = 3, /* Apache's evaluation throws, which it takes for no match */
    PYMQ_FILTER_OTHER = 4, /* a result that is no Boolean: no match */
};

/* What the expression says of a record with these properties (the properties string). Allocates nothing. */
enum pymq_filter_verdict pymq_filter_evaluate(const struct pymq_filter_program *program, const uint8_t *properties,
                                              size_t size);

/* Java's Integer.valueOf, Long.valueOf and Double.valueOf of UTF-8 text; false where they throw. */
bool pymq_java_int32(const uint8_t *text, size_t size, int32_t *value);
bool pymq_java_int64(const uint8_t *text, size_t size, int64_t *value);
bool pymq_java_double(const uint8_t *text, size_t size, double *value);

#endif
